#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/cuda_emulation/emulation.h"

namespace pipetwin::cuda::emulation {

/// Calls `compute`, which returns a vector, in several orders of blocks and threads, and expects
/// the same bytes each time: what a kernel without races gives. Returns them.
template <class Compute>
auto in_every_order(Compute compute) {
    set_order(Order::Ascending);
    auto expected = compute();
    using Value = typename decltype(expected)::value_type;
    const auto expect_equal = [&](Order order, std::uint64_t seed) {
        set_order(order, seed);
        const auto found = compute();
        const bool equal =
            found.size() == expected.size() &&
            (found.empty() ||
             std::memcmp(found.data(), expected.data(), found.size() * sizeof(Value)) == 0);
        EXPECT_TRUE(equal) << "the order of threads shows: order " << static_cast<int>(order)
                           << ", seed " << seed;
    };
    expect_equal(Order::Descending, 0);
    expect_equal(Order::Shuffled, 1);
    expect_equal(Order::Shuffled, 2);
    set_order(Order::Ascending);
    return expected;
}

}  // namespace pipetwin::cuda::emulation
