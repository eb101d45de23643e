// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/costs/collectives/link_cost.h"
#include "core/costs/layer_division.h"
#include "core/costs/profile.h"
#include "core/partition/partition.h"

/// Modules of layers that backwards compute again, or whose inputs are in host memory meanwhile.
namespace pipetwin {

class Model;

/// What a scenario says of modules.
struct ModuleRules {
    ModuleLists recompute{};
    std::vector<OffloadModules> offload{};  ///< none, one for all stages, or one for each piece
    double offload_fraction = 1;            ///< of the blocks of a piece, its first ones
    int recompute_only = 0;  ///< first blocks of a piece that are computed again whole; 0: all
    std::optional<LinkCost> host_link{};  ///< none: copies take no time

    bool are_any() const;
    /// Whether what is done with a layer depends on the piece that has it, or on its place there.
    bool depend_on_pieces() const;

    bool operator==(const ModuleRules&) const = default;
};

/// What is done with one layer. A module that is computed again has all blocks here.
struct ModulesOfLayer {
    RecomputeModules recompute{};
    OffloadModules offload{};
    bool keeps = false;  ///< its block is not computed again whole, whatever others are

    bool operator==(const ModulesOfLayer&) const = default;
};

/// [layer]: the number of its block, from 0: layers under one numbered name are of one block, every
/// other layer is one by itself.
std::vector<int> blocks_of_layers(const Model& model);

/// [layer]: what the rules say of it in the partition. Of a piece with n blocks that keep anything
/// for a module, `blocks` of a list means the first ones; of a fraction f of its blocks the first
/// n - floor(n (1 - f)) offload (Megatron-LM,
/// megatron/core/pipeline_parallel/fine_grained_activation_offload.py).
std::vector<ModulesOfLayer> modules_of_layers(const LayerSamples& samples,
                                              const std::vector<int>& blocks,
                                              const Partition& partition,
                                              const ModuleRules& rules);

/// [layer]: what the rules say of a layer of the model in the partition, `keeps` included. Throws
/// Error(Infeasible) where the first blocks of pieces are computed again and the model has
/// branches, or names that show no blocks.
std::vector<ModulesOfLayer> modules_of_layers(const Model& model,
                                              const LayerSamples& samples,
                                              const Partition& partition,
                                              const ModuleRules& rules);

/// The samples of layers with `modules` of each. What a module makes is dropped, and a backward
/// computes it again; experts with their messages, and all that modules inside of them make, too.
///
/// Inputs that go to host memory are copied while their block computes, and a forward or backward
/// of a block takes the longer of its computation and its copies; two blocks' inputs at most are on
/// the device, of the block that computes and of the one whose copies are on their way. Inputs that
/// recompute makes again do not go.
LayerSamples with_modules(LayerSamples samples,
                          const std::vector<int>& blocks,
                          const std::vector<ModulesOfLayer>& modules,
                          const std::optional<LinkCost>& host_link);

/// Lets a forward and a backward of the layers `first` to `end` - 1, a block, last no less than a
/// copy of so many bytes to or from host memory does. `host_link`: none: copies take no time.
void add_copies(LayerSamples& samples,
                std::size_t first,
                std::size_t end,
                Bytes bytes,
                const std::optional<LinkCost>& host_link);

}  // namespace pipetwin
