// SPDX-License-Identifier: Apache-2.0
#include "tests/support/critical_path.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>

#include "core/costs/contention.h"
#include "core/costs/profile.h"
#include "core/plan/plan.h"
#include "core/plan/stage_cost.h"
#include "core/schedule/recompute.h"
#include "core/schedule/schedule.h"

namespace pipetwin::testing {

namespace {

/// One pair of stages in one direction: its sends and receives in row order, the k-th of each for
/// the k-th message.
struct Wire {
    std::vector<Span*> sends;
    std::vector<Span*> receives;
    std::vector<Span> on_link;
};

/// A stash that goes to host memory and comes back: what F keeps until the first R, B or I of its
/// stage and micro-batch.
struct Stash {
    const Span* forward = nullptr;
    const Span* before_user = nullptr;
    Span* user = nullptr;
    Duration on_link{};
    Span out{};
    Span in{};
};

/// Those of a row, in the order of F; not those that are needed by the next compute action.
std::vector<Stash> stashes_of(const Plan& plan, std::vector<Span>& row) {
    std::vector<Span*> compute;
    for (Span& span : row) {
        if (is_compute(span.action.op)) {
            compute.push_back(&span);
        }
    }
    std::vector<Stash> stashes;
    for (std::size_t i = 0; i < compute.size(); ++i) {
        const Action& made = compute[i]->action;
        for (std::size_t j = i + 1; made.op == Op::Forward && j < compute.size(); ++j) {
            const Action& user = compute[j]->action;
            if (user.stage != made.stage || user.micro_batch != made.micro_batch) {
                continue;
            }
            const StageCost& cost = plan.cost(made.stage, made.micro_batch);
            const Bytes kept = user.op == Op::Recompute ? cost.input : cost.saved;
            if (j > i + 1 && kept.count > 0) {
                const LinkCost& link = *plan->host_link;
                stashes.push_back(
                    {.forward = compute[i],
                     .before_user = compute[j - 1],
                     .user = compute[j],
                     .on_link = transfer_time(kept + link.half_bandwidth, link.bytes_per_second),
                     .out = {.action = made},
                     .in = {.action = user}});
            }
            break;
        }
    }
    return stashes;
}

struct Graph {
    explicit Graph(const Plan& given) : plan(given), wires(2 * given.parts().links.size()) {
        for (const auto& row : plan->schedule.ranks) {
            auto& spans = timeline.ranks.emplace_back();
            for (const Action& action : row) {
                spans.push_back({.action = action});
            }
        }
        for (auto& row : timeline.ranks) {
            for (Span& span : row) {
                const int stage = span.action.stage;
                const int apart = 1 + span.action.hop;
                if (span.action.op == Op::SendForward) {
                    wires[wire(stage, stage + apart)].sends.push_back(&span);
                } else if (span.action.op == Op::RecvForward) {
                    wires[wire(stage - apart, stage)].receives.push_back(&span);
                } else if (span.action.op == Op::SendBackward) {
                    wires[wire(stage, stage - apart)].sends.push_back(&span);
                } else if (span.action.op == Op::RecvBackward) {
                    wires[wire(stage + apart, stage)].receives.push_back(&span);
                } else if (span.action.op == Op::ReduceGradient) {
                    reductions[span.action.stage] = &span;
                } else if (span.action.op == Op::GradientNorm) {
                    norms[span.action.stage] = &span;
                } else if (span.action.op == Op::Optimizer) {
                    updates[span.action.stage] = &span;
                }
            }
        }
        for (auto& row : timeline.ranks) {
            stashes.push_back(plan->host_link ? stashes_of(plan, row) : std::vector<Stash>{});
        }
        for (Wire& wire : wires) {
            for (const Span* send : wire.sends) {
                wire.on_link.push_back({.action = send->action});
            }
        }
    }

    /// The number of a wire: neighbours first, then the skips in their order; forward, then back.
    std::size_t wire(int from, int to) const {
        const StagePair pair{.from = std::min(from, to), .to = std::max(from, to)};
        const std::vector<StagePair>& skips = plan->schedule.skips;
        const auto number = pair.to == pair.from + 1
                                ? pair.from
                                : plan->schedule.stage_count() - 1 +
                                      (std::find(skips.begin(), skips.end(), pair) - skips.begin());
        return 2 * static_cast<std::size_t>(number) + (from < to ? 0 : 1);
    }

