// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/profiled_plan.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"
#include "exec/base/noise.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"

/// How much faster two stages on two cores are than one stage on one core, M = 8, nothing
/// recomputed:
///
///     pipeline_speedup scenarios/gpt-text.toml [steps]
///
/// The two take turns step by step, so that a slow minute slows both. Times are wall times of whole
/// calls; the ratio is that of the quiet steps (exec/base/noise.h), since a disturbance on either
/// core delays the pipeline, and the ratio over all steps stands beside it.
namespace {

using namespace pipetwin;

std::unique_ptr<exec::Executor> executor_of(const SettledScenario& scenario, const Model& model) {
    exec::ExecutorOptions options;
    options.precision = scenario.training.precision;
    options.optimizer = exec::optimizer_settings(scenario);
    options.optimizer.learning_rate = 1e-6;  // so that random data leads nowhere
    return std::make_unique<exec::Executor>(
        accuracy::profiled_plan(scenario, model), model, options);
}

Duration time_of_step(exec::Executor& executor, const exec::Batch& batch, int step) {
    const auto begin = std::chrono::steady_clock::now();
    executor.run_step(batch, step);
    return std::chrono::steady_clock::now() - begin;
}

/// Medians of one side, in seconds.
struct Speed {
    explicit Speed(const std::vector<Duration>& times) : all(median(times)) {
        std::vector<Duration> fast = times;
        const Duration longest = exec::longest_quiet_time(times);
        std::erase_if(fast, [longest](Duration time) { return time > longest; });
        quiet_steps = fast.size();
        quiet = median(fast);
    }
    static double median(const std::vector<Duration>& times) {
        return to_seconds(exec::quantile(times, 0.5));
    }
    double all = 0;
    double quiet = 0;
    std::size_t quiet_steps = 0;
};

void compare_speeds(const char* file, int steps) {
    const auto scenario_of = [file](const char* stages) {
        return settle(read_scenario(file,
                                    {{.key = "pipeline.stages", .value = stages},
                                     {.key = "pipeline.micro_batches", .value = "8"},
                                     {.key = "pipeline.recompute", .value = "none"}}));
    };
    const SettledScenario one_stage = scenario_of("1");
    const Model model = scenario_model(one_stage);
    const auto alone = executor_of(one_stage, model);
    const auto pipeline = executor_of(scenario_of("2"), model);
    const exec::Batch batch = exec::random_batch(model, one_stage.training.batch, 1);
    std::vector<Duration> alone_times;
    std::vector<Duration> pipeline_times;
    constexpr int warm_up = 2;
    for (int step = 0; step < warm_up + steps; ++step) {
        const Duration one = time_of_step(*alone, batch, step);
        const Duration two = time_of_step(*pipeline, batch, step);
        if (step >= warm_up) {
            alone_times.push_back(one);
            pipeline_times.push_back(two);
        }
    }
    const Speed one(alone_times);
    const Speed two(pipeline_times);
    fmt::print("K=1, one core:  {:.4f} s per step, {} of {} steps quiet\n",
               one.quiet,
               one.quiet_steps,
               steps);
    fmt::print("K=2, two cores: {:.4f} s per step, {} of {} steps quiet\n",
               two.quiet,
               two.quiet_steps,
               steps);
    fmt::print("speed-up:       {:.3f} (medians of the quiet steps; of all steps {:.3f})\n",
               one.quiet / two.quiet,
               one.all / two.all);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        fmt::print(stderr, "usage: pipeline_speedup SCENARIO.toml [steps]\n");
        return 2;
    }
    try {
        compare_speeds(argv[1], argc > 2 ? std::atoi(argv[2]) : 31);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}
