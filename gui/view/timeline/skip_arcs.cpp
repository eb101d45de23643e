// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/skip_arcs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/as_index.h"
#include "core/schedule/edge.h"

namespace pipetwin::gui {

namespace {

bool has_skip_messages(const RowIndex& row) {
    return !row.empty() && row.share_actions()->has_skip_messages();
}

bool has_skip_messages(const StepRows& rows) {
    return std::ranges::any_of(rows.ranks,
                               [](const RowIndex& row) { return has_skip_messages(row); });
}

/// Whether the mean F, B, I, W or R of a step is wide enough for arcs, in a view of the step's own
/// time.
bool is_wide_enough(const StepRows& rows, const ViewTransform& view) {
    const double narrowest = narrowest_with_arcs * view.ns_per_pixel;
    if (static_cast<double>(rows.length.count()) < narrowest) {
        return false;  // at a glance: no action is longer than the step
    }
    Duration sum{0};
    double count = 0;
    for (const RowIndex& row : rows.ranks) {
        if (!row.empty()) {
            sum += row.compute_before(row.size());
            count += row.share_actions()->compute_count();
        }
    }
    return static_cast<double>(sum.count()) >= count * narrowest;
}

/// A row on the screen, for the ends of arcs.
struct SeenRow {
    const RowIndex* row = nullptr;
    double top = 0;
    double bottom = 0;
};

/// Draws the arcs of one step of one side.
class ArcPen {
  public:
    ArcPen(const Twin& twin,
           const StepPlaces& places,
           const RowLayout& layout,
           const Sight& sight,
           Side side,
           int step)
        : twin_(twin),
          place_(places.of(side, step)),
          layout_(layout),
          sight_(sight),
          side_(side),
          step_(step) {}

    /// The arc of a message; none where a row is not shown.
    std::optional<SkipArc> arc(const SkipMessage& message) const {
        const SeenRow from = seen(message.from_rank);
        const SeenRow to = seen(message.to_rank);
        if (from.row == nullptr || to.row == nullptr) {
            return std::nullopt;
        }
        const auto ref = [this](int rank, int cell) {
            return SpanRef{.side = side_, .step = step_, .rank = rank, .cell = cell};
        };
        return SkipArc{.send = ref(message.from_rank, message.send),
                       .receive = ref(message.to_rank, message.receive),
                       .curve = {.begin = {x_of(from.row->end(message.send)),
                                           svg::facing_edge(from.top, from.bottom, to.top)},
                                 .end = {x_of(to.row->end(message.receive)),
                                         svg::facing_edge(to.top, to.bottom, from.top)},
                                 .gradient = message.gradient}};
    }

    /// Whether one end of a curve is in sight, and a part of it between the first row and the last.
    bool in_sight(const svg::SkipCurve& curve) const {
        const auto inside = [this](double x) { return x >= 0 && x <= sight_.width; };
        const auto [upper, lower] = std::minmax(curve.begin.y, curve.end.y);
        return (inside(curve.begin.x) || inside(curve.end.x)) && lower >= 0 &&
               upper <= sight_.height;
    }

  private:
    double x_of(Duration in_step) const { return sight_.view.x_of(place_.on_axis(in_step)); }

    SeenRow seen(int rank) const {
        const Row* const row = layout_.row_of(side_, rank);
        if (row == nullptr) {
            return {};
        }
        const double top = layout_.on_screen(row->y, sight_.scroll);
        return {.row = twin_.row(side_, step_, rank), .top = top, .bottom = top + row->height};
    }

