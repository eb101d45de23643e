// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/tour/tour.h"
#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace demo_test {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Demo : public InFolder {
  protected:
    Outcome demo(const std::vector<std::string>& more) const {
        return pipetwin(joined({"demo", "--out", path("tour here")}, more));
    }
    /// A file of the tour.
    std::filesystem::path of_tour(std::string_view name) const {
        return folder() / "tour here" / "tour" / name;
    }
    /// Trains a small model where step 4 would have, and counts that step as done.
    void train_small_model() const {
        const std::string scenario = file("small.toml", small_scenario);
        const std::string costs = file("small.csv", small_profile);
        const Outcome run =
            pipetwin({"run", scenario, "--profile", costs, "--out", path("tour here")});
        ASSERT_EQ(run.code, 0) << run.err;
        std::filesystem::create_directory(of_tour(""));
        file("tour here/tour/4-train.txt", "$ pipetwin run small.toml\n");
    }
};

TEST_F(Demo, ListsItsStepsAndWritesNothing) {
    const Outcome outcome = demo({"--list"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("  1  next  One schedule as a picture\n"));
    EXPECT_THAT(outcome.out, HasSubstr("  7        The window\n"));
    EXPECT_FALSE(std::filesystem::exists(folder() / "tour here"));
}

TEST_F(Demo, ShowsCommandsAsTypedAndWhatTheyPrint) {
    const Outcome outcome = demo({"--to", "1"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, StartsWith("Step 1 of 7: One schedule as a picture\n"));
    EXPECT_THAT(outcome.out,
                HasSubstr("\n$ pipetwin simulate --schedule gpipe --stages 4 --micro-batches 8 "
                          "--forward-ms 1 --backward-ms 2 --out '" +
                          of_tour("1-gpipe").string() + "'\n"));
    // GPipe's bubble is (K - 1) / (K - 1 + M), here 3/11.
    EXPECT_THAT(outcome.out, HasSubstr("total                     27.27 %"));
    EXPECT_THAT(content_of(of_tour("1-gpipe.svg")), HasSubstr("<svg"));
    const std::string text = content_of(of_tour("1-schedule.txt"));
    EXPECT_THAT(text, StartsWith("$ pipetwin simulate"));
    EXPECT_THAT(outcome.out, HasSubstr(text.substr(text.find("gpipe, 4 stages"), 400)));
}

TEST_F(Demo, GoesOnAtTheFirstStepThatIsNotDone) {
    ASSERT_EQ(demo({"--to", "1"}).code, 0);
    const Outcome second = demo({"--to", "2"});
    ASSERT_EQ(second.code, 0) << second.err;
    EXPECT_THAT(second.out, StartsWith("Step 2 of 7"));
    EXPECT_THAT(second.out, Not(HasSubstr("--force")));
    EXPECT_THAT(content_of(of_tour("2-side-by-side.csv")), HasSubstr("gpipe"));
    // Interleaving divides fill and drain by its two chunks: 8 x 3 ms + 3 x 3 ms / 2.
    EXPECT_THAT(content_of(of_tour("2-side-by-side.txt")), HasSubstr("28.500 ms"));
    EXPECT_THAT(demo({"--list"}).out, HasSubstr("  2  done  "));
    EXPECT_THAT(demo({"--list"}).out, HasSubstr("  3  next  "));
    const Outcome again = demo({"--to", "2"});
    EXPECT_EQ(again.code, 2);
    EXPECT_THAT(again.err, HasSubstr("step 2 comes before step 3"));
}

TEST_F(Demo, DoesAStepAgainOnlyWhereItIsAskedFor) {
    ASSERT_EQ(demo({"--to", "2"}).code, 0);
    const Outcome first = demo({"--from", "1", "--to", "1"});
    ASSERT_EQ(first.code, 0) << first.err;
    EXPECT_THAT(first.out, HasSubstr("--force\n"));
    // What follows from an earlier step is done again as well.
    EXPECT_THAT(demo({"--list"}).out, HasSubstr("  2  next  "));
}

TEST_F(Demo, AStepThatFailedIsDoneAgain) {
    std::filesystem::create_directories(of_tour(""));
    file("tour here/tour/1-gpipe.svg", "<svg>of somebody else's</svg>\n");
    const Outcome refused = demo({"--to", "1"});
    EXPECT_EQ(refused.code, 6);  // as of the command that failed
    EXPECT_THAT(refused.err, HasSubstr("the tour stopped in step 1 of 7; continue with"));
    EXPECT_THAT(demo({"--list"}).out, HasSubstr("  1  next  "));
    EXPECT_EQ(demo({"--to", "1"}).code, 0);  // the step was begun: its files are its own
}

TEST_F(Demo, StepsThatShowTheRunNeedIt) {
    const Outcome outcome = demo({"--from", "5"});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("step 5: it shows the results of step 4"));
    EXPECT_THAT(outcome.err, HasSubstr("pipetwin demo --from 4 --out"));
    for (const char* const number : {"0", "8", "-1"}) {
        EXPECT_EQ(demo({"--from", number}).code, 2) << number;
        EXPECT_EQ(demo({"--to", number}).code, 2) << number;
    }
}

TEST_F(Demo, ComparesAndReportsTheRun) {
    ASSERT_NO_FATAL_FAILURE(train_small_model());
    const Outcome outcome = demo({"--from", "5"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("\n$ pipetwin compare "));
    EXPECT_THAT(outcome.out, HasSubstr("\n$ xdg-open '" + path("tour here/report.html")));
    EXPECT_THAT(outcome.out, HasSubstr("\n$ pipetwin view "));
    const std::string page = content_of(of_tour("index.html"));
    EXPECT_THAT(page, HasSubstr("<img src=\"5-predicted.svg\""));
    EXPECT_THAT(page, HasSubstr("href=\"../report.html\""));
    EXPECT_TRUE(std::filesystem::exists(of_tour("") / "../report.html"));
    EXPECT_THAT(page, Not(HasSubstr("1. One schedule")));  // which was not done
}

TEST_F(Demo, SaysWhatToDoOnceEverythingIsDone) {
    ASSERT_NO_FATAL_FAILURE(train_small_model());
    for (const char* const name : {"1-schedule.txt", "2-side-by-side.txt", "3-plan.txt"}) {
        file(std::string("tour here/tour/") + name, "$ pipetwin ...\n");
    }
    ASSERT_EQ(demo({}).code, 0);
    const Outcome all = demo({});
    EXPECT_EQ(all.code, 0);
    EXPECT_THAT(all.out, StartsWith("Every step of the tour"));
    EXPECT_THAT(all.out, HasSubstr("Repeat the tour with: pipetwin demo --from 1 --out"));
    EXPECT_THAT(demo({"--force", "--to", "1"}).out, StartsWith("Step 1 of 7"));
}

TEST_F(Demo, JsonIsOneObjectWithEveryStep) {
    const nlohmann::json json = demo({"--json", "--to", "1"}).json();
    ASSERT_EQ(json["steps"].size(), 7);
    EXPECT_EQ(json["steps"][0]["done"], true);
    EXPECT_EQ(json["steps"][1]["done"], false);
    EXPECT_EQ(json["steps"][0]["files"][0], of_tour("1-gpipe.svg").string());
}

TEST_F(Demo, TheTrainingOfStepFourRuns) {
    std::vector<std::string> words = tour_steps(folder() / "run")[3].commands.front();
    ASSERT_EQ(words.front(), "run");
    for (const char* const smaller : {"model.layers=1",
                                      "model.d_model=8",
                                      "model.heads=1",
                                      "model.context=8",
                                      "training.batch=8",
                                      "training.steps=2"}) {
        words.insert(words.end(), {"--set", smaller});
    }
    const Outcome outcome = pipetwin(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(std::filesystem::exists(folder() / "run" / "report.html"));
}

TEST(Tour, EveryCommandIsOneThatTheProgramKnows) {
    for (const TourStep& step : tour_steps("x")) {
        EXPECT_EQ(std::string(step.why).find('.'), step.why.size() - 1) << step.why;  // a sentence
        for (const CommandWords& words : step.commands) {
            EXPECT_NO_THROW(static_cast<void>(std::get<Command>(parse_options(words))))
                << typed_line(words);
        }
    }
}

TEST(Tour, LinesAreTypedAsAShellNeedsThem) {
    EXPECT_EQ(typed_line({"view", "runs/demo"}), "pipetwin view runs/demo");
    EXPECT_EQ(typed_line({"view", "it's here"}), "pipetwin view 'it'\\''s here'");
    EXPECT_EQ(typed_line({"view", ""}), "pipetwin view ''");
}

TEST(Tour, LongOutputIsFolded) {
    EXPECT_EQ(folded("a\nb\nc\nd\ne\n", {.first = 2, .last = 1}, "x.txt"),
              "a\nb\n  ... not shown: 2 lines; x.txt contains all\ne\n");
    EXPECT_EQ(folded("a\nb\nc\n", {.first = 2, .last = 1}, "x.txt"), "a\nb\nc\n");
    EXPECT_EQ(folded("a\nb", {.first = 1, .last = 0}, "x.txt"),
              "a\n  ... not shown: 1 line; x.txt contains all\n");
    EXPECT_EQ(folded("", {.first = 1, .last = 0}, "x.txt"), "");
    EXPECT_EQ(without_colours("\x1b[1;31mred\x1b[0m, plain"), "red, plain");
}

}  // namespace demo_test
}  // namespace pipetwin::cli
