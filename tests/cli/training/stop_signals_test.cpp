// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <gmock/gmock.h>

#include "cli/base/stop_signal.h"
#include "cli/run_folder/run_folder.h"
#include "tests/cli/support.h"
#include "tests/support/places.h"

namespace pipetwin::cli {
namespace stop_signals_test {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class StopSignals : public InFolder {
  protected:
    const std::string program = places::program_folder() + "/pipetwin";

    /// What nohup, or a shell behind `&`, has ignored would stay ignored in each training.
    void SetUp() override {
        std::signal(SIGHUP, SIG_DFL);
        std::signal(SIGINT, SIG_DFL);
    }

    /// A training of more steps than any test waits for.
    std::vector<std::string> train(const std::string& run,
                                   const std::vector<std::string>& more = {}) const {
        return joined({"train",
                       file("small.toml", small_scenario),
                       "--profile",
                       file("small.csv", small_profile),
                       "--out",
                       path(run),
                       "--set",
                       "training.steps=10000000"},
                      more);
    }

    std::filesystem::path metrics(const std::string& run) const {
        return folder() / run / run_file::metrics;
    }

    /// The steps of the newest checkpoint; -1 where there is none.
    int steps_of_checkpoint(const std::string& run) const {
        int steps = -1;
        std::error_code ignored;
        for (const auto& entry :
             std::filesystem::directory_iterator(folder() / run / run_file::checkpoints, ignored)) {
            const std::string name = entry.path().filename().string();
            steps = std::max(steps, std::stoi(name.substr(name.find('-') + 1)));
        }
        return steps;
    }

    /// It ended after a step, with a line of metrics for each step that the checkpoint holds.
    void expect_whole(const std::string& run) const {
        const std::string lines = content_of(metrics(run));
        EXPECT_EQ(steps_of_checkpoint(run), std::ranges::count(lines, '\n'));
        EXPECT_TRUE(std::filesystem::exists(folder() / run / run_file::report_html));
        EXPECT_TRUE(std::filesystem::exists(folder() / run / run_file::measured));
    }
};

TEST_F(StopSignals, EachLetsTheStepEndAndWritesACheckpoint) {
    for (const auto& [signal, name] : {std::pair(SIGINT, "SIGINT"),
                                       std::pair(SIGTERM, "SIGTERM"),
                                       std::pair(SIGHUP, "SIGHUP"),
                                       std::pair(SIGPIPE, "SIGPIPE")}) {
        const std::string run = name;
        Child child(train(run), path(run));
        ASSERT_TRUE(has_lines(metrics(run), 3));
        kill(child.id(), signal);
        const Outcome outcome = child.end();
        EXPECT_EQ(outcome.code, 128 + signal) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(std::string("stopped by ") + name));
        expect_whole(run);
    }
}

// A closed terminal sends SIGHUP twice, once from the shell; the system's end sends both of them.
TEST_F(StopSignals, HangupsThatComeAgainCostNoCheckpoint) {
    Child child(train("run"), path("run"));
    ASSERT_TRUE(has_lines(metrics("run"), 3));
    for (const int signal : {SIGHUP, SIGHUP, SIGTERM, SIGHUP}) {
        kill(child.id(), signal);
    }
    // Which of them comes first is the system's choice: each thread may take one.
    EXPECT_THAT(child.end().code, AnyOf(128 + SIGHUP, 128 + SIGTERM));
    expect_whole("run");
}

TEST_F(StopSignals, WhoAsksTwiceIsObeyedAtOnce) {
    // The first step lasts minutes: nothing but the second signal ends it.
    const std::string slow =
        file("slow.csv",
             "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n"
             "linear0,60000,60000,64,160,576\nlinear1,1,2,0,100,272\n");
    std::vector<std::string> words = train("run", {"--set", "cluster.backend=paced"});
    *std::ranges::find(words, path("small.csv")) = slow;
    Child child(words, path("run"));
    for (int i = 0; i < 10'000 && !std::filesystem::exists(metrics("run")); ++i) {
        usleep(1000);
    }
    ASSERT_TRUE(std::filesystem::exists(metrics("run")));
    usleep(100'000);
    kill(child.id(), SIGTERM);
    usleep(100'000);
    kill(child.id(), SIGTERM);
    EXPECT_EQ(child.end().code, 128 + SIGTERM);
    EXPECT_EQ(steps_of_checkpoint("run"), -1);
}

/// `train | head -1`
TEST_F(StopSignals, AReaderThatLeavesStopsTheTraining) {
    std::string command = "exec 3>&1; ( '" + program + "'";
    for (const std::string& word : train("run")) {
        command += " '" + word + "'";
    }
    command += " 2>'" + path("err") + "'; echo $? >&3 ) 3>'" + path("code") + "' | head -1 >'" +
               path("out") + "'";
    ASSERT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(content_of(path("code")), "141\n");
    EXPECT_THAT(content_of(path("out")), HasSubstr("step     0"));
    EXPECT_THAT(content_of(path("err")), HasSubstr("stopped by SIGPIPE"));
    expect_whole("run");
}

TEST_F(StopSignals, WhatWasToBeIgnoredStaysIgnored) {
    const auto old = std::signal(SIGHUP, SIG_IGN);  // as nohup does
    {
        const StopSignal stop;
        std::raise(SIGHUP);
        EXPECT_EQ(StopSignal::received(), 0);
    }
    std::signal(SIGHUP, old);
}

TEST_F(StopSignals, ALimitOnTheSizeOfFilesIsAnErrorAndNoSignal) {
    const std::string command = "ulimit -f 1; exec '" + program + "' simulate '" +
                                file("small.toml", small_scenario) + "' --profile '" +
                                file("small.csv", small_profile) + "' --out '" + path("planned") +
                                "' >/dev/null 2>'" + path("err") + "'";
    const int status = std::system(("sh -c \"" + command + "\"").c_str());
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 6) << content_of(path("err"));
    EXPECT_THAT(content_of(path("err")), HasSubstr("File too large"));
}

}  // namespace stop_signals_test
}  // namespace pipetwin::cli
