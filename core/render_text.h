#pragma once

#include <string>

#include "core/plan.h"
#include "core/schedule.h"
#include "core/timeline.h"

namespace pipetwin {

/// The timeline as text, `column` of time per character: digits forward (micro-batch mod 10), letters a..z
/// backward and input gradient, capitals weight gradient, r recompute, '.' idle. One line per rank:
///
///     rank 0  0123r.........ddrccrbbraa
///     rank 1  .0123r......ddrccrbbraa..
///
/// A column shows what ran at its middle. This is the language of the golden tests.
std::string render_timeline(const Timeline& timeline, Duration column);

/// The same scaled to `width` characters.
std::string render_timeline_fitted(const Timeline& timeline, int width);

/// The rows as a table, one cell per action ("1F2"), ranks downwards, at most `max_cells` wide.
std::string render_schedule(const Schedule& schedule, int max_cells = 24);

}  // namespace pipetwin
