// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder/growing_file.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cli/run_folder/metrics_file.h"
#include "core/base/error.h"
#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace growing_file_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// While it lives no file of this process may grow beyond so many bytes, as on a disk that is full.
class SizeLimit {
  public:
    explicit SizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        getrlimit(RLIMIT_FSIZE, &old_);
        rlimit limit = old_;
        limit.rlim_cur = bytes;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    SizeLimit(const SizeLimit&) = delete;
    SizeLimit& operator=(const SizeLimit&) = delete;
    ~SizeLimit() {
        setrlimit(RLIMIT_FSIZE, &old_);
        std::signal(SIGXFSZ, handler_);
    }

  private:
    rlimit old_{};
    void (*handler_)(int);
};

class GrowingFileTest : public InFolder {};

exec::StepReport report_of(int step) {
    exec::StepReport report;
    report.step = step;
    return report;
}

TEST_F(GrowingFileTest, KeepsWhatTheDiskHasNoRoomForUpToALimitAndCountsTheRest) {
    GrowingFile file(folder() / "lines", 0, 30);
    {
        const SizeLimit full(10);
        EXPECT_TRUE(file.add("0_______\n"));
        for (int i = 1; i < 9; ++i) {
            EXPECT_FALSE(file.add(fmt::format("{}_______\n", i)));
        }
        // A byte of the first is written, and 30 more bytes have room for it and two others.
        EXPECT_EQ(file.dropped(), 8 - 3);
        EXPECT_THROW(file.expect_written(), Error);
    }
    EXPECT_TRUE(file.add("9_______\n"));
    EXPECT_EQ(content_of(file.path()), "0_______\n1_______\n2_______\n3_______\n9_______\n");
    EXPECT_EQ(file.dropped(), 5);
    EXPECT_NO_THROW(file.expect_written());
}

TEST_F(GrowingFileTest, TakesATextThatIsLongerThanItsLimitWhereTheDiskHasRoom) {
    GrowingFile file(folder() / "lines", 0, 4);
    EXPECT_TRUE(file.add("a long line\n"));
    EXPECT_TRUE(file.add("another long line\n"));
    EXPECT_EQ(content_of(file.path()), "a long line\nanother long line\n");
    EXPECT_EQ(file.dropped(), 0);
}

// A disk that stayed full took memory without end.
TEST_F(GrowingFileTest, OfMetricsTellsThatLinesAreDroppedAndHowMany) {
    std::vector<std::string> told;
    const std::filesystem::path path = folder() / "metrics.jsonl";
    constexpr int steps = 100;
    constexpr std::size_t most_in_memory = 2000;
    MetricsFile metrics(
        path, 0, [&](const std::string& text) { told.push_back(text); }, most_in_memory);
    {
        const SizeLimit full(1000);
        for (int step = 0; step < steps; ++step) {
            metrics.add(report_of(step));
        }
    }
    ASSERT_EQ(told.size(), 2U);
    EXPECT_THAT(told[0], HasSubstr("training continues, its lines are written later"));
    EXPECT_THAT(told[1],
                HasSubstr("metrics.jsonl: lines are dropped, because the disk has been full"));
    metrics.add(report_of(steps));
    const std::string lines = content_of(path);
    const auto written = std::ranges::count(lines, '\n');
    EXPECT_LT(lines.size(), 1000 + most_in_memory + 1000);
    ASSERT_EQ(told.size(), 3U);
    EXPECT_THAT(told[2], HasSubstr(fmt::format("{} lines were dropped", steps + 1 - written)));
    EXPECT_EQ(nlohmann::json::parse(lines.substr(lines.rfind('\n', lines.size() - 2) + 1))["step"],
              steps);
    EXPECT_NO_THROW(metrics.finish(std::chrono::milliseconds(0)));
    EXPECT_EQ(told.size(), 3U);
    // A training that goes on there says what its file lacks.
    MetricsFile again(path, steps + 1, [&](const std::string& text) { told.push_back(text); });
    EXPECT_THAT(told.back(),
                HasSubstr(fmt::format("contains {} whole lines of the {}", written, steps + 1)));
}

TEST_F(GrowingFileTest, OfMetricsTellsAtTheEndWhatWasDropped) {
    std::vector<std::string> told;
    MetricsFile metrics(
        folder() / "metrics.jsonl", 0, [&](const std::string& text) { told.push_back(text); }, 500);
    {
        const SizeLimit full(10);
        for (int step = 0; step < 50; ++step) {
            metrics.add(report_of(step));
        }
    }
    metrics.finish(std::chrono::milliseconds(0));
    ASSERT_EQ(told.size(), 3U);
    EXPECT_THAT(told[2], ::testing::ContainsRegex("[0-9]+ lines were dropped"));
}

}  // namespace growing_file_test
}  // namespace pipetwin::cli
