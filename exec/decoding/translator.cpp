// SPDX-License-Identifier: Apache-2.0
#include "exec/decoding/translator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/text/json_text.h"
#include "exec/data/sources.h"
#include "exec/decoding/decoder.h"

namespace pipetwin::exec {

std::vector<std::string> translate(Replicas& pipelines,
                                   const Model& model,
                                   const PairVocabulary& vocabulary,
                                   const std::vector<TextToTranslate>& texts,
                                   int beam,
                                   int step,
                                   const std::function<void(double share)>& progress) {
    const std::size_t room = static_cast<std::size_t>(source_positions_of(model));
    std::vector<std::vector<std::int32_t>> sources;
    for (const TextToTranslate& text : texts) {
        sources.push_back(vocabulary.source_tokens(text.text, text.language));
        if (sources.back().size() > room) {
            throw Error(
                ErrorKind::BadInput,
                fmt::format("text {}", sources.size()),
                fmt::format("{}, expected at most {}: source_context = {} has room for them, "
                            "the language and the end",
                            counted(sources.back().size() - PairVocabulary::more_source_tokens,
                                    vocabulary.pieces().noun()),
                            room - PairVocabulary::more_source_tokens,
                            room),
                "translate its parts one by one");
        }
    }
    const DecodingSettings settings{.beam = beam,
                                    .padding = vocabulary.padding(),
                                    .begin = vocabulary.begin(),
                                    .end = vocabulary.end(),
                                    .progress = progress};
    std::vector<std::string> translations;
    for (const Decoded& decoded : decode(pipelines, model, sources, settings, step)) {
        translations.push_back(with_whole_characters(vocabulary.text_of(decoded.tokens)));
    }
    return translations;
}

std::string with_whole_characters(std::string_view text) {
    constexpr std::size_t longest_character = 4;
    std::string whole;
    while (!text.empty()) {
        std::size_t size = 1;
        while (size < std::min(longest_character, text.size()) && !is_utf8(text.substr(0, size))) {
            ++size;
        }
        const bool is_character = is_utf8(text.substr(0, size));
        whole += is_character ? text.substr(0, size) : std::string_view("\uFFFD");
        text.remove_prefix(is_character ? size : 1);
    }
    return whole;
}

}  // namespace pipetwin::exec
