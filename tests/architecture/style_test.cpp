// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/places.h"

// How comments read (docs/internals/style.md): none has a pattern that cannot be understood alone.

namespace style_test {

namespace fs = std::filesystem;

using ::testing::IsEmpty;

constexpr std::array<std::string_view, 6> folders{"core", "sim", "exec", "gui", "cli", "bench"};

bool is_source(const fs::path& path) {
    return path.extension() == ".h" || path.extension() == ".cpp" || path.extension() == ".cu";
}

/// "/// The same ...", which only says something together with the comment before it.
bool begins_dependently(std::string_view line) {
    const std::size_t comment = line.find("/// ");
    if (comment == std::string_view::npos) {
        return false;
    }
    const std::string_view text = line.substr(comment + 4);
    return text.starts_with("The same") || text.starts_with("Of ") || text.starts_with("Those ") ||
           text.starts_with("Whose ");
}

/// "(C17)": a number of a list that no reader has.
bool cites_a_rule(std::string_view line) {
    for (std::size_t at = line.find("(C"); at != std::string_view::npos;
         at = line.find("(C", at + 1)) {
        const std::size_t end = line.find_first_not_of("0123456789", at + 2);
        if (end != std::string_view::npos && end > at + 2 && end <= at + 4 && line[end] == ')') {
            return true;
        }
    }
    return false;
}

/// Whether the first line of a comment begins with what only a comment before it explains: a
/// pronoun, "As ...", "All have ...".
bool begins_with_a_pronoun(std::string_view line) {
    static const std::regex pattern(
        "^\\s*//(/|) (As|All have|None "
        "of|It|They|This|These|Its|Their|Them|Those|There|Neither)\\b.*");
    return std::regex_match(line.begin(), line.end(), pattern);
}

bool is_comment(std::string_view line) {
    const std::size_t begin = line.find_first_not_of(" \t");
    return begin != std::string_view::npos && line.substr(begin).starts_with("//");
}

/// Whether nothing stands below a comment that `line` follows directly: a blank line below a doc
/// comment, or below one inside of a class or function, but for a heading ("--- Name. ---").
bool is_orphaned(std::string_view comment, std::string_view line) {
    const std::size_t begin = comment.find_first_not_of(" \t");
    const bool describes = comment.substr(begin).starts_with("/// ") || begin > 0;
    return describes && comment.find(" ---") == std::string_view::npos &&
           line.find_first_not_of(" \t") == std::string_view::npos;
}

struct Counts {
    int dependent = 0;
    std::string first_dependent{};
    int rules = 0;
    std::string first_rule{};
    std::vector<std::string> pronouns{};
    std::vector<std::string> orphans{};
};

Counts counts_in(const fs::path& folder) {
    Counts counts;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        if (!entry.is_regular_file() || !is_source(entry.path())) {
            continue;
        }
        std::ifstream stream(entry.path());
        std::string before;
        for (std::string line; std::getline(stream, line); before = line) {
            const std::string place = entry.path().string() + ": ";
            if (!is_comment(before) && begins_with_a_pronoun(line)) {
                counts.pronouns.push_back(place + line);
            }
            if (is_comment(before) && is_orphaned(before, line)) {
                counts.orphans.push_back(place + before);
            }
            if (begins_dependently(line)) {
                counts.first_dependent = counts.dependent == 0 ? entry.path().string() + ": " + line
                                                               : counts.first_dependent;
                ++counts.dependent;
            }
            if (cites_a_rule(line)) {
                counts.first_rule =
                    counts.rules == 0 ? entry.path().string() + ": " + line : counts.first_rule;
                ++counts.rules;
            }
        }
    }
    return counts;
}

TEST(Style, DocCommentsCanBeUnderstoodAlone) {
    for (const std::string_view folder : folders) {
        const Counts counts = counts_in(fs::path(pipetwin::places::source_folder()) / folder);
        EXPECT_EQ(counts.dependent, 0)
            << counts.first_dependent << "\n(docs/internals/style.md, rule 1)";
    }
}

TEST(Style, NoCommentBeginsWithAPronoun) {
    for (const std::string_view folder : folders) {
        const Counts counts = counts_in(fs::path(pipetwin::places::source_folder()) / folder);
        EXPECT_THAT(counts.pronouns, IsEmpty()) << "(docs/internals/style.md, rule 1)";
    }
}

TEST(Style, NoCommentStandsAboveNothing) {
    for (const std::string_view folder : folders) {
        const Counts counts = counts_in(fs::path(pipetwin::places::source_folder()) / folder);
        EXPECT_THAT(counts.orphans, IsEmpty());
    }
}

TEST(Style, NoCommentCitesARuleOfAListThatIsNotHere) {
    for (const std::string_view folder : folders) {
        const Counts counts = counts_in(fs::path(pipetwin::places::source_folder()) / folder);
        EXPECT_EQ(counts.rules, 0) << counts.first_rule;
    }
}

/// The alternatives of "exec/layers/gelu.{h,cpp}".
std::vector<std::string> alternatives(const std::string& path) {
    const std::size_t open = path.find('{');
    const std::size_t close = path.find('}', open);
    if (open == std::string::npos || close == std::string::npos) {
        return {path};
    }
    std::vector<std::string> all;
    std::stringstream words(path.substr(open + 1, close - open - 1));
    for (std::string word; std::getline(words, word, ',');) {
        all.push_back(path.substr(0, open) + word + path.substr(close + 1));
    }
    return all;
}

