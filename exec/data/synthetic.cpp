// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/model/layer_spec.h"
#include "core/model/model.h"
#include "core/scenario/scenario.h"
#include "exec/base/random.h"
#include "exec/data/sources.h"

namespace pipetwin::exec {
namespace {

/// Uses of the random streams that are made from the seed.
enum class Use : std::uint64_t { Centres, Rule, Samples, HeldOut };

RandomStream stream(std::uint64_t seed, Use use) {
    return RandomStream(seed).of(static_cast<std::uint64_t>(use));
}

/// Classes as Gaussian clusters around random centres, one class for every position, or for all
/// positions of a sample: x = centre of its class + noise, both of deviation 1, so that a linear
/// layer learns most of it and a deeper one a little more.
class Clusters final : public DataSource {
  public:
    /// `targets`: of a sample; 1, or one for every position.
    Clusters(const SampleShape& input, int targets, int classes, std::uint64_t seed, Use samples)
        : input_(input),
          targets_(targets),
          width_(input.positions / targets * input.width),
          classes_(classes),
          seed_(seed),
          samples_(samples) {}

    Batch batch(int step, int samples) const override {
        Batch batch{.samples = samples,
                    .positions = input_.positions,
                    .width = input_.width,
                    .target_positions = targets_,
                    .tokens = {},
                    .values = {},
                    .targets = {}};
        const RandomStream centres = stream(seed_, Use::Centres);
        const RandomStream random = stream(seed_, samples_).of(static_cast<std::uint64_t>(step));
        const RandomStream labels = random.of(0);
        const RandomStream noise = random.of(1);
        const auto rows =
            static_cast<std::uint64_t>(samples) * static_cast<std::uint64_t>(targets_);
        const auto width = static_cast<std::uint64_t>(width_);
        for (std::uint64_t r = 0; r < rows; ++r) {
            const std::uint64_t label = labels.below(r, static_cast<std::uint64_t>(classes_));
            batch.targets.push_back(static_cast<std::int32_t>(label));
            for (std::uint64_t j = 0; j < width; ++j) {
                batch.values.push_back(static_cast<float>(centres.normal(label * width + j) +
                                                          noise.normal(r * width + j)));
            }
        }
        return batch;
    }

    std::string description() const override {
        return fmt::format("synthetic, {} in {}",
                           counted(classes_, "Gaussian cluster"),
                           counted(width_, "dimension"));
    }

  private:
    SampleShape input_;
    int targets_;
    int width_;  ///< numbers that have one target
    int classes_;
    std::uint64_t seed_;
    Use samples_;
};

/// Sequences in which the next token follows from the one before it by a permutation-like rule
/// drawn from the seed, except that one in ten is drawn at random: a loss of about 0.1
/// ln(vocabulary) + 0.3 is as good as it gets.
class Sequences final : public DataSource {
  public:
    Sequences(int positions, int vocabulary, std::uint64_t seed, Use samples)
        : positions_(positions), vocabulary_(vocabulary), seed_(seed), samples_(samples) {}

    Batch batch(int step, int samples) const override {
        Batch batch{.samples = samples,
                    .positions = positions_,
                    .width = 0,
                    .target_positions = positions_,
                    .tokens = {},
                    .values = {},
                    .targets = {}};
        const RandomStream rule = stream(seed_, Use::Rule);
        const RandomStream random = stream(seed_, samples_).of(static_cast<std::uint64_t>(step));
        const auto limit = static_cast<std::uint64_t>(vocabulary_);
        for (int s = 0; s < samples; ++s) {
            const RandomStream sample = random.of(static_cast<std::uint64_t>(s));
            std::uint64_t token = sample.below(0, limit);
            for (std::uint64_t t = 1; t <= static_cast<std::uint64_t>(positions_); ++t) {
                batch.tokens.push_back(static_cast<std::int32_t>(token));
                const bool noise = sample.below(2 * t, 10) == 0;
                token = noise ? sample.below(2 * t + 1, limit) : rule.below(token, limit);
                batch.targets.push_back(static_cast<std::int32_t>(token));
            }
        }
        return batch;
    }

