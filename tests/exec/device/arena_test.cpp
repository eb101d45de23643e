// SPDX-License-Identifier: Apache-2.0
#include "exec/device/arena.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/error_of.h"

namespace pipetwin::exec {
namespace arena_test {

constexpr Bytes kilobyte{1024};

Tensor kilobyte_of(Arena& arena, MemoryKind kind) {
    return arena.allocate(DType::F32, 16, 16, kind);
}

TEST(Arena, CountsLiveBytesByKind) {
    Arena arena;
    const Tensor weights = kilobyte_of(arena, MemoryKind::Weights);
    {
        const Tensor stash = arena.allocate(DType::F64, 3, 5, MemoryKind::Stash);
        EXPECT_EQ(arena.live()[MemoryKind::Stash], Bytes{120});
        EXPECT_EQ(arena.live().total(), kilobyte + Bytes{120});
    }
    EXPECT_EQ(arena.live()[MemoryKind::Stash], Bytes{});
    EXPECT_EQ(arena.live()[MemoryKind::Weights], kilobyte);
}

TEST(Arena, CountsWhatATensorHoldsAndNotItsPadding) {
    Arena arena;
    const Tensor tensor = arena.allocate(DType::F32, 1, 1, MemoryKind::Stash);
    EXPECT_EQ(arena.live().total(), Bytes{4});
    EXPECT_EQ(tensor.bytes(), Bytes{4});
}

TEST(Arena, PeakIsTheCompositionAtTheFirstMomentOfTheHighestTotal) {
    Arena arena;
    Tensor stash = kilobyte_of(arena, MemoryKind::Stash);
    const Tensor boundary = kilobyte_of(arena, MemoryKind::Boundary);
    stash = {};
    const Tensor again = kilobyte_of(arena, MemoryKind::Boundary);  // the same total, later
    EXPECT_EQ(arena.peak().total(), 2 * kilobyte);
    EXPECT_EQ(arena.peak()[MemoryKind::Stash], kilobyte);
    EXPECT_EQ(arena.peak()[MemoryKind::Boundary], kilobyte);
    EXPECT_EQ(arena.live()[MemoryKind::Boundary], 2 * kilobyte);
}

TEST(Arena, PeakStartsAtWhatLivesWhenItIsReset) {
    Arena arena;
    const Tensor kept = kilobyte_of(arena, MemoryKind::Weights);
    kilobyte_of(arena, MemoryKind::Stash);
    EXPECT_EQ(arena.peak().total(), 2 * kilobyte);
    arena.reset_peak();
    EXPECT_EQ(arena.peak(), arena.live());
}

TEST(Arena, CountsReservedBytesThatNoTensorHolds) {
    Arena arena;
    arena.reserve(MemoryKind::Boundary, kilobyte);
    EXPECT_EQ(arena.live()[MemoryKind::Boundary], kilobyte);
    arena.reserve(MemoryKind::Boundary, -kilobyte);
    EXPECT_EQ(arena.live().total(), Bytes{});
    EXPECT_EQ(arena.peak().total(), kilobyte);
}

TEST(Arena, GivesAFreedBlockToTheNextRequestOfItsSize) {
    Arena arena;
    void* const block = kilobyte_of(arena, MemoryKind::Stash).data();
    EXPECT_EQ(kilobyte_of(arena, MemoryKind::Boundary).data(), block);
}

/// Room for so many blocks of a kilobyte.
class LittleMemory final : public Memory {
  public:
    explicit LittleMemory(int blocks) : left_(blocks) {}
    void* take(std::size_t bytes) override {
        if (left_ == 0) {
            throw Error(ErrorKind::Infeasible, "memory", "none left", "");
        }
        --left_;
        return host_memory().take(bytes);
    }
    void give_back(void* block, std::size_t bytes) noexcept override {
        ++left_;
        host_memory().give_back(block, bytes);
    }

