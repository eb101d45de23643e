// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/op_rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/ascii.h"
#include "gui/view/analysis/step_analysis.h"

namespace pipetwin::gui {

OpRows::OpRows(std::shared_ptr<const RunData> run)
    : run_(std::move(run)),
      side_(run_->measured ? Side::Measured : Side::Predicted),
      ranks_(run_->twin.rank_count()) {
    starts_.push_back(0);
    for (int step = 0; step < run_->twin.step_count(); ++step) {
        for (int rank = 0; rank < ranks_; ++rank) {
            const RowIndex* const row = run_->twin.row(side_, step, rank);
            starts_.push_back(starts_.back() + (row == nullptr ? 0 : row->size()));
        }
    }
}

SpanRef OpRows::ref(int row) const {
    const auto after = std::ranges::upper_bound(starts_, row);
    const auto place = static_cast<int>(after - starts_.begin()) - 1;
    return {.side = side_,
            .step = place / ranks_,
            .rank = place % ranks_,
            .cell = row - starts_[as_index(place)]};
}

std::optional<int> OpRows::row_of(const SpanRef& ref) const {
    const auto at = run_ == nullptr ? std::nullopt : on(side_, ref);
    if (!at || !run_->twin.span(*at)) {
        return std::nullopt;
    }
    return starts_[as_index(at->step * ranks_ + at->rank)] + at->cell;
}

std::vector<std::pair<int, int>> OpRows::runs_in(const RangeFilter* filter) const {
    if (filter == nullptr) {
        return {{0, size()}};
    }
    std::vector<std::pair<int, int>> runs;
    for (int place = 0; place + 1 < static_cast<int>(starts_.size()); ++place) {
        const SpanRef of_row{
            .side = side_, .step = place / ranks_, .rank = place % ranks_, .cell = 0};
        const RowIndex* const row = run_->twin.row(of_row);
        const auto [first, last] = row == nullptr ? std::pair(0, 0) : filter->cells(*row, of_row);
        if (last > first) {
            runs.emplace_back(starts_[as_index(place)] + first, starts_[as_index(place)] + last);
        }
    }
    return runs;
}

Action OpRows::action(int row) const {
    const SpanRef at = ref(row);
    return run_->twin.row(at)->action(at.cell);
}

std::optional<SpanRef> OpRows::on(Side side, const SpanRef& ref) const {
    return ref.side == side ? ref : twin_of(run_->twin, ref);
}

namespace {

/// The row that has the cell, or null.
const RowIndex* row_with(const RunData& run, const std::optional<SpanRef>& ref) {
    const RowIndex* const row = ref ? run.twin.row(*ref) : nullptr;
    return row != nullptr && ref->cell < row->size() ? row : nullptr;
}

double begin_of(const RunData& run, const std::optional<SpanRef>& ref) {
    const RowIndex* const row = row_with(run, ref);
    return row == nullptr ? no_number : static_cast<double>(row->begin(ref->cell).count());
}

std::optional<Duration> duration_of(const RunData& run, const std::optional<SpanRef>& ref) {
    return row_with(run, ref) == nullptr ? std::nullopt : std::optional(compared_length(run, *ref));
}

double number_of(const std::optional<Duration>& time) {
    return time ? static_cast<double>(time->count()) : no_number;
}

double wait_of(const RunData& run, const std::optional<SpanRef>& ref) {
    const RowIndex* const row = row_with(run, ref);
    return row == nullptr ? no_number : static_cast<double>(wait_before(*row, ref->cell).count());
}

double error_of(const RunData& run,
                const std::optional<SpanRef>& predicted,
                const std::optional<SpanRef>& measured) {
    const auto p = duration_of(run, predicted);
    const auto m = duration_of(run, measured);
    const double error = p && m ? Pair{.predicted = *p, .measured = *m}.error_percent() : no_number;
    return std::isfinite(error) ? error : no_number;
}

}  // namespace

double OpRows::number(int row, OpColumn column) const {
    const SpanRef at = ref(row);
    const std::optional<SpanRef> predicted = on(Side::Predicted, at);
    const std::optional<SpanRef> measured = on(Side::Measured, at);
    switch (column) {
        case OpColumn::Step:
            return run_->step_number(at.step);
        case OpColumn::Rank:
            return at.rank;
        case OpColumn::Stage:
            return action(row).stage;
        case OpColumn::Action: {
            const Action what = action(row);
            return (static_cast<double>(what.op) * 1e6 + what.stage) * 1e7 + what.micro_batch;
        }
        case OpColumn::MicroBatch: {
            const Action what = action(row);
            return has_micro_batch(what.op) ? what.micro_batch : no_number;
        }
        case OpColumn::PredictedBegin:
            return begin_of(*run_, predicted);
        case OpColumn::MeasuredBegin:
            return begin_of(*run_, measured);
        case OpColumn::PredictedDuration:
            return number_of(duration_of(*run_, predicted));
        case OpColumn::MeasuredDuration:
            return number_of(duration_of(*run_, measured));
        case OpColumn::Error:
            return is_message(action(row).op) ? no_number : error_of(*run_, predicted, measured);
        case OpColumn::PredictedWait:
            return wait_of(*run_, predicted);
        case OpColumn::MeasuredWait:
            return wait_of(*run_, measured);
        case OpColumn::Critical:
            break;
    }
    return critical_ == nullptr ? no_number : critical_->of_row[as_index(row)];
}

OpRows::CriticalCells OpRows::find_critical() const {
    CriticalCells cells{.of_row = std::vector<std::uint8_t>(as_index(size()), 0)};
    for (int step = 0; run_ != nullptr && step < run_->twin.step_count(); ++step) {
        for (const Side side : {Side::Predicted, Side::Measured}) {
            const auto analysis = analysis_of(run_, side, step);
            if (analysis == nullptr) {
                continue;
            }
            for (const PathPiece& piece : analysis->critical_path()) {
                SpanRef at = piece.ref;
                at.step = step;
                if (const auto row = row_of(at)) {
                    cells.of_row[as_index(*row)] |= side == Side::Predicted ? 1U : 2U;
                }
            }
        }
    }
    return cells;
}

bool OpFilter::matches(const OpRows& rows, int row) const {
    const SpanRef ref = rows.ref(row);
    if (step && rows.run().step_number(ref.step) != *step) {
        return false;
    }
    for (const SearchQuery& query : queries) {
        if (!query.matches(rows.action(row), ref.rank)) {
            return false;
        }
    }
    for (const Limit& limit : limits) {
        const double number = rows.number(row, limit.column);
        const double value = limit.with_sign ? number : std::abs(number);
        if (limit.above ? !(value > limit.value) : !(value < limit.value)) {
            return false;
        }
    }
    return !critical || rows.number(row, OpColumn::Critical) > 0;
}

namespace {

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ') {
        text.remove_prefix(1);
    }
    while (!text.empty() && text.back() == ' ') {
        text.remove_suffix(1);
    }
    return text;
}

