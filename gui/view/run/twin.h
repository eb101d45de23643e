// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/timeline/timeline.h"
#include "gui/view/run/row_index.h"

namespace pipetwin::gui {

/// The two sides of a run.
enum class Side { Predicted, Measured };

/// The other side.
Side other(Side side);

/// Content of the rows on the screen, of a run with both sides. A run with one side shows that in
/// every mode.
enum class Mode {
    Both,
    Predicted,
    Measured,
    Error,  ///< only how far off the predictions were
    Ghost   ///< the measured rows, with the outlines of the predicted actions over them
};

/// True if a mode shows rows of the side.
bool shows(Mode mode, Side side);

/// The side of the first row.
Side main_side(Mode mode);

/// The next mode in the order of the enumeration, and from the last to the first.
Mode next(Mode mode);

/// One span of one timeline. The same action on the other side is its twin: of timelines that
/// follow the same plan the one in the same step, rank and cell.
struct SpanRef {
    Side side{};
    int step = 0;
    int rank = 0;
    int cell = 0;

    bool operator==(const SpanRef&) const = default;
};

/// A row on the screen.
struct RowPlace {
    Side side{};
    int rank = 0;

    bool operator==(const RowPlace&) const = default;
};

/// The timeline of one step, as it is drawn. The first begin is 0.
struct StepRows {
    Origin origin{};
    std::vector<RowIndex> ranks;
    std::vector<std::vector<Span>> links;            ///< as in Timeline; their spans may overlap
    std::vector<std::vector<Span>> host_copies;      ///< as in Timeline; their spans may overlap
    std::vector<std::vector<Duration>> in_groups{};  ///< as in Timeline
    Duration length{};                               ///< step time
    Duration pipeline{};                             ///< pipeline time

    StepRows() = default;
    explicit StepRows(const Timeline& timeline);

    /// The step of these rows with predicted times.
    StepRows(const std::vector<std::vector<Action>>& rows, StepTimes times);

    /// The step of rows that other steps share, with predicted times.
    StepRows(const std::vector<std::shared_ptr<const RowActions>>& rows, StepTimes times);

    /// The timeline that it was made from, moved to 0.
    Timeline timeline() const;

  private:
    void begin_at(Duration zero);
};

/// The timelines of one plan: of the predicted side one step, which stands for every step, or none;
/// of the measured side any number. Timelines of different plans, or of which one was cut short,
/// have rows that differ.
struct Twin {
    /// Matching of two rows with different actions, or in another order, or of a row that the other
    /// side does not have: for each cell the cell of the other side that has the same action; -1
    /// where none has.
    struct RowPair {
        std::vector<int> of_predicted;
        std::vector<int> of_measured;

        const std::vector<int>& of(Side side) const {
            return side == Side::Predicted ? of_predicted : of_measured;
        }
    };

    std::vector<StepRows> predicted;
    std::vector<StepRows> measured;
    std::map<std::pair<int, int>, RowPair> apart{};  ///< by step and rank

    /// Finds the rows that differ, and matches their actions. Call it when both sides are there.
    /// O(actions).
    void match();

    /// The matching of a rank's rows; null where both have the same actions.
    const RowPair* pair(int step, int rank) const;

    /// True if the side has a step.
    bool has(Side side) const;

    /// Steps on the time axis: the measured ones, or the predicted one; 0 without any.
    int step_count() const;

    /// The rows of a step of a side; null where the side or the step is missing.
    const StepRows* step(Side side, int step) const;

    /// The row of a rank; null where the side, the step or the rank is missing.
    const RowIndex* row(Side side, int step, int rank) const;
    const RowIndex* row(const SpanRef& ref) const { return row(ref.side, ref.step, ref.rank); }

    /// The span; none where the side, the step, the rank or the cell is missing.
    std::optional<Span> span(const SpanRef& ref) const;

    /// Number of ranks of the side that has more; 0 without any.
    int rank_count() const;

    /// Length of a step: that of its longer side.
    Duration length(int step) const;
};

/// The side that records when messages pass over links: measured, else predicted; none where
/// neither does.
std::optional<Side> linked_side(const Twin& twin);

/// The rows on the screen, rank by rank.
std::vector<RowPlace> shown_rows(const Twin& twin, Mode mode);

// Where a selection can go. All answer nothing instead of an invalid reference.

/// The next (`direction` +1) or previous (-1) action of the row that takes time, in the next or
/// previous step where this one has no more; nothing at the end of the run. What takes none, like
/// an asynchronous send, has no rectangle and is passed over.
std::optional<SpanRef> next_in_row(const Twin& twin, const SpanRef& from, int direction);

/// Compute actions that take time and have no twin, though the other side has their rank.
std::vector<SpanRef> alone(const Twin& twin, int step);

/// The twin of an action: the same action on the other side; none where there is none.
std::optional<SpanRef> twin_of(const Twin& twin, const SpanRef& of);

/// The action nearest in time on the next row down (+1) or up (-1) among the sides shown.
std::optional<SpanRef> in_next_row(const Twin& twin, Mode mode, const SpanRef& from, int direction);

/// The first action of a step that takes time on a side that is shown.
std::optional<SpanRef> first_action(const Twin& twin, Mode mode, int step);

/// The other end of a message: of a receive its send, of a send its receive. None for other
/// actions.
std::optional<SpanRef> partner_of(const Twin& twin, const SpanRef& of);

}  // namespace pipetwin::gui
