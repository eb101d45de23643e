// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/timeline/footprint.h"
#include "exec/data/random_batch.h"
#include "exec/device/paced_copy_engine.h"
#include "exec/executor/executor.h"
#include "exec/training/trainer.h"
#include "tests/support/error_of.h"
#include "tests/support/small_training.h"

/// Workers that hang, until the test lets them go.
namespace pipetwin::exec {
namespace hang_test {

using std::chrono::milliseconds;
using test::Shape;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Long against any action of a small model, even under a sanitizer on a busy machine.
constexpr HangLimits quick{.least = milliseconds(500),
                           .factor = 10,
                           .first_step = milliseconds(500),
                           .grace = milliseconds(200)};

/// Holds whoever comes, while it is closed.
class Gate {
  public:
    void pass() { closed_.wait(true); }
    void open() {
        closed_ = false;
        closed_.notify_all();
    }

  private:
    std::atomic<bool> closed_ = true;
};

/// Where both are one event, the sender is who has not gone on.
Action sending(Action action) {
    if (action.op == Op::RecvForward) {
        return {
            .op = Op::SendForward, .stage = action.stage - 1, .micro_batch = action.micro_batch};
    }
    if (action.op == Op::RecvBackward) {
        return {
            .op = Op::SendBackward, .stage = action.stage + 1, .micro_batch = action.micro_batch};
    }
    return action;
}

class HangingAt : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(
    Hang,
    HangingAt,
    ::testing::Values(
        Shape{.stages = 2, .micro_batches = 2, .batch = 4, .schedule = "1f1b"},
        Shape{.stages = 2, .micro_batches = 2, .batch = 4, .channel_capacity = 0},
        Shape{.stages = 2, .micro_batches = 2, .batch = 4, .schedule = "chimera"},
        Shape{.stages = 2, .micro_batches = 2, .batch = 4, .schedule = "1f1b", .clip_norm = 0.05}));

TEST_P(HangingAt, EveryActionIsFoundAndTheExecutorCanBeUsedAgain) {
    const Shape shape = GetParam();
    const Model model = test::small_mlp();
    const Plan plan = test::plan_of(model, shape);
    const Batch batch = random_batch(model, shape.batch, 1);
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        for (const Action& action : plan->schedule.ranks[static_cast<std::size_t>(rank)]) {
            SCOPED_TRACE(to_string(action));
            Gate gate;
            ExecutorOptions options = test::options_of(shape);
            options.hang_limits = quick;
            options.before_action = [&](int, const Action& at) {
                if (at == action) {
                    gate.pass();
                }
            };
            Executor executor(plan, model, options);
            const Error error = testing::error_of([&] { executor.run_step(batch, 3); });
            EXPECT_EQ(error.kind(), ErrorKind::Hang);
            const Action told = shape.channel_capacity == 0 ? sending(action) : action;
            EXPECT_THAT(error.place(), HasSubstr(", step 3, " + in_full(told)));
            EXPECT_THAT(error.text(), StartsWith("it has hung for "));
            EXPECT_THAT(error.text(), HasSubstr("\n  rank 0: "));
            EXPECT_THAT(error.text(), HasSubstr("\n  rank 1: "));
            EXPECT_EQ(executor.last_failure().value().action, told);
            gate.open();
            EXPECT_GT(executor.run_step(batch, 0).loss, 0);
            EXPECT_EQ(executor.resident(rank), resident_memory(plan, rank));
        }
    }
}

class HangingExecutor : public ::testing::Test {
  protected:
    /// Hangs at 1F1.
    ExecutorOptions hanging() {
        ExecutorOptions options = test::options_of(shape);
        options.hang_limits = quick;
        options.before_action = [this](int, const Action& at) {
            if (at == Action{.op = Op::Forward, .stage = 1, .micro_batch = 1}) {
                gate.pass();
            }
        };
        return options;
    }

