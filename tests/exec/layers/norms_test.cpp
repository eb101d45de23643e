// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/model/batch_norms.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "tests/exec/layers/layer_run.h"

namespace pipetwin::exec {
namespace norms_test {

using testing::LayerRun;
using testing::Numbers;
using testing::numbers_of;
using testing::random_numbers;

constexpr int channels = 3;

/// Samples of one number a channel, around 1000, with a deviation of 0.01, as fp32 has them.
std::vector<float> far_from_zero(int samples) {
    std::vector<float> x;
    for (const double z : random_numbers(static_cast<std::size_t>(samples * channels), 21)) {
        x.push_back(static_cast<float>(1000 + 0.01 * z));
    }
    return x;
}

/// Mean and unbiased variance of a channel over all samples, in two passes in long double.
struct Exact {
    double mean = 0;
    double variance = 0;
};
Exact exact(std::span<const float> x, int channel) {
    long double sum = 0;
    long double squares = 0;
    const std::size_t samples = x.size() / channels;
    for (std::size_t s = 0; s < samples; ++s) {
        sum += x[s * channels + static_cast<std::size_t>(channel)];
    }
    const long double mean = sum / static_cast<long double>(samples);
    for (std::size_t s = 0; s < samples; ++s) {
        const long double off = x[s * channels + static_cast<std::size_t>(channel)] - mean;
        squares += off * off;
    }
    return {.mean = static_cast<double>(mean),
            .variance = static_cast<double>(squares / static_cast<long double>(samples - 1))};
}

/// A batch norm of fp32 numbers, and what its running values become.
class Norm {
  public:
    explicit Norm(const LayerSpec& spec)
        : run_(spec, {.positions = 1, .width = channels}, 64, DType::F32) {}

    /// F of one micro-batch of the rows begin ... begin + samples - 1.
    void forward(std::span<const float> x, int begin, int samples, bool again = false) {
        const std::span<const float> rows = x.subspan(static_cast<std::size_t>(begin * channels),
                                                      static_cast<std::size_t>(samples * channels));
        Tensor input = run_.arena.allocate(DType::F32, samples, channels, MemoryKind::Stash);
        Tensor output = run_.arena.allocate(DType::F32, samples, channels, MemoryKind::Stash);
        cpu_kernels().upload(rows, input);
        LayerCall call = run_.call();
        call.samples = samples;
        call.recomputation = again;
        Kept kept;
        run_.layer->forward(call, input, {}, output, kept);
        last_output = numbers_of(output);
    }
    void micro_batches(std::span<const float> x, const std::vector<int>& sizes) {
        int begin = 0;
        for (const int size : sizes) {
            forward(x, begin, size);
            begin += size;
        }
    }
    void commit() { run_.layer->commit_batch(cpu_kernels()); }
    void forget() { run_.layer->forget_batch(); }

    Numbers mean() { return numbers_of(run_.layer->state()[0]->value); }
    Numbers variance() { return numbers_of(run_.layer->state()[1]->value); }
    double updates() { return numbers_of(run_.layer->state()[2]->value).front(); }

    Numbers last_output;

