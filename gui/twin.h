#pragma once

#include <optional>
#include <vector>

#include "core/timeline.h"

namespace pipetwin::gui {

enum class Side { Predicted, Measured };

/// Which sides are on the screen.
enum class Sides { Both, Predicted, Measured };

Side other(Side side);
bool shows(Sides sides, Side side);

/// Both, predicted, measured, both, ...
Sides next(Sides sides);

/// One span of one timeline. Since both timelines follow the plan's rows, the same rank and cell on
/// the other side is the same action: its twin.
struct SpanRef {
    Side side{};
    int rank = 0;
    int cell = 0;

    bool operator==(const SpanRef&) const = default;
};

/// The two timelines of one plan. A side may be missing: a single trace has only one.
struct Twin {
    std::optional<Timeline> predicted;
    std::optional<Timeline> measured;

    /// Null where the side is missing.
    const Timeline* timeline(Side side) const;

    /// Null where the side, the rank or the cell is missing.
    const std::vector<Span>* row(Side side, int rank) const;
    const Span* span(const SpanRef& ref) const;

    /// Of the side that has more; 0 without any.
    int rank_count() const;

    /// From the start of the step to the last end of either side.
    Duration length() const;
};

// Where a selection can go. All answer nothing instead of an invalid reference.

/// The next (`direction` +1) or previous (-1) action of the row that takes time; nothing at the
/// row's end. What takes none, like an asynchronous send, has no rectangle and is passed over.
std::optional<SpanRef> next_in_row(const Twin& twin, const SpanRef& from, int direction);

/// The same action on the other side.
std::optional<SpanRef> twin_of(const Twin& twin, const SpanRef& of);

/// The action nearest in time on the next row down (+1) or up (-1) among the sides shown.
std::optional<SpanRef> in_next_row(const Twin& twin,
                                   Sides sides,
                                   const SpanRef& from,
                                   int direction);

/// The first action that takes time on a side that is shown.
std::optional<SpanRef> first_action(const Twin& twin, Sides sides);

/// The other end of a message: of a receive its send, of a send its receive. Nothing for other
/// actions.
std::optional<SpanRef> partner_of(const Twin& twin, const SpanRef& of);

}  // namespace pipetwin::gui
