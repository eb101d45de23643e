// SPDX-License-Identifier: Apache-2.0
#include "sim/search/search_state.h"

#include <algorithm>

namespace pipetwin::sim {

namespace {

std::pair<int, int> cell_of(const Shape& shape) {
    return {shape.stages, shape.micro_batches};
}

}  // namespace

Duration Incumbents::of(const Shape& shape) const {
    if (!cell_stages_.contains(shape.stages)) {
        return all_;
    }
    const auto found = of_cell_.find(cell_of(shape));
    return found == of_cell_.end() ? Duration::max() : found->second;
}

void Incumbents::add(const FoundPlan& plan) {
    all_ = std::min(all_, plan.step);
    const auto [entry, is_new] = of_cell_.try_emplace(cell_of(plan.candidate.shape), plan.step);
    entry->second = std::min(entry->second, plan.step);
}

bool SearchState::goes_on(std::size_t left, Duration bound) {
    if (is_stopped || all.actions >= options.most_actions) {
        return false;
    }
    if (!options.progress) {
        return true;
    }
    const auto done = static_cast<double>(settled);
    is_stopped = !options.progress({.share = done / (done + static_cast<double>(left)),
                                    .best = best.of_all(),
                                    .bound = std::min(pruned_bound, bound)});
    return !is_stopped;
}

Outcome SearchState::simulate(const Candidate& candidate, Duration bound) const {
    if (const auto known = memory.outcomes.find({candidate, bound});
        known != memory.outcomes.end()) {
        return known->second;
    }
    try {
        ShapeBounds of_shape = bounds.of(candidate.shape, candidate.choice);
        return try_candidate(space, candidate, of_shape.partitions(candidate.choice, bound));
    } catch (const Error& error) {  // fewer layers than pieces
        Outcome refused;
        refused.refuse(error, candidate);
        refused.breaks_a_rule = true;
        return refused;
    }
}

}  // namespace pipetwin::sim
