// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder/finished_run.h"

#include "exec/executor/backend.h"

namespace pipetwin::cli {

std::vector<std::string> notes_of(const FinishedRun& run) {
    std::vector<std::string> notes;
    const Scenario::ClusterPart& cluster = run.scenario.cluster;
    if (exec::traits(cluster.backend).needs_gpu && cluster.gpu_shares == GpuShares::Streams &&
        run.prediction.plan.rank_count() > 1) {
        notes.emplace_back(
            "the ranks took the GPU's multiprocessors as they came (gpu_shares = \"streams\"), so "
            "stages filled each other's gaps: this timing does not validate the schedule");
    }
    for (const exec::StepReport& step : run.training.steps) {
        notes.insert(notes.end(), step.notes.begin(), step.notes.end());
    }
    return notes;
}

}  // namespace pipetwin::cli
