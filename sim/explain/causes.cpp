// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/causes.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/schedule/edge.h"

namespace pipetwin::sim {

namespace {

/// Whether an action makes, directly or through others of its rank, what another one needs. The
/// weight part of a backward is needed by the update alone.
bool feeds(const Action& made, const Action& needing) {
    if (!is_compute(made.op)) {
        return false;
    }
    return has_micro_batch(needing.op)
               ? made.micro_batch == needing.micro_batch && made.op != Op::BackwardWeight
               : made.stage == needing.stage;
}

constexpr int no_link = -1;

/// A link that both ways lead over; `no_link`: there is none.
int common_link(const std::vector<int>& a, const std::vector<int>& b) {
    const auto found = std::ranges::find_first_of(a, b);
    return found == a.end() ? no_link : *found;
}

/// How much of a row lies between two moments.
Duration time_within(const std::vector<Span>& row, Duration begin, Duration end) {
    Duration time{};
    for (auto span = std::ranges::lower_bound(row, begin, {}, &Span::end);
         span != row.end() && span->begin < end;
         ++span) {
        time += std::max(Duration{}, std::min(end, span->end) - std::max(begin, span->begin));
    }
    return time;
}

}  // namespace

std::string_view to_string(Reason reason) {
    switch (reason) {
        case Reason::Compute:
            return "compute";
        case Reason::RowOrder:
            return "row_order";
        case Reason::Latency:
            return "latency";
        case Reason::Transfer:
            return "transfer";
        case Reason::LinkBusy:
            return "link_busy";
        case Reason::BackPressure:
            return "back_pressure";
        case Reason::Reduction:
            return "reduction";
        case Reason::HostCopy:
            return "host_copy";
    }
    PIPETWIN_EXPECT(false, "reason out of range");
}

std::optional<SpanPlace> last_span(const Timeline& timeline) {
    std::optional<SpanPlace> last;
    Duration end{};
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
        const auto& row = timeline.ranks[rank];
        if (!row.empty() && (!last || row.back().end > end)) {
            last = {.rank = static_cast<std::uint32_t>(rank),
                    .cell = static_cast<std::uint32_t>(row.size() - 1)};
            end = row.back().end;
        }
    }
    return last;
}

RowPlaces::RowPlaces(const Schedule& schedule) : edges(edge_count(schedule)) {
    for (Edge& edge : edges) {
        edge.sends.reserve(as_index(schedule.micro_batches));
        edge.receives.reserve(as_index(schedule.micro_batches));
    }
    for (std::uint32_t rank = 0; rank < schedule.ranks.size(); ++rank) {
        const std::vector<Action>& row = schedule.ranks[rank];
        auto& numbers = message_of.emplace_back(row.size(), 0);
        for (std::uint32_t cell = 0; cell < row.size(); ++cell) {
            const Action& action = row[cell];
            const SpanPlace place{.rank = rank, .cell = cell};
            if (is_message(action.op)) {
                Edge& edge = edges.at(as_index(edge_of(schedule, action)));
                auto& ends = is_send(action.op) ? edge.sends : edge.receives;
                numbers[cell] = static_cast<std::uint32_t>(ends.size());
                ends.push_back(place);
            } else if (action.op == Op::ReduceGradient) {
                reductions.push_back(place);
            } else if (action.op == Op::GradientNorm) {
                norms.push_back(place);
            }
        }
    }
}

Causes::Causes(const Plan& plan, const Timeline& timeline)
    : Causes(plan, timeline, std::make_shared<const RowPlaces>(plan->schedule)) {}

Causes::Causes(const Plan& plan, const Timeline& timeline, const RowPlaces& places)
    : Causes(plan, timeline, std::shared_ptr<const RowPlaces>(std::shared_ptr<void>(), &places)) {}

Causes::Causes(const Plan& plan, const Timeline& timeline, std::shared_ptr<const RowPlaces> places)
    : plan_(plan),
      timeline_(timeline),
      places_(std::move(places)),
      reductions_(as_index(plan.stage_count())) {
    PIPETWIN_EXPECT(timeline.origin == Origin::Predicted,
                    "only a simulated timeline says exactly what waited for what");
    Reduction network;
    for (const SpanPlace& place : places_->reductions) {
        if (!network.known || network.place.rank != place.rank) {
            network = {.place = place, .known = true};
        }
        know_reduction(place, network);
    }
    for (const SpanPlace& place : places_->norms) {
        know_norm(place);
    }
    if (!timeline.host_copies.empty()) {
        for (auto& of_rank : stash_copies(plan)) {
            copies_.push_back({.out = std::move(of_rank), .in = {}, .in_of = {}});
            know_copies(copies_.size() - 1);
        }
    }
}

