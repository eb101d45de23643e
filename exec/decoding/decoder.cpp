// SPDX-License-Identifier: Apache-2.0
#include "exec/decoding/decoder.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "exec/data/batch.h"
#include "exec/data/sources.h"

namespace pipetwin::exec {
namespace {

using Tokens = std::vector<std::int32_t>;

/// Lays prefixes out in mini-batches, and takes the logits behind them from the pipelines.
class PipelineLogits {
  public:
    PipelineLogits(Replicas& pipelines,
                   const Model& model,
                   const std::vector<Tokens>& sources,
                   const DecodingSettings& settings,
                   int step)
        : pipelines_(pipelines),
          sources_(sources),
          settings_(settings),
          step_(step),
          samples_(static_cast<int>(pipelines.first().plan().samples().value())),
          source_positions_(source_positions_of(model)),
          target_positions_(model.layer(0).input.positions - source_positions_) {}

    int longest() const { return target_positions_; }

    std::vector<double> operator()(std::span<const Prefix> prefixes) const {
        std::vector<double> logits;
        const std::size_t all = prefixes.size();
        while (!prefixes.empty()) {
            const auto length = static_cast<double>(prefixes.front().tokens.size());
            const auto count = std::min(prefixes.size(), as_index(samples_));
            const std::vector<double> part = of_batch(prefixes.first(count));
            const auto end = part.begin() +
                             static_cast<std::ptrdiff_t>(part.size() / as_index(samples_) * count);
            logits.insert(logits.end(), part.begin(), end);
            prefixes = prefixes.subspan(count);
            if (settings_.progress) {
                const double done = static_cast<double>(all - prefixes.size());
                settings_.progress((length + done / static_cast<double>(all)) / longest());
            }
        }
        return logits;
    }

  private:
    /// Samples without a prefix repeat the last one: a mini-batch has the size that was planned.
    std::vector<double> of_batch(std::span<const Prefix> prefixes) const {
        Batch batch{.samples = samples_,
                    .positions = source_positions_ + target_positions_,
                    .width = 0,
                    .target_positions = target_positions_,
                    .tokens = {},
                    .values = {},
                    .targets = Tokens(as_index(samples_) * as_index(target_positions_), -1)};
        std::vector<int> positions;
        for (std::size_t sample = 0; sample < as_index(samples_); ++sample) {
            const Prefix& prefix = prefixes[std::min(sample, prefixes.size() - 1)];
            const Tokens& source = sources_[prefix.source];
            batch.lengths.push_back(static_cast<std::int32_t>(source.size()));
            add_padded(source, source_positions_, batch.tokens);
            batch.tokens.push_back(settings_.begin);
            add_padded(prefix.tokens, target_positions_ - 1, batch.tokens);
            positions.push_back(static_cast<int>(prefix.tokens.size()));
        }
        return pipelines_.logits(batch, positions, step_);
    }

    void add_padded(const Tokens& tokens, int positions, Tokens& to) const {
        to.insert(to.end(), tokens.begin(), tokens.end());
        to.insert(to.end(), as_index(positions) - tokens.size(), settings_.padding);
    }

    Replicas& pipelines_;
    const std::vector<Tokens>& sources_;
    const DecodingSettings& settings_;
    int step_;
    int samples_;  ///< of a mini-batch
    int source_positions_;
    int target_positions_;
};

}  // namespace

std::vector<Decoded> decode(Replicas& pipelines,
                            const Model& model,
                            const std::vector<Tokens>& sources,
                            const DecodingSettings& settings,
                            int step) {
    const int room = source_positions_of(model);
    PIPETWIN_EXPECT(room > 0, "a translation model");
    for (std::size_t source = 0; source < sources.size(); ++source) {
        if (sources[source].empty() || std::ssize(sources[source]) > room) {
            throw Error(ErrorKind::BadInput,
                        fmt::format("source {}", source),
                        fmt::format("{} tokens, expected 1 to {}", sources[source].size(), room),
                        "leave it out, or train a model with a larger source_context");
        }
    }
    const PipelineLogits next_logits(pipelines, model, sources, settings, step);
    return beam_search(sources.size(),
                       {.beam = settings.beam,
                        .length_penalty = settings.length_penalty,
                        .end = settings.end,
                        .longest = next_logits.longest()},
                       next_logits);
}

}  // namespace pipetwin::exec
