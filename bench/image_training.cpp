// SPDX-License-Identifier: Apache-2.0

// A training step of an image model on the CPU beside PyTorch's with channels_last.
//
//   build/release/bench/image_training [rounds] [--two] [--scenario bench/resnet50.toml]
//                                      [--peer bench/peers/torch_resnet.py] [key=value ...]
//
// One thread: fp32 and bf16 on both sides, in processor time. --two: two stages on two cores beside
// one, ours alone, in wall time. All take turns step by step, so that a slow minute slows all; only
// ratios of one run mean something. Settings of the scenario, key=value, are ours alone.
#include "bench/torch_peer.h"
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/median.h"
#include "core/model/model.h"
#include "core/scenario/settled_scenario.h"
#include "exec/data/batch.h"
#include "exec/executor/executor.h"
#include "exec/profiling/profiler.h"

namespace pipetwin::bench {
namespace {

/// One of those that take turns.
struct Runner {
    std::string name;
    std::function<Times()> step;
    std::vector<double> seconds{};
};

struct Arguments {
    int rounds = 5;
    bool two = false;
    std::string scenario = "bench/resnet50.toml";
    std::string peer = "bench/peers/torch_resnet.py";
    std::vector<Override> settings{};
};

Runner ours(const Arguments& arguments, std::string name, std::vector<Override> settings) {
    settings.insert(settings.begin(), arguments.settings.begin(), arguments.settings.end());
    const SettledScenario scenario = settle(read_scenario(arguments.scenario, settings));
    const Model model = scenario_model(scenario);
    const Plan plan =
        make_plan(scenario, model, exec::profile_model(model, exec::profiler_options(scenario)));
    const auto executor =
        std::make_shared<exec::Executor>(plan, model, exec::executor_options(scenario));
    const auto batch = std::make_shared<exec::Batch>(
        exec::open_data(scenario, model)->batch(0, scenario.training.batch));
    const auto count = std::make_shared<int>(0);
    return {.name = std::move(name), .step = [executor, batch, count] {
                const double wall = seconds_of(CLOCK_MONOTONIC);
                const double processor = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
                executor->run_step(*batch, (*count)++);
                return Times{seconds_of(CLOCK_MONOTONIC) - wall,
                             seconds_of(CLOCK_PROCESS_CPUTIME_ID) - processor};
            }};
}

Runner torch(const Arguments& arguments, std::string name, bool bf16) {
    const auto peer = std::make_shared<TorchPeer>(arguments.peer, 1, bf16);
    return {.name = std::move(name), .step = [peer] { return peer->step(); }};
}

/// The first round warms up.
void take_turns(std::vector<Runner>& runners, int rounds, double Times::*time) {
    for (int round = -1; round < rounds; ++round) {
        for (Runner& runner : runners) {
            const Times times = runner.step();
            if (round >= 0) {
                runner.seconds.push_back(times.*time);
            }
        }
    }
}

void print(const std::vector<Runner>& runners, const Runner& against) {
    const double base = median(against.seconds);
    for (const Runner& runner : runners) {
        const double time = median(runner.seconds);
        fmt::print("{:<32} {:>8.3f} s {:>8.3f} s least {:>7.2f} x {}\n",
                   runner.name,
                   time,
                   *std::ranges::min_element(runner.seconds),
                   base / time,
                   against.name);
    }
}

void one_thread(const Arguments& arguments) {
    for (const bool bf16 : {false, true}) {
        const std::string type = bf16 ? "bf16" : "fp32";
        std::vector<Runner> runners;
        runners.push_back(torch(arguments, "PyTorch " + type, bf16));
        runners.push_back(
            ours(arguments, "pipetwin " + type, {{.key = "training.precision", .value = type}}));
        take_turns(runners, arguments.rounds, &Times::processor);
        print(runners, runners.front());
    }
}

void two_stages(const Arguments& arguments) {
    std::vector<Runner> runners;
    runners.push_back(ours(arguments, "one stage", {}));
    for (const char* const micro_batches : {"4", "8", "16"}) {
        runners.push_back(ours(arguments,
                               fmt::format("two stages, {} micro-batches", micro_batches),
                               {{.key = "pipeline.stages", .value = "2"},
                                {.key = "pipeline.micro_batches", .value = micro_batches}}));
    }
    take_turns(runners, arguments.rounds, &Times::wall);
    print(runners, runners.front());
}

}  // namespace
}  // namespace pipetwin::bench

int main(int argc, char** argv) {
    using namespace pipetwin;
    bench::Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "--two") {
            arguments.two = true;
        } else if (argument == "--scenario" && i + 1 < argc) {
            arguments.scenario = argv[++i];
        } else if (argument == "--peer" && i + 1 < argc) {
            arguments.peer = argv[++i];
        } else if (const std::size_t equals = argument.find('='); equals != argument.npos) {
            arguments.settings.push_back({.key = std::string(argument.substr(0, equals)),
                                          .value = std::string(argument.substr(equals + 1))});
        } else {
            arguments.rounds = std::max(1, std::atoi(argv[i]));
        }
    }
    ::signal(SIGPIPE, SIG_IGN);
    try {
        if (arguments.two) {
            bench::two_stages(arguments);
        } else {
            bench::one_thread(arguments);
        }
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}
