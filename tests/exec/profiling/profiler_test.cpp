// SPDX-License-Identifier: Apache-2.0
#include "exec/profiling/profiler.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/transformers.h"
#include "core/plan/plan.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/settled_scenario.h"
#include "exec/base/cores.h"
#include "exec/data/random_batch.h"
#include "exec/executor/backend.h"
#include "exec/executor/executor.h"
#include "exec/layers/make_layer.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace profiler_test {

using test::Shape;

Profile quick_profile(const Model& model, const Shape& shape) {
    ProfilerOptions options = profiler_options(test::scenario_of(shape));
    options.repeats = 3;
    return profile_model(model, options);
}

TEST(Profiler, MeasuresEveryLayerAtEverySizeOfThePlan) {
    const Model model = test::small_gpt();
    const Profile profile = quick_profile(model, {.stages = 2, .micro_batches = 3, .batch = 8});
    EXPECT_NO_THROW(check_profile(profile, "profile"));
    EXPECT_EQ(profile.source, CostSource::Measured);
    EXPECT_EQ(profile.precision, "fp32");
    ASSERT_EQ(profile.layers.size(), 8U);
    for (const LayerCost& layer : profile.layers) {
        ASSERT_EQ(layer.samples.size(), 2U) << layer.name;  // 3 + 3 + 2 samples
        EXPECT_EQ(layer.samples[0].micro_batch_size, 2);
        EXPECT_EQ(layer.samples[1].micro_batch_size, 3);
        EXPECT_GT(layer.optimizer, Duration{}) << layer.name;
        for (const LayerSample& sample : layer.samples) {
            EXPECT_GT(sample.forward, Duration{}) << layer.name;
            EXPECT_GT(sample.backward(), Duration{}) << layer.name;
        }
    }
}

TEST(Profiler, BytesAreTheLayersOwn) {
    const Model model = test::small_mlp();
    const Profile profile =
        quick_profile(model, {.stages = 1, .micro_batches = 2, .precision = Precision::Fp64});
    for (int index = 0; index < model.layer_count(); ++index) {
        const LayerCost& layer = profile.layers[static_cast<std::size_t>(index)];
        const LayerBytes bytes = layer_bytes(model, index, 4, DType::F64);
        EXPECT_EQ(layer.name, model.layer(index).spec.name);
        EXPECT_EQ(layer.parameter_bytes.count, 8 * model.layer(index).parameter_count);
        EXPECT_EQ(layer.samples.front().input, bytes.input);
        EXPECT_EQ(layer.samples.front().output, bytes.output);
        EXPECT_EQ(layer.samples.front().saved, bytes.saved);
        EXPECT_EQ(layer.samples.front().workspace, bytes.workspace);
        EXPECT_EQ(layer.samples.front().split, bytes.split);
        EXPECT_EQ(layer.samples.front().input_saved, bytes.input_saved);
        EXPECT_EQ(layer.samples.front().unread_gradient, bytes.unread_gradient);
    }
}

