// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/twin.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/edge.h"

namespace pipetwin::gui {

namespace {

void subtract(Duration zero, std::vector<std::vector<Span>>& rows) {
    if (zero == Duration{0}) {
        return;
    }
    for (auto& row : rows) {
        for (Span& span : row) {
            span.begin -= zero;
            span.ready -= zero;
            span.end -= zero;
        }
    }
}

/// Time by which `time` lies outside the span; zero inside.
Duration distance(const RowIndex& row, int cell, Duration time) {
    return std::max({Duration{0}, row.begin(cell) - time, time - row.end(cell)});
}

/// The nearest in time that takes some.
std::optional<int> nearest_cell(const RowIndex& row, Duration time) {
    const int after = row.first_ending_after(time);
    std::optional<int> nearest;
    const auto look = [&](int cell, int direction) {
        while (cell >= 0 && cell < row.size() && !row.takes_time(cell)) {
            cell += direction;
        }
        const bool there = cell >= 0 && cell < row.size();
        if (there && (!nearest || distance(row, cell, time) < distance(row, *nearest, time))) {
            nearest = cell;
        }
    };
    look(after - 1, -1);
    look(after, +1);
    return nearest;
}

std::optional<SpanRef> nearest_in_row(const Twin& twin,
                                      const RowPlace& place,
                                      int step,
                                      Duration time) {
    const RowIndex* const row = twin.row(place.side, step, place.rank);
    const std::optional<int> cell = row == nullptr ? std::nullopt : nearest_cell(*row, time);
    if (!cell) {
        return std::nullopt;
    }
    return SpanRef{.side = place.side, .step = step, .rank = place.rank, .cell = *cell};
}

}  // namespace

Side other(Side side) {
    return side == Side::Predicted ? Side::Measured : Side::Predicted;
}

bool shows(Mode mode, Side side) {
    switch (mode) {
        case Mode::Both:
            return true;
        case Mode::Predicted:
            return side == Side::Predicted;
        case Mode::Measured:
        case Mode::Ghost:
            return side == Side::Measured;
        case Mode::Error:
            break;
    }
    return false;
}

Side main_side(Mode mode) {
    return mode == Mode::Both || mode == Mode::Predicted ? Side::Predicted : Side::Measured;
}

Mode next(Mode mode) {
    return mode == Mode::Ghost ? Mode::Both : static_cast<Mode>(static_cast<int>(mode) + 1);
}

StepRows::StepRows(const Timeline& timeline)
    : origin(timeline.origin),
      links(timeline.links),
      host_copies(timeline.host_copies),
      in_groups(timeline.in_groups) {
    Duration zero = Duration::max();
    for (const std::vector<Span>& row : timeline.ranks) {
        zero = row.empty() ? zero : std::min(zero, row.front().begin);
    }
    ranks.reserve(timeline.ranks.size());
    for (const std::vector<Span>& row : timeline.ranks) {
        ranks.emplace_back(row, zero);
    }
    begin_at(zero);
}

namespace {

std::vector<std::shared_ptr<const RowActions>> actions_of(
    const std::vector<std::vector<Action>>& rows) {
    std::vector<std::shared_ptr<const RowActions>> actions;
    actions.reserve(rows.size());
    for (const std::vector<Action>& row : rows) {
        actions.push_back(std::make_shared<const RowActions>(row));
    }
    return actions;
}

}  // namespace

StepRows::StepRows(const std::vector<std::vector<Action>>& rows, StepTimes times)
    : StepRows(actions_of(rows), std::move(times)) {}

StepRows::StepRows(const std::vector<std::shared_ptr<const RowActions>>& rows, StepTimes times)
    : origin(Origin::Predicted),
      links(std::move(times.links)),
      host_copies(std::move(times.host_copies)) {
    PIPETWIN_EXPECT(rows.size() == times.ranks.size(), "times of all rows");
    Duration zero = Duration::max();
    for (const SpanTimes& row : times.ranks) {
        zero = row.empty() ? zero : std::min(zero, row.begin(0));
    }
    ranks.reserve(rows.size());
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        times.ranks[rank].subtract(zero);
        ranks.emplace_back(rows[rank], std::move(times.ranks[rank]));
    }
    begin_at(zero);
}

/// Subtracts `zero` from links and copies, as it was subtracted from the ranks' rows, and finds the
/// lengths. Spans of a row follow each other, so the first and the last tell how far it goes.
void StepRows::begin_at(Duration zero) {
    subtract(zero, links);
    subtract(zero, host_copies);
    Duration first = Duration::max();
    Duration last{0};
    for (const RowIndex& row : ranks) {
        length = std::max(length, row.last_end());
        int from = 0;
        while (from < row.size() && !has_micro_batch(row.op(from))) {
            ++from;
        }
        int to = row.size() - 1;
        while (to > from && !has_micro_batch(row.op(to))) {
            --to;
        }
        if (from < row.size()) {
            first = std::min(first, row.begin(from));
            last = std::max(last, row.end(to));
        }
    }
    pipeline = first > last ? Duration{0} : last - first;
}

