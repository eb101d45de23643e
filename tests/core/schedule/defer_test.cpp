// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/defer.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"
#include "tests/support/builders.h"

namespace pipetwin {
namespace defer_test {

using std::chrono::milliseconds;
using testing::row_text;

DeferralCosts uniform(int stages, int forward, int input, int weight) {
    const auto count = static_cast<std::size_t>(stages);
    return {.forward = std::vector<Duration>(count, milliseconds(forward)),
            .backward_input = std::vector<Duration>(count, milliseconds(input)),
            .backward_weight = std::vector<Duration>(count, milliseconds(weight))};
}

Schedule one_f_one_b(int ranks, int micro_batches) {
    return generate(ScheduleKind::OneFOneB, {.ranks = ranks, .micro_batches = micro_batches});
}

TEST(DeferWeightGradients, FillsTheGapsOfTheLastPartOf1F1B) {
    const Schedule deferred = defer_weight_gradients(one_f_one_b(3, 3), uniform(3, 1, 1, 1));
    EXPECT_TRUE(validate(deferred).empty());
    EXPECT_EQ(row_text(deferred, 2), "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2W1 2W2");
    EXPECT_EQ(row_text(deferred, 0), "0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2");
}

/// The rows of F and I, without W.
std::vector<std::vector<Action>> without_weights(Schedule schedule) {
    for (auto& row : schedule.ranks) {
        std::erase_if(row, [](const Action& a) { return a.op == Op::BackwardWeight; });
    }
    return schedule.ranks;
}

bool has_pairs(const Schedule& schedule) {
    return std::ranges::any_of(schedule.ranks, [](const std::vector<Action>& row) {
        return std::ranges::any_of(row, &Action::with_next);
    });
}

TEST(DeferWeightGradients, KeepsTheOrderOfTheRestForEveryScheduleAndAnyCosts) {
    std::mt19937 random(3);
    const auto draw = [&random] { return Duration{1 + static_cast<int>(random() % 9)}; };
    for (const ScheduleName& known : known_schedules()) {
        for (int p = 1; p <= 4; ++p) {
            for (int v = 1; v <= 2; ++v) {
                for (int m = 1; m <= 8; ++m) {
                    Schedule schedule;
                    try {
                        schedule = generate(known.kind, {p, v, m});
                    } catch (const Error&) {
                        continue;  // the schedule has no such shape
                    }
                    DeferralCosts costs;
                    for (int stage = 0; stage < schedule.stage_count(); ++stage) {
                        costs.forward.push_back(draw());
                        costs.backward_input.push_back(draw());
                        costs.backward_weight.push_back(draw());
                    }
                    costs.latency = Duration{static_cast<int>(random() % 3)};
                    costs.most_waiting = static_cast<int>(random() % 3);
                    const Schedule deferred = defer_weight_gradients(schedule, costs);
                    ASSERT_TRUE(validate(deferred).empty()) << known.name;
                    ASSERT_EQ(without_weights(deferred), without_weights(split_backward(schedule)));
                    // So a gradient that I adds has the bits of one that W adds. In pairs there are
                    // whole backwards left, which come before what has been put off.
                    ASSERT_TRUE(testing::weights_follow_inputs(deferred) || has_pairs(schedule))
                        << known.name;
                }
            }
        }
    }
}

/// Most W that stand behind their I at a time, per rank.
int most_waiting(const std::vector<Action>& row) {
    int waiting = 0;
    int most = 0;
    for (const Action& action : row) {
        waiting += action.op == Op::BackwardInput ? 1 : 0;
        waiting -= action.op == Op::BackwardWeight ? 1 : 0;
        most = std::max(most, waiting);
    }
    return most;
}

TEST(DeferWeightGradients, NeverPutsOffMoreThanAllowed) {
    for (const int allowed : {1, 2, 3}) {
        DeferralCosts costs = uniform(4, 2, 2, 1);
        costs.most_waiting = allowed;
        for (const auto& row : defer_weight_gradients(one_f_one_b(4, 12), costs).ranks) {
            EXPECT_LE(most_waiting(row), allowed);
        }
    }
}

}  // namespace defer_test
}  // namespace pipetwin
