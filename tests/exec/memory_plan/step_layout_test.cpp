// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan/step_layout.h"

#include <atomic>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/timeline/footprint.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace step_layout_test {

using test::Shape;
using ::testing::ElementsAre;

/// Two micro-batches go from rank 0 to rank 1, whose answers rank 0 waits for.
TEST(KnownProgress, ComesWithWhatIsWaitedFor) {
    Schedule schedule;
    schedule.micro_batches = 1;
    schedule.rank_of_stage = {0, 1};
    schedule.weights_of_stage = {0, 1};
    schedule.ranks = {{{Op::Forward, 0, 0},
                       {Op::SendForward, 0, 0},
                       {Op::RecvBackward, 0, 0},
                       {Op::Backward, 0, 0}},
                      {{Op::RecvForward, 1, 0},
                       {Op::Forward, 1, 0},
                       {Op::Backward, 1, 0},
                       {Op::SendBackward, 1, 0}}};
    const auto known = vector_clocks(schedule, -1);
    // Of rank 1, rank 0 knows nothing until it has the gradient: all before the sending is done.
    EXPECT_THAT(known[0],
                ElementsAre(ElementsAre(0, 0),
                            ElementsAre(1, 0),
                            ElementsAre(2, 0),
                            ElementsAre(3, 3),
                            ElementsAre(4, 3)));
    EXPECT_THAT(known[1],
                ElementsAre(ElementsAre(0, 0),
                            ElementsAre(1, 1),
                            ElementsAre(1, 2),
                            ElementsAre(1, 3),
                            ElementsAre(1, 4)));
}

/// Counts what is asked of it.
class CountingMemory final : public Memory {
  public:
    void* take(std::size_t bytes) override {
        ++taken_;
        return host_memory().take(bytes);
    }
    void give_back(void* block, std::size_t bytes) noexcept override {
        host_memory().give_back(block, bytes);
    }
    int taken() const { return taken_; }

  private:
    std::atomic<int> taken_ = 0;
};

class CountingDevice final : public Device {
  public:
    explicit CountingDevice(Memory& memory) : memory_(memory) {}
    void enter_thread() override { prepare_cpu_thread(); }
    TimePoint now() override { return std::chrono::steady_clock::now(); }
    TimePoint complete(const Action& /*action*/,
                       TimePoint /*begin*/,
                       Duration /*planned*/) override {
        return now();
    }
    Memory& memory() override { return memory_; }
    const Kernels& kernels() override { return cpu_kernels(); }

  private:
    Memory& memory_;
};

std::vector<Shape> shapes() {
    std::vector<Shape> all{{.stages = 1, .micro_batches = 3, .batch = 7},
                           {.stages = 3, .micro_batches = 1, .schedule = "naive"},
                           {.stages = 2, .schedule = "gpipe", .channel_capacity = 0},
                           {.stages = 3, .batch = 10, .schedule = "1f1b", .channel_capacity = 1},
                           {.stages = 2, .chunks = 2, .schedule = "interleaved-1f1b"},
                           {.stages = 2, .chunks = 2, .schedule = "looped-bfs"},
                           {.stages = 2, .chunks = 2, .schedule = "zb-v"},
                           {.stages = 2, .chunks = 2, .schedule = "dualpipe-v"},
                           {.stages = 4, .chunks = 2, .schedule = "hanayo"},
                           {.stages = 4, .schedule = "chimera"}};
    for (const char* const schedule : {"gpipe", "1f1b", "zb-h1", "zb-auto"}) {
        for (const Recompute recompute :
             {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
            all.push_back({.stages = 3, .schedule = schedule, .recompute = recompute});
        }
    }
    return all;
}

class PlannedMemory : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, PlannedMemory, ::testing::ValuesIn(shapes()));

TEST_P(PlannedMemory, IsAllThatAStepNeedsAndIsThereBeforeTheFirst) {
    const Shape& shape = GetParam();
    for (const Model& model : {test::small_gpt(), test::small_mlp()}) {
        CountingMemory memory;
        ExecutorOptions options = test::options_of(shape);
        options.make_device = [&memory](int /*rank*/) {
            return std::make_unique<CountingDevice>(memory);
        };
        const Plan plan = test::plan_of(model, shape);
        Executor executor(plan, model, options);
        const int before = memory.taken();
        for (int step = 0; step < 3; ++step) {
            executor.run_step(random_batch(model, shape.batch, 1), step);
        }
        EXPECT_EQ(memory.taken(), before);
        for (int rank = 0; rank < plan.rank_count(); ++rank) {
            EXPECT_EQ(executor.room(rank).unforeseen, 0);
            EXPECT_GE(executor.room(rank).bytes, executor.room(rank).least);
        }
        EXPECT_THAT(executor.notes(), ::testing::IsEmpty());
    }
}

// Tensors of a real size, so that rounding up does not matter. What is lost has no closed form; the
// bound is what the design promises.
TEST_P(PlannedMemory, LosesLittleBetweenTensorsAndTakesLittleMoreThanThePlanPredicts) {
    const Shape& shape = GetParam();
    const Model model = gpt_model({.layers = 4,
                                   .d_model = 64,
                                   .heads = 2,
                                   .context = 64,
                                   .vocabulary = 200,
                                   .feed_forward = 256});
    const Plan plan = test::plan_of(model, shape);
    const Executor executor(plan, model, test::options_of(shape));
    const std::vector<MemoryUse> peaks = peak_memory(plan);
    Bytes room;
    Bytes planned;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        const auto used = executor.room(rank);
        EXPECT_LE(static_cast<double>(used.bytes.count),
                  1.1 * static_cast<double>(used.least.count))
            << "rank " << rank;
        MemoryUse fixed = resident_memory(plan, rank);
        fixed[MemoryKind::Boundary] = {};  // room in channels is room for messages
        room += used.bytes;
        planned += peaks[static_cast<std::size_t>(rank)].total() - fixed.total();
    }
    EXPECT_LE(static_cast<double>(room.count), 1.1 * static_cast<double>(planned.count));
}

}  // namespace step_layout_test
}  // namespace pipetwin::exec