    std::string description() const override {
        return fmt::format("synthetic, sequences over {} that follow a rule nine times in ten",
                           counted(vocabulary_, "token"));
    }

  private:
    int positions_;
    int vocabulary_;
    std::uint64_t seed_;
    Use samples_;
};

/// Sources of random tokens with targets that are their translation, token for token by a
/// dictionary drawn from the seed: a model that reads its source reaches a loss of 0, one that does
/// not stays at ln(vocabulary). Between half of the positions and all of them are no padding.
class TokenPairs final : public DataSource {
  public:
    /// Positions of a sample: those of the source, and then those of the target.
    struct Sizes {
        int source = 0;
        int target = 0;
        int vocabulary = 0;
    };
    TokenPairs(const Sizes& sizes, std::uint64_t seed, Use samples)
        : sizes_(sizes), seed_(seed), samples_(samples) {}

    Batch batch(int step, int samples) const override {
        Batch batch{.samples = samples,
                    .positions = sizes_.source + sizes_.target,
                    .width = 0,
                    .target_positions = sizes_.target,
                    .tokens = {},
                    .values = {},
                    .targets = {}};
        const RandomStream random = stream(seed_, samples_).of(static_cast<std::uint64_t>(step));
        for (int s = 0; s < samples; ++s) {
            add(random.of(static_cast<std::uint64_t>(s)), batch);
        }
        return batch;
    }

    std::string description() const override {
        return fmt::format("synthetic, translations over {} by a dictionary",
                           counted(sizes_.vocabulary, "token"));
    }

  private:
    void add(const RandomStream& sample, Batch& batch) const {
        const RandomStream dictionary = stream(seed_, Use::Rule);
        const auto limit = static_cast<std::uint64_t>(sizes_.vocabulary);
        const int longest = std::min(sizes_.source, sizes_.target);
        const int shortest = (longest + 1) / 2;
        const int length = shortest + static_cast<int>(sample.below(
                                          0, static_cast<std::uint64_t>(longest - shortest + 1)));
        std::vector<std::uint64_t> source;
        for (int t = 0; t < length; ++t) {
            source.push_back(sample.below(1 + static_cast<std::uint64_t>(t), limit));
        }
        const auto token = [](std::uint64_t id) { return static_cast<std::int32_t>(id); };
        for (int t = 0; t < sizes_.source; ++t) {
            batch.tokens.push_back(t < length ? token(source[as_index(t)]) : 0);
        }
        std::int32_t before = 0;
        for (int t = 0; t < sizes_.target; ++t) {
            batch.tokens.push_back(before);
            const bool is_there = t < length;
            before = is_there ? token(dictionary.below(source[as_index(t)], limit)) : 0;
            batch.targets.push_back(is_there ? before : -1);
        }
        batch.lengths.push_back(length);
    }

    Sizes sizes_;
    std::uint64_t seed_;
    Use samples_;
};

}  // namespace

std::unique_ptr<DataSource> make_synthetic(const ScenarioParts& scenario,
                                           const Model& model,
                                           DataUse use) {
    const Use samples = use == DataUse::Training ? Use::Samples : Use::HeldOut;
    const SampleShape& input = model.layer(0).input;
    const std::uint64_t seed = scenario.training.seed;
    if (const int source = source_positions_of(model); source > 0) {
        return std::make_unique<TokenPairs>(TokenPairs::Sizes{.source = source,
                                                              .target = input.positions - source,
                                                              .vocabulary = vocabulary_of(model)},
                                            seed,
                                            samples);
    }
    if (input.token_ids) {
        return std::make_unique<Sequences>(input.positions, vocabulary_of(model), seed, samples);
    }
    const int targets = target_positions_of(model);
    if (targets != 1 && targets != input.positions) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"data.kind"},
                    fmt::format("\"synthetic\" gives one class for a sample or for each of its {}, "
                                "but the model's loss reads {}",
                                counted(input.positions, "position"),
                                targets),
                    "let the model end with one position, or with as many as it begins with");
    }
    return std::make_unique<Clusters>(input, targets, classes_of(model), seed, samples);
}

}  // namespace pipetwin::exec
