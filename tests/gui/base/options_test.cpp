// SPDX-License-Identifier: Apache-2.0
#include "gui/base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipetwin::gui {
namespace options_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Options, NothingIsAWindowWithoutARun) {
    const ParsedOptions parsed = parse_options({});
    EXPECT_FALSE(parsed.end);
    EXPECT_TRUE(parsed.options.runs.empty());
    EXPECT_FALSE(parsed.options.screenshot);
}

TEST(Options, AreAllRead) {
    const ParsedOptions parsed = parse_options({"runs/1",
                                                "b.json",
                                                "--screenshot",
                                                "a.png",
                                                "--size",
                                                "1920x1080",
                                                "--theme",
                                                "dark",
                                                "--replica",
                                                "1"});
    ASSERT_FALSE(parsed.end);
    EXPECT_THAT(parsed.options.runs, ElementsAre("runs/1", "b.json"));
    EXPECT_EQ(parsed.options.screenshot, "a.png");
    EXPECT_EQ(parsed.options.width, 1920);
    EXPECT_EQ(parsed.options.height, 1080);
    EXPECT_EQ(parsed.options.theme, Theme::Dark);
    EXPECT_EQ(parsed.options.replica, 1);
}

TEST(Options, HelpEndsWellAndNamesEveryOption) {
    const ParsedOptions parsed = parse_options({"--help"});
    ASSERT_TRUE(parsed.end);
    EXPECT_EQ(parsed.end->exit_code, 0);
    for (const char* const option :
         {"RUN or FILE", "--screenshot", "--size", "--theme", "--view", "--replica"}) {
        EXPECT_THAT(parsed.end->text, HasSubstr(option));
    }
    for (const std::string& view : view_names()) {
        EXPECT_THAT(parsed.end->text, HasSubstr(view));
    }
}

class BadSize : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(
    Options,
    BadSize,
    ::testing::Values(
        "", "1920", "1920x", "x1080", "1920x1080x3", "0x500", "-5x500", "1e9x400", "99999x400"));

TEST_P(BadSize, IsAUsageErrorThatSaysWhatWasExpected) {
    const ParsedOptions parsed = parse_options({"--size", GetParam()});
    ASSERT_TRUE(parsed.end);
    EXPECT_EQ(parsed.end->exit_code, 2);
}

TEST(Options, WrongOnesAreUsageErrors) {
    for (const auto& arguments : std::vector<std::vector<std::string>>{{"--theme", "pink"},
                                                                       {"--view", "nothing"},
                                                                       {"--nonsense"},
                                                                       {"--replica", "-1"},

                                                                       {"--screenshot"}}) {
        const ParsedOptions parsed = parse_options(arguments);
        ASSERT_TRUE(parsed.end) << arguments.front();
        EXPECT_EQ(parsed.end->exit_code, 2) << arguments.front();
        EXPECT_FALSE(parsed.end->text.empty());
    }
}

// As `pipetwin` says it: the option, what stands there, what was expected, one thing to do.
TEST(Options, WrongOnesAreToldInFull) {
    struct Case {
        std::vector<std::string> arguments;
        std::string text;
    };
    for (const Case& one : std::vector<Case>{
             {{"--hlep"},
              "error: pipetwin-gui: unknown option '--hlep'\nhint: did you mean '--help'?\n"},
             {{"--theme", "drak"},
              "error: --theme: 'drak', expected one of light, dark, high-contrast, print\n"
              "hint: did you mean 'dark'?\n"},
             {{"--replica", "-1"},
              "error: --replica: '-1', expected a whole number of zero or more\n"
              "hint: pipetwin-gui --help lists the options\n"},
             {{"--size", "12"},
              "error: --size: '12', expected WIDTHxHEIGHT from 200 to 16384, such as 1920x1080\n"
              "hint: write it as in --size 1280x720\n"},
             {{"x.csv", "--screenshot", "a/z.jpg"},
              "error: --screenshot: 'a/z.jpg' ends in .jpg, but the picture is a PNG\n"
              "hint: name it a/z.png\n"},
             {{"--screenshot"},
              "error: --screenshot: no value given, expected the name of a file\n"
              "hint: pipetwin-gui --help lists the options\n"}}) {
        const ParsedOptions parsed = parse_options(one.arguments);
        ASSERT_TRUE(parsed.end) << one.text;
        EXPECT_EQ(parsed.end->text, one.text);
    }
    for (const char* const name : {"z.png", "z.PNG", "z", "/dev/null"}) {
        EXPECT_FALSE(parse_options({"--screenshot", name}).end) << name;
    }
    const ParsedOptions view = parse_options({"--view", "timelin"});
    ASSERT_TRUE(view.end);
    EXPECT_THAT(view.end->text, HasSubstr("did you mean 'timeline'?"));
}

/// The window opened with 1280 x 800 on a screen of 1280 x 720.
TEST(Options, TheWindowOpensNoLargerThanTheScreen) {
    Options options;
    EXPECT_EQ(first_size(options, QSize(1280, 690)), QSize(1280, 690));
    EXPECT_EQ(first_size(options, QSize(2560, 1400)), QSize(1280, 800));
    options.screenshot = "a.png";
    EXPECT_EQ(first_size(options, QSize(800, 600)), QSize(1280, 800));
}

}  // namespace options_test
}  // namespace pipetwin::gui