  private:
    int left_;
};

TEST(Arena, AsksForTensorsToBeFreedWhereThereIsNoMemoryLeft) {
    LittleMemory memory(2);
    Arena arena(memory);
    std::vector<Tensor> leaving;
    leaving.push_back(kilobyte_of(arena, MemoryKind::Stash));
    leaving.push_back(kilobyte_of(arena, MemoryKind::Stash));
    EXPECT_THROW(kilobyte_of(arena, MemoryKind::Stash), Error);
    arena.when_short([&] {
        const bool any = !leaving.empty();
        leaving.clear();
        return any;
    });
    const Tensor first = kilobyte_of(arena, MemoryKind::Stash);
    const Tensor second = kilobyte_of(arena, MemoryKind::Stash);
    EXPECT_THROW(kilobyte_of(arena, MemoryKind::Stash), Error);
}

TEST(Arena, AlignsEveryTensorToACacheLine) {
    Arena arena;
    for (const std::int64_t columns : {1, 3, 17, 1000, 1 << 20}) {
        const Tensor tensor = arena.allocate(DType::F32, 1, columns, MemoryKind::Stash);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0U) << columns;
    }
}

TEST(Arena, WorkspaceGrowsToTheLargestRequestAndIsCountedOnce) {
    Arena arena;
    arena.workspace(kilobyte);
    EXPECT_EQ(arena.live()[MemoryKind::Workspace], kilobyte);
    std::byte* const large = arena.workspace(4 * kilobyte);
    EXPECT_EQ(arena.workspace(2 * kilobyte), large);
    EXPECT_EQ(arena.live()[MemoryKind::Workspace], 4 * kilobyte);
    EXPECT_EQ(arena.peak().total(), 4 * kilobyte);
}

/// Has room for so many blocks.
class ShortMemory final : public Memory {
  public:
    explicit ShortMemory(int blocks) : left_(blocks) {}
    void* take(std::size_t bytes) override {
        if (left_-- == 0) {
            throw Error(ErrorKind::Infeasible, "memory", "nothing is left", "buy some");
        }
        return host_memory().take(bytes);
    }
    void give_back(void* block, std::size_t bytes) noexcept override {
        host_memory().give_back(block, bytes);
    }

