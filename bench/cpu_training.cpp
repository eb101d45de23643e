// SPDX-License-Identifier: Apache-2.0

// A training step of a GPT on the CPU beside PyTorch's, and beside what the machine could do at
// best.
//
//   build/release/bench/cpu_training [rounds] [--threads 1|2] [--precision fp32|bf16]
//                                    [--llama] [--peer-bf16] [--peer bench/peers/torch_gpt.py]
//
// GPT with 4 layers, d 512, 8 heads, 256 positions, 8 samples, vocabulary 8192, AdamW; with --llama
// a Llama as wide: 2 heads of keys and values, 1408 numbers between gates and values. All take
// turns step by step, so that a slow minute slows all; only ratios of one run mean something. One
// thread is measured in processor time, two in wall time. PIPETWIN_PEER_PYTHON is the program that
// runs the peer's script; without it Debian's Python does. Each precision has PyTorch's in turn,
// but bf16 has PyTorch's fp32 where the processor has no instructions for bf16, unless --peer-bf16
// is given: PyTorch takes minutes for each step there.
//
// The ceiling is the time of the step's own matrix products, called bare, by whichever is fastest
// of OpenBLAS (fp32) and oneDNN (where they are installed) and ours, and of the bytes that every
// other pass must move at the bandwidth that this machine shows in the same run.
#include "bench/torch_peer.h"
#include "bench/training_ceiling.h"
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/median.h"
#include "core/model/model.h"
#include "core/model/transformers.h"
#include "core/scenario/choices.h"
#include "core/scenario/settled_scenario.h"
#include "exec/cpu/products/products.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "exec/profiling/profiler.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::bench {
namespace {

/// One of those that take turns.
struct Runner {
    std::string name;
    std::function<Times()> step;
    std::vector<double> wall{};
    std::vector<double> processor{};
    std::function<double()> bound{};  ///< seconds; none: of no pipeline
};

Model model(const Sizes& sizes) {
    if (sizes.llama) {
        return llama_model({.layers = sizes.layers,
                            .d_model = sizes.width,
                            .heads = sizes.heads,
                            .key_value_heads = sizes.key_value_heads,
                            .context = sizes.positions,
                            .vocabulary = sizes.vocabulary,
                            .feed_forward = sizes.feed_forward});
    }
    return gpt_model({.layers = sizes.layers,
                      .d_model = sizes.width,
                      .heads = sizes.heads,
                      .context = sizes.positions,
                      .vocabulary = sizes.vocabulary,
                      .feed_forward = sizes.feed_forward});
}

/// The seconds of a step whose actions last as long as theirs did in the middle one of these steps,
/// with nothing between them: what the schedule allows.
double schedule_bound(const Plan& plan, const std::vector<Timeline>& steps) {
    std::vector<sim::Conditions> of_steps;
    for (const Timeline& step : steps) {
        of_steps.push_back(sim::conditions_of(plan, step));
    }
    sim::Conditions middle = sim::without_communication(of_steps.front());
    for (std::size_t rank = 0; rank < middle.durations.size(); ++rank) {
        for (std::size_t cell = 0; cell < middle.durations[rank].size(); ++cell) {
            std::vector<double> nanoseconds;
            for (const sim::Conditions& step : of_steps) {
                nanoseconds.push_back(static_cast<double>(step.durations[rank][cell].count()));
            }
            middle.durations[rank][cell] = Duration{std::llround(median(nanoseconds))};
        }
    }
    return to_seconds(sim::replayed_step(plan, middle));
}

/// What of a plan differs from one runner to the next.
struct Shape {
    Sizes sizes;
    int stages = 1;
    int chunks = 1;
    int micro_batches = 1;
    std::string schedule = "gpipe";
    std::optional<std::vector<int>> partition{};
    Precision precision = Precision::Fp32;
};

SettledScenario scenario_of(const Shape& shape) {
    SettledScenario scenario;
    scenario.training.batch = shape.sizes.batch;
    scenario.training.precision = shape.precision;
    scenario.training.learning_rate = 3e-4;
    scenario.pipeline.stages = shape.stages;
    scenario.pipeline.chunks = shape.chunks;
    scenario.pipeline.micro_batches = shape.micro_batches;
    scenario.pipeline.schedule = shape.schedule;
    scenario.pipeline.recompute = Recompute::None;
    scenario.pipeline.partition = shape.partition;
    return scenario;
}

Runner ours(const Shape& shape) {
    const Model gpt = model(shape.sizes);
    const SettledScenario scenario = scenario_of(shape);
    const exec::ExecutorOptions options = exec::executor_options(scenario);
    const Plan plan = exec::unmeasured_plan(scenario, gpt);
    const auto executor = std::make_shared<exec::Executor>(plan, gpt, options);
    const auto timelines = std::make_shared<std::vector<Timeline>>();
    const auto batch = std::make_shared<exec::Batch>(exec::random_batch(gpt, shape.sizes.batch, 1));
    const auto result = std::make_shared<exec::StepResult>();
    const auto count = std::make_shared<int>(0);
    const auto step = [executor, batch, result, count, timelines] {
        const double wall = seconds_of(CLOCK_MONOTONIC);
        const double processor = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        executor->run_step(*batch, *count, *result);
        const Times times{seconds_of(CLOCK_MONOTONIC) - wall,
                          seconds_of(CLOCK_PROCESS_CPUTIME_ID) - processor};
        if ((*count)++ > 0) {  // the first warms up
            timelines->push_back(result->timeline);
        }
        return times;
    };
    std::string cut = "-";
    if (shape.partition) {
        cut = fmt::format("{}", fmt::join(*shape.partition, "+"));
    }
    return {.name = fmt::format("pipetwin {} K={} {} M={} {}",
                                to_string(shape.precision),
                                shape.stages,
                                shape.schedule,
                                shape.micro_batches,
                                cut),
            .step = step,
            .bound = [plan, timelines] { return schedule_bound(plan, *timelines); }};
}

void take_turns(std::vector<Runner>& runners, int rounds, const std::function<void()>& after = {}) {
    for (int round = -1; round < rounds; ++round) {  // the first warms up
        for (Runner& runner : runners) {
            const Times times = runner.step();
            if (round >= 0) {
                runner.wall.push_back(times.wall);
                runner.processor.push_back(times.processor);
            }
        }
        if (after && round >= 0) {
            after();
        }
    }
}

using Seconds = std::vector<double> Runner::*;

void print(const std::vector<Runner>& runners, Seconds seconds, const Runner& against) {
    const double tokens = gpt_sizes.batch * gpt_sizes.positions;
    const double base = median(against.*seconds);
    for (const Runner& runner : runners) {
        const double time = median(runner.*seconds);
        fmt::print("{:<46} {:>8.3f} s {:>8.3f} s least {:>8.0f} tokens/s {:>7.2f} x\n",
                   runner.name,
                   time,
                   *std::ranges::min_element(runner.*seconds),
                   tokens / time,
                   base / time);
    }
}

struct Arguments {
    int rounds = 5;
    int threads = 0;  ///< 0: one, and then two
    bool peer_bf16 = exec::multiplies_bf16();
    std::vector<Precision> precisions{Precision::Fp32, Precision::Bf16};
    Sizes sizes = gpt_sizes;
    std::string peer = "bench/peers/torch_gpt.py";
};

/// PyTorch in this precision, but in fp32 where a step in bf16 would take it minutes.
struct Peer {
    Peer(const Arguments& arguments, int threads, Precision wanted)
        : precision(wanted == Precision::Bf16 && arguments.peer_bf16 ? Precision::Bf16
                                                                     : Precision::Fp32),
          torch(
              std::make_shared<TorchPeer>(arguments.peer, threads, precision == Precision::Bf16)) {}

