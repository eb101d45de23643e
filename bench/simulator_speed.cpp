// SPDX-License-Identifier: Apache-2.0

// How fast the simulator is: each of its engines on 16 stages x 512 micro-batches of 1f1b, with
// costs of their own for every stage, links with latency and rate, and messages of one size; then a
// step of 1024 x 4096 as a whole.
//
//   build/release/bench/simulator_speed [repetitions] [small]     "small": not the large step
//
// A task is a compute action or a transfer, 16 * 512 * 2 + 15 * 512 * 2 = 31,744 of them. Times are
// processor time of this process, the median of the repetitions, and behind them the time that a
// tenth of the repetitions stay within: what the same work takes while nobody else uses the caches
// and the other half of the core.
#include "bench/clocks.h"
#include "bench/support/memory_track.h"
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <vector>

#include <fmt/format.h>

#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "sim/engine/event_engine.h"
#include "sim/engine/fixed_order.h"
#include "sim/explain/task_graph.h"
#include "sim/simulate/simulate.h"
#include "sim/variation/jitter.h"

namespace {

using namespace pipetwin;
using bench::seconds_of;

double now() {
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

double wall_now() {
    return seconds_of(CLOCK_MONOTONIC);
}

double peak_gigabytes() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) * 1024 / 1e9;
}

/// Stages that differ by up to a third, 1 MB from each to the next, 100 Gbit/s and 5 us between
/// them.
Plan pipeline(int ranks, int micro_batches) {
    PlainCosts costs;
    costs.schedule = ScheduleKind::OneFOneB;
    costs.schedule_name = "1f1b";
    costs.shape = {.ranks = ranks, .micro_batches = micro_batches};
    for (int stage = 0; stage < ranks; ++stage) {
        const int slower = (stage * 7) % 11 * 31'337;
        costs.forward.emplace_back(1'000'003 + slower);
        costs.backward.emplace_back(2'000'017 + 2 * slower);
    }
    costs.link = {.latency = Duration{5'000}, .bytes_per_second = 12.5e9};
    costs.boundary = Bytes{1'000'000};
    return make_plan(costs);
}

double tasks_of(const Plan& plan) {
    const double ranks = plan.rank_count();
    return (4 * ranks - 2) * plan.micro_batches();
}

struct Measured {
    double median = 0;  ///< seconds
    double tenth = 0;
};

template <class Call>
Measured measured(int repetitions, const Call& call) {
    std::vector<double> seconds;
    for (int i = 0; i < repetitions; ++i) {
        const double begin = now();
        call();
        seconds.push_back(now() - begin);
    }
    std::ranges::sort(seconds);
    return {.median = seconds[seconds.size() / 2], .tenth = seconds[seconds.size() / 10]};
}

void print(std::string_view what, double count, std::string_view unit, const Measured& seconds) {
    fmt::print("  {:<44}{:>9.1f} us {:>8.1f} us  {:>6.1f} {:>6.1f} million {}/s\n",
               what,
               1e6 * seconds.median,
               1e6 * seconds.tenth,
               1e-6 * count / seconds.median,
               1e-6 * count / seconds.tenth,
               unit);
}

void measure_engines(int repetitions) {
    const Plan plan = pipeline(16, 512);
    const double tasks = tasks_of(plan);
    const sim::Conditions conditions = sim::planned_conditions(plan);
    fmt::print("16 x 512, {} tasks: median, fastest tenth\n", tasks);

    const sim::TaskGraph graph(plan, conditions);
    std::vector<Duration> ends(graph.tasks().size());
    std::vector<Duration> costs = graph.costs();
    print("fixed order, tasks evaluated again", tasks, "tasks", measured(repetitions, [&] {
              costs.front() += Duration{1};
              graph.evaluate(costs, graph.lags(), ends);
          }));
    const bench::MemoryTrack memory(plan, graph);
    std::vector<Duration> times(memory.size());
    print("... and the memory of every rank followed", tasks, "tasks", measured(repetitions, [&] {
              costs.front() += Duration{1};
              graph.evaluate(costs, graph.lags(), ends);
              memory.evaluate(costs, ends, times);
          }));
    Timeline timeline;
    print("fixed order, one visit per action, timeline", tasks, "tasks", measured(repetitions, [&] {
              timeline = sim::in_fixed_order(plan, conditions, std::move(timeline));
          }));
    print("... without the timeline", tasks, "tasks", measured(repetitions, [&] {
              sim::step_in_fixed_order(plan, conditions);
          }));
    double events = 0;
    const Measured seconds = measured(repetitions, [&] {
        auto counted = sim::by_counted_events(plan, conditions, std::move(timeline));
        events = static_cast<double>(counted.events);
        timeline = std::move(counted.timeline);
    });
    print("event engine, timeline", tasks, "tasks", seconds);
    print("", events, "events", seconds);

    constexpr int samples = 256;
    const sim::Jitter jitter{.compute = 0.05,
                             .transfer = 0.1,
                             .device = 0.02,
                             .spike_probability = 0.001,
                             .spike_factor = 4};
    print("256 samples of jitter",
          samples * tasks,
          "task samples",
          measured(std::max(1, repetitions / 16),
                   [&] { sim::sample_steps(plan, conditions, jitter, samples, 1); }));
}

void measure_large() {
    const Plan plan = pipeline(1024, 4096);
    fmt::print("1024 x 4096, {:.2f} million tasks, the plan takes {:.2f} GB\n",
               1e-6 * tasks_of(plan),
               peak_gigabytes());
    Timeline timeline;
    for (const std::string_view run : {"first", "second", "third"}) {
        const double wall_begin = wall_now();
        const double begin = now();
        timeline = sim::simulate(plan, std::move(timeline));
        const double wall = wall_now() - wall_begin;
        fmt::print(
            "  {:<6} run {:>6.2f} s of processor time, {:.2f} s by the clock, peak {:.2f} GB, step "
            "{}\n",
            run,
            now() - begin,
            wall,
            peak_gigabytes(),
            format_duration(step_time(timeline)));
    }
}

}  // namespace

int main(int count, char** arguments) {
    try {
        measure_engines(count > 1 ? std::atoi(arguments[1]) : 201);
        if (count < 3) {
            measure_large();
        }
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