/// Commas and the word "and" divide.
std::vector<std::string> conditions_of(std::string_view text) {
    std::string lower;
    for (const char c : text) {
        lower += c == ',' ? std::string(" and ") : std::string(1, ascii::lower(c));
    }
    lower = " " + lower + " ";
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= lower.size();) {
        const std::size_t end = std::min(lower.find(" and ", begin), lower.size());
        const std::string_view part = trimmed(std::string_view(lower).substr(begin, end - begin));
        if (!part.empty()) {
            parts.emplace_back(part);
        }
        // The space behind belongs to the next one, too.
        begin = end == lower.size() ? end + 1 : end + 4;
    }
    return parts;
}

template <class Number>
bool read_number(std::string_view text, Number& number) {
    text = trimmed(text);
    if (!text.empty() && text.front() == '+') {
        text.remove_prefix(1);
    }
    const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string_view unit =
        trimmed({rest, static_cast<std::size_t>(text.data() + text.size() - rest)});
    return failed == std::errc{} && (unit.empty() || unit == "%" || unit == "ms");
}

/// "error > 5". Times are in milliseconds.
std::optional<OpFilter::Limit> limit_of(std::string_view text) {
    const std::size_t sign = text.find_first_of("<>");
    if (sign == std::string_view::npos) {
        return std::nullopt;
    }
    OpFilter::Limit limit{.above = text[sign] == '>'};
    const std::string_view name = trimmed(text.substr(0, sign));
    const std::string_view value = trimmed(text.substr(sign + 1));
    if (!read_number(value, limit.value) || !std::isfinite(limit.value)) {
        return std::nullopt;
    }
    if (name == "error") {
        limit.column = OpColumn::Error;
        limit.with_sign = value.front() == '+' || value.front() == '-';
        return limit;
    }
    if (name != "wait" && name != "duration" && name != "begin") {
        return std::nullopt;
    }
    limit.column = name == "wait"       ? OpColumn::MeasuredWait
                   : name == "duration" ? OpColumn::MeasuredDuration
                                        : OpColumn::MeasuredBegin;
    limit.value *= 1e6;
    return limit;
}

bool add_condition(OpFilter& filter, const std::string& text) {
    if (const auto limit = limit_of(text)) {
        filter.limits.push_back(*limit);
        return true;
    }
    if (text == "critical") {
        filter.critical = true;
        return true;
    }
    constexpr std::string_view step = "step ";
    int number = 0;
    if (text.starts_with(step) && read_number(std::string_view(text).substr(step.size()), number)) {
        filter.step = number;
        return true;
    }
    if (const auto query = parse_query(text)) {
        filter.queries.push_back(*query);
        return true;
    }
    return false;
}

/// Returns the filter with its numbers on the only side, where a run has one side.
OpFilter for_sides_of(OpFilter filter, const OpRows& rows) {
    for (OpFilter::Limit& limit : filter.limits) {
        if (rows.size() == 0 || rows.run().measured) {
            break;
        }
        limit.column = limit.column == OpColumn::MeasuredWait       ? OpColumn::PredictedWait
                       : limit.column == OpColumn::MeasuredDuration ? OpColumn::PredictedDuration
                       : limit.column == OpColumn::MeasuredBegin    ? OpColumn::PredictedBegin
                                                                    : limit.column;
    }
    return filter;
}

}  // namespace

std::optional<OpFilter> parse_filter(std::string_view text) {
    OpFilter filter;
    for (const std::string& condition : conditions_of(text)) {
        if (!add_condition(filter, condition)) {
            return std::nullopt;
        }
    }
    return filter;
}

std::vector<int> ordered_rows(const OpRows& rows,
                              const OpFilter& filter,
                              OpColumn column,
                              bool descending) {
    struct Keyed {
        double key = 0;
        int row = 0;
    };
    const OpFilter for_rows = for_sides_of(filter, rows);
    std::vector<Keyed> keyed;
    for (const auto& [first, end] : rows.runs_in(filter.range.get())) {
        for (int row = first; row < end; ++row) {
            if (for_rows.matches(rows, row)) {
                const double number = rows.number(row, column);
                const double last = std::numeric_limits<double>::infinity();
                keyed.push_back({.key = std::isnan(number) ? last : (descending ? -number : number),
                                 .row = row});
            }
        }
    }
    std::ranges::stable_sort(keyed, {}, &Keyed::key);
    std::vector<int> order(keyed.size());
    std::ranges::transform(keyed, order.begin(), &Keyed::row);
    return order;
}

}  // namespace pipetwin::gui
