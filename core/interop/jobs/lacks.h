// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/interop/jobs/placed_plan.h"

/// What a plan says and another system has no word for.
namespace pipetwin {

/// One thing that a system cannot say.
struct Lack {
    std::string key;      ///< of the scenario: "pipeline.shard"
    std::string subject;  ///< with its value: "pipeline.shard = \"none\""
    std::string why;      ///< what the system has instead
    std::string hint;     ///< what to set, so that the system can say it
    /// The system says it in other words, or nothing changes in a step: a sentence is enough.
    bool is_remark = false;
};

/// Throws Error(BadInput) for a lack, about its key.
[[noreturn]] void refuse_lack(const Lack& lack);

/// Throws for the first of them that is more than a remark.
void expect_no_lack(const std::vector<Lack>& lacks);

/// Keys that no system has a setting for: what the simulator and the executor of this program do in
/// ways of their own. `system`: its name, for people.
std::vector<Lack> lacks_of_every_system(const PlacedPlan& plan, std::string_view system);

/// What torchtitan's parallelism has no setting for.
std::vector<Lack> torchtitan_lacks(const PlacedPlan& plan);

/// Keys whose values differ from their defaults and that change no step: data, validation,
/// checkpoints. Each as it stands in a scenario, for a comment of what is left to its reader.
std::vector<std::string> keys_for_people(const PlacedPlan& plan);

}  // namespace pipetwin
