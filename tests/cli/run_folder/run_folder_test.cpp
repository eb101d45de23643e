#include "cli/run_folder/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include <gmock/gmock.h>

#include "cli/command_line.h"
#include "core/base/error.h"
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
    { const RunFolder run(folder(), RunFolder::Old::Removed); }
    EXPECT_FALSE(std::filesystem::exists(folder() / "metrics.jsonl"));
    EXPECT_TRUE(std::filesystem::exists(folder() / "notes.txt"));
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
