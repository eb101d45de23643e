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
#include "sim/search/module_choice.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

bool fits(const Plan& plan, const std::vector<Bytes>& peaks) {
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        const std::optional<Bytes> limit = plan.memory_limit(rank);
        if (limit && peaks[as_index(rank)] > *limit) {
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

FoundPlan found_plan(const Candidate& candidate,
                     const Plan& plan,
                     const Timeline& timeline,
                     const std::vector<Bytes>& peaks,
                     ModuleLists modules) {
    const Metrics metrics = measure(plan, timeline);
    FoundPlan found{.candidate = candidate,
                    .partition = plan->partition->layers_per_stage(),
                    .recompute = plan->recompute,
                    .modules = std::move(modules),
                    .step = step_time(timeline),
                    .samples_per_second = metrics.samples_per_second,
                    .bubble = metrics.bubble.total};
    if (const auto mode = plan->recompute.everywhere()) {
        found.candidate.choice.recompute = *mode;
        found.candidate.choice.recompute_by_rank = false;
    }
    found.peak = std::ranges::max(peaks);
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

void Outcome::refuse(const Error& why, const Candidate& candidate, std::int64_t count) {
    const std::string text = text_of_refusal(why);
    std::string rule = text;
    std::erase_if(rule, [](char c) { return c >= '0' && c <= '9'; });
    Infeasible& entry = infeasible[rule];
    if (entry.count == 0) {
        entry.kind = why.kind();
        entry.reason = why.reason();
        entry.why = text;
        entry.hint = why.hint();
        entry.example = candidate;
    }
    entry.count += count;
}

void Outcome::add(Outcome other) {
    std::ranges::move(other.found, std::back_inserter(found));
    std::ranges::move(other.unexplored, std::back_inserter(unexplored));
    for (auto& [rule, entry] : other.infeasible) {
        const auto [known, is_new] = infeasible.try_emplace(rule, entry);
        known->second.count += is_new ? 0 : entry.count;
    }
    candidates += other.candidates;
    searched += other.searched;
    pruned += other.pruned;
    actions += other.actions;
}

namespace {

SettledScenario settled_with(const SearchSpace& space,
                             const Candidate& candidate,
                             const std::vector<int>& partition) {
    SettledScenario settled = with_candidate(space.scenario, candidate);
    if (!partition.empty()) {
        settled.pipeline.partition = partition;
    }
    return settled;
}

/// None for the empty list.
std::optional<std::vector<int>> written(const std::vector<int>& partition) {
    return partition.empty() ? std::nullopt : std::optional(partition);
}

}  // namespace

CandidateTrials::CandidateTrials(const SearchSpace& space,
                                 const Candidate& candidate,
                                 const std::vector<int>& partition)
    : candidate_(candidate),
      finds_recompute_(candidate.choice.recompute_by_rank &&
                       space.scenario.pipeline.recompute.is_auto()),
      finds_modules_(candidate.choice.costs.modules),
      blocks_(finds_modules_ ? blocks_of_layers(space.model) : std::vector<int>()),
      settled_(settled_with(space, candidate, partition)),
      planner_(settled_, space.model, space.profile) {}

void CandidateTrials::share_rows() {
    if (finds_recompute_ || finds_modules_) {
        return;
    }
    try {
        rows_ = planner_.plan(RowsFrom::Generator);
    } catch (const Error&) {  // other partitions may have plans
    }
}

/// The plan with the recompute that each rank needs: none, except-last or always, the first that
/// fits. Room for messages is one on each boundary at first, then what the plan's own messages
/// need. None where nothing fits on some rank. Ends: every turn but one per form of room moves a
/// rank on.
std::optional<Plan> CandidateTrials::recomputed_as_needed(const std::vector<int>& partition,
                                                          Outcome& outcome) const {
    std::vector<Recompute> of_rank(as_index(candidate_.shape.stages));
    RecomputeRules rules = Recompute::None;
    bool own_room = false;
    while (true) {
        Plan plan = planner_.plan(written(partition), rules);
        outcome.actions += static_cast<std::int64_t>(action_count(plan));
        plan = own_room || plan->channel_capacity ? with_settled_capacity(std::move(plan))
                                                  : std::move(plan).with_proven_capacity(1);
        const std::vector<Bytes> peaks = peak_totals(plan);
        bool all_fit = true;
        for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
            const auto limit = plan.memory_limit(static_cast<int>(rank));
            if (!limit || peaks[rank] <= *limit) {
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
            return plan;
        }
        own_room = own_room || all_fit;
        rules = rules_of(of_rank, plan->schedule);
    }
}

/// The plan with the modules that each rank needs to compute again, as `ModuleChoice` has them.
/// What a backward has of a block that it computes again is known from the plan alone, so a rank
/// that still lacks memory asks for as much more. None where nothing fits on some rank. Ends: every
/// turn but one per form of room asks for more than the modules of the turn before give back.
std::optional<Plan> CandidateTrials::modules_as_needed(const std::vector<int>& partition,
                                                       Outcome& outcome,
                                                       ModuleLists& modules) const {
    std::optional<ModuleChoice> choice;
    std::vector<Bytes> given(as_index(candidate_.shape.stages));
    bool own_room = false;
    while (true) {
        Plan plan = planner_.plan(written(partition), settled_.pipeline.recompute, modules);
        outcome.actions += static_cast<std::int64_t>(action_count(plan));
        plan = own_room || plan->channel_capacity ? with_settled_capacity(std::move(plan))
                                                  : std::move(plan).with_proven_capacity(1);
        const std::vector<Bytes> peaks = peak_totals(plan);
        bool all_fit = true;
        for (int rank = 0; rank < plan.rank_count(); ++rank) {
            const auto limit = plan.memory_limit(rank);
            if (!limit || peaks[as_index(rank)] <= *limit) {
                continue;
            }
            all_fit = false;
            if (!choice) {
                choice.emplace(planner_.layer_costs().whole.front().front(), blocks_, plan);
                modules.of_piece.resize(as_index(model_stage_count(plan->schedule)));
            }
            const Bytes need = given[as_index(rank)] + peaks[as_index(rank)] - *limit;
            const auto answer = choice->least_time(rank, need);
            if (!answer) {
                return std::nullopt;
            }
            for (std::size_t i = 0; i < answer->pieces.size(); ++i) {
                modules.of_piece[as_index(answer->pieces[i])] = answer->modules[i];
            }
            given[as_index(rank)] = answer->given;
        }
        if (all_fit && own_room) {
            return plan;
        }
        own_room = own_room || all_fit;
    }
}

/// The plan with its capacity, simulated; none where it does not fit into memory even without room
/// for messages.
std::optional<SettledTimeline> CandidateTrials::simulated(const std::vector<int>& partition,
                                                          Outcome& outcome,
                                                          ModuleLists& modules) const {
    if (finds_recompute_ || finds_modules_) {
        std::optional<Plan> plan = finds_modules_ ? modules_as_needed(partition, outcome, modules)
                                                  : recomputed_as_needed(partition, outcome);
        if (!plan) {
            return std::nullopt;
        }
        outcome.actions += static_cast<std::int64_t>(action_count(*plan));
        return settled_timeline(*std::move(plan));
    }
    Plan plan = rows_ ? planner_.plan_with_rows_of(*rows_, partition)
                      : planner_.plan(written(partition), settled_.pipeline.recompute);
    outcome.actions += static_cast<std::int64_t>(action_count(plan));
    if (!plan->host_link && !fits(plan, peak_totals(plan))) {  // with a link, times decide
        return std::nullopt;
    }
    return settled_timeline(std::move(plan));
}

void CandidateTrials::add(const std::vector<int>& partition,
                          Duration best,
                          Outcome& outcome) const {
    ModuleLists modules;
    const std::optional<SettledTimeline> step = simulated(partition, outcome, modules);
    if (!step) {
        return;
    }
    const auto& [plan, timeline, room] = *step;
    if (step_time(timeline) >= best) {
        return;
    }
    const std::vector<Bytes> peaks =
        plan->host_link ? peak_totals(plan, timeline) : peak_totals(plan);
    if (fits(plan, peaks)) {
        outcome.found.push_back(found_plan(candidate_, plan, timeline, peaks, std::move(modules)));
    }
}

Outcome try_candidate(const SearchSpace& space,
                      const Candidate& candidate,
                      const std::vector<std::vector<int>>& partitions) {
    Outcome own;
    try {
        const CandidateTrials trials(space, candidate, partitions.front());
        for (const std::vector<int>& partition : partitions) {
            const Duration best = own.found.empty() ? Duration::max() : own.found.back().step;
            trials.add(partition, best, own);
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