void Causes::know_copies(std::size_t rank) {
    Copies& copies = copies_[rank];
    copies.in.resize(copies.out.size());
    std::iota(copies.in.begin(), copies.in.end(), std::size_t{0});
    std::ranges::sort(copies.in, {}, [&](std::size_t copy) { return copies.out[copy].user; });
    copies.in_of.resize(timeline_.ranks[rank].size());
    for (std::size_t number = 0; number < copies.in.size(); ++number) {
        copies.in_of[copies.out[copies.in[number]].user] = static_cast<std::uint32_t>(number);
    }
}

/// The link of a way that carries most for its rate between two moments.
int Causes::busiest_link(const std::vector<int>& way, Duration begin, Duration end) const {
    const Contention& contention = plan_->contention;
    int busiest = no_link;
    double most = 0;
    for (const int link : way) {
        double load = 0;
        const auto add = [&](const std::vector<int>& other, const std::vector<Span>& row) {
            const auto times = std::ranges::count(other, link);
            if (times > 0) {
                load += static_cast<double>(times) * to_seconds(time_within(row, begin, end));
            }
        };
        for (std::size_t edge = 0; edge < timeline_.links.size(); ++edge) {
            add(contention.way_of_edge[edge], timeline_.links[edge]);
        }
        for (std::size_t row = 0;
             row < std::min(timeline_.host_copies.size(), contention.way_of_copies.size());
             ++row) {
            add(contention.way_of_copies[row], timeline_.host_copies[row]);
        }
        load /= contention.shared_links[as_index(link)];
        if (busiest == no_link || load > most) {
            busiest = link;
            most = load;
        }
    }
    return busiest;
}

std::string shared_link_name(const Plan& plan, const Cause& cause) {
    const std::vector<std::string>& names = plan->contention.link_names;
    return cause.shared_link == no_link || names.empty() ? "" : names[as_index(cause.shared_link)];
}

void Causes::know_norm(SpanPlace place) {
    if (!last_norm_ || span_at(place).end > span_at(*last_norm_).end) {
        last_norm_ = place;
    }
}

/// The timeline does not show when the network carried the gradients: it is as in the engines, one
/// stage after the other.
void Causes::know_reduction(SpanPlace place, Reduction& network) {
    const Span& span = span_at(place);
    const int stage = span.action.stage;
    Reduction& reduction = reductions_.at(as_index(stage));
    reduction = {.place = place, .known = true};
    if (plan_->overlap_reduction && plan_.all_reduce_time(stage) > Duration{}) {
        reduction.overlapped = true;
        const BucketedSums sums = plan_->bucketed_sums.empty()
                                      ? BucketedSums{}
                                      : plan_->bucketed_sums.at(as_index(stage));
        const Duration free = network.end + plan_.all_reduce_time(stage);
        const Duration made =
            std::max(span.begin - sums.head + plan_.all_reduce_time(stage), span.begin + sums.tail);
        reduction.begin = free > made ? network.end : span.begin;
        reduction.end = std::max(free, made);
        reduction.stage_before = network.stage_before;
        network.end = reduction.end;
        network.stage_before = stage;
    }
}

/// Walks back in time, always to what the moment at hand waited for.
class CauseWalk {
  public:
    CauseWalk(const Causes& causes, Duration until) : causes_(causes), until_(until) {}

    std::vector<Cause> from_ready(SpanPlace place) {
        at_ = place;
        time_ = causes_.span_at(place).ready;
        return run(Moment::Ready);
    }
    std::vector<Cause> from_end(SpanPlace place) {
        at_ = place;
        time_ = causes_.span_at(place).end;
        return run(Moment::End);
    }

  private:
    enum class Moment { Begin, Ready, End, Start };

