// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/base/units.h"

/// Definitions tried out on every split.
namespace pipetwin::testing {

using Sizes = std::vector<int>;

/// Every way to write `layers` as `stages` positive sizes, in lexicographic order.
inline void append_splits(int layers, int stages, Sizes& begun, std::vector<Sizes>& splits) {
    if (stages == 1) {
        begun.push_back(layers);
        splits.push_back(begun);
        begun.pop_back();
        return;
    }
    for (int size = 1; size <= layers - stages + 1; ++size) {
        begun.push_back(size);
        append_splits(layers - size, stages - 1, begun, splits);
        begun.pop_back();
    }
}

inline std::vector<Sizes> all_splits(int layers, int stages) {
    std::vector<Sizes> splits;
    Sizes begun;
    append_splits(layers, stages, begun, splits);
    return splits;
}

/// What is there; an exception, and so a failed test, if nothing is.
template <class Value>
const Value& the(const std::optional<Value>& value) {
    if (!value) {
        throw std::logic_error("nothing is there");
    }
    return *value;
}

template <class Value>
Value& the(std::optional<Value>& value) {
    return const_cast<Value&>(the(std::as_const(value)));
}

struct BestSplit {
    std::int64_t value = 0;
    Sizes sizes;
};

/// The first of the splits with the smallest value(sizes), an optional integer; none if no split
/// has one.
template <class Value>
std::optional<BestSplit> first_best(int layers, int stages, const Value& value) {
    std::optional<BestSplit> best;
    for (const Sizes& sizes : all_splits(layers, stages)) {
        const std::optional<std::int64_t> tried = value(sizes);
        if (tried && (!best || *tried < best->value)) {
            best = BestSplit{*tried, sizes};
        }
    }
    return best;
}

/// Calls visit(stage, first, end) for each stage.
template <class Visit>
void for_each_stage(const Sizes& sizes, const Visit& visit) {
    int first = 0;
    for (std::size_t stage = 0; stage < sizes.size(); ++stage) {
        visit(static_cast<int>(stage), first, first + sizes[stage]);
        first += sizes[stage];
    }
}

/// Small random numbers; few different ones, so that ties are common.
class Dice {
  public:
    explicit Dice(std::uint64_t seed) : random_(seed) {}

    int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint64_t>(bound)); }
    int between(int low, int high) { return low + below(high - low + 1); }

    /// `count` numbers below `bound`, as Duration, Bytes or int.
    template <class Value>
    std::vector<Value> several(int count, int bound) {
        std::vector<Value> values;
        values.reserve(static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i) {
            values.push_back(Value{below(bound)});
        }
        return values;
    }

  private:
    std::mt19937_64 random_;
};

}  // namespace pipetwin::testing
