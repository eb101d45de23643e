// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/interop/jobs/placed_plan.h"
#include "core/interop/megatron_flags.h"
#include "core/interop/megatron_layout.h"

/// Plans in the flags of Megatron-LM, and as jobs of clusters that start it.
namespace pipetwin {

/// What is to be said about a plan in another system's words.
struct PlanNote {
    std::string text;   ///< a sentence
    std::string key{};  ///< of the scenario, where the system cannot say it; empty: a remark
    std::string hint{};
};

/// Notes in the order in which they are found.
class PlanNotes {
  public:
    void remark(std::string text) { all_.push_back({.text = std::move(text)}); }
    void lack(std::string key, std::string text, std::string hint) {
        all_.push_back({.text = std::move(text), .key = std::move(key), .hint = std::move(hint)});
    }

    const std::vector<PlanNote>& all() const { return all_; }

  private:
    std::vector<PlanNote> all_;
};

/// The stages as Megatron's layout. A note says where Megatron runs another schedule. Throws as
/// `megatron_layout`.
MegatronLayout megatron_plan_layout(const PlacedPlan& plan, PlanNotes& notes);

/// A plan in Megatron's flags.
struct MegatronPlanFlags {
    MegatronFlags flags;
    std::vector<std::string> further;  ///< flags without a member, each with its value
    bool knows_model = false;          ///< the sizes of the model are among them

    /// All of them in one line, without its end.
    std::string line() const;
};

/// What Megatron cannot say is a note. Throws Error(Infeasible), about a key, for what its flags
/// would say of all stages alike, and as `megatron_layout`.
MegatronPlanFlags megatron_plan_flags(const PlacedPlan& plan, PlanNotes& notes);

/// A Slurm script that starts Megatron-LM with the flags of a plan on its nodes. Throws
/// Error(BadInput) about the first key that Megatron cannot say.
std::string print_slurm_script(const PlacedPlan& plan);

/// A script that each node runs where there is no Slurm: torchrun with Megatron-LM and the flags of
/// a plan. Throws alike.
std::string print_launch_script(const PlacedPlan& plan);

/// A TrainJob of Kubeflow's trainer that does the same. Throws alike.
std::string print_kubernetes_job(const PlacedPlan& plan);

/// A YAML file that overrides a recipe of Megatron-Bridge. Throws alike.
std::string print_bridge_overrides(const PlacedPlan& plan);

}  // namespace pipetwin
