// SPDX-License-Identifier: Apache-2.0
#include "cli/training/trainable_space.h"

#include <algorithm>

#include "cli/base/progress.h"
#include "core/model/model.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/generators/generate.h"
#include "exec/base/cores.h"
#include "exec/executor/backend.h"
#include "exec/profiling/profiler.h"

namespace pipetwin::cli {

Scenario trainable_space(Scenario scenario) {
    Scenario::PipelinePart& pipeline = scenario.pipeline;
    pipeline.data_parallel = pipeline.data_parallel.value_or(1);
    pipeline.tensor_parallel = pipeline.tensor_parallel.value_or(1);
    pipeline.context_parallel = pipeline.context_parallel.value_or(1);
    pipeline.expert_parallel = pipeline.expert_parallel.value_or(1);
    pipeline.expert_tensor_parallel = pipeline.expert_tensor_parallel.value_or(0);
    if (scenario.cluster.count == 0 && pipeline.stages.is_auto() &&
        exec::traits(scenario.cluster.backend).on_cores) {
        scenario.cluster.count = static_cast<int>(exec::allowed_cores().size());
    }
    return scenario;
}

Profile measure_open_profile(const Scenario& space, Console& console) {
    Scenario probe = space;
    Scenario::PipelinePart& pipeline = probe.pipeline;
    const Model model = scenario_model(probe);
    const int batch = replica_batch(probe, pipeline.data_parallel.value_or(1));
    const int stages =
        pipeline.stages.value_or(std::clamp(probe.cluster.count, 1, model.layer_count()));
    pipeline.stages = stages;
    pipeline.schedule = pipeline.schedule.value_or(std::string(to_string(ScheduleKind::OneFOneB)));
    pipeline.chunks = pipeline.chunks.value_or(1);
    const bool open_size = pipeline.micro_batches.is_auto();
    pipeline.micro_batches = std::min(batch, pipeline.micro_batches.value_or(2 * stages));
    pipeline.recompute = pipeline.recompute.value_or(Recompute::None);
    pipeline.recompute_modules = pipeline.recompute_modules.value_or(ModuleLists{});
    pipeline.shard = pipeline.shard.value_or(Shard::None);
    pipeline.sequence_parallel = pipeline.sequence_parallel.value_or(false);
    pipeline.scatter_boundaries = pipeline.scatter_boundaries.value_or(false);
    exec::ProfilerOptions options = exec::profiler_options(settle(probe));
    if (open_size) {
        options.micro_batch_sizes = {batch};
        for (int size = 1; size < batch; size *= 4) {
            options.micro_batch_sizes.push_back(size);
        }
        std::ranges::sort(options.micro_batch_sizes);
    }
    options.measures_halves = true;  // any schedule may be chosen
    Progress progress(console, "profile");
    options.progress = [&progress](double share, const std::string& what) {
        progress.update(share, what);
    };
    return exec::profile_model(model, options);
}

}  // namespace pipetwin::cli
