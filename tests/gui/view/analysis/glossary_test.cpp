// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/glossary.h"

#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <QLabel>
#include <gmock/gmock.h>

#include "gui/panels/details_panel.h"
#include "tests/gui/canned.h"
#include "tests/support/places.h"

namespace pipetwin::gui {
namespace glossary_test {

using ::testing::Not;
using ::testing::StrEq;

TEST(Glossary, SaysEveryWordOnce) {
    std::set<std::string_view> words;
    for (const GlossaryEntry& entry : glossary()) {
        EXPECT_TRUE(words.insert(entry.word).second) << entry.word;
        EXPECT_FALSE(entry.meaning.empty()) << entry.word;
        EXPECT_EQ(meaning_of(entry.word), entry.meaning);
    }
    EXPECT_EQ(meaning_of("step, median"), "");
}

/// What a step's idle time and the rest of it are called explains itself to nobody.
TEST(Glossary, HasWhatAStepIsDividedInto) {
    for (const char* const word : {"communication wait",
                                   "imbalance",
                                   "fill and drain",
                                   "reduction",
                                   "optimizer",
                                   "overhead"}) {
        EXPECT_THAT(std::string(meaning_of(word)), Not(StrEq(""))) << word;
    }
}

/// The rows of the first table of docs/glossary.md.
std::vector<std::string> rows_of_the_page() {
    std::ifstream stream(places::source_folder() + "/docs/glossary.md");
    std::vector<std::string> rows;
    bool is_table = false;
    for (std::string line; std::getline(stream, line);) {
        if (line.starts_with("|---")) {
            is_table = true;
        } else if (is_table && !line.starts_with("|")) {
            break;
        } else if (is_table) {
            rows.push_back(line);
        }
    }
    return rows;
}

/// The page and the window explain one word in one way.
TEST(Glossary, IsThatOfThePage) {
    std::vector<std::string> rows;
    for (const GlossaryEntry& entry : glossary()) {
        rows.push_back("| " + std::string(entry.word) + " | " + std::string(entry.meaning) + " |");
    }
    EXPECT_EQ(rows_of_the_page(), rows);
}

TEST(Glossary, IsAtHandWhereAWordStands) {
    RunData run = canned_run();
    Breakdown breakdown;
    breakdown.imbalance = std::chrono::milliseconds(3);
    run.comparison->predicted_breakdown = breakdown;
    DetailsPanel panel;
    panel.show_run(run);
    int found = 0;
    for (const QLabel* const label : panel.findChildren<QLabel*>()) {
        if (label->text() == QLatin1String("imbalance")) {
            ++found;
            EXPECT_EQ(label->toolTip().toStdString(), meaning_of("imbalance"));
        }
    }
    EXPECT_EQ(found, 1);
}

}  // namespace glossary_test
}  // namespace pipetwin::gui
