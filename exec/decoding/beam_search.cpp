// SPDX-License-Identifier: Apache-2.0
#include "exec/decoding/beam_search.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin::exec {
namespace {

/// A hypothesis and a token behind it.
struct Candidate {
    std::size_t hypothesis = 0;
    std::int32_t token = 0;
    double log_probability = 0;

    bool operator<(const Candidate& other) const {  // the better one comes first
        return std::tuple(-log_probability, hypothesis, token) <
               std::tuple(-other.log_probability, other.hypothesis, other.token);
    }
};

/// Turns logits into logarithms of probabilities.
void log_softmax(std::span<double> logits, std::size_t source) {
    const double largest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const double logit : logits) {
        sum += std::exp(logit - largest);
    }
    const double log_sum = largest + std::log(sum);
    if (!std::isfinite(log_sum)) {
        throw Error(ErrorKind::NotFinite,
                    fmt::format("source {}", source),
                    "the model gives no finite probability for the next token",
                    "the weights are not finite: train with a smaller learning_rate or clip_norm");
    }
    for (double& logit : logits) {
        logit -= log_sum;
    }
}

/// The search for the translation of one source.
class Beam {
  public:
    explicit Beam(const BeamSettings& settings) : settings_(&settings), live_(1) {}

    const std::vector<Decoded>& live() const { return live_; }

    /// Extends the hypotheses by a token each; `log_probabilities`: [hypothesis * classes + token].
    void extend(std::span<const double> log_probabilities) {
        const std::size_t classes = log_probabilities.size() / live_.size();
        std::vector<Candidate> candidates;
        for (std::size_t i = 0; i < log_probabilities.size(); ++i) {
            const std::size_t hypothesis = i / classes;
            candidates.push_back(
                {.hypothesis = hypothesis,
                 .token = static_cast<std::int32_t>(i % classes),
                 .log_probability = live_[hypothesis].log_probability + log_probabilities[i]});
        }
        const std::size_t slots =
            std::min(as_index(settings_->beam) - ended_.size(), candidates.size());
        std::partial_sort(candidates.begin(),
                          candidates.begin() + static_cast<std::ptrdiff_t>(slots),
                          candidates.end());
        candidates.resize(slots);
        const std::vector<Decoded> before = std::exchange(live_, {});
        for (const Candidate& candidate : candidates) {
            add(before[candidate.hypothesis], candidate);
        }
        if (!live_.empty() && std::ssize(live_.front().tokens) == settings_->longest) {
            unended_ = std::exchange(live_, {});
        }
    }

    /// The best hypothesis of all, once none is live.
    Decoded best() const {
        const std::vector<Decoded>& found = ended_.empty() ? unended_ : ended_;
        return *std::ranges::max_element(
            found, {}, [this](const Decoded& hypothesis) { return score(hypothesis); });
    }

  private:
    void add(const Decoded& before, const Candidate& candidate) {
        Decoded after = before;
        after.log_probability = candidate.log_probability;
        if (candidate.token == settings_->end) {
            after.has_ended = true;
            ended_.push_back(std::move(after));
        } else {
            after.tokens.push_back(candidate.token);
            live_.push_back(std::move(after));
        }
    }

    double score(const Decoded& hypothesis) const {
        const auto length =
            static_cast<double>(hypothesis.tokens.size()) + (hypothesis.has_ended ? 1 : 0);
        return hypothesis.log_probability / std::pow((5 + length) / 6, settings_->length_penalty);
    }

    const BeamSettings* settings_;
    std::vector<Decoded> live_;     ///< all of one length
    std::vector<Decoded> ended_;    ///< in the order in which they ended
    std::vector<Decoded> unended_;  ///< as long as a translation may be
};

}  // namespace

std::vector<Decoded> beam_search(std::size_t sources,
                                 const BeamSettings& settings,
                                 const NextLogits& next_logits) {
    PIPETWIN_EXPECT(settings.beam >= 1 && settings.longest >= 1, "a beam, and room for a token");
    std::vector<Beam> beams(sources, Beam(settings));
    for (;;) {
        std::vector<Prefix> prefixes;
        for (std::size_t source = 0; source < sources; ++source) {
            for (const Decoded& hypothesis : beams[source].live()) {
                prefixes.push_back({.source = source, .tokens = hypothesis.tokens});
            }
        }
        if (prefixes.empty()) {
            break;
        }
        std::vector<double> logits = next_logits(prefixes);
        const std::size_t classes = logits.size() / prefixes.size();
        for (std::size_t first = 0; first < prefixes.size();) {
            const std::size_t source = prefixes[first].source;
            Beam& beam = beams[source];
            const std::size_t count = beam.live().size();
            const std::span<double> own =
                std::span(logits).subspan(first * classes, count * classes);
            for (std::size_t hypothesis = 0; hypothesis < count; ++hypothesis) {
                log_softmax(own.subspan(hypothesis * classes, classes), source);
            }
            beam.extend(own);
            first += count;
        }
    }
    std::vector<Decoded> best;
    for (const Beam& beam : beams) {
        best.push_back(beam.best());
    }
    return best;
}

}  // namespace pipetwin::exec
