// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "core/schedule/generators/generate.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "exec/training/checkpoint.h"
#include "tests/support/reference.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_training.h"
#include "tests/support/soak.h"

/// Whatever way a model is trained - stages, chunks, partition, recompute, schedule, the moments at
/// which threads meet, an end and a new begin in another way - a run with the same order of
/// backwards has the same losses and the same weights, bit by bit: those of the run without a
/// pipeline.
namespace pipetwin::exec {
namespace random_runs_test {

using test::NamedValues;
using test::Shape;

constexpr int steps = 4;

using Random = std::mt19937_64;

int between(Random& random, int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
}

template <class Choice, std::size_t count>
Choice one_of(Random& random, const std::array<Choice, count>& choices) {
    return choices.at(random() % count);
}

struct Way {
    const char* schedule;
    int chunks;
    bool (*allows)(int stages, int micro_batches);
};
bool any(int /*stages*/, int /*micro_batches*/) {
    return true;
}
bool whole_rounds(int stages, int micro_batches) {
    return micro_batches % stages == 0;
}
bool long_enough(int stages, int micro_batches) {
    return micro_batches >= 2 * stages;
}

constexpr std::array ascending{Way{"1f1b", 1, any},
                               Way{"interleaved-1f1b", 2, whole_rounds},
                               Way{"zb-h1", 1, long_enough},
                               Way{"zb-h2", 1, long_enough},
                               Way{"zb-auto", 1, any},
                               Way{"zb-v", 2, long_enough},
                               Way{"interleaved-zb", 2, whole_rounds},
                               Way{"dualpipe-v", 2, long_enough}};
constexpr std::array descending{Way{"gpipe", 1, any}, Way{"looped-bfs", 2, any}};

/// Some way to train `pieces` layers at most, with what decides the bits left as in `same`.
Shape another_way(Random& random, BackwardOrder order, int layers, Shape same) {
    while (true) {
        const Way way = order == BackwardOrder::Ascending ? one_of(random, ascending)
                                                          : one_of(random, descending);
        const int stages = between(random, 1, 4);
        const int pieces = stages * way.chunks;
        if (pieces > layers || !way.allows(stages, same.micro_batches)) {
            continue;
        }
        same.stages = stages;
        same.chunks = way.chunks;
        same.schedule = way.schedule;
        same.recompute_timing =
            one_of(random, std::array{RecomputeTiming::Eager, RecomputeTiming::Lazy});
        std::vector<Recompute> modes;
        std::vector<int> partition(static_cast<std::size_t>(pieces), 1);
        for (int piece = 0; piece < pieces; ++piece) {
            modes.push_back(static_cast<Recompute>(between(random, 0, 2)));
        }
        for (int left = layers - pieces; left > 0; --left) {
            ++partition.at(random() % partition.size());
        }
        same.recompute = RecomputeRules(std::move(modes));
        same.partition = partition;
        return same;
    }
}

struct Outcome {
    std::vector<double> losses;
    std::vector<NamedValues> weights;
    bool operator==(const Outcome&) const = default;
};

Batch batch_of(const Model& model, const Shape& shape, int step) {
    return random_batch(model, shape.batch, static_cast<std::uint64_t>(step) + 1);
}

Outcome without_a_pipeline(const Model& model, const Shape& shape, BackwardOrder order) {
    test::Reference reference(model, test::options_of(shape));
    Outcome outcome;
    for (int step = 0; step < steps; ++step) {
        const Batch batch = batch_of(model, shape, step);
        const std::vector<MicroBatch> slices =
            split(batch, micro_batch_sizes(shape.batch, shape.micro_batches));
        outcome.losses.push_back(reference.run_step(slices, order, step));
    }
    outcome.weights = test::weights_of(reference.parameters());
    return outcome;
}

/// Every worker sleeps now and then before an action, each by a row of random numbers of its own.
std::function<void(int rank, const Action&)> sleeper(std::uint64_t seed, int ranks) {
    auto rows = std::make_shared<std::vector<Random>>();
    for (int rank = 0; rank < ranks; ++rank) {
        rows->emplace_back(seed + static_cast<std::uint64_t>(rank));
    }
    return [rows](int rank, const Action& /*action*/) {
        const int length = between((*rows)[static_cast<std::size_t>(rank)], -300, 200);
        if (length > 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(length));
        }
    };
}

/// Trains from the checkpoint in `folder`, if there is one, and leaves another.
class Part {
  public:
    Part(const Model& model, const Shape& shape, std::uint64_t seed)
        : model_(model), shape_(shape), executor_(test::plan_of(model, shape), model, [&] {
              ExecutorOptions options = test::options_of(shape);
              options.before_action = sleeper(seed, shape.stages);
              return options;
          }()) {}

    void go_on_from(const Checkpoints& checkpoints) {
        ASSERT_TRUE(checkpoints.load(executor_.trained()));
        executor_.spread_weights();
    }
    void train(int first, int end, Outcome& outcome) {
        for (int step = first; step < end; ++step) {
            outcome.losses.push_back(executor_.run_step(batch_of(model_, shape_, step), step).loss);
        }
        outcome.weights = test::weights_of(executor_.parameters());
    }
    void leave(const Checkpoints& checkpoints) { checkpoints.save({}, executor_.trained()); }

  private:
    const Model& model_;
    Shape shape_;
    Executor executor_;
};

TEST(RandomRuns, HaveTheBitsOfTheRunWithoutAPipeline) {
    const std::array models{test::small_mlp(),
                            test::small_gpt(),
                            test::small_gpt_with(0.25, true),
                            test::small_llama(),
                            test::small_llama_with(true),
                            test::small_translation_with(TranslationTables::TiedTarget, 0.25)};
    for (int number = 0; number < tests::soaked(2); ++number) {
        const std::uint64_t seed = 1000 * tests::seed() + static_cast<std::uint64_t>(number);
        Random random(seed);
        const Model& model = models.at(random() % models.size());
        const auto order =
            one_of(random, std::array{BackwardOrder::Ascending, BackwardOrder::Descending});
        const Shape bits{.micro_batches = between(random, 1, 8),
                         .batch = between(random, 8, 12),
                         .precision = one_of(random, std::array{Precision::Fp32, Precision::Fp64}),
                         .optimizer = one_of(random,
                                             std::array{OptimizerKind::Sgd,
                                                        OptimizerKind::Momentum,
                                                        OptimizerKind::RmsProp,
                                                        OptimizerKind::AdamW}),
                         .clip_norm = one_of(random, std::array{0.0, 0.05})};
        const Shape before = another_way(random, order, model.layer_count(), bits);
        const Shape after = another_way(random, order, model.layer_count(), bits);
        const int end = between(random, 1, steps - 1);
        SCOPED_TRACE(::testing::Message()
                     << "seed " << seed << ": " << test::to_string(before) << ", after " << end
                     << " steps " << test::to_string(after));

        const tests::ScratchFolder folder;
        const Checkpoints checkpoints(folder.path());
        Outcome outcome;
        Part first(model, before, random());
        first.train(0, end, outcome);
        first.leave(checkpoints);
        Part second(model, after, random());
        second.go_on_from(checkpoints);
        second.train(end, steps, outcome);
        EXPECT_TRUE(outcome == without_a_pipeline(model, bits, order));
    }
}

}  // namespace random_runs_test
}  // namespace pipetwin::exec
