// SPDX-License-Identifier: Apache-2.0

// How fast schedules are made, completed and checked, beside a plain copy of the same rows:
// absolute times move from hour to hour, so only the ratios of one run mean something.
//
//   build/release/bench/schedule_core [ranks] [micro-batches]
//
// Without numbers 64 ranks and 1024 micro-batches, then 1024 and 4096. Memory is the largest that
// the process has had up to that line.
#include <sys/resource.h>
#include <time.h>

#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"

namespace {

using namespace pipetwin;

/// Processor time of this process: what other programs take does not count.
double now() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Call>
double seconds(const Call& call) {
    const double begin = now();
    call();
    return now() - begin;
}

double peak_gigabytes() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) * 1024 / 1e9;
}

std::size_t action_count(const Schedule& schedule) {
    std::size_t count = 0;
    for (const auto& row : schedule.ranks) {
        count += row.size();
    }
    return count;
}

struct Times {
    double generate = 0;
    double lower = 0;
    double validate = 0;
    double deadlock = 0;
    double copy = 0;

    double sum() const { return generate + lower + validate + deadlock; }
};

struct Case {
    ScheduleKind kind;
    Recompute recompute = Recompute::None;
};

/// What is measured once per schedule; the result is the lowered one.
Schedule measure(const Case& what, const ScheduleShape& shape, Times& times) {
    Schedule schedule;
    times.generate = seconds([&] { schedule = generate(what.kind, shape); });
    times.lower = seconds([&] {
        schedule = add_recompute(std::move(schedule), what.recompute);
        schedule = add_communication(std::move(schedule), RecomputeTiming::Lazy);
        schedule = add_optimizer(std::move(schedule));
    });
    times.validate = seconds([&] { require_valid(schedule, to_string(what.kind)); });
    times.deadlock =
        seconds([&] { require_deadlock_free(schedule, std::nullopt, to_string(what.kind)); });
    Schedule copy;
    times.copy = seconds([&] { copy = schedule; });
    return copy;
}

/// The fastest of a few runs.
Times fastest(const Case& what, const ScheduleShape& shape, int runs, std::size_t& actions) {
    Times best;
    for (int run = 0; run < runs; ++run) {
        Times times;
        actions = action_count(measure(what, shape, times));
        if (run == 0 || times.sum() < best.sum()) {
            best = times;
        }
    }
    return best;
}

void print_table(const ScheduleShape& shape, int runs) {
    fmt::print("{} ranks, {} micro-batches; seconds of processor time, the fastest of {}\n",
               shape.ranks,
               shape.micro_batches,
               runs);
    fmt::print("{:<18}{:>10}{:>10}{:>8}{:>10}{:>10}{:>8}{:>8}{:>8}{:>9}\n",
               "schedule",
               "actions",
               "generate",
               "lower",
               "validate",
               "deadlock",
               "sum",
               "copy",
               "/ copy",
               "peak GB");
    for (const Case& what : {Case{ScheduleKind::GPipe},
                             Case{ScheduleKind::OneFOneB},
                             Case{ScheduleKind::Interleaved1F1B},
                             Case{ScheduleKind::ZbH1},
                             Case{ScheduleKind::OneFOneB, Recompute::Always}}) {
        std::size_t actions = 0;
        const Times times = fastest(what, shape, runs, actions);
        const bool recomputed = what.recompute != Recompute::None;
        fmt::print(
            "{:<18}{:>10}{:>10.4f}{:>8.4f}{:>10.4f}{:>10.4f}{:>8.4f}{:>8.4f}{:>8.1f}{:>9.3f}\n",
            fmt::format("{}{}", to_string(what.kind), recomputed ? " + R" : ""),
            actions,
            times.generate,
            times.lower,
            times.validate,
            times.deadlock,
            times.sum(),
            times.copy,
            times.sum() / times.copy,
            peak_gigabytes());
    }
    fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc > 2) {
            print_table({.ranks = std::atoi(argv[1]), .micro_batches = std::atoi(argv[2])}, 3);
            return 0;
        }
        print_table({.ranks = 64, .micro_batches = 1024}, 5);
        print_table({.ranks = 1024, .micro_batches = 4096}, 1);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}