    const Twin& twin_;
    StepPlace place_;
    const RowLayout& layout_;
    const Sight& sight_;
    Side side_;
    int step_;
};

std::vector<SkipArc> apart(std::vector<SkipArc> arcs) {
    std::vector<svg::SkipCurve> curves(arcs.size());
    std::ranges::transform(arcs, curves.begin(), &SkipArc::curve);
    std::vector<SkipArc> shown;
    for (const std::size_t at : svg::curves_apart(curves)) {
        shown.push_back(arcs[at]);
    }
    return shown;
}

}  // namespace

bool has_skip_messages(const Twin& twin) {
    const auto any = [](const std::vector<StepRows>& steps) {
        return std::ranges::any_of(steps,
                                   [](const StepRows& rows) { return has_skip_messages(rows); });
    };
    return any(twin.predicted) || any(twin.measured);
}

std::vector<SkipMessage> skip_messages(const StepRows& rows) {
    std::map<Action, std::pair<int, int>> sends;  // rank and cell
    const auto for_each = [&rows](bool (*wanted)(Op), const auto& visit) {
        for (int rank = 0; rank < static_cast<int>(rows.ranks.size()); ++rank) {
            const RowIndex& row = rows.ranks[as_index(rank)];
            const int size = has_skip_messages(row) ? row.size() : 0;
            for (int cell = 0; cell < size; ++cell) {
                Action action = wanted(row.op(cell)) ? row.action(cell) : Action{};
                action.with_next = false;
                if (action.hop != 0) {
                    visit(action, rank, cell);
                }
            }
        }
    };
    for_each(&is_send, [&sends](const Action& send, int rank, int cell) {
        sends.emplace(send, std::pair(rank, cell));
    });
    std::vector<SkipMessage> messages;
    for_each(&is_receive, [&](const Action& receive, int rank, int cell) {
        const auto send = sends.find(other_end(receive));
        if (send != sends.end()) {
            messages.push_back({.from_rank = send->second.first,
                                .send = send->second.second,
                                .to_rank = rank,
                                .receive = cell,
                                .gradient = receive.op == Op::RecvBackward});
        }
    });
    return messages;
}

std::optional<SkipArc> arc_between(const Twin& twin,
                                   const StepPlaces& places,
                                   const RowLayout& layout,
                                   const Sight& sight,
                                   const SpanRef& send,
                                   const SpanRef& receive) {
    const std::optional<Span> sent = twin.span(send);
    if (!sent || !twin.span(receive)) {
        return std::nullopt;
    }
    return ArcPen(twin, places, layout, sight, send.side, send.step)
        .arc({.from_rank = send.rank,
              .send = send.cell,
              .to_rank = receive.rank,
              .receive = receive.cell,
              .gradient = sent->action.op == Op::SendBackward});
}

std::vector<SkipArc> SkipArcs::in_sight(const Twin& twin,
                                        const StepPlaces& places,
                                        const RowLayout& layout,
                                        const Sight& sight) {
    std::set<const StepRows*> used;
    std::vector<SkipArc> arcs;
    any_ = any_ ? *any_ : has_skip_messages(twin);
    const bool any = *any_ && places.step_count() > 0;
    const int first = any ? places.step_at(sight.view.time_at(0)) : 0;
    const int last = any ? places.step_at(sight.view.time_at(sight.width)) : -1;
    for (int step = first; step <= last; ++step) {
        for (const Side side : {Side::Predicted, Side::Measured}) {
            const StepRows* const rows = twin.step(side, step);
            if (rows == nullptr ||
                !is_wide_enough(*rows, places.of(side, step).inside(sight.view))) {
                continue;
            }
            const auto [known, is_new] = messages_.try_emplace(rows);
            if (is_new) {
                known->second = skip_messages(*rows);
            }
            used.insert(rows);
            const ArcPen pen(twin, places, layout, sight, side, step);
            for (const SkipMessage& message : known->second) {
                const std::optional<SkipArc> arc = pen.arc(message);
                if (arc && pen.in_sight(arc->curve)) {
                    arcs.push_back(*arc);
                }
            }
        }
    }
    std::erase_if(messages_, [&used](const auto& entry) { return !used.contains(entry.first); });
    return apart(std::move(arcs));
}

}  // namespace pipetwin::gui
