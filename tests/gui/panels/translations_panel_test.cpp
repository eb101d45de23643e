// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/translations_panel.h"

#include <QApplication>
#include <QTreeView>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gui/base/palette.h"
#include "gui/base/widget_style.h"
#include "tests/gui/canned.h"
#include "tests/gui/panels.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin::gui {
namespace translations_panel_test {

using ::testing::HasSubstr;

/// As `pipetwin run` writes them, with what else a report has left out.
constexpr const char* report = R"({"step_ms": 3, "translations": {"directions": [
  {"direction": "en-de", "texts": 2, "bleu": 19.6, "chrf": 35.5, "copied_bleu": 13.2, "copied_chrf": 24.04},
  {"direction": "en-fr", "texts": 1, "bleu": 1, "chrf": 20, "copied_bleu": 2, "copied_chrf": 30}],
  "texts": [
  {"direction": "en-de", "source": "File not found", "translation": "Datei nicht gefunden", "reference": "Datei fehlt"},
  {"direction": "en-de", "source": "<b>Yes</b>", "translation": "", "reference": "Ja"},
  {"direction": "en-fr", "source": "No", "translation": "Nein", "reference": "Non"}]}})";

Translations read(const std::string& content) {
    const tests::ScratchFolder folder;
    folder.write("report.json", content);
    return read_translations(folder / "report.json");
}

TEST(ReadTranslations, TakesThemFromTheReport) {
    const Translations translations = read(report);
    ASSERT_EQ(translations.scores.size(), 2);
    EXPECT_EQ(translations.scores[0].direction, "en-de");
    EXPECT_EQ(translations.scores[0].texts, 2);
    EXPECT_EQ(translations.scores[0].chrf, 35.5);
    EXPECT_EQ(translations.scores[1].copied_bleu, 2);
    ASSERT_EQ(translations.texts.size(), 3);
    EXPECT_EQ(translations.texts[0].translation, "Datei nicht gefunden");
    EXPECT_EQ(translations.texts[2].reference, "Non");
    EXPECT_EQ(sentence_of(translations, true),
              "Held-out texts after the last step. en-de: chrF 35.5, 11.5 above the untranslated "
              "texts; en-fr: chrF 20.0, 10.0 below the untranslated texts.");
}

TEST(ReadTranslations, AreNoneWithoutAReportOrIn) {
    EXPECT_TRUE(read_translations("/nowhere/report.json").empty());
    EXPECT_TRUE(read(R"({"step_ms": 3})").empty());
}

TEST(ReadTranslations, OfADamagedReportAreRefusedWithTheirPlace) {
    using pipetwin::testing::error_of;
    EXPECT_THAT(error_of([] { read("{\"translations\": "); }).place(), HasSubstr("report.json"));
    EXPECT_THAT(
        error_of([] { read(R"({"translations": {"directions": [{"texts": 1}]}})"); }).place(),
        HasSubstr("/translations/directions/0/direction"));
}

TEST(TranslationsPanel, ShowsScoresAndTexts) {
    TranslationsPanel panel;
    panel.resize(1280, 200);
    panel.show();
    RunData run = canned_run({});
    show_settled(panel, std::make_shared<const RunData>(run));
    EXPECT_EQ(sentence_in(panel), "Only a model of kind translation translates texts.");
    EXPECT_THAT(sentence_of({}, true), HasSubstr("training.translate = 16"));
    run.translations = read(report);
    show_settled(panel, std::make_shared<const RunData>(run));
    EXPECT_EQ(sentence_in(panel), sentence_of(run.translations, true));
    QTreeView* const scores = list_of(panel, "Scores by direction");
    ASSERT_EQ(scores->model()->rowCount(), 2);
    const auto cell = [](const QTreeView* view, int row, int column) {
        return view->model()->data(view->model()->index(row, column)).toString().toStdString();
    };
    EXPECT_EQ(cell(scores, 0, 0), "en-de");
    EXPECT_EQ(cell(scores, 0, 2), "35.5");
    EXPECT_EQ(cell(scores, 0, 3), "24.0");
    EXPECT_EQ(cell(scores, 0, 5), "13.2");
    for (const int column : {3, 5}) {
        EXPECT_EQ(scores->model()->headerData(column, Qt::Horizontal).toString(), "copied");
        EXPECT_THAT(scores->model()
                        ->headerData(column, Qt::Horizontal, Qt::ToolTipRole)
                        .toString()
                        .toStdString(),
                    HasSubstr("untranslated"));
    }
    expect_whole_columns(*scores);
    QTreeView* const texts = list_of(panel, "Held-out texts");
    ASSERT_EQ(texts->model()->rowCount(), 3);
    EXPECT_EQ(cell(texts, 0, 1), "Datei nicht gefunden");
    EXPECT_EQ(cell(texts, 1, 0), "<b>Yes</b>");
    EXPECT_EQ(cell(texts, 2, 3), "en-fr");
    show_settled(panel, nullptr);
    EXPECT_EQ(sentence_in(panel), "No run is open.");
}

/// "BLEU, untranslated" and its number were cut off, and so was the reference; the direction was
/// out of sight. In a wide window one column of texts was half empty and the others were cut off.
TEST(TranslationsPanel, ShowsNumbersWholeAndSharesTheRestAmongTheTexts) {
    TranslationsPanel panel;
    panel.setStyleSheet(style_sheet(palette_of(Theme::Light)));
    panel.resize(1280, 150);
    panel.show();
    RunData run = canned_run({});
    run.translations = read(report);
    for (Translations::Text& text : run.translations.texts) {
        text.translation = std::string(400, 'x');
        text.reference = std::string(200, 'y');
    }
    show_settled(panel, std::make_shared<const RunData>(run));
    for (const int width : {1280, 1920, 1000}) {
        panel.resize(width, 150);
        QApplication::processEvents();
        expect_whole_columns(*list_of(panel, "Scores by direction"));
        QTreeView* const texts = list_of(panel, "Held-out texts");
        expect_whole_columns(*texts, 3);
        EXPECT_EQ(texts->header()->length(), texts->viewport()->width()) << width;
        for (const int column : {1, 2}) {
            EXPECT_NEAR(texts->header()->sectionSize(column), texts->header()->sectionSize(0), 1)
                << width;
        }
    }
}

}  // namespace translations_panel_test
}  // namespace pipetwin::gui
