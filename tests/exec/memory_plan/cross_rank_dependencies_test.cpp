// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan/cross_rank_dependencies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/schedule/lower.h"

namespace pipetwin::exec {
namespace cross_rank_dependencies_test {

using Awaited = std::optional<Cell>;
using ::testing::ElementsAre;

constexpr Awaited nobody{};

Awaited cell(int rank, int cell) {
    return Cell{.rank = rank, .cell = cell};
}

/// Two micro-batches go from rank 0 to rank 1.
Schedule two_messages() {
    Schedule schedule;
    schedule.micro_batches = 2;
    schedule.rank_of_stage = {0, 1};
    schedule.weights_of_stage = {0, 1};
    schedule.ranks = {{{Op::Forward, 0, 0},
                       {Op::SendForward, 0, 0},
                       {Op::Forward, 0, 1},
                       {Op::SendForward, 0, 1}},
                      {{Op::RecvForward, 1, 0},
                       {Op::Forward, 1, 0},
                       {Op::RecvForward, 1, 1},
                       {Op::Forward, 1, 1}}};
    return schedule;
}

TEST(AwaitedCells, AReceiveWaitsForItsSend) {
    EXPECT_THAT(cross_rank_dependencies(two_messages(), -1),
                ElementsAre(ElementsAre(nobody, nobody, nobody, nobody),
                            ElementsAre(cell(0, 1), nobody, cell(0, 3), nobody)));
}

TEST(AwaitedCells, ASendWaitsForTheReceiveThatMakesRoom) {
    EXPECT_THAT(cross_rank_dependencies(two_messages(), 1)[0],
                ElementsAre(nobody, nobody, nobody, cell(1, 0)));
    EXPECT_THAT(cross_rank_dependencies(two_messages(), 0)[0],
                ElementsAre(nobody, cell(1, 0), nobody, cell(1, 2)));
}

TEST(AwaitedCells, AnUpdateWaitsForTheGradientsOfTheStageWithTheSameWeights) {
    Schedule schedule;
    schedule.micro_batches = 2;
    schedule.rank_of_stage = {0, 1};
    schedule.weights_of_stage = {0, 0};  // two pipelines of one stage each
    schedule.ranks = {
        {{Op::Forward, 0, 0}, {Op::Backward, 0, 0}, {Op::ReduceGradient, 0}, {Op::Optimizer, 0}},
        {{Op::Forward, 1, 1}, {Op::Backward, 1, 1}, {Op::ReduceGradient, 1}, {Op::Optimizer, 1}}};
    EXPECT_THAT(cross_rank_dependencies(schedule, -1),
                ElementsAre(ElementsAre(nobody, nobody, nobody, cell(1, 2)),
                            ElementsAre(nobody, nobody, nobody, cell(0, 2))));
}

}  // namespace cross_rank_dependencies_test
}  // namespace pipetwin::exec
