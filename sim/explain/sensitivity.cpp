// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/sensitivity.h"

#include <algorithm>
#include <cmath>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/action_messages.h"
#include "core/plan/plan.h"
#include "core/plan/stage_cost.h"
#include "core/schedule/edge.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

Duration divided(Duration time, double factor) {
    return Duration{
        static_cast<std::int64_t>(std::floor(static_cast<double>(time.count()) / factor))};
}

bool is_backward(Op op) {
    return op == Op::Backward || op == Op::BackwardInput || op == Op::BackwardWeight;
}

/// True for actions whose duration includes the host's time.
bool is_dispatched(Op op) {
    return is_compute(op) || uses_gradients(op);
}

Conditions without_sharing(Conditions conditions) {
    conditions.contention = {};
    return conditions;
}

/// 0 stands for infinitely fast.
double faster_rate(double bytes_per_second, double factor) {
    return std::isinf(factor) ? 0 : bytes_per_second * factor;
}

void make_faster(LinkCost& link, double factor) {
    link.latency = divided(link.latency, factor);
    link.bytes_per_second = faster_rate(link.bytes_per_second, factor);
}

}  // namespace

Sensitivity::Sensitivity(const Plan& plan)
    : plan_(plan),
      shares_(plan->contention.any()),
      conditions_(conditions_for_other_costs(plan)),
      graph_(plan, without_sharing(conditions_)),
      owners_(graph_.costs().size()),
      lag_owners_(graph_.lags().size()),
      of_stage_(static_cast<std::size_t>(plan.stage_count())),
      of_rank_(static_cast<std::size_t>(plan.rank_count())),
      of_boundary_(plan->links.size()),
      in_chain_(graph_.costs().size(), 0),
      lag_in_chain_(graph_.lags().size(), 0) {
    know_owners();
    know_targets();
    std::vector<Duration> ends(graph_.tasks().size());
    graph_.evaluate(graph_.costs(), graph_.lags(), ends);
    step_ = shares_ ? replayed_step(plan, conditions_) : graph_.step(ends);
    know_longest_chain(ends);
}

void Sensitivity::know_owners() {
    for (std::size_t i = 1; i < graph_.tasks().size(); ++i) {
        const TaskPlace& place = graph_.places()[i];
        if (place.kind == TaskKind::Moment) {
            continue;
        }
        const Action& action = plan_->schedule.ranks[as_index(place.rank)][as_index(place.cell)];
        Owner owner{.kind = Owner::Kind::Action,
                    .op = action.op,
                    .stage = action.stage,
                    .micro_batch = action.micro_batch,
                    .rank = place.rank};
        if (place.kind == TaskKind::Copy) {
            owner.kind = Owner::Kind::Copy;
        } else if (is_send(action.op)) {
            owner.kind = Owner::Kind::Message;
            owner.boundary = edge_of(plan_->schedule, action) / 2;
        } else if (!is_dispatched(action.op)) {
            owner.kind = Owner::Kind::Reduction;
        }
        owners_[graph_.tasks()[i].cost] = owner;
    }
    // The latencies of the edges, and then that of the links to host memory and the ways of
    // gradients to the stages with the same weights.
    for (std::size_t lag = 0; lag < lag_owners_.size(); ++lag) {
        const bool of_edge = lag < 2 * plan_->links.size();
        lag_owners_[lag] = {.kind = of_edge                    ? Owner::Kind::Message
                                    : graph_.host_lag() == lag ? Owner::Kind::Copy
                                                               : Owner::Kind::Reduction,
                            .boundary = static_cast<int>(lag / 2)};
        all_.lags.push_back(static_cast<std::uint32_t>(lag));
        if (of_edge) {
            of_boundary_[lag / 2].lags.push_back(static_cast<std::uint32_t>(lag));
        }
    }
    for (std::uint32_t cost = 0; cost < owners_.size(); ++cost) {
        const Owner& owner = owners_[cost];
        if (owner.kind == Owner::Kind::Nobody) {
            continue;
        }
        all_.costs.push_back(cost);
        if (owner.kind == Owner::Kind::Message) {
            of_boundary_[as_index(owner.boundary)].costs.push_back(cost);
        } else if (owner.kind != Owner::Kind::Copy) {
            of_stage_[as_index(owner.stage)].costs.push_back(cost);
            of_rank_[as_index(owner.rank)].costs.push_back(cost);
        }
    }
}

const Sensitivity::Entries& Sensitivity::entries_of(const Target& target) const {
    if (target.index == everywhere) {
        return all_;
    }
    const auto& entries = target.part == Part::Link   ? of_boundary_
                          : target.part == Part::Rank ? of_rank_
                                                      : of_stage_;
    return entries.at(as_index(target.index));
}

bool Sensitivity::takes_time(const Target& target) const {
    const Entries& entries = entries_of(target);
    const auto costs_time = [&](std::uint32_t cost) {
        return faster(cost, std::span(&target, 1), infinitely) < graph_.costs()[cost];
    };
    const auto lasts = [&](std::uint32_t lag) {
        return concerns(target, lag_owners_[lag]) && graph_.lags()[lag] > Duration{};
    };
    return std::ranges::any_of(entries.costs, costs_time) ||
           std::ranges::any_of(entries.lags, lasts);
}