    Runner runner() const {
        return {.name = fmt::format("PyTorch {} {}", torch->version, to_string(precision)),
                .step = [torch = torch] { return torch->step(); }};
    }

    Precision precision;
    std::shared_ptr<TorchPeer> torch;
};

/// Prints the step that products and memory allow on so many threads.
void print(const Ceiling& ceiling, int threads, double against) {
    const double best = ceiling.step() / threads;
    fmt::print("{:<46} {:>8.3f} s {:>41.2f} x\n", "ceiling", best, against / best);
}

exec::DType type_of(Precision precision) {
    return precision == Precision::Bf16 ? exec::DType::BF16 : exec::DType::F32;
}

void one_thread(const Arguments& arguments, Precision precision) {
    const Peer peer(arguments, 1, precision);
    Ceiling ceiling(arguments.sizes, peer.torch->parameters, type_of(precision));
    std::vector<Runner> runners{peer.runner()};
    for (const int micro_batches : {1, 8}) {
        runners.push_back(ours({.sizes = arguments.sizes,
                                .stages = 1,
                                .micro_batches = micro_batches,
                                .schedule = "1f1b",
                                .precision = precision}));
    }
    take_turns(runners, arguments.rounds, [&ceiling] { ceiling.measure(); });
    ceiling.print();
    fmt::print("\none thread, processor time\n");
    print(runners, &Runner::processor, runners.front());
    print(ceiling, 1, median(runners.front().processor));
}

void two_threads(const Arguments& arguments, Precision precision) {
    const Peer peer(arguments, 2, precision);
    Ceiling ceiling(arguments.sizes, peer.torch->parameters, type_of(precision));
    std::vector<Runner> runners{peer.runner()};
    struct Way {
        const char* schedule;
        int micro_batches;
        std::vector<int> cut;
    };
    // The head alone is a quarter of the step: in a V, with it and the first layers on one rank,
    // both ranks have the same work.
    const std::vector<Way> ways{{"1f1b", 8, {6, 4}},
                                {"zb-h1", 8, {6, 4}},
                                {"zb-v", 8, {2, 3, 2, 3}},
                                {"zb-v", 4, {2, 3, 2, 3}}};
    for (const Way& way : ways) {
        runners.push_back(ours({.sizes = arguments.sizes,
                                .stages = 2,
                                .chunks = static_cast<int>(way.cut.size()) / 2,
                                .micro_batches = way.micro_batches,
                                .schedule = way.schedule,
                                .partition = way.cut,
                                .precision = precision}));
    }
    take_turns(runners, arguments.rounds, [&ceiling] { ceiling.measure(); });
    fmt::print("\ntwo threads, wall time; the ceiling is half of one thread's\n");
    print(runners, &Runner::wall, runners.front());
    print(ceiling, 2, median(runners.front().wall));
    fmt::print(
        "\nthe schedule's bound by the actions of the same steps, and the share of the step "
        "that it is\n");
    for (const Runner& runner : runners) {
        if (runner.bound) {
            const double bound = runner.bound();
            fmt::print(
                "{:<46} {:>8.3f} s {:>8.3f}\n", runner.name, bound, bound / median(runner.wall));
        }
    }
}

}  // namespace
}  // namespace pipetwin::bench

int main(int argc, char** argv) {
    using namespace pipetwin;
    bench::Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "--peer-bf16") {
            arguments.peer_bf16 = true;
        } else if (argument == "--precision" && i + 1 < argc) {
            arguments.precisions = {std::string_view(argv[++i]) == "bf16" ? Precision::Bf16
                                                                          : Precision::Fp32};
        } else if (argument == "--llama") {
            arguments.sizes = bench::llama_sizes;
            arguments.peer = "bench/peers/torch_llama.py";
        } else if (argument == "--threads" && i + 1 < argc) {
            arguments.threads = std::atoi(argv[++i]);
        } else if (argument == "--peer" && i + 1 < argc) {
            arguments.peer = argv[++i];
        } else {
            arguments.rounds = std::max(1, std::atoi(argv[i]));
        }
    }
    ::signal(SIGPIPE, SIG_IGN);
    try {
        fmt::print("matrix products by the kernel \"{}\"\n", exec::product_kernel());
        for (const Precision precision : arguments.precisions) {
            if (arguments.threads != 2) {
                bench::one_thread(arguments, precision);
            }
            if (arguments.threads != 1) {
                bench::two_threads(arguments, precision);
            }
        }
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}
