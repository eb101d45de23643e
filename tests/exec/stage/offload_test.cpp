// SPDX-License-Identifier: Apache-2.0
#include "core/plan/offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/timeline/footprint.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "exec/stage/stash_offload.h"
#include "tests/support/small_training.h"

/// Stashes in host memory, on devices that emulate a link to it: the copies are made by a thread
/// beside the rank's, and take the time that the plan says.
namespace pipetwin::exec {
namespace offload_test {

using std::chrono::microseconds;
using test::NamedValues;
using test::Shape;
using ::testing::HasSubstr;

constexpr test::LayerTimes quick{.forward = microseconds(20), .backward = microseconds(40)};
/// A stash of small_gpt is on such a link for about as long as its forward takes.
constexpr double matching_gbps = 2;

struct Outcome {
    std::vector<double> losses;
    std::vector<NamedValues> weights;

    bool operator==(const Outcome&) const = default;
};

Outcome train(Executor& executor, const Model& model, int steps) {
    Outcome outcome;
    const int batch = static_cast<int>(executor.plan().samples().value());
    for (int step = 0; step < steps; ++step) {
        outcome.losses.push_back(executor.run_step(random_batch(model, batch, 1), step).loss);
    }
    outcome.weights = test::weights_of(executor.parameters());
    return outcome;
}

std::vector<Shape> shapes() {
    std::vector<Shape> all;
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
        for (const Recompute recompute : {Recompute::None, Recompute::Always}) {
            all.push_back({.stages = 2, .schedule = schedule, .recompute = recompute});
        }
    }
    all.push_back({.stages = 1, .micro_batches = 3, .schedule = "gpipe"});
    all.push_back({.stages = 2, .chunks = 2, .schedule = "interleaved-1f1b"});
    for (Shape& shape : all) {
        shape.backend = Backend::Paced;
    }
    return all;
}

Shape offloaded(Shape shape, double gbps = matching_gbps) {
    shape.host_link_gbps = gbps;
    return shape;
}

class Offloading : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Schedules, Offloading, ::testing::ValuesIn(shapes()));

TEST_P(Offloading, ChangesNoBit) {
    const Model model = test::small_gpt();
    Executor on_device(
        test::plan_of(model, GetParam(), quick), model, test::options_of(GetParam()));
    const Outcome expected = train(on_device, model, 3);
    // A link that keeps up, and one that never does.
    for (const double gbps : {matching_gbps, matching_gbps / 40}) {
        const Plan plan = test::plan_of(model, offloaded(GetParam(), gbps), quick);
        Executor executor(plan, model, test::options_of(GetParam()));
        EXPECT_EQ(train(executor, model, 3), expected) << gbps << " Gbit/s";
    }
}

// What the simulator does with the same copies: docs/simulation.md.
TEST_P(Offloading, CopiesWhatThePlanSaysWhenThePlanSays) {
    const Model model = test::small_gpt();
    const Plan plan = test::plan_of(model, offloaded(GetParam()), quick);
    Executor executor(plan, model, test::options_of(GetParam()));
    const StepResult step = executor.run_step(random_batch(model, GetParam().batch, 1), 0);
    const auto copies = stash_copies(plan);
    ASSERT_EQ(step.timeline.host_copies.size(), 2 * copies.size());
    for (std::size_t rank = 0; rank < copies.size(); ++rank) {
        const std::vector<Span>& row = step.timeline.ranks[rank];
        const std::vector<Span>& out = step.timeline.host_copies[2 * rank];
        const std::vector<Span>& in = step.timeline.host_copies[2 * rank + 1];
        ASSERT_EQ(out.size(), copies[rank].size());
        ASSERT_EQ(in.size(), copies[rank].size());
        for (const StashCopy& copy : copies[rank]) {
            const auto of = [&](const std::vector<Span>& spans, std::size_t cell) {
                const Action& action = plan->schedule.ranks[rank][cell];
                const auto found = std::ranges::find(spans, action, &Span::action);
                return found == spans.end() ? Span{} : *found;
            };
            const Span leaves = of(out, copy.forward);
            const Span comes = of(in, copy.user);
            const Duration lasts =
                transfer_time(copy.bytes, plan->host_link.value().bytes_per_second);
            EXPECT_GE(leaves.begin, row[copy.forward].end);
            EXPECT_EQ(leaves.end - leaves.begin, lasts);
            EXPECT_GE(comes.begin, leaves.end);
            EXPECT_GE(comes.begin, row[copy.before].ready);
            EXPECT_EQ(comes.end - comes.begin, lasts);
            EXPECT_GE(row[copy.user].ready, comes.end);
        }
    }
}

