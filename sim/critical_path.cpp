#include "sim/critical_path.h"

#include <algorithm>
#include <map>

#include "core/edge.h"
#include "core/error.h"
#include "sim/conditions.h"

namespace pipetwin::sim {

namespace {

/// A span by its place.
struct Place {
    std::size_t rank = 0;
    std::size_t cell = 0;
};

/// The k-th send and the k-th receive of an edge belong together.
struct Edge {
    std::vector<Place> sends;
    std::vector<Place> receives;
};

/// Walks from the end of the step to its start, always to what the action at hand waited for.
class Walk {
  public:
    Walk(const Plan& plan, const Timeline& timeline)
        : plan_(plan), timeline_(timeline), edges_(timeline.links.size()) {
        for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
            auto& numbers = message_of_.emplace_back(timeline.ranks[rank].size(), 0);
            for (std::size_t cell = 0; cell < timeline.ranks[rank].size(); ++cell) {
                const Action& action = timeline.ranks[rank][cell].action;
                if (is_send(action.op) || is_receive(action.op)) {
                    Edge& edge = edge_at(action);
                    auto& places = is_send(action.op) ? edge.sends : edge.receives;
                    numbers[cell] = places.size();
                    places.push_back({rank, cell});
                } else if (action.op == Op::ReduceGradient) {
                    reductions_[action.stage] = {rank, cell};
                }
            }
        }
    }

    std::vector<CriticalStep> run() {
        bool more = find_last();
        while (more) {
            const Span& span = span_at(at_);
            add(span.action, span.ready, span.end);
            more = span.ready > span.begin ? step_to_what_came(span) : step_back_in_row();
        }
        std::reverse(steps_.begin(), steps_.end());
        return std::move(steps_);
    }

  private:
    /// The span that ends last; of several the one on the lowest rank, and there the last.
    bool find_last() {
        bool found = false;
        for (std::size_t rank = 0; rank < timeline_.ranks.size(); ++rank) {
            const auto& row = timeline_.ranks[rank];
            if (!row.empty() && (!found || row.back().end > span_at(at_).end)) {
                at_ = {rank, row.size() - 1};
                found = true;
            }
        }
        return found;
    }

    /// A receive waited for its message, a send for room, an update for the other pipeline.
    bool step_to_what_came(const Span& span) {
        if (span.action.op == Op::Optimizer) {
            return step_to_reduction(span);
        }
        return is_receive(span.action.op) ? step_to_sender(span) : step_to_receiver(span);
    }

    /// The gradients' way takes as long as the update waited for them after they set out.
    bool step_to_reduction(const Span& update) {
        at_ = reductions_.at(twin_of(plan_->schedule, update.action.stage).value());
        const Span& reduction = span_at(at_);
        add(reduction.action, reduction.end, update.ready);
        add(reduction.action, reduction.ready, reduction.end);
        return step_back_in_row();
    }

    /// Over the link, and over the messages that kept it busy, to the send that the first of them
    /// did not wait after.
    bool step_to_sender(const Span& receive) {
        const auto index = static_cast<std::size_t>(edge_of(receive.action));
        const auto& link = timeline_.links[index];
        std::size_t message = message_of_[at_.rank][at_.cell];
        Duration arrival = receive.ready;
        for (;; --message) {
            const Span& on_link = link.at(message);
            add(on_link.action,
                on_link.begin,
                arrival,
                static_cast<int>(edges_[index].sends.at(message).rank));
            const Span& send = span_at(edges_[index].sends.at(message));
            if (on_link.begin == send.ready) {
                at_ = edges_[index].sends[message];
                return step_back_from_send(send);
            }
            arrival = on_link.begin;  // the end of the message before
        }
    }

    /// The hand-over itself takes no time.
    bool step_back_from_send(const Span& send) {
        return send.ready > send.begin ? step_to_receiver(send) : step_back_in_row();
    }

    /// To the receive that made room: the one `capacity` messages earlier has ended; without
    /// capacity the message's own has begun.
    bool step_to_receiver(const Span& send) {
        const Edge& edge = edge_at(send.action);
        const std::size_t message = message_of_[at_.rank][at_.cell];
        const auto capacity = static_cast<std::size_t>(plan_->channel_capacity.value_or(0));
        at_ = edge.receives.at(message - capacity);
        if (capacity == 0) {
            return step_back_in_row();
        }
        const Span& receive = span_at(at_);
        return receive.ready > receive.begin ? step_to_sender(receive) : step_back_in_row();
    }

    bool step_back_in_row() {
        if (at_.cell == 0) {
            return false;
        }
        --at_.cell;
        return true;
    }

    void add(const Action& action, Duration begin, Duration end, int rank) {
        if (end > begin) {
            steps_.push_back({.action = action, .rank = rank, .begin = begin, .end = end});
        }
    }
    void add(const Action& action, Duration begin, Duration end) {
        add(action, begin, end, static_cast<int>(at_.rank));
    }

    Edge& edge_at(const Action& action) {
        return edges_.at(static_cast<std::size_t>(edge_of(action)));
    }
    const Span& span_at(Place place) const { return timeline_.ranks[place.rank][place.cell]; }

    const Plan& plan_;
    const Timeline& timeline_;
    std::vector<Edge> edges_;
    std::map<int, Place> reductions_;                   ///< by stage: where its gradients set out
    std::vector<std::vector<std::size_t>> message_of_;  ///< [rank][cell]: number on its edge
    Place at_;
    std::vector<CriticalStep> steps_;  ///< from the end to the start
};

}  // namespace

std::vector<CriticalStep> critical_path(const Plan& plan, const Timeline& timeline) {
    PIPETWIN_EXPECT(timeline.origin == Origin::Predicted,
                    "only a simulated timeline says exactly what waited for what");
    return Walk(plan, timeline).run();
}

}  // namespace pipetwin::sim
