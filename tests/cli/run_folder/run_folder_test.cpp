// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder/run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <utility>

#include <gmock/gmock.h>

#include "cli/command_line.h"
#include "core/base/error.h"
#include "core/scenario/scenario.h"
#include "tests/cli/support.h"
#include "tests/support/error_of.h"

namespace pipetwin::cli {
namespace run_folder_test {

using testing::error_of;
using ::testing::HasSubstr;

class RunFolderTest : public InFolder {};

TEST_F(RunFolderTest, IsCreatedWithItsParents) {
    const RunFolder run(folder() / "a" / "b", RunFolder::Old::Refused);
    EXPECT_TRUE(std::filesystem::is_directory(folder() / "a" / "b"));
}

TEST_F(RunFolderTest, SecondHolderIsRefusedNamingTheProcess) {
    const RunFolder first(folder(), RunFolder::Old::Refused);
    const Error error =
        error_of([&] { const RunFolder second(folder(), RunFolder::Old::Removed); });
    EXPECT_EQ(error.kind(), ErrorKind::Io);
    EXPECT_THAT(error.what(), HasSubstr("process " + std::to_string(getpid())));
}

TEST_F(RunFolderTest, LockGoesWithItsHolder) {
    { const RunFolder run(folder(), RunFolder::Old::Refused); }
    EXPECT_FALSE(std::filesystem::exists(folder() / "lock"));
    EXPECT_NO_THROW(RunFolder(folder(), RunFolder::Old::Refused));
}

TEST_F(RunFolderTest, LockFileOfADeadProcessIsNoObstacle) {
    file("lock", "999999999\n");
    EXPECT_NO_THROW(RunFolder(folder(), RunFolder::Old::Refused));
}

TEST_F(RunFolderTest, UsedFolderIsRefusedUnlessForced) {
    file("metrics.jsonl", "{}\n");
    file("notes.txt", "mine");
    const Error error = error_of([&] { const RunFolder run(folder(), RunFolder::Old::Refused); });
    EXPECT_EQ(error.kind(), ErrorKind::Io);
    EXPECT_THAT(error.what(), HasSubstr("--force"));
    EXPECT_TRUE(std::filesystem::exists(folder() / "metrics.jsonl"));
    {
        RunFolder run(folder(), RunFolder::Old::Removed);
        run.begin();
    }
    EXPECT_FALSE(std::filesystem::exists(folder() / "metrics.jsonl"));
    EXPECT_TRUE(std::filesystem::exists(folder() / "notes.txt"));
}

TEST_F(RunFolderTest, ThatNeverBeginsLeavesEverythingAsItWas) {
    {
        RunFolder run(folder() / "a" / "b", RunFolder::Old::Refused);
        run.write("plan.json", "{}");
    }
    EXPECT_FALSE(std::filesystem::exists(folder() / "a"));
    file("metrics.jsonl", "{}\n");
    {
        RunFolder run(folder(), RunFolder::Old::Removed);
        run.write("plan.json", "{}");
    }
    EXPECT_TRUE(std::filesystem::exists(folder() / "metrics.jsonl"));
    EXPECT_FALSE(std::filesystem::exists(folder() / "plan.json"));
    EXPECT_FALSE(std::filesystem::exists(folder() / "lock"));
    EXPECT_THROW(RunFolder(folder(), RunFolder::Old::Refused), Error);
    EXPECT_FALSE(std::filesystem::exists(folder() / "lock"));
}

// A refused command left a folder with the scenario, and the next one was refused for that.
TEST_F(RunFolderTest, WhatARefusedCommandHasLeftIsTakenOver) {
    const Scenario scenario = parse_scenario(small_scenario, path("small.toml"), {});
    file("scenario.toml", print_scenario(scenario));
    file("profile.json", "{}");
    file("lock", "999999999\n");
    RunFolder run(folder(), RunFolder::Old::Refused);
    run.write("scenario.toml", "new");
    run.begin();
    EXPECT_EQ(content_of(folder() / "scenario.toml"), "new");
}

TEST_F(RunFolderTest, AScenarioThatTheUserWroteIsNotOverwritten) {
    file("scenario.toml", "# mine\n" + std::string(small_scenario));
    const Error error = error_of([&] { const RunFolder run(folder(), RunFolder::Old::Refused); });
    EXPECT_THAT(error.what(), HasSubstr("holds a run already (scenario.toml)"));
}

TEST_F(RunFolderTest, ANameIsFreeWhereOnlyLeftoversHaveIt) {
    const std::filesystem::path old = std::filesystem::current_path();
    std::filesystem::current_path(folder());
    EXPECT_EQ(unused_run_folder("x"), "runs/x-1");
    std::filesystem::create_directories("runs/x-1");
    EXPECT_EQ(unused_run_folder("x"), "runs/x-1");
    file("runs/x-1/lock", "999999999\n");
    EXPECT_EQ(unused_run_folder("x"), "runs/x-1");
    {
        const RunFolder held("runs/x-1", RunFolder::Old::Refused);
        EXPECT_EQ(unused_run_folder("x"), "runs/x-2");
    }
    std::filesystem::create_directories("runs/x-1");
    file("runs/x-1/notes.txt", "mine");
    EXPECT_EQ(unused_run_folder("x"), "runs/x-2");
    std::filesystem::current_path(old);
}

TEST_F(RunFolderTest, ProfileAloneDoesNotMakeAFolderUsed) {
    file("profile.json", "{}");
    EXPECT_NO_THROW(RunFolder(folder(), RunFolder::Old::Refused));
    EXPECT_TRUE(std::filesystem::exists(folder() / "profile.json"));
}

/// Every file of a run, as a link to a file outside, dangling, a second name of one, and a FIFO.
TEST_F(RunFolderTest, NoFileOfARunIsWrittenThroughALinkOutOfIt) {
    const std::string run = path("run");
    const std::vector<std::string> names{"scenario.toml",
                                         "plan.json",
                                         "schedule.csv",
                                         "predicted.trace.json",
                                         "measured.trace.json",
                                         "metrics.jsonl",
                                         "live.jsonl",
                                         "report.json",
                                         "report.html"};
    const std::vector<std::string> train{"train",
                                         file("small.toml", small_scenario),
                                         "--profile",
                                         file("small.csv", small_profile),
                                         "--live",
                                         "--out",
                                         run};
    for (const bool resumed : {false, true}) {
        std::filesystem::remove_all(run);
        if (resumed) {  // behind a checkpoint, where old files are not removed
            ASSERT_EQ(pipetwin(joined(train, {"--set", "output.checkpoint_every=2"})).code, 0);
            std::filesystem::remove_all(run + "/checkpoints/step-00000003");
        } else {
            std::filesystem::create_directory(run);
        }
        for (const std::string& name : names) {
            // A run that goes on keeps its scenario, and the lines of its metrics.
            const std::string outside =
                file("outside." + name, content_of(run + "/" + name) + "\n");
            std::filesystem::remove(run + "/" + name);
            std::filesystem::create_symlink(outside, run + "/" + name);
        }
        std::map<std::string, std::string> before;
        for (const std::string& name : names) {
            before[name] = content_of(path("outside." + name));
        }
        const Outcome outcome = pipetwin(joined(
            train, {resumed ? "--resume" : "--force", "--set", "output.checkpoint_every=2"}));
        ASSERT_EQ(outcome.code, 0) << outcome.err;
        for (const std::string& name : names) {
            EXPECT_EQ(content_of(path("outside." + name)), before[name]) << name;
        }
    }
}

TEST_F(RunFolderTest, ALockThatIsALinkOrAFifoIsRefusedAndLeftAlone) {
    const std::string outside = file("outside", "mine");
    const std::filesystem::path run = folder() / "run";
    std::filesystem::create_directory(run);
    const std::vector<std::function<void()>> all{
        [&] { std::filesystem::create_symlink(outside, run / "lock"); },
        [&] { std::filesystem::create_symlink("nothing", run / "lock"); },
        [&] { std::filesystem::create_hard_link(outside, run / "lock"); },
        [&] { ASSERT_EQ(mkfifo((run / "lock").c_str(), 0600), 0); },
        [&] { std::filesystem::create_directory(run / "lock"); }};
    for (const auto& make : all) {
        make();
        const Error error = error_of([&] { const RunFolder held(run, RunFolder::Old::Refused); });
        EXPECT_EQ(error.kind(), ErrorKind::Io);
        EXPECT_EQ(error.place(), (run / "lock").string());
        EXPECT_NE(error.hint(), "");
        std::filesystem::remove_all(run / "lock");
    }
    EXPECT_EQ(content_of(outside), "mine");
    EXPECT_FALSE(std::filesystem::exists(run / "nothing"));
}

TEST_F(RunFolderTest, AFolderOfARunThatIsALinkIsRefused) {
    std::filesystem::create_directory(folder() / "elsewhere");
    for (const char* const name : {"checkpoints", "flight"}) {
        const std::filesystem::path run = folder() / "run";
        std::filesystem::create_directory(run);
        file("run/scenario.toml", small_scenario);  // of a run to go on
        std::filesystem::create_directory_symlink("../elsewhere", run / name);
        const Error error = error_of([&] { const RunFolder held(run, RunFolder::Old::GoesOn); });
        EXPECT_EQ(error.kind(), ErrorKind::Io);
        EXPECT_EQ(error.place(), (run / name).string());
        std::filesystem::remove_all(run);
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder() / "elsewhere"));
}

/// A folder that the user names may be a link: people have their runs on another disk.
TEST_F(RunFolderTest, TheRunFolderItselfMayBeALink) {
    std::filesystem::create_directory(folder() / "disk");
    std::filesystem::create_directory_symlink("disk", folder() / "run");
    { const RunFolder run(folder() / "run", RunFolder::Old::Refused); }
    EXPECT_TRUE(std::filesystem::is_symlink(folder() / "run"));
}

TEST_F(RunFolderTest, FolderWithoutWritePermissionIsRefused) {
    if (geteuid() == 0) {
        GTEST_SKIP() << "root may write everywhere";
    }
    std::filesystem::permissions(
        folder(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    EXPECT_EQ(error_of([&] { const RunFolder run(folder(), RunFolder::Old::Refused); }).kind(),
              ErrorKind::Io);
    std::filesystem::permissions(folder(), std::filesystem::perms::owner_all);
}

TEST_F(RunFolderTest, AFolderThatIsRemovedOrReplacedIsNoticed) {
    const std::filesystem::path place = folder() / "run";
    const RunFolder run(place, RunFolder::Old::Refused);
    EXPECT_NO_THROW(run.expect_still_there());
    std::filesystem::rename(place, folder() / "elsewhere");
    const Error removed = error_of([&] { run.expect_still_there(); });
    EXPECT_EQ(removed.kind(), ErrorKind::Io);
    EXPECT_THAT(removed.what(), HasSubstr("has been removed or renamed"));
    std::filesystem::create_directory(place);
    EXPECT_THAT(error_of([&] { run.expect_still_there(); }).what(),
                HasSubstr("another folder replaced the run folder"));
    std::filesystem::remove(place);
    std::filesystem::rename(folder() / "elsewhere", place);
    EXPECT_NO_THROW(run.expect_still_there());
}

/// A stdout that removes a folder when the first line comes.
class RemovalOnFirstLine : public std::stringbuf {
  public:
    explicit RemovalOnFirstLine(std::filesystem::path folder) : folder_(std::move(folder)) {}

  protected:
    int sync() override {
        std::filesystem::remove_all(folder_);
        return 0;
    }

  private:
    std::filesystem::path folder_;
};

// It trained on to the end, and wrote metrics into a file that had no name any more.
TEST_F(RunFolderTest, ATrainingNoticesAtItsNextStepThatItsFolderIsGone) {
    const std::string profile = file("costs.csv", small_profile);
    RemovalOnFirstLine buffer(folder() / "run");
    std::ostream out(&buffer);
    std::ostringstream err;
    const int code = run_command_line(
        {"train", file("x.toml", small_scenario), "--profile", profile, "--out", path("run")},
        out,
        err);
    EXPECT_EQ(code, 6) << err.str();
    EXPECT_THAT(err.str(), HasSubstr("has been removed or renamed while the run trained"));
    EXPECT_THAT(err.str(), HasSubstr("hint: "));
    const std::string lines = buffer.str();
    EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1);
}

}  // namespace run_folder_test
}  // namespace pipetwin::cli