Timeline StepRows::timeline() const {
    Timeline timeline{.origin = origin,
                      .ranks = {},
                      .links = links,
                      .host_copies = host_copies,
                      .in_groups = in_groups,
                      .replicas = {}};
    timeline.ranks.reserve(ranks.size());
    for (const RowIndex& row : ranks) {
        timeline.ranks.push_back(row.spans());
    }
    return timeline;
}

std::optional<Side> linked_side(const Twin& twin) {
    for (const Side side : {Side::Measured, Side::Predicted}) {
        const StepRows* const rows = twin.step(side, 0);
        if (rows != nullptr && !rows->links.empty()) {
            return side;
        }
    }
    return std::nullopt;
}

bool Twin::has(Side side) const {
    return !(side == Side::Predicted ? predicted : measured).empty();
}

int Twin::step_count() const {
    return static_cast<int>(std::max(predicted.size(), measured.size()));
}

const StepRows* Twin::step(Side side, int step) const {
    const std::vector<StepRows>& steps = side == Side::Predicted ? predicted : measured;
    if (step < 0 || step >= step_count() || steps.empty()) {
        return nullptr;
    }
    if (side == Side::Predicted && steps.size() == 1) {
        return &steps.front();
    }
    const std::size_t wanted = as_index(step);
    return wanted < steps.size() ? &steps[wanted] : nullptr;
}

const RowIndex* Twin::row(Side side, int step_number, int rank) const {
    const StepRows* const wanted = step(side, step_number);
    if (wanted == nullptr || rank < 0 || std::cmp_greater_equal(rank, wanted->ranks.size())) {
        return nullptr;
    }
    return &wanted->ranks[as_index(rank)];
}

std::optional<Span> Twin::span(const SpanRef& ref) const {
    const RowIndex* const spans = row(ref);
    if (spans == nullptr || ref.cell < 0 || ref.cell >= spans->size()) {
        return std::nullopt;
    }
    return (*spans)[ref.cell];
}

int Twin::rank_count() const {
    std::size_t count = 0;
    for (const Side side : {Side::Predicted, Side::Measured}) {
        if (const StepRows* const first = step(side, 0)) {
            count = std::max(count, first->ranks.size());
        }
    }
    return static_cast<int>(count);
}

Duration Twin::length(int step_number) const {
    Duration longest{0};
    for (const Side side : {Side::Predicted, Side::Measured}) {
        if (const StepRows* const rows = step(side, step_number)) {
            longest = std::max(longest, rows->length);
        }
    }
    return longest;
}

std::vector<RowPlace> shown_rows(const Twin& twin, Mode mode) {
    std::vector<RowPlace> rows;
    for (int rank = 0; rank < twin.rank_count(); ++rank) {
        for (const Side side : {Side::Predicted, Side::Measured}) {
            if (shows(mode, side) && twin.row(side, 0, rank) != nullptr) {
                rows.push_back({.side = side, .rank = rank});
            }
        }
    }
    return rows;
}

std::optional<SpanRef> next_in_row(const Twin& twin, const SpanRef& from, int direction) {
    SpanRef at = from;
    at.cell += direction;
    while (const RowIndex* const row = twin.row(at)) {
        for (; at.cell >= 0 && at.cell < row->size(); at.cell += direction) {
            if (row->takes_time(at.cell)) {
                return at;
            }
        }
        at.step += direction;
        const RowIndex* const beyond = twin.row(at);
        at.cell = direction > 0 || beyond == nullptr ? 0 : beyond->size() - 1;
    }
    return std::nullopt;
}

namespace {

/// For each cell of a row the one of another that has the same action; -1 where none has.
std::vector<int> same_in(const RowIndex& other, const RowIndex& row) {
    const auto key = [](const Action& action) {
        return std::tuple(action.op, action.stage, action.micro_batch, action.hop);
    };
    std::map<decltype(key(Action{})), int> places;
    for (int cell = 0; cell < other.size(); ++cell) {
        places.emplace(key(other.action(cell)), cell);
    }
    std::vector<int> found;
    found.reserve(as_index(row.size()));
    for (int cell = 0; cell < row.size(); ++cell) {
        const auto place = places.find(key(row.action(cell)));
        found.push_back(place == places.end() ? -1 : place->second);
    }
    return found;
}

/// The matching of a rank that the other side does not have: -1 for each cell.
std::vector<int> none_in(const RowIndex* row) {
    return std::vector<int>(row == nullptr ? 0 : static_cast<std::size_t>(row->size()), -1);
}

}  // namespace

