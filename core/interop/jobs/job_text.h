// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/interop/jobs/placed_plan.h"

/// Parts that the texts of several systems share.
namespace pipetwin {

/// A real number that reads back as one, "1.0" and "3e-04", in TOML, YAML, JSON and Python.
std::string real_text(double value);

/// The numbers of Adam, with the defaults of a scenario.
struct AdamNumbers {
    double beta1 = 0;
    double beta2 = 0;
    double epsilon = 0;
    double weight_decay = 0;
};
AdamNumbers adam_numbers(const PlacedPlan& plan);

/// What the plan is, for the head of a file: "4 stages, 1f1b, 8 micro-batches, 8 GPUs".
std::string plan_in_words(const PlacedPlan& plan);

/// Lines of a comment, each behind "# ", broken at 96 columns.
std::string comment_lines(const std::vector<std::string>& sentences);

/// How the devices of a plan lie on nodes.
struct JobNodes {
    int nodes = 1;
    int per_node = 1;  ///< devices
};

/// All devices of the plan, on as few nodes as they fill. Throws Error(BadInput) about
/// cluster.per_node where the last node would have fewer than the others.
JobNodes job_nodes(const PlacedPlan& plan);

}  // namespace pipetwin
