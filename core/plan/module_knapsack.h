// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

/// Which modules a backward computes again, at the least time for the memory that is missing.
namespace pipetwin {

/// What one choice of a class gives back, and what it costs; neither negative.
struct KnapsackChoice {
    std::int64_t bytes = 0;
    std::int64_t time = 0;  ///< nanoseconds

    bool operator==(const KnapsackChoice&) const = default;
};

/// Choices of which one is taken, the first of which gives and costs nothing.
using KnapsackClass = std::vector<KnapsackChoice>;

/// [class]: the choices that together give `need` bytes at least in the least time, and of such
/// that give the most; none where even the largest choices give less. Exact: a list of choices that
/// no other beats in both bytes and time grows class by class, and leaves out what even fractions
/// of the choices to come cannot bring below the best answer so far (Sinha and Zoltners, The
/// multiple-choice knapsack problem, Operations Research 27, 1979, for this bound).
std::optional<std::vector<std::size_t>> least_time_choices(
    const std::vector<KnapsackClass>& classes, std::int64_t need);

/// The choices of a class that no other beats in both bytes and time, by index, fewest bytes first.
std::vector<std::size_t> undominated(const KnapsackClass& choices);

}  // namespace pipetwin