  private:
    LayerRun run_;
};

/// With a momentum of 1 the running values are those of the last mini-batch.
LayerSpec newest_values() {
    LayerSpec spec{.type = LayerType::BatchNorm};
    spec.momentum = 1;
    return spec;
}

void expect_statistics_of(Norm& norm, std::span<const float> x) {
    for (int channel = 0; channel < channels; ++channel) {
        const auto c = static_cast<std::size_t>(channel);
        const Exact of_batch = exact(x, channel);
        EXPECT_NEAR(norm.mean()[c], of_batch.mean, 1e-6 * of_batch.mean);
        EXPECT_NEAR(norm.variance()[c], of_batch.variance, 1e-6 * of_batch.variance);
    }
}

/// C21: deferred statistics equal whole-mini-batch statistics (mean; unbiased variance), to 1e-6
/// relative, with mean 1000 and deviation 0.01.
TEST(DeferredBatchNorm, StatisticsAreThoseOfTheWholeMiniBatchHoweverItIsCut) {
    const std::vector<float> x = far_from_zero(64);
    for (const std::vector<int>& sizes : std::vector<std::vector<int>>{
             {64}, {20, 3, 11, 2, 9, 12, 7}, std::vector<int>(32, 2), {2, 62}}) {
        Norm norm(newest_values());
        norm.micro_batches(x, sizes);
        norm.commit();
        expect_statistics_of(norm, x);
        EXPECT_EQ(norm.updates(), 1);
    }
}

/// A mini-batch that gives fewer micro-batches than M is a whole one all the same.
TEST(DeferredBatchNorm, FewMicroBatchesAreCommittedAsMany) {
    const std::vector<float> x = far_from_zero(5);
    Norm norm(newest_values());
    norm.micro_batches(x, {2, 2, 1});
    norm.commit();
    expect_statistics_of(norm, x);

    // More micro-batches than samples: each sample is one of its own.
    Norm single(newest_values());
    const std::vector<int> sizes = micro_batch_sizes(5, 8);
    single.micro_batches(x, sizes);
    single.commit();
    expect_statistics_of(single, x);
}

/// C21, momentum mode, against torch's rule running = (1 - m) running + m value, from 0 and 1.
TEST(DeferredBatchNorm, RunningValuesFollowEveryMiniBatchOnce) {
    LayerSpec spec{.type = LayerType::BatchNorm};
    spec.momentum = 0.25;
    Norm norm(spec);
    const std::vector<float> x = far_from_zero(64);
    double mean = 0;
    double variance = 1;
    for (int step = 1; step <= 3; ++step) {
        const std::span<const float> batch =
            std::span(x).first(static_cast<std::size_t>(16 * step * channels));
        norm.micro_batches(batch, std::vector<int>(static_cast<std::size_t>(4 * step), 4));
        norm.commit();
        mean = 0.75 * mean + 0.25 * exact(batch, 0).mean;
        variance = 0.75 * variance + 0.25 * exact(batch, 0).variance;
        EXPECT_NEAR(norm.mean()[0], mean, 1e-6 * mean);
        EXPECT_NEAR(norm.variance()[0], variance, 1e-6 * variance);
        EXPECT_EQ(norm.updates(), step);
    }
}

/// C21, cumulative mode: the running values are the means of those of all mini-batches.
TEST(DeferredBatchNorm, CumulativeValuesAreTheMeansOfAllMiniBatches) {
    LayerSpec spec{.type = LayerType::BatchNorm};
    spec.cumulative = true;
    Norm norm(spec);
    const std::vector<float> x = far_from_zero(64);
    double means = 0;
    double variances = 0;
    for (int step = 1; step <= 4; ++step) {
        const std::span<const float> batch =
            std::span(x).subspan(static_cast<std::size_t>(16 * (step - 1) * channels),
                                 static_cast<std::size_t>(16 * channels));
        norm.micro_batches(batch, {5, 5, 6});
        norm.commit();
        means += exact(batch, 1).mean;
        variances += exact(batch, 1).variance;
        EXPECT_NEAR(norm.mean()[1], means / step, 1e-6 * means / step);
        EXPECT_NEAR(norm.variance()[1], variances / step, 1e-6 * variances / step);
    }
}

TEST(DeferredBatchNorm, ARecomputeCountsNoSampleTwiceAndHasTheSameBits) {
    const std::vector<float> x = far_from_zero(24);
    Norm plain(newest_values());
    plain.micro_batches(x, {8, 8, 8});
    plain.commit();
    Norm again(newest_values());
    for (int m = 0; m < 3; ++m) {
        again.forward(x, 8 * m, 8);
        const Numbers first = again.last_output;
        again.forward(x, 8 * m, 8, true);
        EXPECT_EQ(again.last_output, first);
    }
    again.commit();
    EXPECT_EQ(again.mean(), plain.mean());
    EXPECT_EQ(again.variance(), plain.variance());
}

TEST(DeferredBatchNorm, AFailedMiniBatchLeavesNothingBehind) {
    const std::vector<float> x = far_from_zero(64);
    Norm plain(newest_values());
    plain.micro_batches(std::span(x).first(24 * channels), {8, 8, 8});
    plain.commit();
    Norm failed(newest_values());
    failed.micro_batches(std::span(x).subspan(24 * channels), {8, 8});
    failed.forget();
    EXPECT_EQ(failed.mean(), Numbers(channels, 0.0));
    EXPECT_EQ(failed.variance(), Numbers(channels, 1.0));
    EXPECT_EQ(failed.updates(), 0);
    failed.micro_batches(std::span(x).first(24 * channels), {8, 8, 8});
    failed.commit();
    EXPECT_EQ(failed.mean(), plain.mean());
    EXPECT_EQ(failed.variance(), plain.variance());
}

/// torch under gradient accumulation: every micro-batch moves the values, by its own unbiased
/// variance.
TEST(BatchNormNotDeferred, EveryMicroBatchMovesTheRunningValues) {
    LayerSpec spec{.type = LayerType::BatchNorm};
    spec.deferred = false;
    spec.momentum = 0.1;
    const std::vector<float> x = far_from_zero(32);
    Norm norm(spec);
    norm.micro_batches(x, {10, 10, 12});
    EXPECT_EQ(norm.updates(), 0) << "before the step has succeeded";
    norm.commit();
    double mean = 0;
    double variance = 1;
    std::size_t begin = 0;
    for (const std::size_t size : std::vector<std::size_t>{10, 10, 12}) {
        const Exact of_micro_batch =
            exact(std::span(x).subspan(begin * channels, size * channels), 2);
        mean = 0.9 * mean + 0.1 * of_micro_batch.mean;
        variance = 0.9 * variance + 0.1 * of_micro_batch.variance;
        begin += size;
    }
    EXPECT_NEAR(norm.mean()[2], mean, 1e-6 * mean);
    EXPECT_NEAR(norm.variance()[2], variance, 1e-6 * variance);
    EXPECT_EQ(norm.updates(), 3);

    const Numbers before = norm.mean();
    norm.micro_batches(x, {10, 10});
    norm.forget();
    norm.commit();
    EXPECT_EQ(norm.mean(), before);
    EXPECT_EQ(norm.updates(), 3);
}

/// C22: normalisation itself is per micro-batch.
TEST(BatchNorm, NormalisesEachMicroBatchByItsOwnStatistics) {
    const LayerSpec spec{.type = LayerType::BatchNorm};
    LayerRun whole(spec, {.positions = 1, .width = channels}, 64, DType::F64);
    for (Parameter* const parameter : whole.layer->parameters()) {
        LayerRun::set(parameter->value,
                      Numbers(channels, parameter->name.ends_with("gain") ? 1.0 : 0.0));
    }
    LayerCall call = whole.call();
    call.samples = 16;
    Tensor x = whole.arena.allocate(DType::F64, 16, channels, MemoryKind::Stash);
    Tensor y = whole.arena.allocate(DType::F64, 16, channels, MemoryKind::Stash);
    for (std::uint64_t m = 0; m < 4; ++m) {
        Numbers numbers = random_numbers(16 * channels, 30 + m);
        std::ranges::transform(
            numbers, numbers.begin(), [m](double z) { return 10.0 * static_cast<double>(m) + z; });
        LayerRun::set(x, numbers);
        Kept kept;
        whole.layer->forward(call, x, {}, y, kept);
        const Numbers output = numbers_of(y);
        double sum = 0;
        double squares = 0;
        for (std::size_t s = 0; s < 16; ++s) {
            sum += output[s * channels];
            squares += output[s * channels] * output[s * channels];
        }
        EXPECT_NEAR(sum, 0, 1e-12);
        EXPECT_NEAR(squares / 16, 1, 1e-4) << "but for epsilon";
    }
}

TEST(BatchNorm, AnEvaluationReadsTheRunningValuesAndChangesNothing) {
    const LayerSpec spec{.type = LayerType::BatchNorm};
    LayerRun run(spec, {.positions = 1, .width = channels}, 4, DType::F64);
    const Numbers mean{1, -2, 0.5};
    const Numbers variance{4, 0.25, 9};
    LayerRun::set(run.layer->state()[0]->value, mean);
    LayerRun::set(run.layer->state()[1]->value, variance);
    LayerCall call = run.call();
    call.evaluation = true;
    Tensor y = run.output_like();
    run.layer->forward(call, run.x, {}, y, run.kept);
    run.layer->commit_batch(cpu_kernels());
    const Numbers x = numbers_of(run.x);
    const Numbers found = numbers_of(y);
    const Numbers gain = numbers_of(run.layer->parameters()[0]->value);
    const Numbers bias = numbers_of(run.layer->parameters()[1]->value);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t c = i % channels;
        EXPECT_NEAR(
            found[i], gain[c] * (x[i] - mean[c]) / std::sqrt(variance[c] + 1e-5) + bias[c], 1e-14);
    }
    EXPECT_EQ(numbers_of(run.layer->state()[0]->value), mean);
    EXPECT_EQ(numbers_of(run.layer->state()[1]->value), variance);
}

/// Names are torch's; the bytes are those that a plan is made with.
TEST(BatchNorm, StateHasTheNamesOfTorchAndTheBytesOfThePlan) {
    for (const bool deferred : {true, false}) {
        LayerSpec spec{.name = "bn", .type = LayerType::BatchNorm};
        spec.deferred = deferred;
        for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
            LayerRun run(spec, image_shape({4, 4}, channels), 2, type);
            std::vector<std::string> names;
            for (Parameter* const state : run.layer->state()) {
                names.push_back(state->name);
            }
            EXPECT_EQ(names,
                      (std::vector<std::string>{
                          "layer.running_mean", "layer.running_var", "layer.num_batches_tracked"}));
            const std::int64_t number = type == DType::F64 ? 8 : 4;
            const std::int64_t running = 2 * channels * number + 4;
            const Bytes expected{deferred ? running + 16 * channels : 2 * running};
            EXPECT_EQ(run.layer->state_bytes(), expected);
            const Layer layer{.spec = spec,
                              .input = run.layer->input(),
                              .output = run.layer->output(),
                              .inputs = {run.layer->input()}};
            EXPECT_EQ(Bytes{running_bytes_of(layer, number)}, expected);
        }
    }
}