// The arena frees a stash when its rank looks, which is no earlier than it has left.
TEST_P(Offloading, TakesNoMoreMemoryThanWithoutAndWhatItsOwnTimelineSaysAtLeast) {
    const Model model = test::small_gpt();
    const Plan plan = test::plan_of(model, offloaded(GetParam()), quick);
    Executor executor(plan, model, test::options_of(GetParam()));
    const StepResult step = executor.run_step(random_batch(model, GetParam().batch, 1), 0);
    const std::vector<MemoryUse> of_timeline = peak_memory(plan, step.timeline);
    const std::vector<MemoryUse> on_device = peak_memory(plan);
    for (std::size_t rank = 0; rank < on_device.size(); ++rank) {
        EXPECT_GE(step.peak[rank].total(), of_timeline[rank].total()) << "rank " << rank;
        EXPECT_LE(step.peak[rank].total(), on_device[rank].total()) << "rank " << rank;
        const bool copies = !step.timeline.host_copies[2 * rank].empty();
        EXPECT_EQ(step.host_peak[rank] > Bytes{}, copies) << "rank " << rank;
    }
}

// With eight stashes and a link that keeps up, at most the ones at work are on the device.
TEST(Offload, NeedsTheRoomOfAFewStashesHoweverManyThereAre) {
    const Model model = test::small_gpt();
    Shape shape{.stages = 1, .micro_batches = 8, .schedule = "gpipe", .backend = Backend::Paced};
    const test::LayerTimes slow{.forward = microseconds(500), .backward = microseconds(500)};
    const Plan plan = test::plan_of(model, offloaded(shape, 100), slow);
    Executor executor(plan, model, test::options_of(shape));
    const StepResult step = executor.run_step(random_batch(model, shape.batch, 1), 0);
    const Bytes stash = plan.cost(0, 0).saved;
    const Bytes without = peak_memory(plan)[0].total();
    EXPECT_LE(step.peak[0].total(), without - 5 * stash);
    EXPECT_GE(step.host_peak[0], 6 * stash);
}

struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Copies are under way while an action fails; afterwards the executor is as good as new.
TEST(Offload, AStepThatFailsLeavesNothingBehind) {
    const Model model = test::small_gpt();
    const Shape shape{.stages = 2, .schedule = "gpipe", .backend = Backend::Paced};
    const Plan plan = test::plan_of(model, offloaded(shape), quick);
    Executor undisturbed(plan, model, test::options_of(shape));
    const Outcome expected = train(undisturbed, model, 2);
    for (const Action& failing : plan->schedule.ranks[0]) {
        ExecutorOptions options = test::options_of(shape);
        bool armed = true;
        options.before_action = [&](int rank, const Action& action) {
            if (rank == 0 && action == failing && armed) {
                throw Broken("on purpose");
            }
        };
        Executor executor(plan, model, options);
        const MemoryUse before = executor.resident(0);
        EXPECT_THROW(executor.run_step(random_batch(model, shape.batch, 1), 0), Broken);
        EXPECT_EQ(executor.resident(0), before);
        armed = false;
        // Later, the other rank may have updated its weights.
        if (failing.op == Op::Forward || failing.op == Op::SendForward) {
            EXPECT_EQ(train(executor, model, 2), expected) << to_string(failing);
        }
    }
}

TEST(Offload, ACpuHasNoMemoryOfItsOwn) {
    const Model model = test::small_mlp();
    const Shape shape{};
    try {
        const Executor executor(
            test::plan_of(model, offloaded(shape)), model, test::options_of(shape));
        FAIL() << "the CPU offloads";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Unavailable);
        EXPECT_THAT(error.what(), HasSubstr("lie in host memory already"));
    }
}

}  // namespace offload_test
}  // namespace pipetwin::exec
