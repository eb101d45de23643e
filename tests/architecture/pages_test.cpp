// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/places.h"

// The pages hold together: the index names each of them, and every link leads somewhere.

namespace pages_test {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
}

/// The lines of a page outside its fenced blocks.
std::vector<std::string> prose_of(const std::string& page) {
    std::vector<std::string> lines;
    std::istringstream stream(page);
    bool inside = false;
    for (std::string line; std::getline(stream, line);) {
        if (line.starts_with("```")) {
            inside = !inside;
        } else if (!inside) {
            lines.push_back(line);
        }
    }
    return lines;
}

/// The anchor that GitHub gives a heading: lower case, spaces to dashes, other signs left out.
std::string anchor_of(std::string_view heading) {
    std::string anchor;
    for (const char sign : heading) {
        const auto byte = static_cast<unsigned char>(sign);
        if (std::isalnum(byte) != 0 || byte >= 0x80 || sign == '-' || sign == '_') {
            anchor.push_back(static_cast<char>(std::tolower(byte)));
        } else if (sign == ' ') {
            anchor.push_back('-');
        }
    }
    return anchor;
}

/// The anchors of a page: its headings, the second of a name with "-1" behind it, and `<a id>`.
std::set<std::string> anchors_of(const std::string& page) {
    static const std::regex written("<a id=\"([^\"]+)\">");
    std::map<std::string, int> seen;
    std::set<std::string> anchors;
    for (const std::string& line : prose_of(page)) {
        if (line.find("<a id") != std::string::npos) {
            for (std::sregex_iterator match(line.begin(), line.end(), written), end; match != end;
                 ++match) {
                anchors.insert((*match)[1]);
            }
        }
        const std::size_t marks = line.find_first_not_of('#');
        if (marks == 0 || marks == std::string::npos || line[marks] != ' ') {
            continue;
        }
        const std::string anchor = anchor_of(std::string_view(line).substr(marks + 1));
        const int before = seen[anchor]++;
        anchors.insert(before == 0 ? anchor : anchor + "-" + std::to_string(before));
    }
    return anchors;
}

/// The targets of a page's links, code spans left out.
std::vector<std::string> links_of(const std::string& page) {
    static const std::regex code("`[^`]*`");
    static const std::regex link(R"(\]\(([^()\s]+)\))");
    std::vector<std::string> targets;
    for (const std::string& raw : prose_of(page)) {
        if (raw.starts_with("    ") || raw.find("](") == std::string::npos) {
            continue;  // an indented block of code, or a line without links
        }
        const std::string line = std::regex_replace(raw, code, "");
        for (std::sregex_iterator match(line.begin(), line.end(), link), end; match != end;
             ++match) {
            targets.push_back((*match)[1]);
        }
    }
    return targets;
}

/// Every Markdown file of the source tree that is part of the product.
std::vector<fs::path> pages() {
    const fs::path root = pipetwin::places::source_folder();
    std::vector<fs::path> found;
    for (const char* top : {"docs", "profiles", "scenarios"}) {
        for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
            if (entry.path().extension() == ".md") {
                found.push_back(entry.path());
            }
        }
    }
    found.push_back(root / "README.md");
    found.push_back(root / "SECURITY.md");
    return found;
}

TEST(Pages, EveryLinkLeadsToAFileAndAHeading) {
    int followed = 0;
    for (const fs::path& page : pages()) {
        for (const std::string& target : links_of(text_of(page))) {
            if (target.find("://") != std::string::npos) {
                continue;
            }
            const std::size_t mark = target.find('#');
            const std::string path = target.substr(0, mark);
            const fs::path file = path.empty() ? page : page.parent_path() / path;
            ++followed;
            EXPECT_TRUE(fs::exists(file)) << page << ": " << target;
            if (mark != std::string::npos && file.extension() == ".md") {
                EXPECT_TRUE(anchors_of(text_of(file)).contains(target.substr(mark + 1)))
                    << page << ": " << target << " names no heading of that page";
            }
        }
    }
    EXPECT_GT(followed, 150);
}

TEST(Pages, TheIndexNamesEachOfThem) {
    const fs::path docs = fs::path(pipetwin::places::source_folder()) / "docs";
    std::set<fs::path> named;
    for (const std::string& target : links_of(text_of(docs / "README.md"))) {
        named.insert((docs / target).lexically_normal());
    }
    for (const auto& entry : fs::recursive_directory_iterator(docs)) {
        if (entry.path().extension() == ".md" && entry.path() != docs / "README.md") {
            EXPECT_TRUE(named.contains(entry.path())) << entry.path() << " is not in the index";
        }
    }
}

/// The pages that a source file names, as "docs/cli.md" does.
std::vector<std::string> named_pages(const std::string& text) {
    constexpr std::string_view folder = "docs/";
    std::vector<std::string> named;
    for (std::size_t at = text.find(folder); at != std::string::npos;
         at = text.find(folder, at + folder.size())) {
        const std::size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz/-", at);
        const bool is_ours =
            at == 0 || std::string_view("/.-").find(text[at - 1]) == std::string_view::npos;
        if (is_ours && end != std::string::npos && text.compare(end, 3, ".md") == 0) {
            named.push_back(text.substr(at, end - at) + ".md");
        }
    }
    return named;
}

TEST(Pages, SourcesNamePagesThatExist) {
    const fs::path root = pipetwin::places::source_folder();
    int found = 0;
    for (const char* top : {"core", "sim", "exec", "cli", "gui", "tests", "bench", "scripts"}) {
        for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
            if (!entry.is_regular_file()) {
                continue;
            }
            for (const std::string& named : named_pages(text_of(entry.path()))) {
                if (named == "docs/fsdp.md" || named.starts_with("docs/user-guide")) {
                    continue;  // pages of torchtitan and of Megatron
                }
                ++found;
                EXPECT_TRUE(fs::exists(root / named)) << entry.path() << ": " << named;
            }
        }
    }
    EXPECT_GT(found, 20);
}

TEST(Pages, TellsAnchors) {
    EXPECT_EQ(anchor_of("GPipe, Table 1: how large"), "gpipe-table-1-how-large");
    EXPECT_EQ(anchor_of("`kind = \"llama\"`"), "kind--llama");
    EXPECT_EQ(anchors_of("**B.** <a id=\"b\"></a>It"), (std::set<std::string>{"b"}));
    EXPECT_EQ(anchors_of("# A\n## A\n```\n# B\n```\n"), (std::set<std::string>{"a", "a-1"}));
}

}  // namespace pages_test