    const Plan& plan;
    Timeline timeline;
    std::vector<Wire> wires;
    std::map<int, Span*> reductions;  ///< by stage
    std::map<int, Span*> norms;
    std::map<int, Span*> updates;
    std::vector<std::vector<Stash>> stashes;  ///< [rank]
    bool changed = false;

    void raise(Duration& time, Duration at_least) {
        if (time < at_least) {
            time = at_least;
            changed = true;
        }
    }

    void relax_rows() {
        for (auto& row : timeline.ranks) {
            Duration before{};
            for (Span& span : row) {
                raise(span.begin, before);
                raise(span.ready, span.begin);
                raise(span.end, span.ready + plan.duration(span.action));
                before = span.end;
            }
        }
    }

    /// In both directions one copy after the other, out in the order of F, in as they are needed.
    void relax_stashes(std::vector<Stash>& of_rank) {
        Duration free{};
        const auto relax = [&](Span& copy, Duration earliest, Duration on_link) {
            raise(copy.begin, std::max(earliest, free));
            raise(copy.ready, copy.begin + on_link);
            raise(copy.end, copy.ready + plan->host_link->latency);
            free = copy.ready;
        };
        for (Stash& stash : of_rank) {
            relax(stash.out, stash.forward->end, stash.on_link);
        }
        free = Duration{};
        for (Stash* const stash : as_needed(of_rank)) {
            relax(stash->in, std::max(stash->out.end, stash->before_user->ready), stash->on_link);
            raise(stash->user->ready, stash->in.end);
        }
    }

    static std::vector<Stash*> as_needed(std::vector<Stash>& of_rank) {
        std::vector<Stash*> stashes;
        for (Stash& stash : of_rank) {
            stashes.push_back(&stash);
        }
        std::ranges::sort(stashes, std::less{}, &Stash::user);
        return stashes;
    }

    /// What uses a stage's gradients: its norm and its update.
    void raise_users(int stage, Duration at_least) {
        for (auto* const users : {&norms, &updates}) {
            if (users->contains(stage)) {
                raise(users->at(stage)->ready, at_least);
            }
        }
    }

    /// Where the gradients of a stage go: to its twin, or to the other one of two tied ends.
    std::optional<int> goal_of(int stage) const {
        const Schedule& schedule = plan->schedule;
        const int last = schedule.stage_count() - 1;
        if (schedule.tied_ends) {
            return stage == 0 || stage == last ? std::optional(last - stage) : std::nullopt;
        }
        return weight_sharing_stage(schedule, stage);
    }

    /// A norm and an update need the gradients that another stage has handed over.
    void relax_reductions() {
        for (const auto& [stage, reduction] : reductions) {
            if (const auto goal = goal_of(stage)) {
                const LinkCost& link = plan->reductions[static_cast<std::size_t>(stage)];
                const Bytes message = plan->schedule.tied_ends
                                          ? plan->tied_gradient
                                          : plan->states[static_cast<std::size_t>(stage)].weights;
                const Duration on_link =
                    message.count == 0
                        ? Duration{}
                        : transfer_time(message + link.half_bandwidth, link.bytes_per_second);
                raise_users(*goal, reduction->ready + on_link + link.latency);
            }
        }
    }

    /// Every update needs every norm.
    void relax_norms() {
        for (const auto& [stage, update] : updates) {
            for (const auto& [other, norm] : norms) {
                raise(update->ready, norm->end);
            }
        }
    }

    /// What is summed over replicas without the rank waiting: one after the other on each rank.
    void relax_overlapped_reductions() {
        if (!plan->overlap_reduction || plan->all_reduce.empty()) {
            return;
        }
        for (const auto& row : timeline.ranks) {
            Duration network{};
            for (const Span& span : row) {
                const Duration length =
                    span.action.op == Op::ReduceGradient
                        ? plan->all_reduce[static_cast<std::size_t>(span.action.stage)]
                        : Duration{};
                if (length > Duration{}) {
                    const BucketedSums sums =
                        plan->bucketed_sums.empty()
                            ? BucketedSums{}
                            : plan->bucketed_sums.at(static_cast<std::size_t>(span.action.stage));
                    const Duration all = std::max(network, span.ready - sums.head) + length;
                    network = std::max(all, span.ready + sums.tail);
                    raise_users(span.action.stage, network);
                }
            }
        }
    }

