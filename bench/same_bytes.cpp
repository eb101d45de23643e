// SPDX-License-Identifier: Apache-2.0

// The simulator's answers as a few numbers, to be compared between compilers and between runs: a
// hash of every timeline, of samples of jitter, of runs with failures, of what is shared.
//
//   build/release/bench/same_bytes [times] [threads]
//
// Prints them once; fails if any of the other times differs, which the threads share out.
// scripts/same-bytes builds it with several compilers and compares what they print.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "sim/engine/event_engine.h"
#include "sim/simulate/simulate.h"
#include "sim/variation/jitter.h"

namespace {

using namespace pipetwin;

/// FNV-1a, 64 bits, over whole numbers.
class Hash {
  public:
    void add(std::int64_t number) {
        auto rest = static_cast<std::uint64_t>(number);
        for (int byte = 0; byte < 8; ++byte) {
            value_ = (value_ ^ (rest & 0xffU)) * 0x100000001b3ULL;
            rest >>= 8U;
        }
    }
    void add(const std::vector<std::vector<Span>>& rows) {
        for (const auto& row : rows) {
            for (const Span& span : row) {
                add(span.begin.count());
                add(span.ready.count());
                add(span.end.count());
            }
        }
    }
    std::uint64_t value() const { return value_; }

  private:
    std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

Plan plan_of(ScheduleKind kind, const ScheduleShape& shape, Recompute recompute) {
    PlainCosts costs;
    costs.schedule = kind;
    costs.schedule_name = to_string(kind);
    costs.shape = shape;
    for (int piece = 0; piece < shape.ranks * shape.chunks; ++piece) {
        costs.forward.emplace_back(1'000'003 + piece * 7919);
        costs.backward.emplace_back(2'000'029 + piece * 104'729);
    }
    costs.recompute = recompute;
    costs.link = {
        .latency = Duration{4'999}, .bytes_per_second = 1.1e9, .half_bandwidth = Bytes{65'537}};
    costs.boundary = Bytes{1'234'567};
    return make_plan(costs);
}

std::uint64_t hash_of(const Plan& plan) {
    Hash hash;
    const Timeline alone = sim::simulate(plan);
    hash.add(alone.ranks);
    hash.add(alone.links);

    sim::Conditions conditions = sim::planned_conditions(plan);
    conditions.contention.cores = 2;
    const auto ranks = static_cast<std::size_t>(plan.rank_count());
    conditions.contention.interference.assign(ranks, std::vector<double>(ranks, 0.07));
    conditions.contention.sharing = LinkSharing::Fair;
    conditions.contention.shared_links = {2.3e9};
    conditions.contention.way_of_edge.assign(2 * plan->links.size(), {0});
    const Timeline shared = sim::replay(plan, conditions);
    hash.add(shared.ranks);
    hash.add(shared.links);

    const sim::Jitter jitter{.compute = 0.05,
                             .transfer = 0.2,
                             .device = 0.03,
                             .spike_probability = 0.001,
                             .spike_factor = 4};
    for (const Duration step :
         sim::sample_steps(plan, sim::planned_conditions(plan), jitter, 64, 42).steps) {
        hash.add(step.count());
    }
    for (const Duration step : sim::sample_steps(plan, conditions, jitter, 1, 42).steps) {
        hash.add(step.count());
    }
    return hash.value();
}

std::string all_hashes() {
    std::string text;
    for (const ScheduleName& known : known_schedules()) {
        for (const ScheduleShape& shape :
             {ScheduleShape{4, 1, 8}, ScheduleShape{4, 2, 8}, ScheduleShape{6, 1, 12}}) {
            for (const Recompute recompute : {Recompute::None, Recompute::ExceptLast}) {
                try {
                    text += fmt::format("{} {} {} {} {}: {:016x}\n",
                                        known.name,
                                        shape.ranks,
                                        shape.chunks,
                                        shape.micro_batches,
                                        to_string(recompute),
                                        hash_of(plan_of(known.kind, shape, recompute)));
                } catch (const Error&) {
                    continue;  // the kind has no such shape, or cannot recompute
                }
            }
        }
    }
    return text;
}

/// Whether `times` more runs, shared out over `threads`, give the same.
bool are_the_same(const std::string& first, int times, int threads) {
    std::atomic<int> left = times;
    std::atomic<bool> same = true;
    std::vector<std::thread> workers;
    for (int thread = 0; thread < threads; ++thread) {
        workers.emplace_back([&] {
            while (same && left-- > 0) {
                if (all_hashes() != first) {
                    same = false;
                }
            }
        });
    }
    for (std::thread& worker : workers) {
        worker.join();
    }
    return same;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        const int times = count > 1 ? std::atoi(arguments[1]) : 1;
        const int threads = count > 2 ? std::atoi(arguments[2]) : 1;
        const std::string first = all_hashes();
        fmt::print("{}", first);
        if (!are_the_same(first, times - 1, threads)) {
            fmt::print(stderr, "another run gave other numbers\n");
            return 1;
        }
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