void Twin::match() {
    apart.clear();
    for (int step_number = 0; step_number < step_count(); ++step_number) {
        const bool both = step(Side::Predicted, step_number) != nullptr &&
                          step(Side::Measured, step_number) != nullptr;
        for (int rank = 0; rank < rank_count(); ++rank) {
            const RowIndex* const here = row(Side::Predicted, step_number, rank);
            const RowIndex* const there = row(Side::Measured, step_number, rank);
            if (here != nullptr && there != nullptr && !here->same_actions(*there)) {
                apart[{step_number, rank}] = {.of_predicted = same_in(*there, *here),
                                              .of_measured = same_in(*here, *there)};
            } else if (both && (here == nullptr) != (there == nullptr)) {
                apart[{step_number, rank}] = {.of_predicted = none_in(here),
                                              .of_measured = none_in(there)};
            }
        }
    }
}

const Twin::RowPair* Twin::pair(int step_number, int rank) const {
    const auto found = apart.find({step_number, rank});
    return found == apart.end() ? nullptr : &found->second;
}

std::vector<SpanRef> alone(const Twin& twin, int step) {
    std::vector<SpanRef> result;
    const auto end = twin.apart.lower_bound({step + 1, 0});
    for (auto at = twin.apart.lower_bound({step, 0}); at != end; ++at) {
        for (const Side side : {Side::Predicted, Side::Measured}) {
            SpanRef ref{.side = side, .step = step, .rank = at->first.second};
            const RowIndex* const row = twin.row(ref);
            const std::vector<int>& twins = at->second.of(side);
            for (; row != nullptr && ref.cell < row->size(); ++ref.cell) {
                if (twins[as_index(ref.cell)] < 0 && is_compute(row->op(ref.cell)) &&
                    row->takes_time(ref.cell)) {
                    result.push_back(ref);
                }
            }
        }
    }
    return result;
}

std::optional<SpanRef> twin_of(const Twin& twin, const SpanRef& of) {
    const RowIndex* const here = twin.row(of);
    SpanRef there = of;
    there.side = other(of.side);
    const RowIndex* const row = twin.row(there);
    if (here == nullptr || row == nullptr || of.cell < 0 || of.cell >= here->size()) {
        return std::nullopt;
    }
    if (const Twin::RowPair* const pair = twin.pair(of.step, of.rank)) {
        there.cell = pair->of(of.side)[as_index(of.cell)];
        return there.cell < 0 ? std::nullopt : std::optional(there);
    }
    if (of.cell >= row->size() || row->action(of.cell) != here->action(of.cell)) {
        return std::nullopt;
    }
    return there;
}

std::optional<SpanRef> in_next_row(const Twin& twin,
                                   Mode mode,
                                   const SpanRef& from,
                                   int direction) {
    const std::optional<Span> here = twin.span(from);
    if (!here) {
        return std::nullopt;
    }
    const std::vector<RowPlace> rows = shown_rows(twin, mode);
    const auto current = std::ranges::find(rows, RowPlace{.side = from.side, .rank = from.rank});
    const auto wanted = (current - rows.begin()) + direction;
    if (current == rows.end() || wanted < 0 || wanted >= std::ssize(rows)) {
        return std::nullopt;
    }
    const Duration middle = here->begin + (here->end - here->begin) / 2;
    return nearest_in_row(twin, rows[as_index(wanted)], from.step, middle);
}

std::optional<SpanRef> first_action(const Twin& twin, Mode mode, int step) {
    for (const RowPlace& place : shown_rows(twin, mode)) {
        if (const auto found = nearest_in_row(twin, place, step, Duration{0})) {
            return found;
        }
    }
    return std::nullopt;
}

std::optional<SpanRef> partner_of(const Twin& twin, const SpanRef& of) {
    const std::optional<Span> here = twin.span(of);
    if (!here || !is_message(here->action.op)) {
        return std::nullopt;
    }
    const Action wanted = other_end(here->action);
    for (int rank = 0; rank < twin.rank_count(); ++rank) {
        const RowIndex* const row = twin.row(of.side, of.step, rank);
        for (int cell = 0; row != nullptr && cell < row->size(); ++cell) {
            if (row->action(cell) == wanted) {
                return SpanRef{.side = of.side, .step = of.step, .rank = rank, .cell = cell};
            }
        }
    }
    return std::nullopt;
}

}  // namespace pipetwin::gui