TEST(Rectifier, KeepsWhatIsNoNumberAndGivesZeroForMinusInfinity) {
    const double infinity = std::numeric_limits<double>::infinity();
    LayerRun run({.type = LayerType::Relu}, {.positions = 1, .width = 4}, 1, DType::F32);
    LayerRun::set(run.x, {std::nan(""), -infinity, infinity, -0.0});
    const Numbers y = numbers_of(run.forward());
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], 0);
    EXPECT_EQ(y[2], infinity);
    EXPECT_EQ(y[3], 0);
}

/// A binomial share of the channels, each whole, and what is left keeps the mean: within 5
/// deviations.
TEST(DropoutOfWhole, DropsWholeChannelsOrSamplesAndScalesTheRest) {
    constexpr double p = 0.3;
    constexpr int samples = 40;
    constexpr int width = 50;
    constexpr int pixels = 6;
    for (const LayerType type : {LayerType::ChannelDropout, LayerType::DropPath}) {
        LayerSpec spec{.type = type};
        spec.dropout = p;
        LayerRun run(spec, image_shape({3, 2}, width), samples, DType::F64);
        LayerRun::set(run.x, Numbers(samples * pixels * width, 1.0));
        const Numbers y = numbers_of(run.forward());
        const auto value = [&](int sample, int pixel, int channel) {
            return y[static_cast<std::size_t>((sample * pixels + pixel) * width + channel)];
        };
        int dropped = 0;
        for (int sample = 0; sample < samples; ++sample) {
            for (int channel = 0; channel < width; ++channel) {
                const double first = value(sample, 0, type == LayerType::DropPath ? 0 : channel);
                ASSERT_TRUE(first == 0 || first == 1 / (1 - p));
                dropped += first == 0 ? 1 : 0;
                for (int pixel = 0; pixel < pixels; ++pixel) {
                    ASSERT_EQ(value(sample, pixel, channel), first);
                }
            }
        }
        const double decisions = type == LayerType::DropPath ? samples : samples * width;
        const double share = dropped / static_cast<double>(samples * width);
        EXPECT_NEAR(share, p, 5 * std::sqrt(p * (1 - p) / decisions));
    }
}

