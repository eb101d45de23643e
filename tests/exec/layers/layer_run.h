// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/base/random.h"
#include "exec/device/arena.h"
#include "exec/device/device.h"
#include "exec/layers/layer.h"
#include "exec/layers/make_layer.h"

namespace pipetwin::testing {

using Numbers = std::vector<double>;

/// `count` reproducible numbers of about unit size.
inline Numbers random_numbers(std::size_t count, std::uint64_t stream) {
    const exec::RandomStream random = exec::RandomStream(7).of(stream);
    Numbers numbers(count);
    for (std::size_t i = 0; i < count; ++i) {
        numbers[i] = random.normal(i);
    }
    return numbers;
}

/// The elements of a real tensor or view, as doubles.
inline Numbers numbers_of(exec::ConstView view) {
    return exec::values(exec::cpu_kernels(), view);
}

/// One layer with everything it needs to be called, without a stage.
class LayerRun {
  public:
    LayerRun(const LayerSpec& spec, const SampleShape& shape, int samples, exec::DType type)
        : layer(exec::make_layer(spec, shape, type)), samples_(samples), type_(type) {
        exec::ParameterMaker maker(arena,
                                   exec::cpu_kernels(),
                                   {.style = exec::ParameterMaker::Style::Linear,
                                    .residual_scale = 1,
                                    .seed = 3,
                                    .layer = 0,
                                    .optimizer_slots = 0,
                                    .format = type});
        layer->create_parameters(maker, "layer", false);
        std::uint64_t stream = 100;
        for (exec::Parameter* const parameter : layer->parameters()) {  // nothing stays 0 or 1
            set(parameter->value,
                random_numbers(static_cast<std::size_t>(parameter->value.size()), stream++));
        }
        const SampleShape& in = layer->input();
        const std::int64_t rows = std::int64_t{samples} * in.positions;
        batch.samples = samples;
        batch.positions = in.positions;
        batch.target_positions = in.positions;
        for (int sample = 0; sample < samples; ++sample) {
            batch.lengths.push_back(length_of(sample, in.positions));
        }
        const exec::RandomStream ids = exec::RandomStream(11).of(0);
        for (std::int64_t r = 0; r < rows; ++r) {
            const auto n = static_cast<std::uint64_t>(r);
            batch.tokens.push_back(static_cast<std::int32_t>(ids.below(2 * n, token_limit(spec))));
            batch.targets.push_back(
                static_cast<std::int32_t>(ids.below(2 * n + 1, target_limit(spec, in))));
        }
        x = arena.allocate(in.token_ids ? exec::DType::I32 : type,
                           rows,
                           in.token_ids ? 1 : in.width,
                           MemoryKind::Boundary);
        if (in.token_ids) {
            exec::cpu_kernels().upload(batch.tokens, x);
        } else {
            set(x, random_numbers(static_cast<std::size_t>(x.size()), 1));
        }
    }

    /// Positions of a sample that are no padding, where a layer asks.
    static std::int32_t length_of(int sample, int positions) {
        constexpr int longest = 4;
        return std::max(1, std::min(positions, longest) - sample);
    }

    static void set(exec::View view, const Numbers& numbers) {
        exec::cpu_kernels().upload(numbers, view);
    }

    /// y = skip + f(x); for a loss y is empty and `loss` is set.
    exec::Tensor forward(exec::ConstView skip = {}) {
        kept = {};
        exec::LayerCall call = this->call();
        double sum = 0;
        call.data = &slice_;
        call.loss_sum = &sum;
        exec::Tensor y = output_like();
        layer->forward(call, x, skip, y, kept);
        loss = sum * call.loss_scale;
        return y;
    }

    exec::LayerCall call() {
        return {.kernels = exec::cpu_kernels(),
                .arena = arena,
                .workspace = arena.workspace(layer->workspace_bytes(samples_)),
                .micro_batch = 0,
                .samples = samples_,
                .batch_samples = samples_};
    }

    exec::Tensor output_like() {
        const SampleShape& out = layer->output();
        if (out.width == 0) {
            return {};
        }
        return arena.allocate(
            type_, std::int64_t{samples_} * out.positions, out.width, MemoryKind::Boundary);
    }

    exec::Tensor input_gradient_like() {
        return layer->input().token_ids
                   ? exec::Tensor{}
                   : arena.allocate(type_, x.rows(), x.columns(), MemoryKind::Boundary);
    }

    void zero_gradients() {
        for (exec::Parameter* const parameter : layer->parameters()) {
            exec::cpu_kernels().fill_zero(parameter->gradient);
        }
    }

    exec::Arena arena;
    std::unique_ptr<exec::ExecutableLayer> layer;
    exec::Batch batch;
    exec::Tensor x;
    exec::Kept kept;
    double loss = 0;

  private:
    static std::uint64_t token_limit(const LayerSpec& spec) {
        return static_cast<std::uint64_t>(std::max(spec.vocabulary, 1));
    }
    static std::uint64_t target_limit(const LayerSpec& spec, const SampleShape& shape) {
        const int classes = spec.type == LayerType::BinaryCrossEntropy ? 2 : shape.width;
        return static_cast<std::uint64_t>(std::max(classes, 1));
    }

    int samples_;
    exec::DType type_;
    exec::MicroBatch slice_{.batch = &batch, .first_sample = 0, .samples = samples_};
};

}  // namespace pipetwin::testing
