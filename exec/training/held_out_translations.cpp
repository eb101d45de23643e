// SPDX-License-Identifier: Apache-2.0
#include "exec/training/held_out_translations.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/decoding/translator.h"

namespace pipetwin::exec {

std::vector<DirectionScores> scores_by_direction(std::span<const HeldOutTranslation> translations) {
    std::vector<DirectionScores> scores;
    for (const HeldOutTranslation& first : translations) {
        if (std::ranges::find(scores, first.direction, &DirectionScores::direction) !=
            scores.end()) {
            continue;
        }
        std::vector<TranslatedText> texts;
        std::vector<TranslatedText> copies;
        for (const HeldOutTranslation& one : translations) {
            if (one.direction == first.direction) {
                texts.push_back(one.text);
                copies.push_back({.hypothesis = one.source, .reference = one.text.reference});
            }
        }
        scores.push_back({.direction = first.direction,
                          .texts = texts.size(),
                          .bleu = bleu(texts),
                          .chrf = chrf(texts),
                          .copied_bleu = bleu(copies),
                          .copied_chrf = chrf(copies)});
    }
    return scores;
}

HeldOutTexts::HeldOutTexts(const ScenarioParts& scenario, const Model& model)
    : model_(model),
      vocabulary_(target_languages(scenario.data.pairs)),
      beam_(scenario.training.beam) {
    if (scenario.training.translate == 0) {
        return;
    }
    const std::unique_ptr<DataSource> data = open_data(scenario, model, DataUse::Validation);
    texts_ = data->translated_texts(as_index(scenario.training.translate));
    vocabulary_ = PairVocabulary(vocabulary_.languages(), data->text_pieces());
    if (texts_.empty()) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"training.translate"},
                    fmt::format("{}, but data of kind \"{}\" hold no texts with translations",
                                scenario.training.translate,
                                to_string(scenario.data.kind)),
                    "set data.kind = \"gettext\" or \"pairs\"");
    }
}

std::vector<HeldOutTranslation> HeldOutTexts::translate(
    Replicas& pipelines, int step, const std::function<void(double share)>& progress) const {
    if (texts_.empty()) {
        return {};
    }
    std::vector<TextToTranslate> sources;
    for (const TextWithTranslation& text : texts_) {
        sources.push_back({.text = text.text, .language = text.into});
    }
    std::vector<std::string> translations =
        exec::translate(pipelines, model_, vocabulary_, sources, beam_, step, progress);
    std::vector<HeldOutTranslation> all;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
        const TextWithTranslation& text = texts_[i];
        all.push_back(
            {.direction = text.from + "-" + text.into,
             .source = text.text,
             .text = {.hypothesis = std::move(translations[i]), .reference = text.translation}});
    }
    return all;
}

}  // namespace pipetwin::exec
