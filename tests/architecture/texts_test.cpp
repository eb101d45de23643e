// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/places.h"

// Reasons are values: code that acts on an error asks its kind, reason and key
// (core/base/error.h), never the words that a user reads. A search in the words of an error, a hint
// or a note breaks when a sentence is written better.

namespace texts_test {

namespace fs = std::filesystem;

/// Whether a line searches the words of an error, a hint or a note, or compares them.
bool searches(const std::string& line) {
    static const std::regex search(
        R"x((\.(text|hint|place|what)\(\)|\b(why|why_not|hint|note|notes|headline)_?(\.front\(\))?))x"
        R"x(\.(find|rfind|starts_with|ends_with|contains|substr|compare|find_first_of)\()x"
        R"x(|\.(text|hint|place|what)\(\) *[!=]=|\b(why|hint|note) *[!=]= *")x");
    const std::string code = line.substr(0, line.find("//"));
    return std::regex_search(code, search);
}

TEST(Texts, OfErrorsAndNotesAreNeverSearched) {
    const fs::path root = pipetwin::places::source_folder();
    for (const char* const folder : {"core", "sim", "exec", "cli", "gui"}) {
        for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
            const fs::path ending = entry.path().extension();
            if (ending != ".h" && ending != ".cpp" && ending != ".cu") {
                continue;
            }
            const std::string path = fs::relative(entry.path(), root).generic_string();
            std::ifstream stream(entry.path());
            int number = 1;
            for (std::string line; std::getline(stream, line); ++number) {
                EXPECT_FALSE(searches(line))
                    << fmt::format("{}:{} searches a text: {}", path, number, line);
            }
        }
    }
}

// The checker itself.
TEST(Texts, SearchesAreTold) {
    for (const char* const line : {"if (error.text().find(\"memory\") != npos) {",
                                   "return error.hint().ends_with('?');",
                                   "entry.why.starts_with(*schedule)",
                                   "note.substr(0, note.find(' '))",
                                   "if (error.place() == \"memory\") {",
                                   "why == \"no room\""}) {
        EXPECT_TRUE(searches(line)) << line;
    }
    for (const char* const line : {"if (error.reason() == ErrorReason::Memory) {",
                                   "text.find(',')",
                                   "line_->text().contains(word)",
                                   "// error.text().find(x)",
                                   "error.is_at(file)"}) {
        EXPECT_FALSE(searches(line)) << line;
    }
}

}  // namespace texts_test
