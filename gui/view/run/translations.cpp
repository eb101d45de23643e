// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/translations.h"

#include <cmath>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/text/input_file.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin::gui {

Translations read_translations(const std::filesystem::path& report) {
    constexpr std::size_t most_bytes = std::size_t{256} << 20U;
    std::error_code ignored;
    if (!std::filesystem::exists(report, ignored)) {
        return {};
    }
    const std::string place = report.string();
    const nlohmann::json root = parse_json(InputFile(report).read_up_to(most_bytes), place);
    const JsonObject object(root, place, "");
    Translations translations;
    if (!object.has("translations")) {
        return translations;
    }
    const JsonObject part = object.object("translations");
    for (const JsonObject& scores : part.objects("directions")) {
        translations.scores.push_back({.direction = scores.text("direction"),
                                       .texts = static_cast<int>(scores.whole("texts")),
                                       .bleu = scores.number_or("bleu", 0),
                                       .chrf = scores.number_or("chrf", 0),
                                       .copied_bleu = scores.number_or("copied_bleu", 0),
                                       .copied_chrf = scores.number_or("copied_chrf", 0)});
    }
    for (const JsonObject& text : part.objects("texts")) {
        translations.texts.push_back({.direction = text.text("direction"),
                                      .source = text.text("source"),
                                      .translation = text.text("translation"),
                                      .reference = text.text("reference")});
    }
    return translations;
}

std::string sentence_of(const Translations& translations, bool can_translate) {
    if (translations.empty() && !can_translate) {
        return "Only a model of kind translation translates texts.";
    }
    if (translations.empty()) {
        return "This run translated no texts. With training.translate = 16 in its scenario, it "
               "translates 16 held-out texts of each direction after the last step.";
    }
    std::vector<std::string> parts;
    for (const Translations::Scores& scores : translations.scores) {
        const double above = scores.chrf - scores.copied_chrf;
        parts.push_back(fmt::format("{}: chrF {:.1f}, {:.1f} {} the untranslated texts",
                                    scores.direction,
                                    scores.chrf,
                                    std::abs(above),
                                    above < 0 ? "below" : "above"));
    }
    return fmt::format("Held-out texts after the last step. {}.", fmt::join(parts, "; "));
}

}  // namespace pipetwin::gui