/// Whether a path of the source tree is there, or a header or source whose ending is left out.
bool is_there(const fs::path& path) {
    return fs::exists(path) || fs::exists(fs::path(path).concat(".h")) ||
           fs::exists(fs::path(path).concat(".cpp"));
}

TEST(Style, DocsNamePathsThatExist) {
    const fs::path root = pipetwin::places::source_folder();
    const std::regex quoted(
        "`((?:core|sim|exec|gui|cli|tests|bench|tools|scripts|profiles|scenarios)/[^` ]+)`");
    int found = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root / "docs")) {
        if (entry.path().extension() != ".md") {
            continue;
        }
        std::ifstream stream(entry.path());
        const std::string text(std::istreambuf_iterator<char>(stream), {});
        for (std::sregex_iterator match(text.begin(), text.end(), quoted), end; match != end;
             ++match) {
            const std::string named = (*match)[1];
            if (named.find_first_of("*<$(") != std::string::npos) {
                continue;  // a pattern
            }
            for (const std::string& path : alternatives(named)) {
                ++found;
                EXPECT_TRUE(is_there(root / path)) << entry.path().filename() << ": " << path;
            }
        }
    }
    EXPECT_GT(found, 100);
}

/// Whether a file of ours is read as a program: a source, a script, a CMake file.
bool is_program(const fs::path& path) {
    constexpr std::array<std::string_view, 4> scripts{".py", ".mjs", ".cmake", ".sh"};
    const std::string ending = path.extension().string();
    if (is_source(path) || path.filename() == "CMakeLists.txt" ||
        std::ranges::find(scripts, ending) != scripts.end()) {
        return true;
    }
    std::ifstream stream(path);
    std::string start(2, ' ');
    stream.read(start.data(), 2);
    return ending.empty() && start == "#!";
}

/// Whether the first line, or the one below `#!`, names the licence.
bool names_its_licence(const fs::path& path) {
    std::ifstream stream(path);
    std::string line;
    std::getline(stream, line);
    if (line.starts_with("#!")) {
        std::getline(stream, line);
    }
    return line == "// SPDX-License-Identifier: Apache-2.0" ||
           line == "# SPDX-License-Identifier: Apache-2.0";
}

TEST(Style, EverySourceScriptAndCMakeFileNamesItsLicence) {
    const fs::path root = pipetwin::places::source_folder();
    EXPECT_TRUE(names_its_licence(root / "CMakeLists.txt"));
    int found = 0;
    for (const std::string_view folder :
         {"core", "sim", "exec", "gui", "cli", "bench", "tests", "tools", "scripts", ".ci"}) {
        for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
            if (entry.is_regular_file() && is_program(entry.path())) {
                ++found;
                EXPECT_TRUE(names_its_licence(entry.path())) << entry.path();
            }
        }
    }
    EXPECT_GT(found, 1500);
}

std::string text_of(const fs::path& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
}

/// What the first group of `pattern` matches in a file; empty: nothing.
std::string found_in(const fs::path& path, const std::string& pattern) {
    const std::string text = text_of(path);
    std::smatch match;
    return std::regex_search(text, match, std::regex(pattern)) ? match[1].str() : std::string{};
}

TEST(Style, ChangelogAndCitationNameTheVersion) {
    const fs::path root = pipetwin::places::source_folder();
    const std::string version =
        found_in(root / "CMakeLists.txt", R"(project\(pipetwin VERSION ([0-9.]+))");
    ASSERT_FALSE(version.empty());
    EXPECT_EQ(found_in(root / "CHANGELOG.md", R"(\n## ([0-9.]+) - )"), version);
    EXPECT_EQ(found_in(root / "CITATION.cff", R"(\nversion: ([0-9.]+)\n)"), version);
    EXPECT_EQ(found_in(root / "CITATION.cff", R"(\ndate-released: ([0-9-]+)\n)"),
              found_in(root / "CHANGELOG.md", R"(\n## [0-9.]+ - ([0-9-]+)\n)"));
}

TEST(Style, TellsThePatterns) {
    EXPECT_TRUE(begins_dependently("    /// The same without looking."));
    EXPECT_TRUE(begins_dependently("int x;  /// Of a rank."));
    EXPECT_FALSE(begins_dependently("/// Peak bytes of each rank."));
    EXPECT_FALSE(begins_dependently("// Of no doc comment."));
    EXPECT_TRUE(begins_with_a_pronoun("    /// As `integer`, within int."));
    EXPECT_TRUE(begins_with_a_pronoun("// They stand at the end."));
    EXPECT_FALSE(begins_with_a_pronoun("// Assigns it."));
    EXPECT_FALSE(begins_with_a_pronoun("int x;  ///< as Dropout"));
    EXPECT_TRUE(is_orphaned("    // About the step:", ""));
    EXPECT_TRUE(is_orphaned("/// A step.", "   "));
    EXPECT_FALSE(is_orphaned("// --- Between stages. ---", ""));
    EXPECT_FALSE(is_orphaned("/// A step.", "struct Step;"));
    EXPECT_TRUE(cites_a_rule("/// at most one (C17)."));
    EXPECT_FALSE(cites_a_rule("f(Cell, C1);"));
}

}  // namespace style_test
