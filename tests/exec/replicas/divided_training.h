// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "exec/data/random_batch.h"
#include "exec/replicas/replicas.h"
#include "tests/support/small_training.h"

/// Trainings of models that devices or replicas divide, and what they end with.
namespace pipetwin::exec::divided_training {

using test::Shape;

constexpr int batch = 8;

enum class Kind { Gpt, TiedGpt, Llama, TiedLlama, SharedHeads, Experts };

inline std::string to_string(Kind kind) {
    return std::array{
        "gpt", "tied gpt", "llama", "tied llama", "llama with shared heads", "experts"}
        .at(static_cast<std::size_t>(kind));
}

/// A block as in a Llama, and one of so many experts that some have no rows in a micro-batch, with
/// a half beside them. A loss of unequal loads depends on the micro-batches, and biases on
/// what all replicas have chosen.
inline Model model_of_experts(double auxiliary_loss, double bias_update) {
    return llama_model({.layers = 2,
                        .d_model = 10,
                        .heads = 4,
                        .head_size = 6,
                        .context = 8,
                        .vocabulary = 12,
                        .feed_forward = 16,
                        .routing = {.experts = 12,
                                    .per_row = 2,
                                    .scores = RouterScores::Sigmoid,
                                    .groups = 4,
                                    .chosen_groups = 2,
                                    .auxiliary_loss = auxiliary_loss,
                                    .bias_update = bias_update},
                        .expert_feed_forward = 6,
                        .shared_feed_forward = 4,
                        .dense_layers = 1});
}

/// Models that 2 and 4 devices can divide, but for experts: 4 heads, and in a Llama 8, with 4 of
/// keys and values, or 1, which all devices have.
inline Model model_of(Kind kind, double dropout = 0) {
    if (kind == Kind::Experts) {
        return model_of_experts(0, 0);
    }
    const bool tied = kind == Kind::TiedGpt || kind == Kind::TiedLlama;
    if (kind == Kind::Llama || kind == Kind::TiedLlama || kind == Kind::SharedHeads) {
        return llama_model({.layers = 2,
                            .d_model = 10,
                            .heads = 8,
                            .key_value_heads = kind == Kind::SharedHeads ? 1 : 4,
                            .head_size = 6,
                            .context = 8,
                            .vocabulary = 12,
                            .feed_forward = 16,
                            .tied = tied});
    }
    return gpt_model({.layers = 2,
                      .d_model = 12,
                      .heads = 4,
                      .context = 8,
                      .vocabulary = 16,
                      .tied = tied,
                      .dropout = dropout});
}

struct Numbers {
    std::string name;
    std::vector<double> values;
    bool operator==(const Numbers&) const = default;
};
inline void PrintTo(const Numbers& numbers, std::ostream* out) {
    *out << numbers.name;
}

inline std::vector<double> as_doubles(const std::vector<std::byte>& bytes, DType type) {
    std::vector<double> values;
    for (std::size_t begin = 0; begin < bytes.size(); begin += size_of(type)) {
        double wide = 0;
        float narrow = 0;
        if (type == DType::F64) {
            std::memcpy(&wide, bytes.data() + begin, sizeof wide);
        } else if (type == DType::BF16) {
            std::memcpy(reinterpret_cast<std::byte*>(&narrow) + 2, bytes.data() + begin, 2);
        } else {
            std::memcpy(&narrow, bytes.data() + begin, sizeof narrow);
        }
        values.push_back(type == DType::F64 ? wide : double{narrow});
    }
    return values;
}

/// The weights of the whole model, as a checkpoint has them.
inline std::vector<Numbers> weights_of(Replicas& pipelines) {
    std::vector<Numbers> all;
    pipelines.with_parameters([&](const TrainedParameters& trained) {
        for (const std::vector<Parameter*>& piece : trained.pieces) {
            for (const Parameter* const parameter : piece) {
                std::vector<std::byte> bytes;
                trained.read_numbers(*parameter, parameter->value, bytes);
                all.push_back({.name = parameter->name,
                               .values = as_doubles(bytes, parameter->value.dtype())});
            }
        }
    });
    return all;
}

struct Trained {
    std::vector<double> losses;
    std::vector<Numbers> weights;
    bool operator==(const Trained&) const = default;
};

inline ExecutorOptions settings_of(const Shape& shape) {
    ExecutorOptions options = test::options_of(shape);
    options.optimizer.learning_rate = shape.optimizer == OptimizerKind::Sgd ? 1 : 1e-2;
    return options;
}

/// Two steps.
inline Trained trained(const Model& model, const Shape& shape, int steps = 2) {
    Replicas pipelines(test::plan_of(model, shape), model, settings_of(shape));
    Trained result;
    StepResult step;
    for (int number = 0; number < steps; ++number) {
        pipelines.run_step(random_batch(model, shape.batch, 1), number, step);
        result.losses.push_back(step.loss);
    }
    result.weights = weights_of(pipelines);
    return result;
}

/// By which the numbers are off, of the root mean square of the expected ones.
inline double distance(const Numbers& found, const Numbers& expected) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
        difference += std::pow(found.values.at(i) - expected.values[i], 2);
        norm += std::pow(expected.values[i], 2);
    }
    constexpr double rounding = 1e-12;  // of numbers that are 0 but for rounding
    return std::sqrt(norm) > rounding ? std::sqrt(difference / norm) : std::sqrt(difference);
}

inline void expect_near(const Trained& found, const Trained& expected, double bound) {
    for (std::size_t step = 0; step < expected.losses.size(); ++step) {
        EXPECT_NEAR(found.losses.at(step), expected.losses[step], bound * expected.losses[step]);
    }
    ASSERT_EQ(found.weights.size(), expected.weights.size());
    for (std::size_t i = 0; i < expected.weights.size(); ++i) {
        EXPECT_EQ(found.weights[i].name, expected.weights[i].name);
        ASSERT_EQ(found.weights[i].values.size(), expected.weights[i].values.size());
        EXPECT_LE(distance(found.weights[i], expected.weights[i]), bound)
            << expected.weights[i].name;
    }
}

}  // namespace pipetwin::exec::divided_training
