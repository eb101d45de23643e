// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/calibration_rounds.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "exec/base/cores.h"
#include "exec/base/noise.h"
#include "exec/profiling/calibrate.h"
#include "tests/support/small_training.h"

namespace pipetwin::accuracy {
namespace calibration_rounds_test {

using exec::allowed_cores;
using std::chrono::microseconds;

/// What two rounds say.
std::vector<CalibrationRun> quick(const Model& model, std::vector<CalibrationSetting> settings) {
    CalibrationRounds rounds(model, {.settings = std::move(settings)});
    rounds.next();
    rounds.next();
    return rounds.means();
}

TEST(CalibrationRounds, MeasuresEveryPartOfEveryLayerThatASettingHas) {
    const Model model = test::small_gpt();
    const std::vector<CalibrationRun> runs = quick(model,
                                                   {{.micro_batch_size = 2},
                                                    {.micro_batch_size = 2, .live_stashes = 4},
                                                    {.micro_batch_size = 2, .recomputes = true},
                                                    {.micro_batch_size = 3, .splits = true}});
    ASSERT_EQ(runs.size(), 4U);
    for (const CalibrationRun& run : runs) {
        ASSERT_EQ(run.cores.size(), 1U);
        ASSERT_EQ(run.cores.front().size(), static_cast<std::size_t>(model.layer_count()));
        EXPECT_GE(run.clean_steps + run.dropped_steps, 1);
        for (const LayerTimes& layer : run.cores.front()) {
            EXPECT_GT(layer.forward, Duration{});
            EXPECT_EQ(layer.recompute > Duration{}, run.setting.recomputes);
            EXPECT_GT(layer.backward_input + layer.backward_weight, Duration{});
            EXPECT_GT(layer.optimizer, Duration{});
        }
    }
}

TEST(CalibrationRounds, OtherCoresAreBusyMeanwhile) {
    if (allowed_cores().size() < 2) {
        GTEST_SKIP() << "there is no other core: one is all that this thread may use";
    }
    const std::vector<CalibrationRun> runs =
        quick(test::small_mlp(), {{.micro_batch_size = 2}, {.micro_batch_size = 2, .workers = 2}});
    EXPECT_EQ(runs.front().cores.size(), 1U);
    ASSERT_EQ(runs.back().cores.size(), 2U);
    for (const std::vector<LayerTimes>& layers : runs.back().cores) {
        EXPECT_GT(layers.front().forward, Duration{});
    }
}

/// Each worker trains by itself what a rank of a plan has, and no other layer.
TEST(CalibrationRounds, AWorkerMeasuresTheLayersThatItHolds) {
    if (allowed_cores().size() < 2) {
        GTEST_SKIP() << "there is no other core: one is all that this thread may use";
    }
    const Model model = test::small_gpt();
    const int last = model.layer_count() - 1;
    const CalibrationSetting halves{
        .micro_batch_size = 1, .workers = 2, .held = {{{0, 2}}, {{2, last - 1}}}};
    CalibrationSetting turns{
        .micro_batch_size = 1, .workers = 2, .held = {{{0, 1}, {2, 1}}, {{1, 1}, {3, last - 2}}}};
    CalibrationSetting many = turns;
    many.live_stashes = 3;
    CalibrationSetting split = halves;
    split.splits = true;
    turns.recomputes = true;
    const std::vector<CalibrationRun> runs = quick(model, {halves, turns, many, split});
    for (const CalibrationRun& run : runs) {
        ASSERT_EQ(run.cores.size(), 2U);
        for (int layer = 0; layer <= last; ++layer) {
            for (std::size_t worker = 0; worker < run.cores.size(); ++worker) {
                const bool holds = std::ranges::any_of(
                    run.setting.held[worker], [layer](const CalibrationSetting::Piece& piece) {
                        return layer >= piece.first && layer < piece.first + piece.count;
                    });
                const LayerTimes& times = run.cores[worker].at(static_cast<std::size_t>(layer));
                EXPECT_EQ(times.forward > Duration{}, holds) << layer;
                EXPECT_EQ(times.backward_input + times.backward_weight > Duration{}, holds);
                EXPECT_EQ(times.optimizer > Duration{}, holds);
                EXPECT_EQ(times.recompute > Duration{}, holds && run.setting.recomputes);
            }
        }
    }
}

/// The head's matrix is the embedding's: a worker that holds only one of them has its own.
TEST(CalibrationRounds, TiedWeightsCanBeHeldApart) {
    if (allowed_cores().size() < 2) {
        GTEST_SKIP() << "there is no other core: one is all that this thread may use";
    }
    const Model model = gpt_model(
        {.layers = 1, .d_model = 8, .heads = 2, .context = 4, .vocabulary = 11, .tied = true});
    const std::vector<CalibrationRun> runs =
        quick(model,
              {{.micro_batch_size = 1},
               {.micro_batch_size = 1, .workers = 2, .held = {{{0, 2}}, {{2, 2}}}}});
    EXPECT_GT(runs.back().cores.back().back().forward, Duration{});
}

/// A round is one step of each setting; what counts in the end is the mean over the rounds.
TEST(CalibrationRounds, MeansAreOverTheRounds) {
    const Model model = test::small_mlp();
    RoundsOptions options;
    options.settings = {{.micro_batch_size = 1}, {.micro_batch_size = 2, .recomputes = true}};
    CalibrationRounds rounds(model, options);
    const auto forward = [](const CalibrationRun& run) {
        return run.cores.front().front().forward;
    };
    std::vector<Duration> sums(options.settings.size());
    constexpr int count = 5;
    int clean = 0;
    for (int round = 0; round < count; ++round) {
        const CalibrationRounds::Round now = rounds.next();
        ASSERT_EQ(now.runs.size(), options.settings.size());
        clean += now.stolen <= exec::most_stolen ? 1 : 0;
        for (std::size_t setting = 0; setting < now.runs.size(); ++setting) {
            EXPECT_EQ(now.runs[setting].setting, options.settings[setting]);
            EXPECT_GT(forward(now.runs[setting]), Duration{});
            sums[setting] += forward(now.runs[setting]);
        }
    }
    const std::vector<CalibrationRun> means = rounds.means();
    for (std::size_t setting = 0; setting < means.size(); ++setting) {
        EXPECT_EQ(means[setting].clean_steps + means[setting].dropped_steps, count);
        EXPECT_GE(means[setting].clean_steps, clean);
        if (means[setting].clean_steps == count) {
            EXPECT_NEAR(static_cast<double>(forward(means[setting]).count()),
                        static_cast<double>(sums[setting].count()) / count,
                        1);
        }
    }
}

TEST(CalibrationRounds, RefusesMoreWorkersThanCores) {
    const int many = static_cast<int>(allowed_cores().size()) + 1;
    EXPECT_THROW(quick(test::small_mlp(), {{.micro_batch_size = 1, .workers = many}}), Error);
}

/// No pipeline of the calibration is one of a plan: of 1, 2, 4, 8 and 16 micro-batches.
TEST(CalibrationSettings, KeepNoPlansNumberOfStashes) {
    for (const CalibrationSetting& setting : calibration_settings({1, 2, 4, 8, 16}, 16, 2)) {
        const int live = setting.live_stashes;
        EXPECT_TRUE(live == 1 || (live & (live - 1)) != 0) << live;
    }
}

TEST(FittedLink, ALinkOfKnownCostIsFoundAgain) {
    // 2 us and 1 GB/s, with a half-bandwidth size of 4096 bytes.
    std::vector<LadderRung> rungs;
    for (std::int64_t bytes = 64; bytes <= (std::int64_t{4} << 20); bytes *= 4) {
        const auto half = bytes == 64 ? 0 : 4096;
        rungs.push_back(
            {.message = Bytes{bytes}, .time = microseconds(2) + Duration{bytes + half}});
    }
    const LinkCost link = fitted_link(rungs);
    EXPECT_NEAR(to_milliseconds(link.latency), 0.002, 0.0001);
    EXPECT_NEAR(link.bytes_per_second, 1e9, 1e6);
    EXPECT_NEAR(static_cast<double>(link.half_bandwidth.count), 4096, 100);
}

}  // namespace calibration_rounds_test
}  // namespace pipetwin::accuracy
