// SPDX-License-Identifier: Apache-2.0
#include "core/plan/module_knapsack.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <fmt/format.h>

// How long the choice of modules to compute again takes for stages of 126 layers: times of
// questions that ask for every share of the memory.

namespace {

using namespace pipetwin;

using Random = std::mt19937_64;

/// A module in the first 0 to 126 blocks. Blocks that differ have bytes and times of their own.
KnapsackClass module_class(Random& random, bool are_alike) {
    constexpr int blocks = 126;
    std::uniform_int_distribution<std::int64_t> bytes(1 << 20, std::int64_t{4} << 30);
    std::uniform_int_distribution<std::int64_t> time(10'000, 40'000'000);
    KnapsackClass choices{{}};
    KnapsackChoice block{.bytes = bytes(random), .time = time(random)};
    for (int i = 0; i < blocks; ++i) {
        if (!are_alike) {
            block = {.bytes = bytes(random), .time = time(random)};
        }
        choices.push_back({.bytes = choices.back().bytes + block.bytes,
                           .time = choices.back().time + block.time});
    }
    return choices;
}

struct Times {
    double median = 0;
    double longest = 0;
};

Times milliseconds_of(bool are_alike) {
    Random random(126);
    std::vector<double> times;
    for (int question = 0; question < 300; ++question) {
        std::vector<KnapsackClass> classes;
        std::int64_t all = 0;
        for (int module = 0; module < 6; ++module) {
            classes.push_back(module_class(random, are_alike));
            all += classes.back().back().bytes;
        }
        const auto need = static_cast<std::int64_t>(static_cast<double>(all) * question / 300);
        const auto begin = std::chrono::steady_clock::now();
        const auto choices = least_time_choices(classes, need);
        const std::chrono::duration<double, std::milli> took =
            std::chrono::steady_clock::now() - begin;
        times.push_back(choices ? took.count() : 0);
    }
    std::ranges::sort(times);
    return {.median = times[times.size() / 2], .longest = times.back()};
}

}  // namespace

int main() {
    for (const bool are_alike : {true, false}) {
        const Times times = milliseconds_of(are_alike);
        fmt::print("6 modules of 126 {} blocks: median {:.2f} ms, longest {:.2f} ms\n",
                   are_alike ? "equal" : "different",
                   times.median,
                   times.longest);
    }
}
