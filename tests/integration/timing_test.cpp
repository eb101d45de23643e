// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/scenario/settled_scenario.h"
#include "core/timeline/render_timeline.h"
#include "core/timeline/timeline.h"
#include "exec/base/cores.h"
#include "exec/data/random_batch.h"
#include "exec/device/paced_device.h"
#include "exec/executor/executor.h"
#include "exec/profiling/profiler.h"
#include "sim/simulate/simulate.h"
#include "tests/support/small_training.h"

/// Tests whose result depends on time. A busy machine only ever makes a step longer, so each takes
/// the best of several.
namespace pipetwin::exec {
namespace timing_test {

using std::chrono::milliseconds;
using test::Shape;

/// Sleeps a millisecond; how much longer it took.
Duration late_sleep() {
    const auto until = std::chrono::steady_clock::now() + milliseconds(1);
    std::this_thread::sleep_until(until);
    return std::chrono::steady_clock::now() - until;
}

/// Whether sleeping threads are woken in time: what every test here needs. 9 of 10 sleeps within
/// half a millisecond.
bool machine_is_calm() {
    std::vector<Duration> late;
    for (int sleep = 0; sleep < 40; ++sleep) {
        late.push_back(late_sleep());
    }
    std::ranges::sort(late);
    return late[36] < std::chrono::microseconds(500);
}

/// The latest that threads were woken that slept beside the call, one for each core.
Duration lateness_beside(const std::function<void()>& call) {
    std::atomic<bool> over = false;
    std::vector<Duration> latest(allowed_cores().size());
    {
        std::vector<std::jthread> witnesses;
        for (Duration& late : latest) {
            witnesses.emplace_back([&late, &over] {
                do {
                    late = std::max(late, late_sleep());
                } while (!over);
            });
        }
        call();
        over = true;
    }
    return std::ranges::max(latest);
}

/// A busy machine is no judge: the test then says so and skips.
class OnACalmMachine : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!machine_is_calm()) {
            GTEST_SKIP() << "the machine is busy";
        }
    }
};
using Overlap = OnACalmMachine;
using PacedAgreement = OnACalmMachine;
using Profiler = OnACalmMachine;

TEST_F(Overlap, EachRankHasItsOwnWorker) {
    // Forward of K = 4, M = 4 with sleeps of 5 ms: 7 ticks if the ranks work at the same time, 16
    // if they take turns.
    const Model model = test::small_mlp();
    const Shape shape{.stages = 4, .micro_batches = 4};
    ExecutorOptions options = test::options_of(shape);
    options.before_action = [](int, const Action& action) {
        if (action.op == Op::Forward) {
            std::this_thread::sleep_for(milliseconds(5));
        }
    };
    Executor executor(test::plan_of(model, shape), model, options);
    Duration best = Duration::max();
    for (int step = 0; step < 5; ++step) {
        const Timeline timeline =
            executor.run_step(random_batch(model, shape.batch, 1), step).timeline;
        Duration last{};
        for (const Span& span : timeline.ranks[3]) {
            last = span.action.op == Op::Forward ? std::max(last, span.end) : last;
        }
        best = std::min(best, last);
    }
    EXPECT_GE(best, 7 * milliseconds(5));
    EXPECT_LT(best, 10 * milliseconds(5));
}

/// A paced device that is woken less than `paced_lateness` late is on time; what is left are the
/// messages, some 50 us each, far below an action's milliseconds. So 4 % is ample while nobody is
/// woken later than that, and no step tells anything in which somebody was: only those count in
/// which sleepers beside it were woken in half of that. Five such steps are a verdict.
TEST_F(PacedAgreement, AgreesWithItsPredictionWithin4PercentFor4And8DevicesOnFewCores) {
    const Model model = test::small_mlp();
    for (const int stages : {4, 8}) {
        for (const int micro_batches : {4, 16}) {
            const Shape shape{.stages = stages,
                              .micro_batches = micro_batches,
                              .batch = 16,
                              .backend = Backend::Paced};
            const test::LayerTimes times{.forward = milliseconds(2),
                                         .backward = milliseconds(4),
                                         .link = {.latency = std::chrono::microseconds(300)}};
            const Plan plan = test::plan_of(model, shape, times);
            const Timeline predicted = sim::simulate(plan);
            Executor executor(plan, model, test::options_of(shape));
            double best = std::numeric_limits<double>::infinity();
            Timeline nearest;
            int judges = 0;
            for (int step = 0; step < 40 && judges < 20 && std::abs(best) > 0.04; ++step) {
                Timeline emulated;
                const Duration late = lateness_beside([&] {
                    emulated =
                        executor.run_step(random_batch(model, shape.batch, 1), step).timeline;
                });
                if (late > paced_lateness / 2) {
                    continue;
                }
                ++judges;
                const double error = to_seconds(step_time(predicted) - step_time(emulated)) /
                                     to_seconds(step_time(emulated));
                if (std::abs(error) < std::abs(best)) {
                    best = error;
                    nearest = emulated;
                }
            }
            if (judges < 5 && std::abs(best) > 0.04) {
                GTEST_SKIP() << "the machine is busy: in " << judges
                             << " of 40 steps all sleepers were woken within a millisecond";
            }
            EXPECT_LE(std::abs(best), 0.04)
                << test::to_string(shape) << "\npredicted\n"
                << render_timeline(predicted, milliseconds(2)) << "emulated\n"
                << render_timeline(nearest, milliseconds(2));
        }
    }
}

/// 1024 times the work and the parameters.
TEST_F(Profiler, AWiderLayerCostsMore) {
    const Model model = mlp_model({8, 8, 256, 256, 4});
    const SettledScenario scenario =
        test::scenario_of({.stages = 1, .micro_batches = 2, .batch = 32});
    const Profile profile = profile_model(model, profiler_options(scenario));
    const LayerCost& narrow = profile.layers[0];
    const LayerCost& wide = profile.layers[2];
    EXPECT_GT(wide.samples.front().forward, narrow.samples.front().forward);
    EXPECT_GT(wide.optimizer, narrow.optimizer);
}

}  // namespace timing_test
}  // namespace pipetwin::exec
