// SPDX-License-Identifier: Apache-2.0
#include "exec/decoding/decoder.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <span>

#include <gmock/gmock.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/transformers.h"
#include "exec/base/random.h"
#include "exec/data/batch.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace decoder_test {

using test::Shape;
using testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

constexpr int letters = 13;
constexpr std::int32_t padding = 13;
constexpr std::int32_t begin = 14;
constexpr std::int32_t end = 15;
constexpr int context = 9;  // of source, and of target
const DecodingSettings greedy{.padding = padding, .begin = begin, .end = end};

Model model() {
    return translation_model({.layers = 1,
                              .d_model = 32,
                              .heads = 4,
                              .feed_forward = 64,
                              .vocabulary = 16,
                              .source_context = context,
                              .target_context = context});
}

/// Texts of 3 to 8 random letters, as many as sources and targets; the same source never twice.
struct Pairs {
    std::vector<Tokens> sources;
    std::vector<Tokens> targets;
};
Pairs random_pairs(int count) {
    Pairs pairs;
    std::set<Tokens> known;
    for (std::uint64_t drawn = 0; std::ssize(pairs.sources) < count; ++drawn) {
        const RandomStream random = RandomStream(7).of(drawn);
        const auto text = [&random](std::uint64_t index) {
            const RandomStream own = random.of(index);
            Tokens tokens(3 + own.below(0, 6));
            for (std::size_t i = 0; i < tokens.size(); ++i) {
                tokens[i] = static_cast<std::int32_t>(own.below(1 + i, letters));
            }
            return tokens;
        };
        if (known.insert(text(0)).second) {
            pairs.sources.push_back(text(0));
            pairs.targets.push_back(text(1));
        }
    }
    return pairs;
}

Batch batch_of(const Pairs& pairs) {
    Batch batch{.samples = static_cast<int>(pairs.sources.size()),
                .positions = 2 * context,
                .width = 0,
                .target_positions = context,
                .tokens = {},
                .values = {},
                .targets = {}};
    const auto padded = [](Tokens tokens, std::int32_t with) {
        tokens.resize(context, with);
        return tokens;
    };
    for (std::size_t i = 0; i < pairs.sources.size(); ++i) {
        Tokens inputs = pairs.targets[i];
        inputs.insert(inputs.begin(), begin);
        Tokens targets = pairs.targets[i];
        targets.push_back(end);
        std::ranges::copy(padded(pairs.sources[i], padding), std::back_inserter(batch.tokens));
        std::ranges::copy(padded(inputs, padding), std::back_inserter(batch.tokens));
        std::ranges::copy(padded(targets, -1), std::back_inserter(batch.targets));
        batch.lengths.push_back(static_cast<std::int32_t>(pairs.sources[i].size()));
    }
    return batch;
}

constexpr int pair_count = 32;

/// A model that has learned its pairs by heart, on one rank.
struct Learned {
    Model model = decoder_test::model();
    Pairs pairs = random_pairs(pair_count);
    std::unique_ptr<Replicas> pipelines;
    double loss = 0;
};
Learned& learned() {
    static Learned result = [] {
        Learned made;
        const Shape shape{.micro_batches = 2, .batch = pair_count};
        made.pipelines = std::make_unique<Replicas>(
            test::plan_of(made.model, shape), made.model, test::options_of(shape));
        const Batch batch = batch_of(made.pairs);
        StepResult step;
        for (int number = 0; number < 250; ++number) {
            made.pipelines->run_step(batch, number, step);
        }
        made.loss = made.pipelines->evaluate(batch, 0);
        return made;
    }();
    return result;
}

/// Pipelines of another shape with the weights that were learned.
std::unique_ptr<Replicas> with_learned_weights(const Shape& shape) {
    std::vector<std::vector<std::byte>> weights;
    const auto for_each = [](Replicas& pipelines, const auto& use) {
        pipelines.with_parameters([&](const TrainedParameters& trained) {
            std::size_t index = 0;
            for (const auto& piece : trained.pieces) {
                for (Parameter* const parameter : piece) {
                    use(trained, parameter->value, index++);
                }
            }
        });
    };
    for_each(*learned().pipelines, [&](const TrainedParameters& from, Tensor& value, std::size_t) {
        from.read(value, weights.emplace_back(as_index(value.bytes().count)));
    });
    auto pipelines = std::make_unique<Replicas>(
        test::plan_of(learned().model, shape), learned().model, test::options_of(shape));
    for_each(*pipelines, [&](const TrainedParameters& to, Tensor& value, std::size_t index) {
        to.write(weights.at(index), value);
    });
    return pipelines;
}

std::vector<Tokens> tokens_of(const std::vector<Decoded>& decoded) {
    std::vector<Tokens> all;
    for (const Decoded& one : decoded) {
        all.push_back(one.tokens);
    }
    return all;
}

TEST(Decoder, WritesWhatTheModelHasLearnedByHeart) {
    const std::vector<Decoded> decoded =
        decode(*learned().pipelines, learned().model, learned().pairs.sources, greedy, 0);
    EXPECT_EQ(tokens_of(decoded), learned().pairs.targets);
    EXPECT_TRUE(std::ranges::all_of(decoded, &Decoded::has_ended));
}

