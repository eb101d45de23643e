// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/units.h"
#include "core/timeline/timeline.h"

namespace pipetwin {

/// The timeline as text, `column` of time per character: digits forward (micro-batch mod 10),
/// letters a..z backward and input gradient, capitals weight gradient, r recompute, '#' gradient
/// reduction and optimizer, '.' idle. One line per rank:
///
///     rank 0  0123r.........ddrccrbbraa
///     rank 1  .0123r......ddrccrbbraa..
///
/// A column shows what ran at its middle. This is the language of the golden tests.
std::string render_timeline(const Timeline& timeline, Duration column);

/// Time of a column such that at most `width` columns are drawn.
Duration fitted_column(const Timeline& timeline, int width);

/// How a picture of a timeline divides the time.
struct TimelineColumns {
    Duration column{1};  ///< time of one column
    /// The longest time of which the begin and the end of everything that is drawn are multiples,
    /// to a thousandth; null where there is none, or it is a small part of all that is drawn.
    std::optional<Duration> unit{};
    std::int64_t units = 0;  ///< number of them in the timeline; 0 without a unit

    /// True if each column is one unit, so that equal times have equal numbers of columns.
    bool are_units() const { return unit == column; }
};

/// Columns of one unit where the timeline has a unit and at most `width` of it, else as many equal
/// columns as fit.
TimelineColumns timeline_columns(const Timeline& timeline, int width);

/// Legend of the letters and signs that are drawn: "digits forward, letters backward, '.' idle".
std::string timeline_legend(const Timeline& timeline);

}  // namespace pipetwin
