// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/artifacts/model_flops.h"
#include "core/base/units.h"
#include "core/schedule/action.h"

/// Parts that sentences about a step are put together from.
namespace pipetwin::cli {

/// Writes times in one unit and with as many decimals as the length of the step deserves.
class Times {
  public:
    explicit Times(Duration step);

    /// A time without the unit; with two digits that count, where the number is small.
    std::string number(Duration time) const;
    /// A time with the unit: "3.0 ms".
    std::string operator()(Duration time) const;
    /// True if a time is more than what would be written as 0.
    bool shows(Duration time) const;
    /// True if two times differ by more than what would be written as 0.
    bool differ(Duration a, Duration b) const { return shows(a > b ? a - b : b - a); }

    /// Parts that sum to `whole`, rounded to what is shown of it so that they still do: the parts
    /// with the largest rests are rounded up, of equal rests the largest part.
    std::vector<Duration> parts_of(Duration whole, std::vector<Duration> parts) const;

  private:
    int decimals_of(Duration time) const;

    std::string_view unit_ = "ms";
    double per_ms_ = 1;
    int decimals_ = 1;
};

/// `part` as a share of `whole`; 0 of nothing.
double share(Duration part, Duration whole);

/// "70.6 billion", as papers print the number of parameters.
std::string large_count(std::int64_t count);

/// "1F0", or "1F0, 2F0 and 2B0"; of many the first and the last ones.
std::string list_of(std::vector<std::string> items);

/// What a utilisation is called, and what it counts.
struct UtilisationWords {
    std::string_view name;
    std::string_view counted;
};
UtilisationWords utilisation_words(FlopsCount count);

/// A heading, and sentences or lines below it.
struct Paragraph {
    std::string_view heading;
    std::vector<std::string> lines;
};

/// Paragraphs as text: lines broken at `width` and indented.
std::string paragraph_text(const Paragraph& paragraph, int width);

}  // namespace pipetwin::cli
