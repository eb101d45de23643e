// SPDX-License-Identifier: Apache-2.0
#include "cli/text/translation_text.h"

#include <map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/text/text_output.h"
#include "core/base/printable.h"

namespace pipetwin::cli {

namespace {

std::string score_text(double score) {
    return fmt::format("{:.1f}", score);
}

}  // namespace

std::vector<std::vector<std::string>> score_rows(
    std::span<const exec::HeldOutTranslation> translations) {
    std::vector<std::vector<std::string>> rows{
        {"held-out texts", "texts", "BLEU", "chrF", "BLEU of the source", "chrF of the source"}};
    for (const exec::DirectionScores& scores : exec::scores_by_direction(translations)) {
        rows.push_back({scores.direction,
                        std::to_string(scores.texts),
                        score_text(scores.bleu),
                        score_text(scores.chrf),
                        score_text(scores.copied_bleu),
                        score_text(scores.copied_chrf)});
    }
    return rows;
}

std::string translations_text(std::span<const exec::HeldOutTranslation> translations) {
    constexpr int most_examples = 3;  // of a direction
    if (translations.empty()) {
        return {};
    }
    std::string text = text_table(score_rows(translations));
    std::map<std::string, int> shown;
    for (const exec::HeldOutTranslation& one : translations) {
        if (shown[one.direction]++ < most_examples) {
            text += fmt::format("  {}  {} -> {} ({})\n",
                                one.direction,
                                printable(one.source),
                                printable(one.text.hypothesis),
                                printable(one.text.reference));
        }
    }
    return text;
}

Json translations_json(std::span<const exec::HeldOutTranslation> translations) {
    Json json{{"directions", Json::array()}, {"texts", Json::array()}};
    for (const exec::DirectionScores& scores : exec::scores_by_direction(translations)) {
        json["directions"].push_back({{"direction", scores.direction},
                                      {"texts", scores.texts},
                                      {"bleu", scores.bleu},
                                      {"chrf", scores.chrf},
                                      {"copied_bleu", scores.copied_bleu},
                                      {"copied_chrf", scores.copied_chrf}});
    }
    for (const exec::HeldOutTranslation& one : translations) {
        json["texts"].push_back({{"direction", one.direction},
                                 {"source", one.source},
                                 {"translation", one.text.hypothesis},
                                 {"reference", one.text.reference}});
    }
    return json;
}

}  // namespace pipetwin::cli