    const Shape shape{.stages = 3, .micro_batches = 3, .schedule = "1f1b"};
    const Model model = test::small_mlp();
    const Plan plan = test::plan_of(model, shape);
    const Batch batch = random_batch(model, shape.batch, 1);
    Gate gate;
};

TEST_F(HangingExecutor, LeavesNoTraceInTheNumbersOfLaterSteps) {
    Executor executor(plan, model, hanging());
    EXPECT_THROW(executor.run_step(batch, 0), Error);
    gate.open();
    Executor untouched(plan, model, test::options_of(shape));
    EXPECT_EQ(executor.run_step(batch, 0).loss, untouched.run_step(batch, 0).loss);
    EXPECT_EQ(test::gradients_of(executor.parameters()),
              test::gradients_of(untouched.parameters()));
}

TEST_F(HangingExecutor, RefusesTheNextStepWhileAWorkerIsAway) {
    Executor executor(plan, model, hanging());
    EXPECT_THROW(executor.run_step(batch, 0), Error);
    const Error error = testing::error_of([&] { executor.run_step(batch, 1); });
    EXPECT_EQ(error.kind(), ErrorKind::Hang);
    EXPECT_THAT(error.text(), HasSubstr("rank 1 has not come back"));
    gate.open();
    EXPECT_NO_THROW(executor.run_step(batch, 0));
}

TEST_F(HangingExecutor, IsDestroyedWhenItsWorkersAreBack) {
    auto executor = std::make_unique<Executor>(plan, model, hanging());
    EXPECT_THROW(executor->run_step(batch, 0), Error);
    gate.open();
    executor.reset();
}

// What fails earlier in schedule order is told, though another rank hangs.
TEST_F(HangingExecutor, AnEarlierFailureOfAnotherRankIsTheOneThatIsTold) {
    ExecutorOptions options = hanging();
    options.before_action = [hang = options.before_action](int rank, const Action& at) {
        hang(rank, at);
        if (at == Action{.op = Op::Forward, .stage = 0, .micro_batch = 2}) {
            throw std::runtime_error("broken");
        }
    };
    Executor executor(plan, model, options);
    try {
        executor.run_step(batch, 0);
        FAIL() << "expected a failure";
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "broken");
    }
    gate.open();
}

TEST_F(HangingExecutor, ATrainingStepKeepsTheKindOfError) {
    Executor executor(plan, model, hanging());
    const Error error = testing::error_of([&] { training_step(executor, batch, 0); });
    EXPECT_EQ(error.kind(), ErrorKind::Hang);
    gate.open();
}

/// A device whose copies to other memories do not arrive while the gate is closed.
class HoldingEngine final : public CopyEngine {
  public:
    HoldingEngine(Device& device, Gate& gate)
        : engine_(make_paced_copy_engine(device, {})), gate_(gate) {}
    Memory& memory() override { return engine_->memory(); }
    void restart() override { engine_->restart(); }
    int start(Direction direction,
              std::span<const Piece> pieces,
              std::optional<int> after) override {
        return engine_->start(direction, pieces, after);
    }
    bool is_complete(int copy) override { return engine_->is_complete(copy); }
    void wait(int copy) override { engine_->wait(copy); }
    Times times(int copy) override { return engine_->times(copy); }
    std::function<TimePoint()> arrival(int copy) override {
        return [this, arrived = engine_->arrival(copy)] {
            gate_.pass();
            return arrived();
        };
    }

  private:
    std::unique_ptr<CopyEngine> engine_;
    Gate& gate_;
};

class OwnMemory final : public Memory {
  public:
    void* take(std::size_t bytes) override { return host_memory().take(bytes); }
    void give_back(void* block, std::size_t bytes) noexcept override {
        host_memory().give_back(block, bytes);
    }
};

class HoldingDevice final : public Device {
  public:
    explicit HoldingDevice(Gate& gate) : gate_(gate) {}
    void enter_thread() override { prepare_cpu_thread(); }
    TimePoint now() override { return std::chrono::steady_clock::now(); }
    TimePoint complete(const Action& /*action*/,
                       TimePoint /*begin*/,
                       Duration /*planned*/) override {
        return now();
    }
    Memory& memory() override { return memory_; }
    std::unique_ptr<CopyEngine> make_copy_engine(const LinkCost& /*planned*/) override {
        return std::make_unique<HoldingEngine>(*this, gate_);
    }
    const Kernels& kernels() override { return cpu_kernels(); }

  private:
    Gate& gate_;
    OwnMemory memory_;
};

TEST(Hang, AMessageThatNeverComesIsFoundAtItsReceiver) {
    const Shape shape{.stages = 2, .micro_batches = 2, .batch = 4};
    const Model model = test::small_mlp();
    Gate gate;
    ExecutorOptions options = test::options_of(shape);
    options.hang_limits = quick;
    options.make_device = [&gate](int /*rank*/) { return std::make_unique<HoldingDevice>(gate); };
    Executor executor(test::plan_of(model, shape), model, options);
    const Batch batch = random_batch(model, shape.batch, 1);
    const Error error = testing::error_of([&] { executor.run_step(batch, 0); });
    EXPECT_EQ(error.kind(), ErrorKind::Hang);
    EXPECT_THAT(error.place(), StartsWith("rank 1, step 0, 1RECV_F0 ("));
    EXPECT_THAT(error.text(), HasSubstr("waits for 0SEND_F0 of rank 0, which has come"));
    EXPECT_THAT(error.text(), HasSubstr("rank 0: at 0RECV_B1 ("));
    gate.open();
    EXPECT_GT(executor.run_step(batch, 0).loss, 0);
}

}  // namespace hang_test
}  // namespace pipetwin::exec
