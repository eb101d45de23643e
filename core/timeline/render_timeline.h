#pragma once

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

/// Time of a column such that at most `width` columns are drawn; `least` or more.
Duration fitted_column(const Timeline& timeline, int width, Duration least = Duration{1});

/// Legend of the letters and signs that are drawn: "digits forward, letters backward, '.' idle".
std::string timeline_legend(const Timeline& timeline);

}  // namespace pipetwin
