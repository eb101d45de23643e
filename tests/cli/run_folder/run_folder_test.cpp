#include "cli/run_folder/run_folder.h"

#include <unistd.h>

#include <gmock/gmock.h>

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
                HasSubstr("another folder has taken the place"));
    std::filesystem::remove(place);
    std::filesystem::rename(folder() / "elsewhere", place);
    EXPECT_NO_THROW(run.expect_still_there());
}

}  // namespace run_folder_test
}  // namespace pipetwin::cli
