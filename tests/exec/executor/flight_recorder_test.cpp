// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/flight_recorder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin::exec {
namespace flight_recorder_test {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> lines_of(const std::filesystem::path& file) {
    std::ifstream stream(file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

std::string marked_line(const std::filesystem::path& file) {
    std::string found;
    for (const std::string& line : lines_of(file)) {
        if (line.starts_with('>')) {
            EXPECT_EQ(found, "") << "one line is the newest";
            found = line;
        }
    }
    return found;
}

TEST(FlightRecorder, SaysWhoItIsAndMarksTheNewestLine) {
    const tests::ScratchFolder folder;
    const auto file = folder / "flight" / "process-0003.txt";
    FlightRecorder recorder(file, "process 3 (rank 1, pid 12 on node)");
    EXPECT_THAT(lines_of(file)[1], StartsWith("# process 3 (rank 1, pid 12 on node)"));
    recorder.turn_to(7, 1, 12, {.op = Op::Forward, .stage = 1, .micro_batch = 4});
    EXPECT_THAT(marked_line(file), HasSubstr("step 7 rank 1 cell 12 1F4"));
    recorder.note("ends well");
    EXPECT_THAT(marked_line(file), HasSubstr("ends well"));
}

/// More lines than it keeps, and longer ones than it has room for.
TEST(FlightRecorder, KeepsTheLatestLinesInAFileOfOneSize) {
    const tests::ScratchFolder folder;
    const auto file = folder / "record.txt";
    FlightRecorder recorder(file, std::string(500, 'x'));
    const auto size = std::filesystem::file_size(file);
    for (int i = 0; i < 1000; ++i) {
        recorder.note("line " + std::to_string(i) + std::string(300, '.'));
    }
    EXPECT_EQ(std::filesystem::file_size(file), size);
    EXPECT_THAT(marked_line(file), HasSubstr("line 999"));
    std::ostringstream all;
    all << std::ifstream(file).rdbuf();
    EXPECT_THAT(all.str(), HasSubstr("line 800"));
    EXPECT_THAT(all.str(), Not(HasSubstr("line 700")));
    for (const std::string& line : lines_of(file)) {
        EXPECT_EQ(line.size(), lines_of(file).front().size());
    }
}

TEST(FlightRecorder, SurvivesThatItsProcessIsKilled) {
    const tests::ScratchFolder folder;
    const auto file = folder / "record.txt";
    const pid_t child = fork();
    if (child == 0) {
        FlightRecorder recorder(file, "a child");
        recorder.note("about to be killed");
        kill(getpid(), SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_THAT(marked_line(file), HasSubstr("about to be killed"));
}

TEST(FlightRecorder, NamesAFileThatCannotBeMade) {
    const Error error =
        testing::error_of([] { const FlightRecorder recorder("/proc/none/record.txt", "nobody"); });
    EXPECT_EQ(error.kind(), ErrorKind::Io);
    EXPECT_EQ(error.place(), "/proc/none/record.txt");
}

}  // namespace flight_recorder_test
}  // namespace pipetwin::exec
