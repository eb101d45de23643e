#include "gui/panels/translations_panel.h"

#include <QApplication>
#include <QTreeView>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    expect_whole_columns(*scores);
    QTreeView* const texts = list_of(panel, "Held-out texts");
    ASSERT_EQ(texts->model()->rowCount(), 3);
    EXPECT_EQ(cell(texts, 0, 1), "Datei nicht gefunden");
    EXPECT_EQ(cell(texts, 1, 0), "<b>Yes</b>");
    EXPECT_EQ(cell(texts, 2, 3), "en-fr");
    show_settled(panel, nullptr);
    EXPECT_EQ(sentence_in(panel), "No run is open.");
}

}  // namespace translations_panel_test
}  // namespace pipetwin::gui
