#include "tests/support/accuracy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/scenario.h"

/// Predicted against measured step time of a scenario's model on two stages, for M = 2, 4 and 8:
///
///     accuracy scenarios/gpt-text.toml [steps] [rounds]
///
/// Each row is a fresh profile, a plan from it, its simulation and a run on random data. To be run
/// on an idle machine; the noise beside each error says whether it was. Rounds take turns over M,
/// and the last rows are the medians over them.
namespace {

using namespace pipetwin;

constexpr std::array micro_batch_counts{2, 4, 8};

Comparison measure(const char* file, int micro_batches, int steps) {
    const Scenario scenario =
        read_scenario(file,
                      {{.key = "pipeline.stages", .value = "2"},
                       {.key = "pipeline.micro_batches", .value = std::to_string(micro_batches)}});
    const Model model = scenario_model(scenario);
    return test::predicted_against_measured(
        test::profiled_plan(scenario, model), model, scenario, steps);
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

void print_rows(const char* file, int steps, int rounds) {
    fmt::print("{:>2} {:>13} {:>13} {:>8} {:>8} {:>8} {:>6}\n",
               "M",
               "predicted",
               "measured",
               "error",
               "stolen",
               "p90/p10",
               "steps");
    std::map<int, std::vector<double>> errors;
    std::map<int, std::vector<double>> sizes_of_errors;
    for (int round = 0; round < rounds; ++round) {
        for (const int micro_batches : micro_batch_counts) {
            const Comparison comparison = measure(file, micro_batches, steps);
            errors[micro_batches].push_back(comparison.step.error_percent());
            sizes_of_errors[micro_batches].push_back(std::abs(comparison.step.error_percent()));
            fmt::print("{:>2} {:>13} {:>13} {:>+7.2f}% {:>7.2f}% {:>8.3f} {:>6}\n",
                       micro_batches,
                       format_duration(comparison.step.predicted),
                       format_duration(comparison.step.measured),
                       comparison.step.error_percent(),
                       comparison.noise.stolen_percent,
                       comparison.noise.p90_over_p10,
                       comparison.noise.steps);
            std::fflush(stdout);
        }
    }
    for (const int micro_batches : micro_batch_counts) {
        fmt::print("M = {}: median error {:+.2f} %, median of its size {:.2f} %, {} rounds\n",
                   micro_batches,
                   median(errors[micro_batches]),
                   median(sizes_of_errors[micro_batches]),
                   rounds);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        fmt::print(stderr, "usage: accuracy SCENARIO.toml [steps] [rounds]\n");
        return 2;
    }
    const int steps = argc > 2 ? std::atoi(argv[2]) : 20;
    const int rounds = argc > 3 ? std::atoi(argv[3]) : 3;
    if (steps < 1 || rounds < 1) {
        fmt::print(stderr, "steps and rounds: expected at least 1\n");
        return 2;
    }
    try {
        print_rows(argv[1], steps, rounds);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}