    std::vector<Cause> run(Moment moment) {
        while (time_ > until_ && moment != Moment::Start) {
            switch (moment) {
                case Moment::End:
                    moment = back_from_end();
                    break;
                case Moment::Ready: {
                    const Span& span = causes_.span_at(at_);
                    moment = span.ready > span.begin ? back_from_ready(span) : Moment::Begin;
                    break;
                }
                case Moment::Begin:
                    moment = at_.cell == 0 ? Moment::Start : Moment::End;
                    at_.cell -= at_.cell == 0 ? 0 : 1;
                    break;
                case Moment::Start:
                    break;
            }
        }
        std::ranges::reverse(pieces_);
        return std::move(pieces_);
    }

    Moment back_from_end() {
        const Span& span = causes_.span_at(at_);
        if (span.end == span.ready) {
            return Moment::Ready;
        }
        if (is_send(span.action.op)) {  // one that goes on when the link has carried the message
            return over_link(
                edge_of(causes_.plan_->schedule, span.action), message_at(at_), span.end);
        }
        add(span.action, static_cast<int>(at_.rank), span.ready, span.end, reason_of(span.action));
        needing_ = span.action;
        return Moment::Ready;
    }

    Reason reason_of(const Action& action) {
        if (makes_room_) {
            makes_room_ = false;
            return Reason::BackPressure;
        }
        if (action.op == Op::ReduceGradient) {
            return Reason::Reduction;
        }
        return !needing_ || feeds(action, *needing_) ? Reason::Compute : Reason::RowOrder;
    }

    /// A receive waited for its message, a send for room, an update for gradients, another action
    /// for its stash.
    Moment back_from_ready(const Span& span) {
        if (is_compute(span.action.op)) {
            return from_host(causes_.copies_[at_.rank].in_of[at_.cell]);
        }
        if (is_receive(span.action.op)) {
            return over_link(
                edge_of(causes_.plan_->schedule, span.action), message_at(at_), span.ready);
        }
        return is_send(span.action.op) ? to_receiver(span) : to_gradients(span);
    }

    /// Over the link, and over the messages that kept it busy, to the send that the first of them
    /// did not wait after.
    Moment over_link(int edge, std::size_t message, Duration arrival) {
        Message at{.edge = static_cast<std::size_t>(edge), .number = message};
        const Span& own = link_span(at);
        add(own.action, sender(at), own.end, arrival, Reason::Latency);
        add(own.action,
            sender(at),
            own.begin,
            own.end,
            Reason::Transfer,
            what_slowed(way_of(at.edge), own, own_time(at)));
        while (time_ > until_ && link_span(at).begin > send_of(at).ready) {
            const std::optional<Busy> busy = what_kept_busy(at);
            if (!busy) {
                add(link_span(at).action,
                    sender(at),
                    send_of(at).ready,
                    link_span(at).begin,
                    Reason::LinkBusy,
                    way_of(at.edge).empty() ? no_link : way_of(at.edge).front());
                break;
            }
            at = busy->message;
            const Span& other = link_span(at);
            add(other.action,
                sender(at),
                other.begin,
                other.end,
                Reason::LinkBusy,
                busy->shared_link != no_link ? busy->shared_link
                                             : what_slowed(way_of(at.edge), other, own_time(at)));
        }
        at_ = causes_.places_->edges[at.edge].sends[at.number];
        needing_ = send_of(at).action;
        makes_room_ = false;
        return Moment::Ready;
    }

    /// The message that was through when this one began: the one before it on its edge, or one on
    /// a link that both pass.
    struct Message {
        std::size_t edge = 0;
        std::size_t number = 0;
    };
    struct Busy {
        Message message;
        int shared_link = no_link;
    };
    std::optional<Busy> what_kept_busy(const Message& message) const {
        const Duration begin = link_span(message).begin;
        const auto& links = causes_.timeline_.links;
        if (message.number > 0 && links[message.edge][message.number - 1].end == begin) {
            return Busy{.message = {.edge = message.edge, .number = message.number - 1}};
        }
        for (std::size_t edge = 0; edge < links.size(); ++edge) {
            const int shared = common_link(way_of(edge), way_of(message.edge));
            if (edge == message.edge || shared == no_link) {
                continue;
            }
            const auto found = std::ranges::lower_bound(links[edge], begin, {}, &Span::end);
            if (found != links[edge].end() && found->end == begin && found->begin < begin) {
                const auto number = static_cast<std::size_t>(found - links[edge].begin());
                return Busy{.message = {.edge = edge, .number = number}, .shared_link = shared};
            }
        }
        return std::nullopt;
    }