/// p of a step of n is p step / n, as in the reference's drop_connect_version v1; counted over 2000
/// samples, within 5 deviations. Of a training without an end, and behind it, p has risen.
TEST(DropoutOfWhole, RisesWithTheStepsOfTheTraining) {
    constexpr double p = 0.3;
    constexpr int samples = 2000;
    LayerSpec spec{.type = LayerType::DropPath};
    spec.dropout = p;
    spec.rising = true;
    LayerRun run(spec, {.positions = 1, .width = 2}, samples, DType::F64);
    LayerRun::set(run.x, Numbers(2 * samples, 1.0));
    for (const double progress : {0.0, 0.25, 0.5, 0.9, 1.0}) {
        LayerCall call = run.call();
        call.step = static_cast<int>(100 * progress);
        call.progress = progress;
        Tensor y = run.output_like();
        Kept kept;
        run.layer->forward(call, run.x, {}, y, kept);
        const Numbers found = numbers_of(y);
        const double expected = p * progress;
        const auto dropped = std::ranges::count(found, 0.0);
        const double share = static_cast<double>(dropped) / static_cast<double>(found.size());
        EXPECT_NEAR(share, expected, 5 * std::sqrt(expected * (1 - expected) / samples));
        for (const double value : found) {
            ASSERT_TRUE(value == 0 || std::abs(value - 1 / (1 - expected)) < 1e-15);
        }
        // The gradient has the same mask.
        LayerRun::set(run.x, Numbers(2 * samples, 3.0));
        Tensor dx = run.input_gradient_like();
        run.layer->backward_input(call, kept, {}, run.x, {}, dx);
        const Numbers gradient = numbers_of(dx);
        for (std::size_t i = 0; i < found.size(); ++i) {
            ASSERT_NEAR(gradient[i], 3 * found[i], 1e-14);
        }
        LayerRun::set(run.x, Numbers(2 * samples, 1.0));
        call.evaluation = true;
        run.layer->forward(call, run.x, {}, y, kept);
        EXPECT_EQ(numbers_of(y), Numbers(2 * samples, 1.0));
    }
}

}  // namespace norms_test
}  // namespace pipetwin::exec
