// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/units.h"
#include "core/plan/layer_modules.h"
#include "core/plan/module_knapsack.h"
#include "core/plan/plan.h"

namespace pipetwin::sim {

/// Which modules the ranks of a plan compute again for the memory that they lack.
class ModuleChoice {
  public:
    /// `samples`: with modules (core/plan/layer_modules.h), of the plan's layers. `plan` says which
    /// rank has which layers, and how many micro-batches of them at once.
    ModuleChoice(const LayerSamples& samples, const std::vector<int>& blocks, const Plan& plan);

    /// Lists of a rank's pieces, and what they give back.
    struct Answer {
        std::vector<int> pieces{};                ///< of the model
        std::vector<RecomputeModules> modules{};  ///< [piece of the rank]
        Bytes given{};
    };

    /// The modules that give `need` bytes back in the least time, by an exact knapsack over the
    /// number of first blocks of each module; none where all modules give less. A module gives what
    /// all micro-batches that are alive at once keep for it: what a backward has of one block while
    /// it computes it again is not taken off.
    std::optional<Answer> least_time(int rank, Bytes need) const;

  private:
    struct Class {
        int piece = 0;
        KnapsackClass choices{};
        std::vector<RecomputeModules> modules{};  ///< [choice]
    };

    std::vector<std::vector<Class>> classes_{};  ///< [rank]
};

}  // namespace pipetwin::sim