  private:
    int left_;
};

TEST(Arena, SaysWhatItHoldsWhereNothingIsLeft) {
    ShortMemory memory(2);
    Arena arena(memory);
    const Tensor weights = kilobyte_of(arena, MemoryKind::Weights);
    const Tensor stash = kilobyte_of(arena, MemoryKind::Stash);
    const Error error = testing::error_of([&] { kilobyte_of(arena, MemoryKind::Stash); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_THAT(error.text(), ::testing::StartsWith("nothing is left; until now the rank holds"));
    EXPECT_THAT(error.text(), ::testing::HasSubstr("       total       weights     gradients"));
    EXPECT_THAT(error.text(), ::testing::HasSubstr("    2.00 KiB      1.00 KiB           0 B"));
    EXPECT_EQ(error.hint(), "buy some");
    EXPECT_EQ(arena.live().total(), 2 * kilobyte);
}

/// An arena whose step is planned: two kilobytes in its first cell, of which the first is given
/// back, and one in the second, where that one was.
class PlannedStep : public ::testing::Test {
  protected:
    PlannedStep() {
        auto* const room = static_cast<std::byte*>(arena.take_room(2048));
        first = room;
        second = room + 1024;
        arena.follow({.requests = {{.bytes = 1024, .address = first},
                                   {.bytes = 1024, .address = second},
                                   {.bytes = 1024, .address = first}},
                      .asked = {0, 2, 3},
                      .at_work = {0, 1, 2}});
        arena.begin_step();
        arena.turn_to(0);
    }

    Arena arena;
    void* first = nullptr;
    void* second = nullptr;
};

TEST_F(PlannedStep, TensorsLieWhereThePlanSaysAndAreCountedAsEver) {
    for (int step = 0; step < 2; ++step) {
        {
            Tensor a = kilobyte_of(arena, MemoryKind::Stash);
            const Tensor b = kilobyte_of(arena, MemoryKind::Stash);
            EXPECT_EQ(a.data(), first);
            EXPECT_EQ(b.data(), second);
            a = {};
            arena.turn_to(1);
            const Tensor c = kilobyte_of(arena, MemoryKind::Boundary);
            EXPECT_EQ(c.data(), first);
            EXPECT_EQ(arena.live().total(), 2 * kilobyte);
        }
        EXPECT_EQ(arena.live().total(), Bytes{});
        arena.end_step();
        arena.begin_step();
        arena.turn_to(0);
    }
    EXPECT_EQ(arena.unforeseen(), 0);
}

TEST_F(PlannedStep, AnotherRequestGetsABlockOfItsOwnAndSoDoesTheRest) {
    const Tensor a = kilobyte_of(arena, MemoryKind::Stash);
    const Tensor other = arena.allocate(DType::F32, 1, 16, MemoryKind::Stash);
    const Tensor b = kilobyte_of(arena, MemoryKind::Stash);
    EXPECT_EQ(a.data(), first);
    EXPECT_NE(other.data(), second);
    EXPECT_NE(b.data(), second);
    EXPECT_EQ(arena.unforeseen(), 1);
    EXPECT_EQ(arena.live().total(), 2 * kilobyte + Bytes{64});
}

TEST_F(PlannedStep, WhatIsHeldLongerThanPlannedKeepsItsPlace) {
    const Tensor a = kilobyte_of(arena, MemoryKind::Stash);
    const Tensor b = kilobyte_of(arena, MemoryKind::Stash);
    arena.turn_to(1);
    const Tensor c = kilobyte_of(arena, MemoryKind::Stash);
    EXPECT_NE(c.data(), first);
    EXPECT_NE(c.data(), second);
    EXPECT_EQ(arena.unforeseen(), 1);
}

TEST_F(PlannedStep, WhatWasNotAskedForIsNoticedAtTheNextCell) {
    const Tensor a = kilobyte_of(arena, MemoryKind::Stash);
    arena.turn_to(1);
    EXPECT_NE(kilobyte_of(arena, MemoryKind::Stash).data(), second);
    EXPECT_EQ(arena.unforeseen(), 1);
}

TEST_F(PlannedStep, AHandedOnTensorIsNoLongerAtWorkHere) {
    Arena receiver;
    {
        Tensor a = kilobyte_of(arena, MemoryKind::Boundary);
        const Tensor b = kilobyte_of(arena, MemoryKind::Boundary);
        a.detach();
        a.attach(receiver, MemoryKind::Stash);
        arena.turn_to(1);
        EXPECT_EQ(arena.unforeseen(), 0);
        EXPECT_EQ(receiver.live().total(), kilobyte);
    }
    EXPECT_EQ(receiver.live().total(), Bytes{});
    EXPECT_NE(kilobyte_of(receiver, MemoryKind::Stash).data(), first);  // not the receiver's
}

TEST_F(PlannedStep, BetweenStepsThereIsNoPlan) {
    arena.end_step();
    EXPECT_NE(kilobyte_of(arena, MemoryKind::Stash).data(), first);
    EXPECT_EQ(arena.unforeseen(), 0);
}

TEST(Tensor, MovesBetweenKinds) {
    Arena arena;
    Tensor tensor = kilobyte_of(arena, MemoryKind::Boundary);
    tensor.move_to(MemoryKind::Stash);
    EXPECT_EQ(arena.live()[MemoryKind::Boundary], Bytes{});
    EXPECT_EQ(arena.live()[MemoryKind::Stash], kilobyte);
    EXPECT_EQ(arena.peak().total(), kilobyte);
}

TEST(Tensor, IsHandedFromOneArenaToAnotherWithoutACopy) {
    Arena sender;
    Arena receiver;
    Tensor tensor = kilobyte_of(sender, MemoryKind::Boundary);
    const void* const data = tensor.data();
    tensor.detach();
    EXPECT_EQ(sender.live().total(), Bytes{});
    tensor.attach(receiver, MemoryKind::Boundary);
    EXPECT_EQ(receiver.live()[MemoryKind::Boundary], kilobyte);
    EXPECT_EQ(tensor.data(), data);
    tensor = {};
    EXPECT_EQ(receiver.live().total(), Bytes{});
    EXPECT_EQ(kilobyte_of(receiver, MemoryKind::Stash).data(), data);
}

TEST(Tensor, IsEmptyAfterItWasMovedFrom) {
    Arena arena;
    Tensor tensor = kilobyte_of(arena, MemoryKind::Stash);
    const Tensor other = std::move(tensor);
    EXPECT_TRUE(tensor.empty());  // NOLINT(bugprone-use-after-move): that is the question
    EXPECT_FALSE(other.empty());
    EXPECT_EQ(arena.live()[MemoryKind::Stash], kilobyte);
}

TEST(Tensor, RefusesAccessAsAnotherElementType) {
    Arena arena;
    Tensor tensor = kilobyte_of(arena, MemoryKind::Stash);
    EXPECT_NO_THROW(tensor.as<float>());
    EXPECT_THROW(tensor.as<double>(), InternalError);
    EXPECT_THROW(tensor.as<std::int32_t>(), InternalError);
}

}  // namespace arena_test
}  // namespace pipetwin::exec