TEST(VocabularyPadding, IsUpToAMultipleOf64UnlessThatIsMoreThanAnEighth) {
    EXPECT_EQ(vocabulary_padding(50'257), 50'304 - 50'257);
    EXPECT_EQ(vocabulary_padding(32'000), 0);
    EXPECT_EQ(vocabulary_padding(520), 576 - 520);
    EXPECT_EQ(vocabulary_padding(257), 264 - 257);
    EXPECT_EQ(vocabulary_padding(72), 0);
    EXPECT_EQ(vocabulary_padding(65), 72 - 65);
    EXPECT_EQ(vocabulary_padding(1), 7);
    EXPECT_EQ(vocabulary_padding(std::numeric_limits<int>::max()), 0);
}

// Bytes are those that a GPU keeps; numbers are those of the model.
TEST(UnmeasuredProfile, HasThePaddingOfAVocabularyInItsBytesAlone) {
    for (const bool tied : {false, true}) {
        const Model model = gpt_model({.layers = 1,
                                       .d_model = 8,
                                       .heads = 2,
                                       .context = 6,
                                       .vocabulary = 1001,
                                       .feed_forward = 16,
                                       .tied = tied});
        ProfilerOptions options;
        options.micro_batch_sizes = {2};
        options.precision = Precision::Bf16;
        const Profile host = unmeasured_profile(model, options);
        options.backend = Backend::Cuda;
        const Profile gpu = unmeasured_profile(model, options);
        const std::int64_t more = 1024 - 1001;
        const std::int64_t of_weights = more * 8 * 2;
        EXPECT_EQ(gpu.layers.front().parameter_bytes.count,
                  host.layers.front().parameter_bytes.count + (tied ? of_weights : 0));
        EXPECT_EQ(gpu.layers.back().parameter_bytes.count,
                  host.layers.back().parameter_bytes.count + of_weights);
        EXPECT_EQ(gpu.layers.back().samples[0].saved.count,
                  host.layers.back().samples[0].saved.count + 2 * 6 * more * 2);
        EXPECT_EQ(gpu.tied_bytes.count, tied ? 1024 * 8 * 2 : 0);
        EXPECT_EQ(tied_bytes(model, gpu), gpu.tied_bytes);
        for (std::size_t layer = 0; layer < host.layers.size(); ++layer) {
            EXPECT_EQ(gpu.layers[layer].parameter_count, host.layers[layer].parameter_count);
        }
    }
}

TEST(Profiler, APlanCanBeMadeFromWhatItMeasured) {
    const Model model = test::small_mlp();
    for (const RecomputeRules& recompute : test::every_recompute(3)) {
        const Shape shape{.stages = 3, .schedule = "1f1b", .recompute = recompute};
        EXPECT_NO_THROW(make_plan(test::scenario_of(shape), model, quick_profile(model, shape)));
    }
}

TEST(Profiler, LeavesATrainingUntouched) {
    const Model model = test::small_mlp();
    const Shape shape{.stages = 2};
    Executor executor(test::plan_of(model, shape), model, test::options_of(shape));
    executor.run_step(random_batch(model, shape.batch, 1), 0);
    const auto weights = test::weights_of(executor.parameters());
    const auto gradients = test::gradients_of(executor.parameters());
    const std::vector<int> cores = allowed_cores();
    quick_profile(model, shape);
    EXPECT_EQ(test::weights_of(executor.parameters()), weights);
    EXPECT_EQ(test::gradients_of(executor.parameters()), gradients);
    EXPECT_EQ(allowed_cores(), cores);

    Executor unprofiled(test::plan_of(model, shape), model, test::options_of(shape));
    unprofiled.run_step(random_batch(model, shape.batch, 1), 0);
    EXPECT_EQ(executor.run_step(random_batch(model, shape.batch, 2), 1).loss,
              unprofiled.run_step(random_batch(model, shape.batch, 2), 1).loss);
}

TEST(Profiler, SaysHowManyOfItsStepsWereClean) {
    const Profile profile = quick_profile(test::small_mlp(), {.stages = 2, .micro_batches = 3});
    ASSERT_TRUE(profile.calibration.has_value());
    const CalibrationNote& note = *profile.calibration;
    EXPECT_LE(note.clean_steps, 3);
    EXPECT_GE(note.clean_steps + note.dropped_steps, 3);
    EXPECT_GE(note.p90_over_p10, 1);
    EXPECT_FALSE(note.interference.has_value());
}

TEST(Profiler, TellsHowFarItIs) {
    const Model model = test::small_mlp();
    ProfilerOptions options =
        profiler_options(test::scenario_of({.stages = 1, .micro_batches = 2}));
    options.repeats = 4;
    std::vector<double> shares;
    options.progress = [&](double share, const std::string& what) {
        shares.push_back(share);
        EXPECT_THAT(what, ::testing::HasSubstr("1 worker"));
    };
    profile_model(model, options);
    ASSERT_EQ(shares.size(), 4U);
    EXPECT_TRUE(std::ranges::is_sorted(shares));
    EXPECT_LE(shares.back(), 1);
}

TEST(ProfilerOptions, FollowTheScenario) {
    SettledScenario scenario = test::scenario_of({.stages = 2,
                                                  .micro_batches = 4,
                                                  .batch = 10,
                                                  .schedule = "1f1b",
                                                  .recompute = Recompute::Always,
                                                  .precision = Precision::Fp64});
    const ProfilerOptions options = profiler_options(scenario);
    EXPECT_EQ(options.micro_batch_sizes, (std::vector<int>{2, 3}));
    EXPECT_EQ(options.micro_batches, 4);
    EXPECT_EQ(options.busy_workers, 2);
    EXPECT_EQ(options.schedule, "1f1b");
    EXPECT_EQ(options.recompute, Recompute::Always);
    EXPECT_EQ(options.precision, Precision::Fp64);
    EXPECT_EQ(options.stretch, 1);
}

TEST(ProfilerOptions, APacedDeviceTakesLongerThanTheCoresThatItsRanksShare) {
    const auto cores = static_cast<double>(allowed_cores().size());
    SettledScenario scenario = test::scenario_of({.stages = 8, .backend = Backend::Paced});
    EXPECT_GE(profiler_options(scenario).stretch, 1.5);
    EXPECT_GE(profiler_options(scenario).stretch, 1.5 * 8 / cores);
}

TEST(Profiler, AStretchMultipliesEveryTimeAndSaysSo) {
    const Model model = mlp_model({8, 64, 64, 4});
    ProfilerOptions options =
        profiler_options(test::scenario_of({.stages = 1, .micro_batches = 2}));
    options.repeats = 3;
    options.stretch = 1000;
    const Profile profile = profile_model(model, options);
    EXPECT_THAT(profile.device, ::testing::HasSubstr("1000.00 times slower"));
    EXPECT_GT(profile.layers.front().samples.front().forward, std::chrono::microseconds(100));
}

}  // namespace profiler_test
}  // namespace pipetwin::exec
