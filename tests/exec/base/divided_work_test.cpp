// SPDX-License-Identifier: Apache-2.0
#include "exec/base/divided_work.h"

#include <atomic>
#include <latch>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/as_index.h"

namespace pipetwin::exec {
namespace divided_work_test {

TEST(DividedWork, EveryElementIsInOnePiece) {
    for (const std::size_t threads : {1U, 3U}) {
        const WorkDivision division(threads);
        for (const std::int64_t size : {0, 1, 9, 10, 11, 1000}) {
            std::vector<std::atomic<int>> times(as_index(size));
            in_pieces(size, 10, [&](const ElementRange& piece) {
                EXPECT_TRUE(piece.size == 10 || piece.end() == size);
                for (std::int64_t i = piece.begin; i < piece.end(); ++i) {
                    ++times[as_index(i)];
                }
            });
            for (const auto& each : times) {
                EXPECT_EQ(each, 1);
            }
        }
    }
}

/// Would wait for ever if one thread did all pieces.
TEST(DividedWork, AsManyPiecesAsThreadsAreUnderWayAtATime) {
    const WorkDivision division(3);
    std::latch all(3);
    in_pieces(3, 1, [&](const ElementRange&) { all.arrive_and_wait(); });
}

TEST(DividedWork, WithoutADivisionTheCallerDoesAllInOrder) {
    { const WorkDivision past(3); }
    std::vector<std::int64_t> begins;
    in_pieces(25, 10, [&](const ElementRange& piece) { begins.push_back(piece.begin); });
    EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 10, 20}));
}

TEST(DividedWork, AnErrorOfAnyPieceReachesTheCaller) {
    const WorkDivision division(2);
    for (const std::int64_t bad : {0, 7, 99}) {
        EXPECT_THROW(in_pieces(100,
                               1,
                               [&](const ElementRange& piece) {
                                   if (piece.begin == bad) {
                                       throw std::runtime_error("a piece that fails");
                                   }
                               }),
                     std::runtime_error);
    }
}

}  // namespace divided_work_test
}  // namespace pipetwin::exec