bool Sensitivity::concerns(const Target& target, const Owner& owner) {
    const auto is_of = [&](bool part, int index) {
        return part && (target.index == everywhere || target.index == index);
    };
    const bool acts = owner.kind == Owner::Kind::Action;
    switch (target.part) {
        case Part::Forward:
            return is_of(acts && owner.op == Op::Forward, owner.stage);
        case Part::Backward:
            return is_of(acts && is_backward(owner.op), owner.stage);
        case Part::BackwardInput:
            return is_of(acts && owner.op == Op::BackwardInput, owner.stage);
        case Part::BackwardWeight:
            return is_of(acts && owner.op == Op::BackwardWeight, owner.stage);
        case Part::Recompute:
            return is_of(acts && owner.op == Op::Recompute, owner.stage);
        case Part::Update:
            return is_of(acts && uses_gradients(owner.op), owner.stage);
        case Part::Reduction:
            return owner.kind == Owner::Kind::Reduction;
        case Part::Link:
            return is_of(owner.kind == Owner::Kind::Message, owner.boundary);
        case Part::HostLink:
            return owner.kind == Owner::Kind::Copy;
        case Part::Rank:
            return is_of(acts, owner.rank);
        case Part::Dispatch:
            return acts;
        case Part::NodeLinks:
        case Part::InnerLinks:
        case Part::Cores:
            return false;
    }
    PIPETWIN_EXPECT(false, "part out of range");
}

bool Sensitivity::can_answer(const Target& target) const {
    if (target.part != Part::BackwardInput && target.part != Part::BackwardWeight) {
        return true;
    }
    return std::ranges::none_of(plan_->costs, [](const auto& stages) {
        return std::ranges::any_of(stages, [](const StageCost& cost) {
            return !cost.backward_weight_messages.overlaps.empty();
        });
    });
}

/// Everywhere first; where there is one stage, link or rank, it is everywhere.
void Sensitivity::know_targets() {
    const auto add = [&](const Target& target) {
        if (can_answer(target) && takes_time(target)) {
            targets_.push_back(target);
        }
    };
    for (const Part part : {Part::Forward,
                            Part::Backward,
                            Part::BackwardInput,
                            Part::BackwardWeight,
                            Part::Recompute,
                            Part::Update,
                            Part::Reduction,
                            Part::Link,
                            Part::HostLink,
                            Part::Dispatch}) {
        add({.part = part});
    }
    if (plan_->contention.cores > 0) {
        targets_.push_back({.part = Part::Cores});
    }
    const auto add_each = [&](Part part, int count) {
        for (int index = 0; count > 1 && index < count; ++index) {
            add({.part = part, .index = index});
        }
    };
    add_each(Part::Forward, plan_.stage_count());
    add_each(Part::Backward, plan_.stage_count());
    add_each(Part::Recompute, plan_.stage_count());
    add_each(Part::Link, static_cast<int>(plan_->links.size()));
    add_each(Part::Rank, plan_.rank_count());
}

/// Back from the end, always to what ended last.
void Sensitivity::know_longest_chain(std::span<const Duration> ends) {
    std::size_t at = 0;
    for (const std::uint32_t task : graph_.last_tasks()) {
        at = ends[task] > ends[at] ? task : at;
    }
    while (at != 0) {
        const Task& task = graph_.tasks()[at];
        ++in_chain_[task.cost];
        if (ends[task.also] + graph_.lags()[task.lag] > ends[task.after]) {
            ++lag_in_chain_[task.lag];
            at = task.also;
        } else {
            at = task.after;
        }
    }
}

/// An action's own time and the host's time before it are two things.
Duration Sensitivity::faster(std::size_t cost,
                             std::span<const Target> targets,
                             double factor) const {
    const Owner& owner = owners_[cost];
    Duration work = graph_.costs()[cost];
    Duration host{};
    if (owner.kind == Owner::Kind::Action) {
        host = plan_->dispatch;
        work -= host;
    }
    bool faster_work = false;
    bool faster_host = false;
    for (const Target& target : targets) {
        if (concerns(target, owner)) {
            (target.part == Part::Dispatch ? faster_host : faster_work) = true;
        }
    }
    if (faster_work && owner.kind == Owner::Kind::Action) {
        work = plan_.with_computation(
            {.op = owner.op, .stage = owner.stage, .micro_batch = owner.micro_batch},
            [factor](Duration time) { return divided(time, factor); });
    } else if (faster_work) {
        work = divided(work, factor);
    }
    return work + (faster_host ? divided(host, factor) : host);
}

