#include "gui/twin.h"

#include <algorithm>
#include <array>
#include <utility>

namespace pipetwin::gui {

namespace {

int size_of(const std::vector<Span>& row) {
    return static_cast<int>(row.size());
}

bool takes_time(const Span& span) {
    return span.end > span.begin;
}

/// How far `time` lies outside the span; zero inside.
Duration distance(const Span& span, Duration time) {
    return std::max({Duration{0}, span.begin - time, time - span.end});
}

/// The action at the other end of a message; nothing for what is no message.
std::optional<Action> other_end(const Action& action) {
    switch (action.op) {
        case Op::SendForward:
            return Action{Op::RecvForward, action.stage + 1, action.micro_batch};
        case Op::RecvForward:
            return Action{Op::SendForward, action.stage - 1, action.micro_batch};
        case Op::SendBackward:
            return Action{Op::RecvBackward, action.stage - 1, action.micro_batch};
        case Op::RecvBackward:
            return Action{Op::SendBackward, action.stage + 1, action.micro_batch};
        default:
            return std::nullopt;
    }
}

struct RowPlace {
    int rank = 0;
    Side side{};
};

/// The rows on the screen from top to bottom.
std::vector<RowPlace> shown_rows(const Twin& twin, Sides sides) {
    std::vector<RowPlace> rows;
    for (int rank = 0; rank < twin.rank_count(); ++rank) {
        for (const Side side : {Side::Predicted, Side::Measured}) {
            if (shows(sides, side) && twin.row(side, rank) != nullptr) {
                rows.push_back({.rank = rank, .side = side});
            }
        }
    }
    return rows;
}

std::optional<SpanRef> nearest_in_row(const Twin& twin, const RowPlace& place, Duration time) {
    const std::vector<Span>& row = *twin.row(place.side, place.rank);
    std::optional<SpanRef> nearest;
    Duration best = Duration::max();
    for (int cell = 0; cell < size_of(row); ++cell) {
        const Span& span = row[static_cast<std::size_t>(cell)];
        if (takes_time(span) && distance(span, time) < best) {
            best = distance(span, time);
            nearest = SpanRef{.side = place.side, .rank = place.rank, .cell = cell};
        }
    }
    return nearest;
}

}  // namespace

Side other(Side side) {
    return side == Side::Predicted ? Side::Measured : Side::Predicted;
}

bool shows(Sides sides, Side side) {
    return sides == Sides::Both || (sides == Sides::Predicted) == (side == Side::Predicted);
}

Sides next(Sides sides) {
    switch (sides) {
        case Sides::Both:
            return Sides::Predicted;
        case Sides::Predicted:
            return Sides::Measured;
        case Sides::Measured:
            break;
    }
    return Sides::Both;
}

const Timeline* Twin::timeline(Side side) const {
    const std::optional<Timeline>& timeline = side == Side::Predicted ? predicted : measured;
    return timeline ? &*timeline : nullptr;
}

const std::vector<Span>* Twin::row(Side side, int rank) const {
    const Timeline* const wanted = timeline(side);
    if (wanted == nullptr || rank < 0 || std::cmp_greater_equal(rank, wanted->ranks.size())) {
        return nullptr;
    }
    return &wanted->ranks[static_cast<std::size_t>(rank)];
}

const Span* Twin::span(const SpanRef& ref) const {
    const std::vector<Span>* const spans = row(ref.side, ref.rank);
    if (spans == nullptr || ref.cell < 0 || ref.cell >= size_of(*spans)) {
        return nullptr;
    }
    return &(*spans)[static_cast<std::size_t>(ref.cell)];
}

int Twin::rank_count() const {
    std::size_t count = 0;
    for (const Side side : {Side::Predicted, Side::Measured}) {
        if (const Timeline* const present = timeline(side)) {
            count = std::max(count, present->ranks.size());
        }
    }
    return static_cast<int>(count);
}

Duration Twin::length() const {
    Duration last{0};
    for (const Side side : {Side::Predicted, Side::Measured}) {
        for (int rank = 0; rank < rank_count(); ++rank) {
            const std::vector<Span>* const spans = row(side, rank);
            if (spans != nullptr && !spans->empty()) {
                last = std::max(last, spans->back().end);
            }
        }
    }
    return last;
}

std::optional<SpanRef> next_in_row(const Twin& twin, const SpanRef& from, int direction) {
    SpanRef at = from;
    do {
        at.cell += direction;
        const Span* const span = twin.span(at);
        if (span == nullptr) {
            return std::nullopt;
        }
        if (takes_time(*span)) {
            return at;
        }
    } while (true);
}

std::optional<SpanRef> twin_of(const Twin& twin, const SpanRef& of) {
    const SpanRef there{.side = other(of.side), .rank = of.rank, .cell = of.cell};
    const Span* const here = twin.span(of);
    const Span* const found = twin.span(there);
    if (here == nullptr || found == nullptr || found->action != here->action) {
        return std::nullopt;
    }
    return there;
}

std::optional<SpanRef> in_next_row(const Twin& twin,
                                   Sides sides,
                                   const SpanRef& from,
                                   int direction) {
    const Span* const here = twin.span(from);
    if (here == nullptr) {
        return std::nullopt;
    }
    const std::vector<RowPlace> rows = shown_rows(twin, sides);
    const auto current = std::find_if(rows.begin(), rows.end(), [&](const RowPlace& place) {
        return place.rank == from.rank && place.side == from.side;
    });
    const auto wanted = (current - rows.begin()) + direction;
    if (current == rows.end() || wanted < 0 || wanted >= std::ssize(rows)) {
        return std::nullopt;
    }
    const Duration middle = here->begin + (here->end - here->begin) / 2;
    return nearest_in_row(twin, rows[static_cast<std::size_t>(wanted)], middle);
}

std::optional<SpanRef> first_action(const Twin& twin, Sides sides) {
    for (const RowPlace& place : shown_rows(twin, sides)) {
        if (const auto found = nearest_in_row(twin, place, Duration{0})) {
            return found;
        }
    }
    return std::nullopt;
}

std::optional<SpanRef> partner_of(const Twin& twin, const SpanRef& of) {
    const Span* const here = twin.span(of);
    const std::optional<Action> wanted = here == nullptr ? std::nullopt : other_end(here->action);
    if (!wanted) {
        return std::nullopt;
    }
    for (int rank = 0; rank < twin.rank_count(); ++rank) {
        const std::vector<Span>* const row = twin.row(of.side, rank);
        if (row == nullptr) {
            continue;
        }
        const auto found = std::find_if(
            row->begin(), row->end(), [&](const Span& span) { return span.action == *wanted; });
        if (found != row->end()) {
            return SpanRef{of.side, rank, static_cast<int>(found - row->begin())};
        }
    }
    return std::nullopt;
}

}  // namespace pipetwin::gui
