// SPDX-License-Identifier: Apache-2.0
#include "sim/search/trial.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/timeline/footprint.h"
#include "core/timeline/metrics.h"
#include "sim/explain/explanation.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

bool fits(const Plan& plan, const std::vector<MemoryUse>& peaks) {
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        const std::optional<Bytes> limit = plan.memory_limit(rank);
        if (limit && peaks[as_index(rank)].total() > *limit) {
            return false;
        }
    }
    return true;
}

RecomputeRules rules_of(const std::vector<Recompute>& of_rank, const Schedule& schedule) {
    std::vector<Recompute> of_piece;
    for (const int rank : schedule.rank_of_stage) {
        of_piece.push_back(of_rank[as_index(rank)]);
    }
    return RecomputeRules(std::move(of_piece));
}

/// The recompute of each rank: no recompute, except-last or always, the first that fits. Room for
/// messages is one on each boundary at first, then what the plan's own messages need. None where
/// nothing fits on some rank. Ends: every turn but one per form of room moves a rank on.
std::optional<RecomputeRules> as_needed(const SearchSpace& space,
                                        const Candidate& candidate,
                                        SettledScenario settled,
                                        Outcome& outcome) {
    std::vector<Recompute> of_rank(as_index(candidate.shape.stages));
    settled.pipeline.recompute = Recompute::None;
    bool own_room = false;
    while (true) {
        Plan plan = make_plan(settled, space.model, space.profile, RowsFrom::Generator);
        outcome.actions += static_cast<std::int64_t>(action_count(plan));
        const RecomputeRules rules = rules_of(of_rank, plan->schedule);
        plan = own_room || plan->channel_capacity ? with_settled_capacity(std::move(plan))
                                                  : std::move(plan).with_proven_capacity(1);
        const std::vector<MemoryUse> peaks = peak_memory(plan);
        bool all_fit = true;
        for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
            const auto limit = plan.memory_limit(static_cast<int>(rank));
            if (!limit || peaks[rank].total() <= *limit) {
                continue;
            }
            all_fit = false;
            if (of_rank[rank] == Recompute::Always) {
                return std::nullopt;
            }
            of_rank[rank] =
                of_rank[rank] == Recompute::None ? Recompute::ExceptLast : Recompute::Always;
        }
        if (all_fit && own_room) {
            return rules;
        }
        own_room = own_room || all_fit;
        settled.pipeline.recompute = rules_of(of_rank, plan->schedule);
    }
}

FoundPlan found_plan(const Candidate& candidate,
                     const Plan& plan,
                     const Timeline& timeline,
                     const std::vector<MemoryUse>& peaks) {
    const Metrics metrics = measure(plan, timeline);
    FoundPlan found{.candidate = candidate,
                    .partition = plan->partition->layers_per_stage(),
                    .recompute = plan->recompute,
                    .step = step_time(timeline),
                    .samples_per_second = metrics.samples_per_second,
                    .bubble = metrics.bubble.total};
    if (const auto mode = plan->recompute.everywhere()) {
        found.candidate.choice.recompute = *mode;
        found.candidate.choice.recompute_by_rank = false;
    }
    for (const MemoryUse& peak : peaks) {
        found.peak = std::max(found.peak, peak.total());
    }
    return found;
}

}  // namespace

Error out_of_memory() {
    return Error(ErrorKind::Infeasible, "", "more memory than the ranks have")
        .because(ErrorReason::Memory);
}

std::string text_of_refusal(const Error& why) {
    return why.reason() == ErrorReason::ScheduleRule
               ? fmt::format("{}: {}", why.place(), why.text())
               : why.text();
}

void Outcome::refuse(const Error& why, const Candidate& candidate) {
    const std::string text = text_of_refusal(why);
    std::string rule = text;
    std::erase_if(rule, [](char c) { return c >= '0' && c <= '9'; });
    Infeasible& entry = infeasible[rule];
    if (entry.count++ == 0) {
        entry.kind = why.kind();
        entry.reason = why.reason();
        entry.why = text;
        entry.hint = why.hint();
        entry.example = candidate;
    }
}

void Outcome::add(Outcome other) {
    std::ranges::move(other.found, std::back_inserter(found));
    std::ranges::move(other.contenders, std::back_inserter(contenders));
    for (auto& [rule, entry] : other.infeasible) {
        const auto [known, is_new] = infeasible.try_emplace(rule, entry);
        known->second.count += is_new ? 0 : entry.count;
    }
    candidates += other.candidates;
    searched += other.searched;
    pruned += other.pruned;
    actions += other.actions;
}

std::optional<CommonRows> common_rows(const SearchSpace& space,
                                      const Candidate& candidate,
                                      const std::vector<int>& partition) {
    SettledScenario settled = with_candidate(space.scenario, candidate);
    if (candidate.choice.recompute_by_rank || rows_follow_costs(settled)) {
        return std::nullopt;
    }
    if (!partition.empty()) {
        settled.pipeline.partition = partition;
    }
    const Plan plan = make_plan(settled, space.model, space.profile, RowsFrom::Generator);
    return CommonRows{.plan = plan,
                      .costs = layer_costs(plan, settled, space.model, space.profile)};
}

void try_partition(const SearchSpace& space,
                   const Candidate& candidate,
                   const std::vector<int>& partition,
                   Duration best,
                   Outcome& outcome,
                   const CommonRows* common) {
    SettledScenario settled = with_candidate(space.scenario, candidate);
    if (!partition.empty()) {
        settled.pipeline.partition = partition;
    }
    if (candidate.choice.recompute_by_rank && space.scenario.pipeline.recompute.is_auto()) {
        const auto rules = as_needed(space, candidate, settled, outcome);
        if (!rules) {
            return;
        }
        settled.pipeline.recompute = *rules;
    }
    Plan plan = common == nullptr
                    ? make_plan(settled, space.model, space.profile, RowsFrom::Generator)
                    : make_plan_with_rows_of(
                          common->plan, settled, space.model, space.profile, &common->costs);
    outcome.actions += static_cast<std::int64_t>(action_count(plan));
    std::vector<MemoryUse> peaks;
    if (!plan->host_link) {  // with one, times decide
        peaks = peak_memory(plan);
        if (!fits(plan, peaks)) {
            return;
        }
    }
    plan = with_settled_capacity(std::move(plan));
    if (!plan->host_link) {
        peaks = peak_memory(plan);
    }
    const Timeline timeline = simulate(plan);
    if (plan->host_link) {
        peaks = peak_memory(plan, timeline);
    }
    if (fits(plan, peaks) && step_time(timeline) < best) {
        outcome.found.push_back(found_plan(candidate, plan, timeline, peaks));
    }
}

Outcome try_candidate(const SearchSpace& space,
                      const Candidate& candidate,
                      const std::vector<std::vector<int>>& partitions) {
    Outcome own;
    try {
        for (const std::vector<int>& partition : partitions) {
            const Duration best = own.found.empty() ? Duration::max() : own.found.back().step;
            try_partition(space, candidate, partition, best, own);
        }
    } catch (const Error& error) {
        Outcome refused;
        refused.refuse(error, candidate);
        refused.breaks_a_rule = true;
        return refused;
    }
    if (own.found.empty()) {
        own.refuse(out_of_memory(), candidate);
        return own;
    }
    ++own.searched;
    own.found.erase(own.found.begin(), own.found.end() - 1);  // each is faster than the one before
    return own;
}

}  // namespace pipetwin::sim
