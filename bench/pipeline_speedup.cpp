#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "core/profile.h"
#include "core/scenario.h"
#include "exec/executor.h"
#include "exec/random_batch.h"
#include "tests/support/accuracy.h"

/// How much faster two stages on two cores are than one stage on one core, M = 8, nothing
/// recomputed:
///
///     pipeline_speedup scenarios/gpt-text.toml [steps]
///
/// The two take turns step by step, so that a slow minute slows both. Times are wall times of whole
/// calls.
namespace {

using namespace pipetwin;

std::unique_ptr<exec::Executor> executor_of(const Scenario& scenario, const Model& model) {
    exec::ExecutorOptions options;
    options.precision = scenario.training.precision;
    options.optimizer = exec::optimizer_settings(scenario);
    options.optimizer.learning_rate = 1e-6;  // so that random data leads nowhere
    return std::make_unique<exec::Executor>(test::profiled_plan(scenario, model), model, options);
}

double seconds_of_step(exec::Executor& executor, const exec::Batch& batch, int step) {
    const auto begin = std::chrono::steady_clock::now();
    executor.run_step(batch, step);
    return to_seconds(std::chrono::steady_clock::now() - begin);
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

void compare_speeds(const char* file, int steps) {
    const auto scenario_of = [file](const char* stages) {
        return read_scenario(file,
                             {{.key = "pipeline.stages", .value = stages},
                              {.key = "pipeline.micro_batches", .value = "8"},
                              {.key = "pipeline.recompute", .value = "none"}});
    };
    const Scenario one_stage = scenario_of("1");
    const Model model = scenario_model(one_stage);
    const auto alone = executor_of(one_stage, model);
    const auto pipeline = executor_of(scenario_of("2"), model);
    const exec::Batch batch = exec::random_batch(model, one_stage.training.batch, 1);
    std::vector<double> alone_seconds;
    std::vector<double> pipeline_seconds;
    constexpr int warm_up = 2;
    for (int step = 0; step < warm_up + steps; ++step) {
        const double one = seconds_of_step(*alone, batch, step);
        const double two = seconds_of_step(*pipeline, batch, step);
        if (step >= warm_up) {
            alone_seconds.push_back(one);
            pipeline_seconds.push_back(two);
        }
    }
    fmt::print("K=1, one core:  {:.4f} s per step\n", median(alone_seconds));
    fmt::print("K=2, two cores: {:.4f} s per step\n", median(pipeline_seconds));
    fmt::print("speed-up:       {:.3f} (medians of {} steps, taken in turns)\n",
               median(alone_seconds) / median(pipeline_seconds),
               steps);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        fmt::print(stderr, "usage: pipeline_speedup SCENARIO.toml [steps]\n");
        return 2;
    }
    try {
        compare_speeds(argv[1], argc > 2 ? std::atoi(argv[2]) : 11);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}
