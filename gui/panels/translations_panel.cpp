// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/translations_panel.h"

#include <algorithm>
#include <utility>

#include <QHeaderView>
#include <QLabel>
#include <QSplitter>
#include <QTreeView>
#include <QVBoxLayout>

#include "core/base/as_index.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
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
    : QWidget(parent),
      sentence_(plain_label(this)),
      splitter_(splitter_of_lists(this)),
      scores_(new TextTable(this)),
      scores_view_(table_view(scores_, tr("Scores by direction"), this)),
      texts_(new TextTable(this)),
      texts_view_(table_view(texts_, tr("Held-out texts"), this)) {
    setAccessibleName(tr("Translations"));
    sentence_->setWordWrap(true);
    sentence_->setAlignment(Qt::AlignTop | Qt::AlignLeft);
    sentence_->setTextInteractionFlags(Qt::TextSelectableByMouse);
    sentence_->setContentsMargins(panel_margin, 0, panel_margin, 0);
    splitter_->addWidget(scores_view_);
    splitter_->addWidget(texts_view_);
    auto* const column = new QVBoxLayout(this);
    column->setContentsMargins(0, panel_margin, 0, 0);
    column->setSpacing(panel_margin / 2);
    column->addWidget(sentence_);
    column->addWidget(splitter_, 1);
    show_run(nullptr);
}

void TranslationsPanel::show_run(std::shared_ptr<const RunData> run) {
    const bool is_open = run != nullptr && !run->empty();
    const bool can_translate =
        is_open && run->planned && run->planned->scenario.model.kind == ModelKind::Translation;
    const QString text =
        is_open ? text_of(sentence_of(run->translations, can_translate)) : tr("No run is open.");
    sentence_->setText(text);
    sentence_->setAccessibleName(text);
    const bool any = is_open && !run->translations.empty();
    scores_->show(
        {.headers =
             {tr("Direction"), tr("Texts"), tr("chrF"), tr("copied"), tr("BLEU"), tr("copied")},
         .tips = {{},
                  tr("The number of held-out texts"),
                  tr("chrF of the translations"),
                  tr("chrF of the untranslated texts, as if they were translations"),
                  tr("BLEU of the translations"),
                  tr("BLEU of the untranslated texts, as if they were translations")},
         .rows = any ? static_cast<int>(run->translations.scores.size()) : 0,
         .text = [run](int row, int column) {
             return score_text(run->translations.scores[as_index(row)], column);
         }});
    texts_->show({.headers = {tr("Text"), tr("Translation"), tr("Reference"), tr("Direction")},
                  .rows = any ? static_cast<int>(run->translations.texts.size()) : 0,
                  .left_columns = 4,
                  .text = [run](int row, int column) {
                      return translation_text(run->translations.texts[as_index(row)], column);
                  }});
    constexpr int text_columns = 3;
    room_of_scores_ = fit_columns(scores_view_);
    fit_columns(texts_view_, text_columns);
    share_room_of_lists();
    splitter_->setVisible(any);
    emit settled();
}

/// Shows all of the scores, and leaves what room is left to the texts.
void TranslationsPanel::share_room_of_lists() {
    const int left = width() - splitter_->handleWidth() - room_of_scores_;
    share_room(splitter_, {room_of_scores_, std::max(room_of_scores_, left)});
}

void TranslationsPanel::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    share_room_of_lists();
}

void TranslationsPanel::set_colors(const Palette& palette) {
    setPalette(widget_palette(palette));
}

}  // namespace pipetwin::gui