Duration Sensitivity::step_if(std::span<const Target> targets, double factor) const {
    PIPETWIN_EXPECT(factor >= 1, "what is made faster gets no slower");
    std::vector<Duration> costs = graph_.costs();
    std::vector<Duration> lags = graph_.lags();
    for (const Target& target : targets) {
        for (const std::uint32_t cost : entries_of(target).costs) {
            costs[cost] = faster(cost, targets, factor);
        }
        for (const std::uint32_t lag : entries_of(target).lags) {
            if (concerns(target, lag_owners_[lag])) {
                lags[lag] = divided(graph_.lags()[lag], factor);
            }
        }
    }
    if (shares_) {
        return replayed_step(plan_, faster_conditions(targets, factor, costs));
    }
    std::vector<Duration> ends(graph_.tasks().size());
    graph_.evaluate(costs, lags, ends);
    return graph_.step(ends);
}

/// `costs` are those of the tasks, with the targets faster.
Conditions Sensitivity::faster_conditions(std::span<const Target> targets,
                                          double factor,
                                          std::span<const Duration> costs) const {
    Conditions conditions = with_planned_durations(plan_);
    conditions.channel_capacity = conditions_.channel_capacity;
    for (std::size_t i = 1; i < graph_.tasks().size(); ++i) {
        const TaskPlace& place = graph_.places()[i];
        if (place.kind == TaskKind::Action) {
            conditions.durations[as_index(place.rank)][as_index(place.cell)] =
                costs[graph_.tasks()[i].cost];
        }
    }
    for (const Target& target : targets) {
        const bool all = target.index == everywhere;
        if (target.part == Part::Link) {
            for (std::size_t boundary = 0; boundary < conditions.links.size(); ++boundary) {
                if (all || target.index == static_cast<int>(boundary)) {
                    make_faster(conditions.links[boundary], factor);
                }
            }
            for (double& rate : conditions.contention.shared_links) {
                rate = all ? faster_rate(rate, factor) : rate;
            }
        } else if (target.part == Part::HostLink && conditions.host_link) {
            make_faster(*conditions.host_link, factor);
        } else if (target.part == Part::Reduction) {
            for (Duration& length : conditions.overlapped_reductions) {
                length = divided(length, factor);
            }
            for (LinkCost& link : conditions.reductions) {
                make_faster(link, factor);
            }
        } else if (target.part == Part::Cores) {
            // 0 stands for one for each rank.
            int& cores = conditions.contention.cores;
            const double more = cores * factor;
            cores = more < plan_.rank_count() ? static_cast<int>(more) : 0;
        }
    }
    return conditions;
}

Duration Sensitivity::largest_gain(const Target& target, double factor) const {
    Duration gain{};
    for (const std::uint32_t cost : entries_of(target).costs) {
        gain +=
            in_chain_[cost] * (graph_.costs()[cost] - faster(cost, std::span(&target, 1), factor));
    }
    for (const std::uint32_t lag : entries_of(target).lags) {
        if (concerns(target, lag_owners_[lag])) {
            gain += lag_in_chain_[lag] * (graph_.lags()[lag] - divided(graph_.lags()[lag], factor));
        }
    }
    return gain;
}

std::vector<WhatIf> Sensitivity::best(std::span<const Target> among,
                                      double factor,
                                      std::size_t most,
                                      std::int64_t evaluations) const {
    struct Candidate {
        std::size_t place = 0;  ///< in `among`
        Duration largest_gain{};
        Duration step{};
    };
    std::vector<Candidate> candidates;
    for (std::size_t place = 0; place < among.size(); ++place) {
        const Duration gain = shares_ ? step_ : largest_gain(among[place], factor);
        if (gain > Duration{}) {
            candidates.push_back({.place = place, .largest_gain = gain});
        }
    }
    std::ranges::stable_sort(candidates, std::ranges::greater{}, &Candidate::largest_gain);
    std::vector<Candidate> found;
    for (Candidate candidate : candidates) {
        const bool none_better =
            found.size() == most && found.back().step < step_ - candidate.largest_gain;
        if (none_better || most == 0 || evaluations-- <= 0) {
            break;
        }
        candidate.step = step_if(among[candidate.place], factor);
        if (candidate.step < step_) {
            const auto before = [](const Candidate& a, const Candidate& b) {
                return std::pair(a.step, a.place) < std::pair(b.step, b.place);
            };
            found.insert(std::ranges::upper_bound(found, candidate, before), candidate);
            found.resize(std::min(most, found.size()));
        }
    }
    std::vector<WhatIf> result;
    for (const Candidate& candidate : found) {
        const Target& target = among[candidate.place];
        result.push_back({.target = target,
                          .factor = factor,
                          .step = candidate.step,
                          .least_step = step_if(target, infinitely)});
    }
    return result;
}

std::vector<std::vector<Duration>> Sensitivity::slack() const {
    PIPETWIN_EXPECT(!shares_, "nothing is shared");
    std::vector<Duration> ends(graph_.tasks().size());
    graph_.evaluate(graph_.costs(), graph_.lags(), ends);
    const std::vector<Duration> of_tasks = graph_.slack(graph_.costs(), graph_.lags(), ends);
    std::vector<std::vector<Duration>> slack;
    for (int rank = 0; rank < plan_.rank_count(); ++rank) {
        auto& row = slack.emplace_back();
        for (const CellEnd& end : graph_.cells(rank)) {
            row.push_back(of_tasks[end.task]);
        }
    }
    return slack;
}

}  // namespace pipetwin::sim
