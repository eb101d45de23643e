// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "gui/view/run/run_data.h"
#include "gui/view/timeline/range_filter.h"
#include "gui/view/timeline/search.h"

/// The actions of all steps as the rows of a table.
namespace pipetwin::gui {

/// Columns of the table of actions.
enum class OpColumn {
    Step,
    Rank,
    Stage,
    Action,
    MicroBatch,
    PredictedBegin,
    MeasuredBegin,
    PredictedDuration,
    MeasuredDuration,
    Error,
    PredictedWait,
    MeasuredWait,
    Critical
};
/// Number of values of `OpColumn`.
constexpr int op_column_count = 13;

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

/// The rows of the table: those of each step and rank one after the other; nothing is copied,
/// numbers are looked up. Waits are those of StepAnalysis, durations are without them.
class OpRows {
  public:
    OpRows() = default;
    explicit OpRows(std::shared_ptr<const RunData> run);

    int size() const { return starts_.empty() ? 0 : starts_.back(); }
    const RunData& run() const { return *run_; }

    /// The action of a row, on the measured side where there is one.
    SpanRef ref(int row) const;
    /// The row of a span of either side; none where there is no such row.
    std::optional<int> row_of(const SpanRef& ref) const;
    Action action(int row) const;

    /// The rows that a filter leaves, in runs from the first up to the second. O(steps x ranks).
    std::vector<std::pair<int, int>> runs_in(const RangeFilter* filter) const;

    /// Number by which a column is sorted and filtered: nanoseconds, percent, numbers; `no_number`
    /// where the side or the micro-batch is missing; a message has no error. The critical path of
    /// both sides is 3, of the measured one 2, of the predicted one 1.
    double number(int row, OpColumn column) const;

    /// The actions on the longest chains of all steps, for the last column.
    struct CriticalCells {
        std::vector<std::uint8_t> of_row;
    };
    /// Finds the longest chains of all steps. O(actions of all steps).
    CriticalCells find_critical() const;
    /// Sets the actions on the longest chains, for the last column.
    void set_critical(std::shared_ptr<const CriticalCells> critical) {
        critical_ = std::move(critical);
    }

  private:
    std::optional<SpanRef> on(Side side, const SpanRef& ref) const;

    std::shared_ptr<const RunData> run_;
    Side side_{};
    int ranks_ = 0;
    std::vector<int> starts_;  ///< [step * ranks + rank]: its first row; and the end
    std::shared_ptr<const CriticalCells> critical_;
};

/// A filter of rows. Every condition has to hold; they are divided by commas or "and".
///
///     1B2, F, rank 1     as in the search for actions
///     step 3             of that step
///     error > 5          off by more than 5 %; with a sign (error < -5) on that side of 0
///     wait > 0.2         longer than 0.2 ms on the measured side, else the predicted one
///     duration < 3       likewise
///     critical           on the longest chain of either side
struct OpFilter {
    struct Limit {
        OpColumn column{};
        bool above = false;
        bool with_sign = true;
        double value = 0;
    };
    std::vector<SearchQuery> queries{};
    std::vector<Limit> limits{};
    std::optional<int> step{};
    bool critical = false;
    RangeFilterPointer range{};  ///< null: all times and ranks

    /// True if the filter lets the row through.
    bool matches(const OpRows& rows, int row) const;
};

/// Reads a filter; none for what is no filter. The empty text is one that lets everything through.
std::optional<OpFilter> parse_filter(std::string_view text);

/// Row numbers that the filter lets through, in the order of a column, those without a number last,
/// equal ones as they stand.
std::vector<int> ordered_rows(const OpRows& rows,
                              const OpFilter& filter,
                              OpColumn column,
                              bool descending);

}  // namespace pipetwin::gui
