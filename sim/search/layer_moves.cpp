// SPDX-License-Identifier: Apache-2.0
#include "sim/search/layer_moves.h"

#include <oneapi/tbb/parallel_for.h>

#include <cstddef>
#include <map>
#include <utility>

#include "sim/search/partition_choice.h"

namespace pipetwin::sim {

LayerMoves::Answer LayerMoves::answer(const MovesQuestion& question, KnownPartitions& tried) const {
    const Candidate& candidate = question.candidate;
    const SearchSpace& space = state_.space;
    SettledScenario settled = with_candidate(space.scenario, candidate);
    if (candidate.choice.recompute_by_rank && space.scenario.pipeline.recompute.is_auto()) {
        settled.pipeline.recompute = Recompute::Always;
    }
    if (candidate.choice.costs.modules) {
        settled.pipeline.recompute_modules.of_piece = {every_module()};
    }
    Answer answer{.question = question};
    try {
        for (const std::vector<int>& start : question.starts) {
            ChosenPartition one = chosen_partition(
                settled, space.model, space.profile, question.actions, start, &tried);
            answer.found.simulated += one.actions;
            answer.found.partitions.push_back(std::move(one.layers_per_piece));
        }
    } catch (const Error& error) {
        answer.refusal = error;
    }
    return answer;
}

void LayerMoves::prepare(std::span<const MovesQuestion> questions) {
    std::map<Candidate, std::pair<const MovesQuestion*, KnownPartitions*>> of_candidate;
    for (const MovesQuestion& question : questions) {
        of_candidate.try_emplace(
            question.candidate, &question, &state_.memory.tried_partitions[question.candidate]);
    }
    const std::vector<decltype(of_candidate)::value_type> all(of_candidate.begin(),
                                                              of_candidate.end());
    std::vector<Answer> answers(all.size());
    tbb::parallel_for(std::size_t{0}, all.size(), [&](std::size_t i) {
        const auto& [question, tried] = all[i].second;
        answers[i] = answer(*question, *tried);
    });
    for (Answer& one : answers) {
        answers_.insert_or_assign(one.question.candidate, std::move(one));
    }
}

LayerMoves::Found LayerMoves::take(const MovesQuestion& question) {
    const auto known = answers_.find(question.candidate);
    if (known == answers_.end() || known->second.question != question) {
        prepare(std::span(&question, 1));
    }
    Answer answer = std::move(answers_.extract(question.candidate).mapped());
    if (answer.refusal) {
        throw *answer.refusal;
    }
    return std::move(answer.found);
}

}  // namespace pipetwin::sim
