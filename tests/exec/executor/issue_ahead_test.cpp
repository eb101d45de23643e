// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "exec/data/random_batch.h"
#include "exec/device/device.h"
#include "exec/executor/executor.h"
#include "tests/support/small_training.h"

/// A device that computes by itself gets its next action while it is at work on one.
namespace pipetwin::exec {
namespace issue_ahead_test {

using test::Shape;
using ::testing::HasSubstr;

/// What one rank asked of its device: "0F1 launched", "next prepared", "0F1 complete".
using Log = std::vector<std::string>;

/// Computes on the CPU at once, and says what it was asked. `fails`: the action whose completion
/// fails.
class ApartDevice final : public Device {
  public:
    ApartDevice(Log& log, std::optional<Action> fails) : log_(log), fails_(fails) {}

    void enter_thread() override { prepare_cpu_thread(); }
    TimePoint now() override { return std::chrono::steady_clock::now(); }
    bool launch(const Action& action) override {
        EXPECT_FALSE(under_way_) << "one action at a time";
        under_way_ = action;
        log_.push_back(to_string(action) + " launched");
        return true;
    }
    void prepare_launch() override { log_.emplace_back("next prepared"); }
    TimePoint complete(const Action& action, TimePoint, Duration) override {
        if (under_way_) {
            EXPECT_EQ(*under_way_, action);
            under_way_.reset();
        }
        log_.push_back(to_string(action) + " complete");
        if (action == fails_) {
            throw Error(ErrorKind::WorkerFailed, "", "it failed", "try again");
        }
        return now();
    }
    void discard() noexcept override { under_way_.reset(); }
    const Kernels& kernels() override { return cpu_kernels(); }