    /// The shared links of an edge, or of a rank's copies out or in.
    const std::vector<int>& way_of(std::size_t edge) const {
        return way_in(causes_.plan_->contention.way_of_edge, edge);
    }
    const std::vector<int>& way_of_copies(std::size_t row) const {
        return way_in(causes_.plan_->contention.way_of_copies, row);
    }
    static const std::vector<int>& way_in(const std::vector<std::vector<int>>& ways,
                                          std::size_t index) {
        static const std::vector<int> none;
        return index < ways.size() ? ways[index] : none;
    }

    /// The time of a message that has its links for itself.
    Duration own_time(const Message& message) const {
        const LinkCost& link = causes_.plan_->links[message.edge / 2];
        return transfer_time(causes_.plan_.message_bytes(static_cast<int>(message.edge),
                                                         link_span(message).action.micro_batch) +
                                 link.half_bandwidth,
                             link.bytes_per_second);
    }

    /// The shared link that made a message, or a copy, last longer than its own link does.
    int what_slowed(const std::vector<int>& way, const Span& span, Duration own) const {
        const Duration end = is_send(span.action.op) ? span.end : span.ready;
        // Ends are rounded up to a nanosecond.
        return way.empty() || end - span.begin <= own + Duration{1}
                   ? no_link
                   : causes_.busiest_link(way, span.begin, end);
    }

    /// Over the copies in that kept the link busy, to what the first of them waited for: the
    /// compute action beside it, its copy out, or before that what else is on a shared link.
    Moment from_host(std::size_t number) {
        const auto& copies = causes_.copies_[at_.rank];
        const auto& in = causes_.timeline_.host_copies[2 * at_.rank + 1];
        needing_ = in[number].action;
        makes_room_ = false;
        for (Duration until = in[number].end;; --number) {
            const Span& copy = in[number];
            const StashCopy& stash = copies.out[copies.in[number]];
            add_copy(2 * at_.rank + 1, copy, until, stash.bytes);
            until = copy.begin;
            at_.cell = static_cast<std::uint32_t>(stash.before);
            const Duration let_in = causes_.span_at(at_).ready;
            if (time_ <= until_ || let_in == copy.begin) {
                return Moment::Ready;
            }
            if (number == 0 || in[number - 1].ready < copy.begin) {
                const Duration is_out =
                    causes_.timeline_.host_copies[2 * at_.rank][copies.in[number]].end;
                add_busy(2 * at_.rank + 1, copy, std::max(let_in, is_out));
                return let_in >= is_out ? Moment::Ready : to_host(copies.in[number]);
            }
        }
    }

    /// Over the copies out that kept the link busy, to the F that the first of them followed.
    Moment to_host(std::size_t number) {
        const auto& copies = causes_.copies_[at_.rank];
        const auto& out = causes_.timeline_.host_copies[2 * at_.rank];
        for (Duration until = out[number].end;; --number) {
            const Span& copy = out[number];
            add_copy(2 * at_.rank, copy, until, copies.out[number].bytes);
            until = copy.begin;
            at_.cell = static_cast<std::uint32_t>(copies.out[number].forward);
            const Duration made = causes_.span_at(at_).end;
            if (time_ <= until_ || made == copy.begin) {
                return Moment::End;
            }
            if (number == 0 || out[number - 1].ready < copy.begin) {
                add_busy(2 * at_.rank, copy, made);
                return Moment::End;
            }
        }
    }

    void add_copy(std::size_t row, const Span& copy, Duration until, Bytes bytes) {
        const LinkCost& link = *causes_.plan_->host_link;
        const Duration own = transfer_time(bytes + link.half_bandwidth, link.bytes_per_second);
        add(copy.action,
            static_cast<int>(at_.rank),
            copy.begin,
            until,
            Reason::HostCopy,
            what_slowed(way_of_copies(row), copy, own));
    }

    /// A copy that could have set out earlier waited for a shared link.
    void add_busy(std::size_t row, const Span& copy, Duration from) {
        const std::vector<int>& way = way_of_copies(row);
        add(copy.action,
            static_cast<int>(at_.rank),
            from,
            copy.begin,
            Reason::HostCopy,
            way.empty() ? no_link : causes_.busiest_link(way, from, copy.begin));
    }

