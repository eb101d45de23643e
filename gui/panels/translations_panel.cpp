// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/translations_panel.h"

#include "core/base/as_index.h"
#include "gui/base/panel_text.h"
#include "gui/view/run/planned_run.h"

namespace pipetwin::gui {

namespace {

QString score(double value) {
    return QString::number(value, 'f', 1);
}

QString score_text(const Translations::Scores& scores, int column) {
    switch (column) {
        case 0:
            return QString::fromStdString(scores.direction);
        case 1:
            return QString::number(scores.texts);
        case 2:
            return score(scores.chrf);
        case 3:
            return score(scores.copied_chrf);
        case 4:
            return score(scores.bleu);
        default:
            return score(scores.copied_bleu);
    }
}

QString translation_text(const Translations::Text& text, int column) {
    switch (column) {
        case 0:
            return QString::fromStdString(text.source);
        case 1:
            return QString::fromStdString(text.translation);
        case 2:
            return QString::fromStdString(text.reference);
        default:
            return QString::fromStdString(text.direction);
    }
}

}  // namespace

TranslationsPanel::TranslationsPanel(QWidget* parent)
    : TwoTables({.panel = tr("Translations"),
                 .first = tr("Scores by direction"),
                 .second = tr("Held-out texts")},
                parent) {
    show_run(nullptr);
}

void TranslationsPanel::show_run(std::shared_ptr<const RunData> run) {
    const bool is_open = run != nullptr && !run->empty();
    const bool can_translate =
        is_open && run->planned && run->planned->scenario.model.kind == ModelKind::Translation;
    const bool any = is_open && !run->translations.empty();
    constexpr int text_columns = 3;
    show_content(
        {.sentence = is_open ? text_of(sentence_of(run->translations, can_translate))
                             : tr("No run is open."),
         .first = {.headers = {tr("Direction"),
                               tr("Texts"),
                               tr("chrF"),
                               tr("copied"),
                               tr("BLEU"),
                               tr("copied")},
                   .tips = {{},
                            tr("The number of held-out texts"),
                            tr("chrF of the translations"),
                            tr("chrF of the untranslated texts, as if they were translations"),
                            tr("BLEU of the translations"),
                            tr("BLEU of the untranslated texts, as if they were translations")},
                   .rows = any ? static_cast<int>(run->translations.scores.size()) : 0,
                   .text =
                       [run](int row, int column) {
                           return score_text(run->translations.scores[as_index(row)], column);
                       }},
         .second = {.headers = {tr("Text"), tr("Translation"), tr("Reference"), tr("Direction")},
                    .rows = any ? static_cast<int>(run->translations.texts.size()) : 0,
                    .left_columns = 4,
                    .text =
                        [run](int row, int column) {
                            return translation_text(run->translations.texts[as_index(row)], column);
                        }},
         .has_tables = any,
         .has_second = any,
         .text_columns = text_columns});
}

}  // namespace pipetwin::gui