// A decoder that did not read its source could not tell the pairs apart.
TEST(Decoder, ReadsTheSource) {
    Pairs shuffled = learned().pairs;
    std::ranges::rotate(shuffled.sources, shuffled.sources.begin() + 1);
    EXPECT_GT(learned().pipelines->evaluate(batch_of(shuffled), 0), learned().loss + 1);
    const std::vector<Decoded> decoded =
        decode(*learned().pipelines, learned().model, shuffled.sources, greedy, 0);
    std::ranges::rotate(shuffled.targets, shuffled.targets.begin() + 1);
    EXPECT_EQ(tokens_of(decoded), shuffled.targets);
}

struct OtherShape {
    Shape shape;
    int beam = 1;
};
void PrintTo(const OtherShape& other, std::ostream* out) {
    *out << to_string(other.shape) << " D=" << other.shape.replicas << " beam " << other.beam;
}

class OtherShapes : public testing::TestWithParam<OtherShape> {};

/// The batch has another size than the list of sources, so that dummies and several batches occur.
TEST_P(OtherShapes, GiveTheSameBits) {
    const DecodingSettings settings{
        .beam = GetParam().beam, .padding = padding, .begin = begin, .end = end};
    const auto one =
        decode(*learned().pipelines, learned().model, learned().pairs.sources, settings, 0);
    const std::unique_ptr<Replicas> other = with_learned_weights(GetParam().shape);
    EXPECT_EQ(decode(*other, learned().model, learned().pairs.sources, settings, 0), one);
}

INSTANTIATE_TEST_SUITE_P(
    Decoder,
    OtherShapes,
    testing::Values(
        OtherShape{.shape = {.stages = 2, .micro_batches = 3, .batch = 7}},
        OtherShape{.shape = {.stages = 2, .micro_batches = 3, .batch = 7}, .beam = 3},
        OtherShape{.shape = {.stages = 4, .micro_batches = 4, .batch = 20, .schedule = "1f1b"}},
        OtherShape{.shape = {.stages = 4, .micro_batches = 4, .batch = 20, .schedule = "zb-h1"}},
        OtherShape{.shape = {.stages = 2, .chunks = 2, .batch = 8, .schedule = "interleaved-1f1b"}},
        OtherShape{.shape = {.stages = 2, .micro_batches = 2, .batch = 12, .replicas = 2},
                   .beam = 2},
        OtherShape{.shape = {.micro_batches = 1, .batch = 6, .replicas = 3}}));

// The loss is the mean of -log softmax of the logits at the targets: 1e-6 in fp32.
TEST(Decoder, ReadsTheLogitsThatTheLossIsMadeOf) {
    const Batch batch = batch_of(learned().pairs);
    double sum = 0;
    for (int position = 0; position < context; ++position) {
        const std::vector<int> positions(as_index(batch.samples), position);
        const std::vector<double> logits = learned().pipelines->logits(batch, positions, 0);
        ASSERT_EQ(logits.size(), as_index(batch.samples) * 16);
        for (int sample = 0; sample < batch.samples; ++sample) {
            const std::int32_t target = batch.targets[as_index(sample * context + position)];
            const auto own = std::span(logits).subspan(as_index(sample) * 16, 16);
            double exponentials = 0;
            for (const double logit : own) {
                exponentials += std::exp(logit);
            }
            sum += target < 0 ? 0 : std::log(exponentials) - own[as_index(target)];
        }
    }
    EXPECT_NEAR(sum / static_cast<double>(batch.counted_targets()), learned().loss, 1e-6);
}

TEST(Decoder, LeavesTheTrainingAsItWas) {
    const Batch batch = batch_of(learned().pairs);
    const Shape shape{.stages = 2, .micro_batches = 2, .batch = pair_count};
    const auto losses = [&](bool decodes) {
        const std::unique_ptr<Replicas> pipelines = with_learned_weights(shape);
        std::vector<double> all;
        StepResult step;
        for (int number = 0; number < 3; ++number) {
            pipelines->run_step(batch, number, step);
            all.push_back(step.loss);
            if (decodes) {
                decode(*pipelines, learned().model, learned().pairs.sources, greedy, number);
            }
        }
        return all;
    };
    EXPECT_EQ(losses(true), losses(false));
}

TEST(Decoder, RefusesASourceThatIsLongerThanItsContext) {
    const auto refusal = [](const Tokens& source) -> std::string {
        try {
            decode(*learned().pipelines, learned().model, {{1, 2}, source}, greedy, 0);
            return "";
        } catch (const Error& error) {
            return error.what();
        }
    };
    EXPECT_EQ(refusal(Tokens(context, 1)), "");
    EXPECT_THAT(refusal(Tokens(context + 1, 1)), HasSubstr("source 1: 10 tokens, expected 1 to 9"));
    EXPECT_THAT(refusal({}), HasSubstr("source 1: 0 tokens, expected 1 to 9"));
}

}  // namespace decoder_test
}  // namespace pipetwin::exec
