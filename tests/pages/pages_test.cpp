// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/pages/example.h"
#include "tests/support/places.h"
#include "tests/support/scratch_folder.h"

// Every example of README and docs is run as a reader would type it, and prints what the page says.

namespace page_examples_test {

using namespace pipetwin;
using pages::Example;
using testing::ElementsAre;
using testing::IsEmpty;
namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
}

/// The pages whose examples are run, as paths from the root of the source.
std::vector<std::string> pages_to_run() {
    const fs::path root = places::source_folder();
    std::vector<std::string> found = {"README.md"};
    for (const auto& entry : fs::recursive_directory_iterator(root / "docs")) {
        const std::string page = fs::relative(entry.path(), root).string();
        if (entry.path().extension() == ".md" && !page.starts_with("docs/internals/")) {
            found.push_back(page);
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

/// The folder in which a page's examples run, one after the other: empty but for links to what a
/// checkout has.
class PageExamples : public testing::TestWithParam<std::string> {
  protected:
    PageExamples() {
        const fs::path root = places::source_folder();
        for (const char* name : {"scenarios", "profiles", "tools"}) {
            fs::create_directory_symlink(root / name, folder_ / name);
        }
    }

    /// Runs commands with bash and returns their exit code. What they print is in `printed()`.
    int run(const std::string& commands) {
        folder_.write(".commands", "set -e\n" + commands);
        const std::string line =
            "cd '" + folder_.path().string() + "' && PATH='" + places::program_folder() +
            "':\"$PATH\" COLUMNS=100 TERM=dumb SOURCE='" + places::source_folder() +
            "' timeout 300 bash .commands >.printed 2>&1 </dev/null";
        const int status = std::system(line.c_str());
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }

    /// What was printed, without lines of progress: a terminal takes these away again.
    std::string printed() const {
        static const std::regex progress("(^|\n)[a-z][a-zA-Z0-9 -]*: [0-9]+ %[^\n]*(?=\n)");
        return std::regex_replace(text_of(folder_ / ".printed"), progress, "");
    }

  private:
    tests::ScratchFolder folder_;
};

/// The commands with more options behind the last one.
std::string with_more(std::string commands, const std::string& options) {
    if (options.empty()) {
        return commands;
    }
    commands.erase(commands.find_last_not_of('\n') + 1);
    return commands + " " + options + "\n";
}

TEST_P(PageExamples, PrintWhatThePageSays) {
    const std::string page = GetParam();
    for (const Example& example :
         pages::examples_of(text_of(fs::path(places::source_folder()) / page))) {
        if (!example.not_run.empty()) {
            continue;
        }
        const std::string place = page + ":" + std::to_string(example.line);
        if (!example.needs.empty() && run(example.needs) != 0) {
            std::cout << place << " is left out, as this fails: " << example.needs << "\n";
            continue;
        }
        ASSERT_EQ(run(example.before), 0) << place << ": " << example.before << printed();
        const int code = run(with_more(example.commands, example.append));
        EXPECT_EQ(code, example.exit_code) << place << ":\n" << example.commands << printed();
        if (example.output) {
            const auto shown = [&example](const std::string& text) {
                return example.is_measured ? pages::without_measurements(text) : text;
            };
            const auto difference =
                pages::first_difference(shown(*example.output), shown(printed()));
            EXPECT_FALSE(difference.has_value())
                << place << ": the page has this line where other text was printed:\n"
                << *difference << "\nPrinted:\n"
                << printed();
        }
    }
}

/// "docs/cli.md" as a part of a test's name.
std::string name_of(const testing::TestParamInfo<std::string>& page) {
    std::string name = page.param;
    std::replace_if(
        name.begin(), name.end(), [](unsigned char sign) { return std::isalnum(sign) == 0; }, '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(All, PageExamples, testing::ValuesIn(pages_to_run()), name_of);

TEST(Pages, EveryCommandIsAnExample) {
    for (const std::string& page : pages_to_run()) {
        EXPECT_THAT(
            pages::commands_beside_examples(text_of(fs::path(places::source_folder()) / page)),
            IsEmpty())
            << page << ": put these into ```sh blocks";
    }
}

TEST(Pages, EveryExampleOfATutorialIsRun) {
    for (const std::string& page : pages_to_run()) {
        for (const Example& example :
             pages::examples_of(text_of(fs::path(places::source_folder()) / page))) {
            EXPECT_TRUE(example.not_run.empty() || !page.starts_with("docs/tutorials/") ||
                        page.ends_with("cluster.md"))
                << page << ":" << example.line;
        }
    }
}

// --- The convention itself. ---

TEST(PageExample, HasItsDirectivesAndItsOutput) {
    const auto examples = pages::examples_of(
        "Text\n\n<!-- example: before\ntouch a\n-->\n<!-- example: exit code 4 -->\n"
        "```sh\npipetwin check a\n```\n\n```text\nbad\n```\n\n```sh\ntrue\n```\nText\n");
    ASSERT_EQ(examples.size(), 2U);
    EXPECT_EQ(examples[0].line, 7);
    EXPECT_EQ(examples[0].before, "touch a\n");
    EXPECT_EQ(examples[0].exit_code, 4);
    EXPECT_EQ(examples[0].commands, "pipetwin check a\n");
    EXPECT_EQ(examples[0].output, "bad\n");
    EXPECT_EQ(examples[1].output, std::nullopt);
    EXPECT_EQ(examples[1].exit_code, 0);
}

TEST(PageExample, ADirectiveBelongsToAnExample) {
    EXPECT_THROW(pages::examples_of("<!-- example: exit code 4 -->\nText\n"), std::runtime_error);
    EXPECT_THROW(pages::examples_of("<!-- example: maybe -->\n```sh\n```\n"), std::runtime_error);
}

TEST(PageExample, ACommandInAnotherBlockIsFound) {
    EXPECT_THAT(pages::commands_beside_examples("    pipetwin help\n```sh\npipetwin help\n```\n"
                                                "```\n$ ls\n```\n"),
                ElementsAre("1: pipetwin help", "6: $ ls"));
}

TEST(PageExample, MarksStandForAnyText) {
    EXPECT_EQ(pages::first_difference("a\nb 1\n", "a\nb 1  \n\n"), std::nullopt);
    EXPECT_EQ(pages::first_difference("a\nb … ms\n", "a\nb 17.5 ms\n"), std::nullopt);
    EXPECT_EQ(pages::first_difference("a\n…\nz\n", "a\nb\nc\nz\n"), std::nullopt);
    EXPECT_EQ(pages::first_difference("…\nz\n", "z\ny\nz\n"), std::nullopt);
    EXPECT_EQ(pages::first_difference("a\n…\n", "a\n"), std::nullopt);
    EXPECT_EQ(pages::first_difference("a\n…\nc\nd\n…\nf\n", "a\nc\nc\nd\ne\nf\n"), std::nullopt);
}

TEST(PageExample, NumbersOfAMachineStandForEachOther) {
    EXPECT_EQ(pages::without_measurements("step  487.119 ms  -0.92 %"), "step # # %");
    EXPECT_EQ(pages::without_measurements("step 1.2 s +12.5 %"), "step # # %");
    EXPECT_EQ(pages::without_measurements("1,024 of 3 stages"), "# of # stages");
    EXPECT_EQ(
        pages::without_measurements("measured\nthe measured times of 1 layer vary by more than "
                                    "their median: measure again on a quieter machine\nstep"),
        "measured\nstep");
}

TEST(PageExample, OtherTextIsFound) {
    EXPECT_EQ(pages::first_difference("a\nb\n", "a\nc\n"), "b");
    EXPECT_EQ(pages::first_difference("a\nb … ms\n", "a\nb 17.5 us\n"), "b … ms");
    EXPECT_EQ(pages::first_difference("a\n", "a\nb\n"), "(the end)");
    EXPECT_EQ(pages::first_difference("a\nb\n", "a\n"), "b");
    EXPECT_EQ(pages::first_difference("a\n…\nc\n", "a\nb\nc\nd\n"), "(the end)");
    EXPECT_EQ(pages::first_difference("…\nc\nd\n", "c\ne\nc\n"), "d");
}

}  // namespace page_examples_test
