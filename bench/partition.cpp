// SPDX-License-Identifier: Apache-2.0

// How fast the partition of models is, and how good beside that of other systems.
//
//   build/release/bench/partition_bench [repetitions]
//
// Times are processor time of this process, the median of the repetitions; each repetition is asked
// about other random numbers. "least" is the fastest of them: what the work takes while nobody else
// uses the machine.
#include "core/partition/partition.h"

#include "bench/partition_baselines.h"
#include "bench/support/graphs.h"
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <numeric>
#include <random>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/costs/profile_json.h"
#include "core/partition/chain.h"
#include "core/partition/feasible_splits.h"
#include "core/partition/graph.h"
#include "core/partition/ideals.h"
#include "core/partition/partition_search.h"
#include "core/partition/rank_partition.h"
#include "core/partition/replicated.h"

namespace {

using namespace pipetwin;

double now() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::mt19937_64& random_numbers() {
    static std::mt19937_64 random(1);
    return random;
}

/// Not below `low`, below `high`.
template <class Value>
std::vector<Value> several(int count, std::int64_t low, std::int64_t high) {
    std::vector<Value> values;
    for (int i = 0; i < count; ++i) {
        const auto width = static_cast<std::uint64_t>(high - low);
        values.push_back(Value{low + static_cast<std::int64_t>(random_numbers()() % width)});
    }
    return values;
}

constexpr std::int64_t ms = 1'000'000;
constexpr std::int64_t mb = 1'000'000;

/// Layers of 1 to 30 ms, boundaries of up to so many on either side.
ChainProblem chain(int layers, int stages, int most_cut_ms) {
    ChainProblem problem{.work = several<Duration>(layers, ms, 30 * ms), .stages = stages};
    if (most_cut_ms > 0) {
        problem.sender = several<Duration>(layers, 0, most_cut_ms * ms);
        problem.receiver = several<Duration>(layers, 0, most_cut_ms * ms);
    }
    return problem;
}

/// `make` is not counted, `call` on what it made is.
template <class Make, class Call>
void measure(std::string_view what,
             std::string_view bar,
             int repetitions,
             const Make& make,
             const Call& call) {
    std::vector<double> seconds;
    for (int i = 0; i < repetitions; ++i) {
        const auto input = make();
        const double begin = now();
        call(input);
        seconds.push_back(now() - begin);
    }
    std::ranges::sort(seconds);
    fmt::print("  {:<66}{:>11.3f} ms{:>11.3f} ms   {}\n",
               what,
               1e3 * seconds[seconds.size() / 2],
               1e3 * seconds.front(),
               bar);
}

void require(bool holds, const char* what) {
    if (!holds) {
        throw Error(ErrorKind::Other, "bench", what);
    }
}

void measure_chains(int repetitions) {
    const auto largest = [](const ChainProblem& problem) {
        require(smallest_largest_stage(problem).largest > Duration{}, "a split was expected");
    };
    for (const int stages : {16, 64, 128, 256}) {
        measure(
            fmt::format("L 1000, K {}: cut costs", stages),
            stages >= 64 ? "under 5 ms" : "",
            repetitions,
            [=] { return chain(1000, stages, 5); },
            largest);
    }
    measure(
        "L 1000, K 256: ... of up to 50 ms, layers of 1 to 30",
        "",
        repetitions,
        [] { return chain(1000, 256, 50); },
        largest);
}

/// Pieces of several chunks, every rank with a limit of memory.
void measure_ranks(int repetitions) {
    const auto ranks_of = [](int layers, int ranks, int chunks, bool v_shape) {
        RankChain made{.layers = layers, .rank_of_piece = {}, .quantities = {}};
        for (int piece = 0; piece < ranks * chunks; ++piece) {
            const bool turned = v_shape && piece >= ranks;
            made.rank_of_piece.push_back(turned ? 2 * ranks - 1 - piece : piece % ranks);
        }
        const std::vector<Duration> work = several<Duration>(layers, ms, 30 * ms);
        const std::vector<Bytes> held = several<Bytes>(layers, mb, 30 * mb);
        made.quantities.push_back({.before = {prefix_sums(work)}});
        made.quantities.push_back({.before = {prefix_sums(held)}});
        made.quantities.back().limits.assign(
            as_index(ranks), made.quantities.back().before.front().back() * 5 / 4 / ranks);
        return made;
    };
    struct Case {
        const char* what;
        int layers;
        int ranks;
        int chunks;
        bool v_shape;
        const char* bar;
    };
    for (const Case& one : {Case{"a V", 200, 16, 2, true, "under 50 ms"},
                            Case{"a loop", 200, 16, 2, false, "under 50 ms"},
                            Case{"a loop", 200, 16, 4, false, ""},
                            Case{"a V", 1000, 64, 2, true, ""}}) {
        measure(
            fmt::format("L {}, K {}, {} chunks in {}", one.layers, one.ranks, one.chunks, one.what),
            one.bar,
            repetitions,
            [=] { return ranks_of(one.layers, one.ranks, one.chunks, one.v_shape); },
            [](const RankChain& made) {
                require(rank_partition(made).has_value(), "a split was expected");
            });
    }
}

void measure_splits(int repetitions) {
    struct Pieces {
        std::vector<std::int64_t> before{0};  ///< the work of the layers before each
        std::int64_t limit = 0;               ///< on a stage
    };
    const auto pieces = [] {
        const std::vector<Duration> work = several<Duration>(200, ms, 30 * ms);
        const Duration best = smallest_largest_stage({.work = work, .stages = 16}).largest;
        Pieces made{.limit = best.count() * 51 / 50};
        for (const Duration layer : work) {
            made.before.push_back(made.before.back() + layer.count());
        }
        return made;
    };
    measure("L 200, K 16: all splits within 2 % of the best, counted",
            "",
            repetitions,
            pieces,
            [](const Pieces& input) {
                const auto keeps = [&](int, int first, int end) {
                    return input.before[static_cast<std::size_t>(end)] -
                               input.before[static_cast<std::size_t>(first)] <=
                           input.limit;
                };
                require(FeasibleSplits(200, 16, keeps).count() > 0, "a split");
            });
}

/// 4 (r - 1) w / (r B): in a ring each of r replicas sends and receives (r - 1) / r of the weights,
/// twice. Source: PipeDream (Narayanan et al., SOSP 2019, section 3.1).
AllReduceTime pipedream_all_reduce(double bytes_per_second) {
    return [bytes_per_second](Bytes weights, int replicas) {
        const double share = 4.0 * (replicas - 1) / replicas;
        return transfer_time(weights, bytes_per_second / share);
    };
}

/// 1, 2, 4, ... up to `most`.
std::vector<int> powers_of_two(int most) {
    std::vector<int> powers;
    for (int power = 1; power <= most; power *= 2) {
        powers.push_back(power);
    }
    return powers;
}

ReplicationProblem replication(int layers, int devices, bool powers) {
    return {.work = several<Duration>(layers, ms, 30 * ms),
            .weights = several<Bytes>(layers, mb, 100 * mb),
            .boundary = several<Duration>(layers, 0, 5 * ms),
            .all_reduce = pipedream_all_reduce(12.5e9),
            .devices = devices,
            .replicas = powers ? powers_of_two(devices) : std::vector<int>{}};
}

void measure_replication(int repetitions) {
    const auto call = [](const ReplicationProblem& problem) {
        require(replicated_partition(problem).devices_used > 0, "devices");
    };
    measure(
        "L 1000, 64 devices, any replicas",
        "under 600 ms",
        repetitions,
        [] { return replication(1000, 64, false); },
        call);
    measure(
        "L 1000, 1,024 devices, powers of two",
        "under 1,000 ms",
        repetitions,
        [] { return replication(1000, 1024, true); },
        call);
    measure(
        "L 1000, 1,024 devices, any replicas",
        "",
        repetitions,
        [] { return replication(1000, 1024, false); },
        call);
}

void measure_graphs(int repetitions) {
    struct Case {
        int arms;
        int length;
        const char* bar;
    };
    for (const Case& one :
         {Case{2, 38, "under 1,000 ms"}, Case{3, 11, "under 1,000 ms"}, Case{2, 139, ""}}) {
        const Model model = bench::parallel_arms(one.arms, one.length);
        const int layers = model.layer_count();
        const auto work = [=] { return several<Duration>(layers, ms, 30 * ms); };
        measure(fmt::format("graph of {} layers, {} ideals, 16 devices",
                            layers,
                            Ideals::of(model, most_ideals)->count()),
                one.bar,
                std::min(repetitions, one.bar[0] == '\0' ? 5 : repetitions),
                work,
                [&](const std::vector<Duration>& input) {
                    require(graph_partition(model, input, 16).is_exact, "an exact split");
                });
    }
}

/// The largest stage of a split, boundaries included, over the optimum.
double over_optimum(const ChainProblem& problem, const std::vector<int>& sizes, Duration best) {
    const auto cost_at = [](const std::vector<Duration>& costs, std::size_t at) {
        return at == 0 || at >= costs.size() ? Duration{} : costs[at];
    };
    const std::vector<Duration>& work = problem.work;
    Duration largest{};
    std::size_t first = 0;
    for (const int size : sizes) {
        const std::size_t end = first + static_cast<std::size_t>(size);
        const auto begin = work.begin();
        const Duration cost = std::accumulate(begin + static_cast<std::ptrdiff_t>(first),
                                              begin + static_cast<std::ptrdiff_t>(end),
                                              Duration{});
        largest = std::max(largest,
                           cost + cost_at(problem.receiver, first) + cost_at(problem.sender, end));
        first = end;
    }
    return static_cast<double>(largest.count()) / static_cast<double>(best.count()) - 1;
}

/// How far each way is above the optimum.
struct Quality {
    std::vector<double> ours;
    std::vector<double> balanced;
    std::vector<double> uniform;
    std::vector<double> blocks;

