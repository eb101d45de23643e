#include "tests/support/accuracy.h"

#include <cstdlib>
#include <exception>

#include <fmt/format.h>

#include "core/scenario.h"

/// Predicted against measured step time of a scenario's model on two stages, for M = 2, 4 and 8:
///
///     accuracy scenarios/gpt-text.toml [steps]
///
/// Each row is a fresh profile, a plan from it, its simulation and a run on random data. To be run
/// on an idle machine; the noise beside each error says whether it was.
int main(int argc, char** argv) {
    using namespace pipetwin;
    if (argc < 2) {
        fmt::print(stderr, "usage: accuracy SCENARIO.toml [steps]\n");
        return 2;
    }
    const int steps = argc > 2 ? std::atoi(argv[2]) : 20;
    try {
        fmt::print("{:>2} {:>13} {:>13} {:>8} {:>8} {:>8} {:>6}\n",
                   "M",
                   "predicted",
                   "measured",
                   "error",
                   "stolen",
                   "p90/p10",
                   "steps");
        for (const int micro_batches : {2, 4, 8}) {
            const Scenario scenario = read_scenario(
                argv[1],
                {{.key = "pipeline.stages", .value = "2"},
                 {.key = "pipeline.micro_batches", .value = std::to_string(micro_batches)}});
            const Model model = scenario_model(scenario);
            const Plan plan = test::profiled_plan(scenario, model);
            const Comparison comparison =
                test::predicted_against_measured(plan, model, scenario, steps);
            fmt::print("{:>2} {:>13} {:>13} {:>+7.2f}% {:>7.2f}% {:>8.3f} {:>6}\n",
                       micro_batches,
                       format_duration(comparison.step.predicted),
                       format_duration(comparison.step.measured),
                       comparison.step.error_percent(),
                       comparison.noise.stolen_percent,
                       comparison.noise.p90_over_p10,
                       comparison.noise.steps);
        }
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}
