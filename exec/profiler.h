#pragma once

#include <functional>
#include <string>

#include "core/model.h"
#include "core/profile.h"
#include "core/scenario.h"

namespace pipetwin::exec {

struct ProfilerOptions {
    std::vector<int> micro_batch_sizes;  ///< each is measured
    int stashes = 1;                     ///< how many micro-batches are alive at once in the schedule
    int busy_workers = 1;                ///< how many workers run at the same time (interference)
    int repeats = 0;                     ///< 0: until the spread settles, within a time budget
    Precision precision = Precision::Fp32;
    OptimizerKind optimizer = OptimizerKind::AdamW;
    std::uint64_t seed = 1;
    std::function<void(double share, const std::string& what)> progress;
};

/// Measures per-layer costs on this machine through the executor's own layers, with the schedule's own memory
/// footprint and with the other cores busy; and the link between two workers. Works on a copy: no weights, gradients or
/// random state of anybody change (C28). Medians; reports the spread.
Profile profile_model(const Model& model, const ProfilerOptions& options);

/// The options that fit a settled scenario: its micro-batch sizes and its in-flight micro-batches.
ProfilerOptions profiler_options(const Scenario& scenario);

}  // namespace pipetwin::exec
