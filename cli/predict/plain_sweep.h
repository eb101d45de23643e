// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/base/plain_options.h"
#include "core/base/error.h"
#include "core/text/override.h"
#include "sim/questions/prediction.h"

/// Several plans by plain numbers, side by side.
namespace pipetwin::cli {

/// One of the plans that are compared.
struct SweepCell {
    std::string schedule;  ///< a name, or a schedule file
    int stages = 1;        ///< ranks
    int chunks = 1;        ///< pieces on each of them
    int micro_batches = 1;
    std::optional<sim::Prediction> prediction{};
    std::string why_not{};          ///< where there is no such plan
    std::string scenario{};         ///< its name; empty: plain numbers
    std::vector<Override> swept{};  ///< values of swept keys, of equal keys in all cells
};

/// Chunks that a schedule of a list has: one, two, or as many as are asked for, else two. Throws
/// Error(Usage) for a schedule that there is none of.
int sweep_chunks(const std::string& schedule, const std::optional<int>& asked);

/// The costs of plain numbers in words: "forward 1 ms, backward 2 ms, latency 0.5 ms".
std::string costs_words(const PlainOptions& plain);

/// Lets `simulate` fill in a cell of a scenario, or says why there is no such plan. Throws other
/// errors than of plans and of their values.
void fill_cell(SweepCell& cell, const std::function<void()>& simulate);

/// Throws Error(Usage) for more plans than one table can have.
void expect_few_cells(std::size_t cells);

/// Throws Error(Infeasible) with the first reason where none of the cells has a plan.
void expect_any_plan(const std::vector<SweepCell>& cells);

/// Every combination of the lists, schedules outermost; a schedule file is one plan, of the stages
/// and micro-batches that it has. Schedules of two chunks have two; those of
/// several as --chunks says, or two. Throws Error(Usage) for what no plan could have,
/// Error(Infeasible) where none of them is one, and as `read_schedule_file`.
std::vector<SweepCell> sweep(const PlainOptions& options);

}  // namespace pipetwin::cli
