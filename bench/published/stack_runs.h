// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/published/published_runs.h"

#include <string>
#include <vector>

#include "core/costs/devices/evidence.h"

/// Published runs beside estimates with their stacks: as the stacks are, and with the numbers that
/// were fitted to published runs as they would be without the run's own source.
namespace pipetwin::published {

/// A measured run that has a stack. Set and run must outlive it. Steps in seconds.
struct StackRun {
    const Set* set = nullptr;
    const Run* run = nullptr;
    std::string source{};     ///< runs of one set-up, device and precision are left out together
    std::string fitted_to{};  ///< of the sustained share that it uses; empty: none is fitted
    double sustained = 1;     ///< that share, as the stack's file has it
    double best = 1;          ///< the share that fits all sources best
    bool experts = false;     ///< of a model with routed experts
    double measured = 0;
    double predicted = 0;
    /// With the sustained share fitted without its source.
    double left_out = 0;

    double error() const { return predicted / measured - 1; }
    double left_out_error() const { return left_out / measured - 1; }
};

/// The measured runs of the sets that have a stack, but for those that are refused.
///
/// What is fitted again is the share of the products' rate that is sustained: one number for all
/// stacks that say it was fitted to the same runs. It is multiplied by what fits the other sources
/// best (the least mean distance, every source weighs the same) over what fits all. Where there is
/// no other source, products reach what their kernels do alone.
std::vector<StackRun> stack_runs(const std::vector<Set>& sets);

/// What the runs say of estimates: each of them, and ranges by stack and device, by stack, and of
/// all, at least 4 % to either side, apart for models with routed experts. A range of fewer than
/// three sources holds the next wider one.
Evidence evidence_of(const std::vector<StackRun>& runs);

/// For each run whether its step, predicted without its source, lies in the range that the other
/// sources give.
std::vector<bool> inside_ranges_of_others(const std::vector<StackRun>& runs);

/// How many numbers of the shipped stacks are fitted to runs. Stacks that share a number share the
/// text that says to what.
int fitted_numbers();

}  // namespace pipetwin::published