  private:
    Log& log_;
    std::optional<Action> fails_;
    std::optional<Action> under_way_;
};

struct Trained {
    std::vector<double> losses;
    std::vector<test::NamedValues> weights;
    bool operator==(const Trained&) const = default;
};

Trained train(Executor& executor, const Model& model, const Shape& shape) {
    Trained trained;
    for (int step = 0; step < 2; ++step) {
        trained.losses.push_back(executor.run_step(random_batch(model, shape.batch, 1), step).loss);
    }
    trained.weights = test::weights_of(executor.parameters());
    return trained;
}

std::vector<Shape> shapes() {
    return {{.stages = 1, .micro_batches = 3, .schedule = "1f1b"},
            {.stages = 2, .micro_batches = 3, .schedule = "1f1b", .recompute = Recompute::Always},
            {.stages = 2, .micro_batches = 3, .schedule = "zb-h1", .clip_norm = 0.1},
            {.stages = 2, .chunks = 2, .schedule = "interleaved-1f1b"}};
}

// Between two neighbours that compute there is no message to wait for. Everything else of a row
// begins when nothing is under way: a message of what is not computed yet would be wrong.
TEST(IssueAhead, AnActionIsIssuedBeforeTheOneBeforeItIsCompleteWhereBothCompute) {
    const Model model = test::small_gpt();
    for (const Shape& shape : shapes()) {
        SCOPED_TRACE(test::to_string(shape));
        const Plan plan = test::plan_of(model, shape);
        std::vector<Log> logs(static_cast<std::size_t>(shape.stages));
        ExecutorOptions options = test::options_of(shape);
        options.make_device = [&logs](int rank) {
            return std::make_unique<ApartDevice>(logs.at(static_cast<std::size_t>(rank)),
                                                 std::nullopt);
        };
        Executor executor(plan, model, options);
        executor.run_step(random_batch(model, shape.batch, 1), 0);
        for (std::size_t rank = 0; rank < logs.size(); ++rank) {
            const std::vector<Action>& row = plan->schedule.ranks[rank];
            Log expected;
            for (std::size_t cell = 0; cell < row.size(); ++cell) {
                const bool next_computes = cell + 1 < row.size() && is_compute(row[cell + 1].op);
                if (is_compute(row[cell].op) && next_computes) {
                    expected.push_back(to_string(row[cell]) + " launched");
                    expected.emplace_back("next prepared");
                }
                expected.push_back(to_string(row[cell]) + " complete");
            }
            EXPECT_EQ(logs[rank], expected);
        }
    }
}

TEST(IssueAhead, ChangesNoBitNoPeakAndNoRoom) {
    const Model model = test::small_gpt();
    for (const Shape& shape : shapes()) {
        SCOPED_TRACE(test::to_string(shape));
        const Plan plan = test::plan_of(model, shape);
        Executor one_by_one(plan, model, test::options_of(shape));
        std::vector<Log> logs(static_cast<std::size_t>(shape.stages));
        ExecutorOptions options = test::options_of(shape);
        options.make_device = [&logs](int rank) {
            return std::make_unique<ApartDevice>(logs.at(static_cast<std::size_t>(rank)),
                                                 std::nullopt);
        };
        Executor ahead(plan, model, options);
        EXPECT_TRUE(train(ahead, model, shape) == train(one_by_one, model, shape));
        const Batch batch = random_batch(model, shape.batch, 1);
        const StepResult found = ahead.run_step(batch, 2);
        const StepResult expected = one_by_one.run_step(batch, 2);
        for (std::size_t rank = 0; rank < found.peak.size(); ++rank) {
            EXPECT_EQ(found.peak[rank].total(), expected.peak[rank].total());
            EXPECT_EQ(ahead.room(static_cast<int>(rank)).unforeseen, 0);
            const std::vector<Span>& spans = found.timeline.ranks[rank];
            for (std::size_t cell = 1; cell < spans.size(); ++cell) {
                EXPECT_GE(spans[cell].begin, spans[cell - 1].end) << cell;
                EXPECT_GE(spans[cell].ready, spans[cell].begin) << cell;
                EXPECT_GE(spans[cell].end, spans[cell].ready) << cell;
            }
        }
    }
}

// The next action was issued by then, but it has not begun.
TEST(IssueAhead, AFailureIsThatOfTheActionThatFailed) {
    const Model model = test::small_gpt();
    const Shape shape{.stages = 1, .micro_batches = 3, .schedule = "1f1b"};
    const Plan plan = test::plan_of(model, shape);
    for (const Action& action : plan->schedule.ranks[0]) {
        SCOPED_TRACE(to_string(action));
        Log log;
        std::optional<Action> before;
        ExecutorOptions options = test::options_of(shape);
        options.make_device = [&](int /*rank*/) {
            return std::make_unique<ApartDevice>(log, action);
        };
        options.before_action = [&before](int /*rank*/, const Action& each) { before = each; };
        Executor executor(plan, model, options);
        try {
            executor.run_step(random_batch(model, shape.batch, 1), 0);
            FAIL() << "it did not fail";
        } catch (const Error& error) {
            EXPECT_THAT(error.place(), HasSubstr(in_full(action)));
        }
        EXPECT_EQ(before, action) << "no hook of a later action was called";
        EXPECT_EQ(log.back(), to_string(action) + " complete");
    }
}

// A loss that is not finite is known when the forward is complete.
TEST(IssueAhead, ALossThatIsNotFiniteIsThatOfItsForwardAndNoWeightHasChanged) {
    const Model model = test::small_mlp();
    const Shape shape{.stages = 1, .micro_batches = 2, .schedule = "1f1b"};
    Log log;
    ExecutorOptions options = test::options_of(shape);
    options.make_device = [&log](int /*rank*/) {
        return std::make_unique<ApartDevice>(log, std::nullopt);
    };
    Executor executor(test::plan_of(model, shape), model, options);
    const std::vector<test::NamedValues> weights = test::weights_of(executor.parameters());
    Batch batch = random_batch(model, shape.batch, 1);
    batch.values.back() = std::numeric_limits<float>::infinity();  // of the second micro-batch
    try {
        executor.run_step(batch, 0);
        FAIL() << "an infinity was not found";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::NotFinite);
        EXPECT_THAT(error.place(), HasSubstr("0F1"));
    }
    EXPECT_EQ(test::weights_of(executor.parameters()), weights);
    EXPECT_NO_THROW(executor.run_step(random_batch(model, shape.batch, 1), 0));
}

}  // namespace issue_ahead_test
}  // namespace pipetwin::exec