    Duration time_on_link(const Span& send, const LinkCost& link) const {
        const StageCost& cost = plan.cost(send.action.stage, send.action.micro_batch);
        const int to = send.action.stage +
                       (send.action.op == Op::SendForward ? 1 : -1) * (1 + send.action.hop);
        const auto number = static_cast<std::size_t>(send.action.micro_batch);
        const Bytes bytes =
            !plan->message_bytes.empty()
                ? plan->message_bytes.at(static_cast<std::size_t>(plan->cost_class.at(number)))
                      .at(wire(send.action.stage, to) / 2)
            : send.action.op == Op::SendForward ? cost.output
                                                : cost.input;
        const bool instant = bytes.count == 0 || plan->transfer == TransferMode::HandOver;
        return instant ? Duration{}
                       : transfer_time(bytes + link.half_bandwidth, link.bytes_per_second);
    }

    void relax_wire(Wire& wire, const LinkCost& link) {
        Duration free{};
        for (std::size_t k = 0; k < wire.sends.size(); ++k) {
            Span& send = *wire.sends[k];
            if (plan->channel_capacity) {
                const int apart = 1 + send.action.hop;
                const int places = *plan->channel_capacity * apart;
                const auto capacity = static_cast<std::size_t>(
                    apart == 1 ? places : std::min(places, plan.micro_batches()));
                if (capacity == 0) {
                    raise(send.ready, wire.receives[k]->begin);
                } else if (k >= capacity) {
                    raise(send.ready, wire.receives[k - capacity]->end);
                }
            }
            Span& on_link = wire.on_link[k];
            raise(on_link.begin, std::max(send.ready, free));
            raise(on_link.ready, on_link.begin);
            raise(on_link.end, on_link.begin + time_on_link(send, link));
            if (plan->transfer == TransferMode::Blocking) {
                raise(send.end, on_link.end);
            }
            free = on_link.end;
            raise(wire.receives[k]->ready, on_link.end + link.latency);
        }
    }
};

}  // namespace

Timeline longest_path(const Plan& plan) {
    Graph graph(plan);
    std::size_t actions = 1;
    for (const auto& row : graph.timeline.ranks) {
        actions += row.size();
    }
    std::size_t passes = 0;
    do {
        graph.changed = false;
        graph.relax_rows();
        for (std::size_t wire = 0; wire < graph.wires.size(); ++wire) {
            graph.relax_wire(graph.wires[wire], plan->links[wire / 2]);
        }
        graph.relax_reductions();
        graph.relax_overlapped_reductions();
        graph.relax_norms();
        for (auto& of_rank : graph.stashes) {
            graph.relax_stashes(of_rank);
        }
        if (++passes > 4 * actions) {
            throw std::logic_error("times rise for ever: the plan waits for itself");
        }
    } while (graph.changed);

    for (const Wire& wire : graph.wires) {
        graph.timeline.links.push_back(wire.on_link);
    }
    const bool copies =
        std::ranges::any_of(graph.stashes, [](const auto& of_rank) { return !of_rank.empty(); });
    for (std::size_t rank = 0; copies && rank < graph.stashes.size(); ++rank) {
        auto& out = graph.timeline.host_copies.emplace_back();
        for (const Stash& stash : graph.stashes[rank]) {
            out.push_back(stash.out);
        }
        auto& in = graph.timeline.host_copies.emplace_back();
        for (const Stash* const stash : Graph::as_needed(graph.stashes[rank])) {
            in.push_back(stash->in);
        }
    }
    const bool silent = std::all_of(graph.wires.begin(), graph.wires.end(), [](const Wire& wire) {
        return wire.sends.empty();
    });
    if (silent) {
        graph.timeline.links.clear();
    }
    return graph.timeline;
}

}  // namespace pipetwin::testing
