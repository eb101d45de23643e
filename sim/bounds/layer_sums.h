// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/as_index.h"
#include "core/base/units.h"
#include "core/costs/layer_division.h"
#include "core/costs/profile.h"
#include "core/scenario/cluster.h"
#include "core/scenario/cost_table.h"

namespace pipetwin {

class Model;
struct SettledScenario;

}  // namespace pipetwin

namespace pipetwin::sim {

/// Sums over the layers of a model for one size of a micro-batch: [i] is the sum of the layers
/// before i. Times are those of the fastest device of the scenario.
struct LayerSums {
    std::vector<Duration> forward{};
    std::vector<Duration> backward_input{};
    std::vector<Duration> backward_weight{};
    std::vector<Duration> update{};  ///< the optimizer's
    std::vector<Bytes> state{};      ///< weights, gradients, optimizer
    std::vector<Bytes> weights{};
    std::vector<Bytes> saved{};
    std::vector<Bytes> split{};  ///< by how much more is kept from I to W; may be less
    /// [layer]: what a device that has it keeps free at least, for weights that are gathered and
    /// gradients that are summed with every micro-batch.
    std::vector<Bytes> room{};
    std::vector<Bytes> input_gradient{};  ///< what the layers hand to those that they read
    Bytes input{};                        ///< of the model
    Bytes least_boundary{};               ///< the least that any cut carries
    Duration dispatch{};                  ///< of every action

    /// What a stage of layers `first` to `end` - 1 keeps of a micro-batch from I to W, beside
    /// `saved`.
    Bytes split_of(int first, int end) const {
        const auto at = [](const std::vector<Bytes>& of, int i) { return of[as_index(i)]; };
        return at(split, end) - at(split, first) + at(input_gradient, end) -
               at(input_gradient, first + 1);
    }
    int layers() const { return static_cast<int>(forward.size()) - 1; }
};

/// All modules in all blocks: what stages keep least with.
RecomputeModules every_module();

/// The sums of a scenario. Where modules are recomputed stage by stage, or as needed, its times are
/// without them, and what layers keep is what `every_module` leaves. Throws as `cost_table`.
LayerSums layer_sums(const SettledScenario& scenario,
                     const Model& model,
                     const Profile& profile,
                     const Cluster& cluster,
                     int micro_batch_size);

/// The sums of a scenario from the rules of its cluster, and from what the layers cost without them
/// on the kinds of its devices (`costs_of_whole_layers`).
LayerSums layer_sums(const SettledScenario& scenario,
                     const Model& model,
                     const Profile& profile,
                     const DeviceKinds& kinds,
                     LayerRules rules,
                     const CostTable& whole);

}  // namespace pipetwin::sim
