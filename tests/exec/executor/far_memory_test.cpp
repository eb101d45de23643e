// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "exec/data/random_batch.h"
#include "exec/device/paced_copy_engine.h"
#include "exec/executor/executor.h"
#include "exec/memory_plan/message_room.h"
#include "tests/support/small_training.h"

/// Ranks whose devices have memories of their own, as GPUs have: messages are copied, by a thread
/// beside the rank's. Under the thread sanitizer a buffer that is used again before its copy has
/// ended is a race.
namespace pipetwin::exec {
namespace far_memory_test {

using test::Shape;

class OwnMemory final : public Memory {
  public:
    ~OwnMemory() override { EXPECT_EQ(bytes_, 0U) << "not given back"; }
    void* take(std::size_t bytes) override {
        bytes_ += bytes;
        return host_memory().take(bytes);
    }
    void give_back(void* block, std::size_t bytes) noexcept override {
        bytes_ -= bytes;
        host_memory().give_back(block, bytes);
    }
    std::size_t bytes() const { return bytes_; }

  private:
    std::atomic<std::size_t> bytes_ = 0;
};

class FarDevice final : public Device {
  public:
    explicit FarDevice(Memory& memory) : memory_(memory) {}
    void enter_thread() override { prepare_cpu_thread(); }
    TimePoint now() override { return std::chrono::steady_clock::now(); }
    TimePoint complete(const Action& /*action*/,
                       TimePoint /*begin*/,
                       Duration /*planned*/) override {
        return now();
    }
    Memory& memory() override { return memory_; }
    std::unique_ptr<CopyEngine> make_copy_engine(const LinkCost& /*planned*/) override {
        // Slow enough that a rank goes on while its messages are under way.
        return make_paced_copy_engine(*this, {.latency = std::chrono::microseconds(300)});
    }
    const Kernels& kernels() override { return cpu_kernels(); }

  private:
    Memory& memory_;
};

class FarMemories : public ::testing::TestWithParam<Shape> {
  protected:
    ExecutorOptions options(std::size_t memory_count) {
        memories_.resize(memory_count);
        for (std::unique_ptr<OwnMemory>& memory : memories_) {
            memory = std::make_unique<OwnMemory>();
        }
        ExecutorOptions options = test::options_of(GetParam());
        options.make_device = [this](int rank) {
            const auto index = static_cast<std::size_t>(rank) % memories_.size();
            return std::make_unique<FarDevice>(*memories_[index]);
        };
        return options;
    }
    std::size_t bytes_taken() const {
        std::size_t sum = 0;
        for (const auto& memory : memories_) {
            sum += memory->bytes();
        }
        return sum;
    }

    std::vector<std::unique_ptr<OwnMemory>> memories_;
};

INSTANTIATE_TEST_SUITE_P(
    Schedules,
    FarMemories,
    ::testing::Values(Shape{.stages = 3, .schedule = "gpipe"},
                      Shape{.stages = 3, .schedule = "gpipe", .recompute = Recompute::Always},
                      Shape{.stages = 3, .micro_batches = 6, .schedule = "1f1b"},
                      Shape{.stages = 3, .schedule = "zb-h1", .channel_capacity = 1},
                      Shape{.stages = 2, .chunks = 2, .schedule = "interleaved-1f1b"},
                      Shape{.stages = 4, .schedule = "chimera"}));

TEST_P(FarMemories, GiveTheSameBitsAsOne) {
    const Model model = test::small_gpt();
    const Plan plan = test::plan_of(model, GetParam());
    Executor near(plan, model, test::options_of(GetParam()));
    std::vector<double> expected;
    for (int step = 0; step < 3; ++step) {
        expected.push_back(near.run_step(random_batch(model, GetParam().batch, 1), step).loss);
    }
    for (const std::size_t memories : {std::size_t{2}, std::size_t{4}}) {
        Executor far(plan, model, options(memories));
        for (int step = 0; step < 3; ++step) {
            EXPECT_EQ(far.run_step(random_batch(model, GetParam().batch, 1), step).loss,
                      expected[static_cast<std::size_t>(step)]);
        }
        EXPECT_EQ(test::weights_of(far.parameters()), test::weights_of(near.parameters()));
    }
}

TEST_P(FarMemories, AskForNothingOnceTheyHaveWhatAStepNeeds) {
    const Model model = test::small_gpt();
    Executor far(test::plan_of(model, GetParam()), model, options(4));
    const Batch batch = random_batch(model, GetParam().batch, 1);
    std::vector<std::size_t> taken;
    for (int step = 0; step < 12; ++step) {
        far.run_step(batch, step);
        taken.push_back(bytes_taken());
    }
    // How many messages are under way at a time is a matter of timing, so a late step may have one
    // more; but it does not grow with the steps.
    EXPECT_LE(taken.back(), taken[3] + taken[3] / 10);
}

TEST_P(FarMemories, AreAsGoodAsNewAfterAFailure) {
    const Model model = test::small_gpt();
    ExecutorOptions failing = options(4);
    bool armed = true;
    failing.before_action = [&](int rank, const Action& action) {
        if (armed && rank == 1 && action.op == Op::Forward && action.micro_batch == 2) {
            throw std::runtime_error("on purpose");
        }
    };
    const Plan plan = test::plan_of(model, GetParam());
    Executor far(plan, model, failing);
    const Batch batch = random_batch(model, GetParam().batch, 1);
    EXPECT_THROW(far.run_step(batch, 0), std::runtime_error);
    armed = false;
    Executor near(plan, model, test::options_of(GetParam()));
    EXPECT_EQ(far.run_step(batch, 0).loss, near.run_step(batch, 0).loss);
}

TEST(MessageRoom, ABlockIsFreeAgainOnceTheDeviceHasDoneEverything) {
    OwnMemory memory;
    MessageRoom room(memory);
    void* const first = room.take(64);
    room.give_back(first, 64);
    void* const second = room.take(64);
    EXPECT_NE(first, second);
    room.settle();
    EXPECT_EQ(room.take(64), first);
    room.give_back(first, 64);
    room.give_back(second, 64);
}

}  // namespace far_memory_test
}  // namespace pipetwin::exec
