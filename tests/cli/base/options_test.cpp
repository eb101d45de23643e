// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include <gmock/gmock.h>

#include "cli/commands/commands.h"
#include "tests/cli/support.h"
#include "tests/support/places.h"

namespace pipetwin::cli {
namespace options_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::array commands{"run",
                              "simulate",
                              "profile",
                              "model",
                              "plan",
                              "train",
                              "launch",
                              "compare",
                              "check",
                              "import",
                              "export",
                              "devices",
                              "view",
                              "sweep",
                              "calibrate",
                              "translate",
                              "demo",
                              "completion"};

TEST(Help, NamesEveryCommandAndNoneThatIsMissing) {
    const Outcome outcome = pipetwin({"--help"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.err, "");
    for (const char* const command : commands) {
        EXPECT_THAT(outcome.out, HasSubstr(std::string("\n  ") + command + ' '));
    }
    EXPECT_THAT(outcome.out, HasSubstr("Exit codes"));
}

constexpr std::array shared_options{
    "--json", "--out", "--set", "--seed", "--quiet", "--verbose", "--color", "--force"};

/// Shared options that have no effect on a command.
const std::map<std::string, std::vector<std::string>> options_without_effect{
    {"run", {}},
    {"simulate", {}},
    {"sweep", {"--out", "--seed", "--verbose"}},
    {"plan", {"--seed"}},
    {"profile", {"--verbose"}},
    {"model", {"--seed", "--verbose"}},
    {"train", {"--verbose"}},
    {"launch", {"--verbose"}},
    {"compare", {"--set", "--seed", "--verbose"}},
    {"check", {"--seed", "--verbose"}},
    {"import", {"--set", "--seed", "--verbose"}},
    {"export", {"--seed", "--verbose"}},
    {"calibrate", {"--set", "--seed", "--verbose"}},
    {"translate", {"--set", "--seed", "--verbose"}},
    {"devices", {"--set", "--seed", "--verbose"}},
    {"view", {"--json", "--out", "--set", "--seed", "--quiet", "--verbose", "--force"}},
    {"demo", {"--set", "--seed"}},
    {"completion", {"--set", "--seed", "--verbose"}}};

/// The hint is followed: without --out there is no manual.
TEST(Options, AFolderForTheManualIsAskedForInPlaceOfADash) {
    const Outcome manual = pipetwin({"completion", "man", "--out", "-"});
    EXPECT_EQ(manual.code, 2);
    EXPECT_THAT(manual.err, HasSubstr("pipetwin completion man --out man1"));
    const Outcome script = pipetwin({"completion", "bash", "--out", "-"});
    EXPECT_EQ(script.code, 2);
    EXPECT_THAT(script.err, HasSubstr("leave it out, or write --out FILE"));
}

TEST(Help, ListsTheSharedOptionsThatTheCommandUses) {
    for (const auto& [command, without_effect] : options_without_effect) {
        const Outcome outcome = pipetwin({command, "--help"});
        EXPECT_EQ(outcome.code, 0) << command;
        for (const char* const option : shared_options) {
            const bool listed =
                outcome.out.find(std::string("  ") + option + ' ') != std::string::npos;
            EXPECT_EQ(listed, std::ranges::count(without_effect, option) == 0)
                << command << ' ' << option;
        }
    }
}

/// Scripts may pass the shared options to every command; those that would mislead are refused.
TEST(Usage, SharedOptionsWithoutEffectAreAccepted) {
    const auto is_accepted = [](const std::vector<std::string>& args) {
        return std::holds_alternative<Command>(parse_options(args));
    };
    EXPECT_TRUE(is_accepted({"view", "run", "--json", "--quiet", "--force", "--color", "never"}));
    EXPECT_TRUE(is_accepted({"devices", "--verbose"}));
    EXPECT_TRUE(is_accepted({"plan", "x.toml", "--seed", "1"}));
    EXPECT_TRUE(is_accepted({"sweep", "x.toml", "--verbose"}));
}

/// CLI11's own layout has "N:INT in [1 - 4096]" and "Excludes: --verbose" between an option and
/// its text.
TEST(Help, NamesValuesWithoutTheirChecksAndEndsBeforeColumn100) {
    for (const char* const command : commands) {
        const std::string text = pipetwin({command, "--help"}).out;
        EXPECT_THAT(
            text,
            AllOf(
                Not(HasSubstr(":INT")), Not(HasSubstr("NONNEGATIVE")), Not(HasSubstr("Excludes"))))
            << command;
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) {
            EXPECT_LE(line.size(), 100U) << command << ": " << line;
        }
    }
    const std::string quiet = "  --quiet                     Print only the result and errors";
    EXPECT_THAT(pipetwin({"simulate", "--help"}).out, HasSubstr(quiet + " (not with --verbose)\n"));
    EXPECT_THAT(pipetwin({"devices", "--help"}).out, HasSubstr(quiet + '\n'));
    EXPECT_THAT(
        pipetwin({"launch", "--help"}).out,
        HasSubstr("  --ranks N                   Number of processes, one for each device of "
                  "each rank of each replica:\n"
                  "                              pipeline.stages times "
                  "pipeline.data_parallel times\n"
                  "                              pipeline.tensor_parallel (required)\n"));
}

TEST(Help, VersionGoesToStdout) {
    const Outcome outcome = pipetwin({"--version"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.out, ::testing::MatchesRegex("pipetwin [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(Help, HelpAndVersionAreWordsToo) {
    EXPECT_EQ(pipetwin({"help"}).out, pipetwin({"--help"}).out);
    EXPECT_EQ(pipetwin({"help", "check"}).out, pipetwin({"check", "--help"}).out);
    EXPECT_EQ(pipetwin({"version"}).out, pipetwin({"--version"}).out);
    const Outcome unknown = pipetwin({"help", "simulat"});
    EXPECT_EQ(unknown.code, 2);
    EXPECT_THAT(unknown.err, HasSubstr("did you mean 'simulate'?"));
}

TEST(Usage, UnknownCommandNamesTheNearestKnown) {
    const Outcome outcome = pipetwin({"simulat", "x.toml"});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "error: 'simulat' is not a command\nhint: did you mean 'simulate'?\n");
}

TEST(Usage, UnknownOptionNamesTheNearestKnown) {
    const Outcome outcome = pipetwin({"simulate", "--stagess", "4", "--micro-batches", "8"});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.err,
              "error: 'simulate' has no option '--stagess'\nhint: did you mean '--stages'?\n");
}

TEST(Usage, NoCommandAndOptionsBeforeTheCommandAreRefused) {
    EXPECT_EQ(pipetwin({}).code, 2);
    EXPECT_EQ(pipetwin({"--json", "devices"}).code, 2);
}

struct Misuse {
    std::vector<std::string> args;
    std::string says;

    friend void PrintTo(const Misuse& misuse, std::ostream* stream) { *stream << misuse.says; }
};

class UsageErrors : public ::testing::TestWithParam<Misuse> {};

TEST_P(UsageErrors, ExitWithTwoAndSayWhatIsWrong) {
    const Outcome outcome = pipetwin(GetParam().args);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    UsageErrors,
    ::testing::Values(
        Misuse{{"run"}, "scenario"},
        Misuse{{"check"}, "file"},
        Misuse{{"check", "a.csv", "b.csv"}, "'b.csv' is one argument more"},
        Misuse{{"check", "a.csv", "--capacity", "-1"}, "capacity"},
        Misuse{{"check", "a.csv", "--capacity", "many"}, "capacity"},
        Misuse{{"devices", "--quiet", "--verbose"}, "--quiet"},
        Misuse{{"devices", "--color", "red"}, "--color"},
        Misuse{{"devices", "--set", "stages"}, "'stages' is not of the form key=value"},
        Misuse{{"devices", "--set", "=4"}, "'=4' is not of the form key=value"},
        Misuse{{"devices", "--seed", "-1"}, "--seed"},
        Misuse{{"simulate", "--jitter", "5%"}, "did you mean '0.05'?"},
        Misuse{{"import", "hf", "x", "--out", "y", "--efficiency", "50%"}, "did you mean '0.5'?"},
        Misuse{{"import", "hf", "x", "--out", "y", "--efficiency", "nan"},
               "write it as in --efficiency 0.5"},
        Misuse{{"import", "hf", "x", "--out", "y", "--memory-efficiency", "-NaN"},
               "write it as in --memory-efficiency 0.8"},
        Misuse{{"import", "hf", "x", "--out", "y", "--micro-batch-size", "1e3"},
               "write it as in --micro-batch-size 1"},
        Misuse{{"plan", "x", "--tokens", "1T", "--price", "nan"}, "write it as in --price 2.5"},
        Misuse{{"devices", "--out"}, "--out"},
        Misuse{{"devices", "--matrix", "16"}, "--measure"},
        Misuse{{"devices", "--seed", "1"}, "--seed: 'devices' reads no scenario"},
        Misuse{{"demo", "--set", "a.b=1"}, "--set a.b=1: 'demo' reads no scenario"},
        Misuse{{"sweep", "x.toml", "--out", "x"}, "compared plans are not written to a folder"},
        Misuse{{"view", "--seeed", "1"}, "'pipetwin view --help' lists its options"},
        Misuse{{"compare", "a", "b", "--set", "a.b=1"}, "reads no scenario"},
        Misuse{{"view", "--out", "x"}, "'view' writes nothing"},
        Misuse{{"plan", "x.toml", "--heatmap", "x.gif"}, "the picture is an SVG, PDF or PNG"},
        Misuse{{"plan", "x.toml", "--width", "84mm"}, "--heatmap"},
        Misuse{{"model", "x.toml", "--legend"}, "it is for a picture"},
        Misuse{{"model", "x.toml", "--svg", "x.svg", "--width", "84"}, "write the unit: 84mm"},
        Misuse{{"model", "x.toml", "--pdf", "x.svg"}, "the picture is a PDF"},
        Misuse{{"export", "torch-csv", "x.toml", "--out", "x", "--width", "84mm"},
               "it is for svg, pdf and png"},
        Misuse{{"export", "svg", "x.toml", "--out", "x.png"}, "the picture is an SVG"},
        Misuse{{"check", "a.csv", "--set", "a.b=1"}, "'a.csv' is not a scenario"},
        Misuse{{"simulate", "--stages", "2", "--profile", "x"},
               "the costs are on the command line already"},
        Misuse{{"compare", places::source_folder() + "/README.md"}, "no second timeline"},
        Misuse{{"simulate"}, "nothing to simulate"},
        Misuse{{"simulate", "x.toml", "--stages", "4"}, "--set pipeline.stages=4"}));

TEST(ParseOptions, KeepsOverridesInOrderAndPutsTheSeedLast) {
    const Parsed parsed = parse_options({"run",
                                         "x.toml",
                                         "--set",
                                         "training.batch=3",
                                         "--seed",
                                         "7",
                                         "--set",
                                         "pipeline.schedule=a=b"});
    const std::vector<Override>& overrides = std::get<Command>(parsed).common.overrides;
    ASSERT_EQ(overrides.size(), 3U);
    EXPECT_EQ(overrides[0].key, "training.batch");
    EXPECT_EQ(overrides[1].key, "pipeline.schedule");
    EXPECT_EQ(overrides[1].value, "a=b");
    EXPECT_EQ(overrides[2].key, "training.seed");
    EXPECT_EQ(overrides[2].value, "7");
}

TEST(ParseOptions, OneSetTakesOneSetting) {
    const Parsed parsed = parse_options({"simulate", "--set", "a.b=1", "x.toml"});
    EXPECT_EQ(std::get<Command>(parsed).scenario(), "x.toml");
}

TEST(Colour, IsForTerminalsAndCanBeForcedAndForbidden) {
    const std::string escape = "\x1b[";
    const Terminal terminal{.out = true, .err = true};
    EXPECT_THAT(pipetwin({"nonsense"}).err, Not(HasSubstr(escape)));
    EXPECT_THAT(pipetwin({"nonsense"}, terminal).err, HasSubstr(escape));
    EXPECT_THAT(pipetwin({"nonsense"}, {.out = true, .err = true, .no_color = true}).err,
                Not(HasSubstr(escape)));
    EXPECT_THAT(pipetwin({"check", "no-such.csv", "--color", "never"}, terminal).err,
                Not(HasSubstr(escape)));
    EXPECT_THAT(pipetwin({"check", "no-such.csv", "--color", "always"}).err, HasSubstr(escape));
}

}  // namespace options_test
}  // namespace pipetwin::cli
