// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/text/translation_scores.h"
#include "exec/data/batch.h"
#include "exec/data/pairs/pair_tokens.h"
#include "exec/replicas/replicas.h"

namespace pipetwin {

class Model;
struct ScenarioParts;

}  // namespace pipetwin

namespace pipetwin::exec {

/// A held-out text with the model's translation and a person's.
struct HeldOutTranslation {
    std::string direction;  ///< "en-de"
    std::string source;
    TranslatedText text;

    bool operator==(const HeldOutTranslation&) const = default;
};

/// How well the texts of one direction are translated.
struct DirectionScores {
    std::string direction;
    std::size_t texts = 0;
    double bleu = 0;
    double chrf = 0;
    double copied_bleu = 0;  ///< of the sources themselves, as if they were translations
    double copied_chrf = 0;
};

/// The scores of each direction, in the order in which they begin.
std::vector<DirectionScores> scores_by_direction(std::span<const HeldOutTranslation> translations);

/// The held-out texts that a training translates behind its last step: `training.translate` of each
/// direction, spread over the data.
class HeldOutTexts {
  public:
    /// None where `training.translate` is 0. The model must outlive this object. Throws
    /// Error(BadInput) for data that hold no texts with translations; else as `open_data`.
    HeldOutTexts(const ScenarioParts& scenario, const Model& model);

    /// Translates them; as `translate` of exec/decoding/translator.h, with `step` and `progress` as
    /// there.
    std::vector<HeldOutTranslation> translate(
        Replicas& pipelines, int step, const std::function<void(double share)>& progress) const;

  private:
    const Model& model_;
    PairVocabulary vocabulary_;
    int beam_;
    std::vector<TextWithTranslation> texts_{};
};

}  // namespace pipetwin::exec
