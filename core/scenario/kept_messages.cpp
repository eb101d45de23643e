// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/kept_messages.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/as_index.h"
#include "core/costs/devices/stack.h"
#include "core/plan/plan.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin {

namespace {

/// Kernels that a host launches before the device has run the first of them: more do not fit into
/// the queue of a stream of CUDA.
constexpr int launched_ahead = 1024;

/// Bytes of layers' outputs that a rank's host launches before the device has run any of them: in
/// the forwards of a row up to its first backward, or up to a message, whose size it waits for.
double outputs_ahead(const PlanParts& parts,
                     const std::vector<Action>& row,
                     const LayerSamples& samples) {
    double bytes = 0;
    int kernels = 0;
    for (const Action& action : row) {
        if (is_compute(action.op) ? action.op != Op::Forward
                                  : is_receive(action.op) && kernels > 0) {
            break;
        }
        if (action.op != Op::Forward) {
            continue;
        }
        const int piece = parts.schedule.weights_of_stage[as_index(action.stage)];
        const int first = parts.partition->first_layer(piece);
        for (int layer = first; layer < first + parts.partition->layers_in(piece); ++layer) {
            kernels += std::max(1, samples[as_index(layer)].forward_kernels);
            if (kernels > launched_ahead) {
                return bytes;
            }
            bytes += static_cast<double>(samples[as_index(layer)].output.count);
        }
    }
    return bytes;
}

/// [rank]: copies of weights that gather what replicas have updated, of all stages at once.
std::vector<double> gathered_weights(const PlanParts& parts, double copies) {
    std::vector<double> gathered(parts.schedule.ranks.size());
    for (std::size_t stage = 0; stage < parts.states.size(); ++stage) {
        gathered[as_index(parts.schedule.rank_of_stage[stage])] +=
            copies * static_cast<double>(parts.states[stage].weights.count);
    }
    return gathered;
}

/// The rank of the last stage, which has the logits.
std::size_t rank_of_logits(const Schedule& schedule) {
    const auto last = std::ranges::max_element(schedule.weights_of_stage);
    return as_index(schedule.rank_of_stage[as_index(last - schedule.weights_of_stage.begin())]);
}

}  // namespace

KeptMessages::KeptMessages(const SettledScenario& scenario,
                           const Profile& profile,
                           const StateShards& shards,
                           int micro_batch_size)
    : stack_(stack_of(scenario, profile)) {
    if (!stack_ || !stack_->memory.kept_messages) {
        stack_.reset();
        return;
    }
    has_sums_ = scenario.pipeline.tensor_parallel > 1 && scenario.pipeline.sequence_parallel;
    gathers_ = shards.optimizer > 1 && shards.weights == 1;
    samples_ = samples_at(profile, micro_batch_size);
}

/// Sums of sequence parallelism are of whole outputs, one for each layer of a forward. Replicas
/// that divide the optimizer's state gather the weights of all stages of a rank at once.
void KeptMessages::add_to(PlanParts& parts) const {
    parts.kept_messages.clear();
    if (!stack_) {
        return;
    }
    const Stack::Memory::Kept& kept = stack_->memory.kept_messages->value;
    const auto output = static_cast<double>(samples_.front().output.count);
    for (const double gathered : gathered_weights(parts, gathers_ ? kept.gathered_weights : 0)) {
        const std::size_t rank = parts.kept_messages.size();
        double bytes = gathered;
        if (has_sums_) {
            bytes += kept.tensor_sums * outputs_ahead(parts, parts.schedule.ranks[rank], samples_);
            bytes += rank == rank_of_logits(parts.schedule) ? kept.tensor_copies * output : 0;
        }
        parts.kept_messages.push_back(Bytes{static_cast<std::int64_t>(bytes)});
    }
}

}  // namespace pipetwin