    /// To the receive that made room: the one `capacity` messages earlier has ended; without
    /// capacity the message's own has begun.
    Moment to_receiver(const Span& send) {
        const Schedule& schedule = causes_.plan_->schedule;
        const auto& edge = causes_.places_->edges.at(as_index(edge_of(schedule, send.action)));
        const std::size_t capacity = as_index(channel_places(
            schedule, stages_of(send.action), causes_.plan_->channel_capacity.value_or(0)));
        at_ = edge.receives.at(message_at(at_) - capacity);
        makes_room_ = true;
        return capacity == 0 ? Moment::Begin : Moment::Ready;
    }

    Moment to_gradients(const Span& update) {
        if (update.action.op == Op::Optimizer && causes_.last_norm_ &&
            causes_.span_at(*causes_.last_norm_).end == update.ready) {
            at_ = *causes_.last_norm_;
            needing_.reset();
            makes_room_ = false;
            return Moment::End;
        }
        const auto& reductions = causes_.reductions_;
        const std::size_t stage = as_index(update.action.stage);
        if (reductions[stage].overlapped && reductions[stage].end == update.ready) {
            return over_network(update.action.stage);
        }
        const auto source = gradient_source(causes_.plan_->schedule, update.action.stage);
        const auto* const reduction = source ? &reductions[as_index(*source)] : nullptr;
        PIPETWIN_EXPECT(reduction != nullptr && reduction->known,
                        "an update waits for gradients that are on their way");
        return set_out(*reduction, update.ready, Reason::Reduction);
    }

    /// Over the stages whose gradients the rank's network carried before.
    Moment over_network(int stage) {
        const auto* reduction = &causes_.reductions_[as_index(stage)];
        Reason reason = Reason::Reduction;
        while (reduction->begin > causes_.span_at(reduction->place).begin) {
            add(causes_.span_at(reduction->place).action,
                static_cast<int>(reduction->place.rank),
                reduction->begin,
                reduction->end,
                reason);
            reason = Reason::LinkBusy;
            reduction = &causes_.reductions_[as_index(reduction->stage_before)];
        }
        return set_out(*reduction, reduction->end, reason);
    }

    /// The gradients' way, from the moment at which they set out.
    template <class Reduction>
    Moment set_out(const Reduction& reduction, Duration end, Reason reason) {
        at_ = reduction.place;
        const Span& span = causes_.span_at(at_);
        add(span.action, static_cast<int>(at_.rank), span.begin, end, reason);
        needing_ = span.action;
        makes_room_ = false;
        return Moment::Ready;
    }

    void add(const Action& action,
             int rank,
             Duration begin,
             Duration end,
             Reason reason,
             int shared_link = no_link) {
        begin = std::max(begin, until_);
        if (end > begin) {
            pieces_.push_back({.action = action,
                               .rank = rank,
                               .begin = begin,
                               .end = end,
                               .reason = reason,
                               .shared_link = shared_link});
            time_ = begin;
        }
    }

    std::size_t message_at(SpanPlace place) const {
        return causes_.places_->message_of[place.rank][place.cell];
    }
    const Span& link_span(const Message& message) const {
        return causes_.timeline_.links[message.edge].at(message.number);
    }
    const Span& send_of(const Message& message) const {
        return causes_.span_at(causes_.places_->edges[message.edge].sends[message.number]);
    }
    int sender(const Message& message) const {
        return static_cast<int>(causes_.places_->edges[message.edge].sends[message.number].rank);
    }

    const Causes& causes_;
    Duration until_;
    SpanPlace at_;
    Duration time_{};                ///< how far back the pieces reach
    std::optional<Action> needing_;  ///< what the next piece of the row at hand comes before
    bool makes_room_ = false;        ///< that piece kept a receiver from taking a message
    std::vector<Cause> pieces_;      ///< the latest first
};

std::vector<Cause> Causes::of_ready(SpanPlace place, Duration until) const {
    return CauseWalk(*this, until).from_ready(place);
}

std::vector<Cause> Causes::of_end(SpanPlace place, Duration until) const {
    return CauseWalk(*this, until).from_end(place);
}

}  // namespace pipetwin::sim
