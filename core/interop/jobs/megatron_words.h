// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/interop/jobs/job_text.h"
#include "core/interop/jobs/megatron_job.h"

/// What the jobs that start Megatron have in common.
namespace pipetwin {

/// A plan that Megatron can say.
struct MegatronJob {
    MegatronPlanFlags plan;
    JobNodes nodes;
    std::vector<std::string> remarks;  ///< sentences
};

/// Throws Error(BadInput) about the first key that Megatron cannot say.
MegatronJob megatron_job(const PlacedPlan& plan);

/// Flags that belong together, each with its value.
struct FlagGroup {
    std::string_view name;
    std::string_view flags_with{};  ///< parts of their names, apart by blanks
    std::vector<std::string> flags{};
};

/// The flags of the job in groups for readers: those of the model, of the split and of the
/// training, optimizer and learning rates among them.
std::vector<FlagGroup> flag_groups(const PlacedPlan& plan, const MegatronJob& job);

/// The flags that stand for data until there are some: random tokens of so many words that the
/// model has the plan's. Megatron's NullTokenizer adds one, for the end of a document.
std::string stand_in_data(const MegatronJob& job);

/// The flags of a line, each with its value.
std::vector<std::string> flags_of_line(std::string_view line);

/// Steps, learning rates and the numbers of the optimizer.
std::vector<std::string> training_flags(const PlacedPlan& plan);

}  // namespace pipetwin
