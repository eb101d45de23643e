// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>

/// Days of the calendar, as options name them.
namespace pipetwin::cli {

/// Today, where this machine is.
std::chrono::year_month_day today();

/// The day that a text names, "2027-03-31". Throws Error(Usage) at `option` for another form, and
/// for a day that no calendar has.
std::chrono::year_month_day read_day(std::string_view text, std::string_view option);

/// "2027-03-31".
std::string day_text(const std::chrono::year_month_day& day);

/// Days from the beginning of `from` to the beginning of `until`; below 0 where that is earlier.
int days_between(const std::chrono::year_month_day& from, const std::chrono::year_month_day& until);

}  // namespace pipetwin::cli
