// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/model/model.h"
#include "exec/executor/backend.h"
#include "exec/stage/stage.h"
#include "tests/exec/layers/layer_run.h"
#include "tests/support/small_training.h"

/// A small GPT as stages in one thread, for tests of what a stage does.
namespace pipetwin::exec::test_stages {

using testing::Numbers;
using testing::numbers_of;

inline Model small_gpt() {
    return gpt_model({.layers = 2,
                      .d_model = 8,
                      .heads = 2,
                      .context = 6,
                      .vocabulary = 13,
                      .feed_forward = 20});
}

inline Batch gpt_batch(int samples) {
    Batch batch{.samples = samples,
                .positions = 6,
                .width = 0,
                .target_positions = 6,
                .tokens = {},
                .values = {},
                .targets = {}};
    const RandomStream random(17);
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(samples) * 6; ++i) {
        batch.tokens.push_back(static_cast<std::int32_t>(random.below(2 * i, 13)));
        batch.targets.push_back(static_cast<std::int32_t>(random.below(2 * i + 1, 13)));
    }
    return batch;
}

/// Samples of `width` numbers, of one class each.
inline Batch mlp_batch(int samples, int width, int classes) {
    Batch batch{.samples = samples,
                .positions = 1,
                .width = width,
                .target_positions = 1,
                .tokens = {},
                .values = {},
                .targets = {}};
    for (const double value :
         testing::random_numbers(static_cast<std::size_t>(samples * width), 3)) {
        batch.values.push_back(static_cast<float>(value));
    }
    for (int s = 0; s < samples; ++s) {
        batch.targets.push_back(s % classes);
    }
    return batch;
}

inline StageOptions options(Precision precision = Precision::Fp32) {
    return {.format = number_format(precision, Backend::Cpu),
            .seed = 5,
            .micro_batches = 3,
            .largest_micro_batch = 3,
            .optimizer = OptimizerKind::AdamW,
            .input_gradient = false,
            .layer_done = {}};
}

/// F of a stage of a chain; `received`: what the stage before has sent, empty for the first.
/// Returns what goes to the next.
inline Tensor forward(Stage& stage, int m, Tensor received, const MicroBatch& data, bool keep) {
    Tensor sent;
    stage.forward(
        m, std::span(&received, received.empty() ? 0 : 1), data, keep, std::span(&sent, 1));
    return sent;
}

/// B of a stage of a chain; `received`: the gradient that the next stage has sent, empty for the
/// last. Returns what goes to the stage before.
inline Tensor backward(Stage& stage, int m, Tensor received) {
    Tensor gradient;
    stage.backward(m, std::span(&received, received.empty() ? 0 : 1), std::span(&gradient, 1));
    return gradient;
}

/// I of a stage of a chain, likewise.
inline Tensor backward_input(Stage& stage, int m, Tensor received) {
    Tensor gradient;
    stage.backward_input(
        m, std::span(&received, received.empty() ? 0 : 1), std::span(&gradient, 1));
    return gradient;
}

/// Consecutive stages of a model, each with its own arena, in one thread: what an executor does
/// without its threads.
struct Pipeline {
    Pipeline(const Model& model,
             const std::vector<int>& partition,
             const StageOptions& stage_options)
        : device(make_cpu_device()), arenas(partition.size()) {
        int first = 0;
        for (std::size_t s = 0; s < partition.size(); ++s) {
            stages.push_back(std::make_unique<Stage>(*device,
                                                     arenas[s],
                                                     model,
                                                     Stage::Place{.stage = static_cast<int>(s),
                                                                  .first_layer = first,
                                                                  .layer_count = partition[s]},
                                                     stage_options));
            first += partition[s];
        }
    }

    void forward(int m, const MicroBatch& data, bool keep) {
        Tensor boundary;
        for (std::size_t s = 0; s < stages.size(); ++s) {
            hand_over(boundary, s);
            boundary = test_stages::forward(*stages[s], m, std::move(boundary), data, keep);
        }
    }

    Tensor backward(int m, const MicroBatch& data, bool recompute) {
        Tensor gradient;
        for (std::size_t s = stages.size(); s-- > 0;) {
            hand_over(gradient, s);
            if (recompute) {
                stages[s]->recompute(m, data);
            }
            gradient = test_stages::backward(*stages[s], m, std::move(gradient));
        }
        return gradient;
    }

    void hand_over(Tensor& tensor, std::size_t to) {
        if (!tensor.empty()) {
            tensor.detach();
            tensor.attach(arenas[to], MemoryKind::Boundary);
        }
    }

    std::vector<Numbers> gradients() {
        std::vector<Numbers> all;
        for (const auto& stage : stages) {
            for (Parameter* const parameter : stage->parameters()) {
                all.push_back(numbers_of(parameter->gradient));
            }
        }
        return all;
    }

    std::unique_ptr<Device> device;
    std::vector<Arena> arenas;
    std::vector<std::unique_ptr<Stage>> stages;
};

}  // namespace pipetwin::exec::test_stages
