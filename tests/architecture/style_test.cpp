#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/support/places.h"

// How comments read (docs/style.md): patterns that cannot be understood alone are counted, and the
// counts may only fall. Whoever lowers one writes the lower number here.

namespace style_test {

namespace fs = std::filesystem;

struct Budget {
    std::string_view folder;
    int dependent = 0;  ///< doc comments that begin with "The same", "Of", "Those" or "Whose"
};

constexpr std::array budgets{
    Budget{"core", 6}, Budget{"sim", 10}, Budget{"exec", 24}, Budget{"gui", 0}, Budget{"cli", 0}};

bool is_source(const fs::path& path) {
    return path.extension() == ".h" || path.extension() == ".cpp" || path.extension() == ".cu";
}

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

struct Counts {
    int dependent = 0;
    int rules = 0;
    std::string first_rule{};
};

Counts counts_in(const fs::path& folder) {
    Counts counts;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        if (!entry.is_regular_file() || !is_source(entry.path())) {
            continue;
        }
        std::ifstream stream(entry.path());
        for (std::string line; std::getline(stream, line);) {
            counts.dependent += begins_dependently(line) ? 1 : 0;
            if (cites_a_rule(line)) {
                counts.first_rule =
                    counts.rules == 0 ? entry.path().string() + ": " + line : counts.first_rule;
                ++counts.rules;
            }
        }
    }
    return counts;
}

TEST(Style, DocCommentsThatDependOnTheOneBeforeBecomeFewer) {
    for (const Budget& budget : budgets) {
        const int found =
            counts_in(fs::path(pipetwin::places::source_folder()) / budget.folder).dependent;
        EXPECT_LE(found, budget.dependent)
            << budget.folder
            << ": a comment says by itself what the thing is (docs/style.md, rule 1)";
    }
}

TEST(Style, NoCommentCitesARuleOfAListThatIsNotHere) {
    for (const Budget& budget : budgets) {
        const Counts counts =
            counts_in(fs::path(pipetwin::places::source_folder()) / budget.folder);
        EXPECT_EQ(counts.rules, 0) << counts.first_rule;
    }
}

TEST(Style, TellsThePatterns) {
    EXPECT_TRUE(begins_dependently("    /// The same without looking."));
    EXPECT_TRUE(begins_dependently("int x;  /// Of a rank."));
    EXPECT_FALSE(begins_dependently("/// Peak bytes of each rank."));
    EXPECT_FALSE(begins_dependently("// Of no doc comment."));
    EXPECT_TRUE(cites_a_rule("/// at most one (C17)."));
    EXPECT_FALSE(cites_a_rule("f(Cell, C1);"));
}

}  // namespace style_test
