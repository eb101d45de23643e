// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/data/pairs/pair_tokens.h"
#include "exec/replicas/replicas.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

namespace pipetwin::exec {

/// A text, and the language that it is to be translated into.
struct TextToTranslate {
    std::string text;
    std::string language;
};

/// Translates texts with a model that has been trained with this vocabulary; `beam` and `step` as
/// for `decode`, `progress` as DecodingSettings. Bytes of a translation that are no UTF-8 become
/// U+FFFD. Throws Error(BadInput), naming the text by its number from 1 on, for one that is longer
/// than the model has room for, and for a language that the vocabulary lacks; else as `decode`.
std::vector<std::string> translate(Replicas& pipelines,
                                   const Model& model,
                                   const PairVocabulary& vocabulary,
                                   const std::vector<TextToTranslate>& texts,
                                   int beam,
                                   int step,
                                   const std::function<void(double share)>& progress = nullptr);

/// The text with U+FFFD in place of every byte that is part of no UTF-8 (RFC 3629).
std::string with_whole_characters(std::string_view text);

}  // namespace pipetwin::exec
