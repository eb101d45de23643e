// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace pipetwin::gui {

/// The held-out texts that a training has translated after its last step.
struct Translations {
    /// How well the texts of one direction are translated: BLEU and chrF from 0 to 100.
    struct Scores {
        std::string direction;  ///< "en-de"
        int texts = 0;
        double bleu = 0;
        double chrf = 0;
        double copied_bleu = 0;  ///< of the sources, as if they were translations
        double copied_chrf = 0;
    };
    struct Text {
        std::string direction;
        std::string source;
        std::string translation;  ///< the model's
        std::string reference;    ///< a person's
    };

    std::vector<Scores> scores;
    std::vector<Text> texts;

    bool empty() const { return scores.empty(); }
};

/// Reads them from the report.json of a run; empty where it has none, or where there is no such
/// file. Throws Error(BadInput) or Error(Io) for a file that is damaged or cannot be read.
Translations read_translations(const std::filesystem::path& report);

/// "en-de: chrF 35.5, 11.5 above that of the untranslated texts; ...": what the scores say, in a
/// sentence; without any, how to get them, or that the run's model `can_translate` nothing.
std::string sentence_of(const Translations& translations, bool can_translate);

}  // namespace pipetwin::gui