    void add(const ChainProblem& problem) {
        const int stages = problem.stages;
        const std::vector<Duration>& costs = problem.work;
        std::vector<std::int64_t> work;
        work.reserve(costs.size());
        for (const Duration cost : costs) {
            work.push_back(cost.count());
        }
        const ChainSplit split = smallest_largest_stage(problem);
        const Duration optimum = split.largest;
        ours.push_back(over_optimum(problem, split.partition.layers_per_stage(), optimum));
        const auto add_to = [&](std::vector<double>& list, const std::vector<int>& sizes) {
            list.push_back(over_optimum(problem, sizes, optimum));
            require(list.back() >= 0, "nothing is below the optimum");
        };
        add_to(balanced, bench::deepspeed_balanced(work, stages));
        add_to(uniform, bench::deepspeed_uniform(static_cast<int>(work.size()), stages));
        add_to(blocks, bench::block_partition(work, stages));
    }

    void print(std::string_view what) const {
        fmt::print("  {:<44}", what);
        for (const auto& list : {ours, balanced, uniform, blocks}) {
            const double sum = std::accumulate(list.begin(), list.end(), 0.0);
            fmt::print("{:>11.2f}{:>9.2f}",
                       100 * sum / static_cast<double>(list.size()),
                       100 * std::ranges::max(list));
        }
        fmt::print("\n");
    }
};

void compare_on_random_chains(int chains) {
    struct Case {
        int layers;
        int stages;
        bool cuts;
    };
    for (const Case& one : {Case{24, 4, false},
                            Case{24, 8, false},
                            Case{100, 16, false},
                            Case{1000, 64, false},
                            Case{24, 4, true},
                            Case{100, 16, true},
                            Case{1000, 64, true}}) {
        Quality quality;
        for (int i = 0; i < chains; ++i) {
            quality.add(chain(one.layers, one.stages, one.cuts ? 5 : 0));
        }
        quality.print(fmt::format(
            "random, L {}, K {}{}", one.layers, one.stages, one.cuts ? ", cut costs" : ""));
    }
}

void compare_on_profiles() {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator("profiles/papers")) {
        paths.push_back(entry.path());
    }
    std::ranges::sort(paths);
    for (const auto& path : paths) {
        const Profile profile = read_profile(path);
        ChainProblem problem{.work = {}};
        for (const LayerCost& layer : profile.layers) {
            const LayerSample& sample = layer.samples.front();
            problem.work.push_back(sample.forward + sample.backward());
        }
        Quality quality;
        const auto layers = static_cast<int>(profile.layers.size());
        for (int stages = 2; stages <= std::min(layers, 32); ++stages) {
            problem.stages = stages;
            quality.add(problem);
        }
        if (!quality.ours.empty()) {
            quality.print(
                fmt::format("{}, K 2..{}", path.stem().stem().string(), std::min(layers, 32)));
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 21;
        fmt::print("  {:<66}{:>14}{:>14}   bar\n", "", "median", "least");
        measure_chains(repetitions);
        measure_ranks(repetitions);
        measure_splits(10 * repetitions);
        measure_replication(repetitions);
        measure_graphs(repetitions);
        fmt::print(
            "\nlargest stage above the optimum, in %: mean and worst\n  "
            "{:<44}{:>20}{:>20}{:>20}{:>20}\n",
            "",
            "pipetwin",
            "DeepSpeed balanced",
            "uniform",
            "block partition");
        compare_on_random_chains(10 * repetitions);
        compare_on_profiles();
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}
