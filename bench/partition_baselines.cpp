// SPDX-License-Identifier: Apache-2.0
#include "bench/partition_baselines.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace pipetwin::bench {

namespace {

std::vector<double> in_unit_interval(std::span<const std::int64_t> work) {
    const auto [least, most] = std::ranges::minmax(work);
    std::vector<double> numbers;
    for (const std::int64_t one : work) {
        const auto width = static_cast<double>(most - least);
        numbers.push_back(most == least ? 0 : static_cast<double>(one - least) / width);
    }
    return numbers;
}

/// Blocks of a sequence, each with its sum.
class Blocks {
  public:
    Blocks(std::vector<double> numbers, int count) : numbers_(std::move(numbers)) {
        const int each = static_cast<int>(numbers_.size()) / count;
        for (int block = 0; block <= count; ++block) {
            bounds_.push_back(block < count ? block * each : static_cast<int>(numbers_.size()));
        }
    }

    int count() const { return static_cast<int>(bounds_.size()) - 1; }

    double sum(int block) const {
        return std::accumulate(
            numbers_.begin() + bound(block), numbers_.begin() + bound(block + 1), 0.0);
    }

    int largest() const {
        int best = 0;
        for (int block = 1; block < count(); ++block) {
            best = sum(block) > sum(best) ? block : best;
        }
        return best;
    }

    /// The smallest; of several, the one closest to `to`.
    int smallest(int to) const {
        int best = 0;
        for (int block = 1; block < count(); ++block) {
            const bool is_closer = std::abs(block - to) < std::abs(best - to);
            if (sum(block) < sum(best) || (sum(block) <= sum(best) && is_closer)) {
                best = block;
            }
        }
        return best;
    }

    /// One number across the boundary in front of `block`, towards the end (1) or the front (-1).
    void move(int block, int by) { bounds_[static_cast<std::size_t>(block)] -= by; }

    std::vector<int> sizes() const {
        std::vector<int> sizes;
        sizes.reserve(bounds_.size());
        for (int block = 0; block < count(); ++block) {
            sizes.push_back(bound(block + 1) - bound(block));
        }
        return sizes;
    }

  private:
    int bound(int block) const { return bounds_[static_cast<std::size_t>(block)]; }

    std::vector<double> numbers_;
    std::vector<int> bounds_;
};

/// The smallest of the numbers behind `at` that is not below `sum`, as bisect_left.
std::size_t first_not_below(const std::vector<double>& sums, double sum, std::size_t at) {
    return static_cast<std::size_t>(
        std::lower_bound(sums.begin() + static_cast<std::ptrdiff_t>(at), sums.end(), sum) -
        sums.begin());
}

struct Probe {
    std::vector<std::size_t> ends;
    bool keeps = false;
};

Probe probe(const std::vector<double>& sums, int stages, double bottleneck) {
    Probe result{.ends = std::vector<std::size_t>(static_cast<std::size_t>(stages), sums.size())};
    double target = bottleneck;
    std::size_t before = 0;
    for (std::size_t& end : result.ends) {
        end = first_not_below(sums, target, before);
        if (end == sums.size()) {
            const double last = sums.back() - (before == 0 ? 0 : sums[before - 1]);
            result.keeps = last < bottleneck;
            return result;
        }
        target = (end == 0 ? 0 : sums[end - 1]) + bottleneck;
        before = end;
    }
    result.keeps = bottleneck >= sums.back();
    return result;
}

}  // namespace

std::vector<int> block_partition(std::span<const std::int64_t> work, int stages) {
    Blocks blocks(in_unit_interval(work), stages);
    while (true) {
        const int largest = blocks.largest();
        const double most = blocks.sum(largest);
        for (bool untouched = true; untouched;) {
            const int smallest = blocks.smallest(largest);
            if (most <= blocks.sum(smallest) + 1) {
                return blocks.sizes();
            }
            // The block next to the smallest, towards the largest, gives it an element.
            const bool is_before = largest < smallest;
            blocks.move(is_before ? smallest : smallest + 1, is_before ? 1 : -1);
            untouched = largest != (is_before ? smallest - 1 : smallest + 1);
        }
    }
}

std::vector<int> deepspeed_uniform(int layers, int stages) {
    std::vector<int> sizes(static_cast<std::size_t>(stages), layers / stages);
    for (int stage = 0; stage < layers % stages; ++stage) {
        ++sizes[static_cast<std::size_t>(stage)];
    }
    return sizes;
}

std::vector<int> deepspeed_balanced(std::span<const std::int64_t> work, int stages) {
    if (static_cast<int>(work.size()) <= stages) {
        return deepspeed_uniform(static_cast<int>(work.size()), stages);
    }
    constexpr double within = 1e-3;
    std::vector<double> sums(work.begin(), work.end());
    std::partial_sum(sums.begin(), sums.end(), sums.begin());
    double low = sums.back() / stages;
    double high = sums.back();
    while (high > low + within) {
        const double middle = low + (high - low) / 2;
        if (probe(sums, stages, middle).keeps) {
            high = middle;
        } else {
            low = middle + within;
        }
    }
    std::vector<int> sizes;
    std::size_t before = 0;
    for (const std::size_t end : probe(sums, stages, high).ends) {
        sizes.push_back(static_cast<int>(end - before));
        before = end;
    }
    return sizes;
}

}  // namespace pipetwin::bench
