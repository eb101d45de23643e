#include <random>

#include <gmock/gmock.h>

#include "tests/cli/support.h"
#include "tests/support/soak.h"

namespace pipetwin::cli {
namespace {

/// Broken inputs end in an exit code of the contract and an error text, never in a crash: 0 where
/// the change kept the file valid, 3 for what the grammar refuses, 4 for what reads well but is no
/// valid schedule.
class BadInput : public InFolder {
  protected:
    static void expect_clean_end(const Outcome& outcome, std::string_view input) {
        EXPECT_TRUE(outcome.code == 0 || outcome.code == 3 || outcome.code == 4)
            << "exit " << outcome.code << ", " << outcome.err << "\nfor:\n"
            << input;
        if (outcome.code != 0) {
            EXPECT_THAT(outcome.err, ::testing::StartsWith("error: "));
        }
        EXPECT_THAT(outcome.err, ::testing::Not(::testing::HasSubstr("a bug in pipetwin")))
            << input;
    }

    void check_every_prefix(std::string_view name, std::string_view content) const {
        for (std::size_t length = 0; length < content.size(); ++length) {
            const std::string_view prefix = content.substr(0, length);
            expect_clean_end(pipetwin({"check", file(name, prefix)}), prefix);
        }
    }

    void check_changed_bytes(std::string_view name, std::string_view content) const {
        SCOPED_TRACE(::testing::Message() << "PIPETWIN_SEED=" << tests::seed());
        std::mt19937_64 random(tests::seed());
        const int cases = tests::soaked(300);
        for (int run = 0; run < cases; ++run) {
            std::string changed(content);
            const int changes = 1 + static_cast<int>(random() % 4);
            for (int change = 0; change < changes; ++change) {
                changed[random() % changed.size()] = static_cast<char>(random() % 256);
            }
            expect_clean_end(pipetwin({"check", file(name, changed)}), changed);
        }
    }
};

constexpr std::string_view schedule =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1,0RECV_B0,0B0,0OPT\r\n"
    "1RECV_F0,1F0,1RECV_F1,1F1,1B1,1SEND_B1,1B0,1SEND_B0,1OPT\r\n";

TEST_F(BadInput, ScheduleCutAtAnyByteEndsCleanly) {
    ASSERT_EQ(pipetwin({"check", file("whole.csv", schedule)}).code, 0);
    check_every_prefix("cut.csv", schedule);
}

TEST_F(BadInput, ScheduleWithAnyBytesChangedEndsCleanly) {
    check_changed_bytes("changed.csv", schedule);
}

TEST_F(BadInput, ScenarioCutAtAnyByteEndsCleanly) {
    check_every_prefix("cut.toml", small_scenario);
}

TEST_F(BadInput, ScenarioWithAnyBytesChangedEndsCleanly) {
    check_changed_bytes("changed.toml", small_scenario);
}

TEST_F(BadInput, FolderInPlaceOfAFileIsRefused) {
    EXPECT_EQ(pipetwin({"check", folder().string()}).code, 3);
}

TEST_F(BadInput, HugeNumbersAreRefusedBeforeAnythingIsAllocated) {
    EXPECT_EQ(pipetwin({"check", file("huge.csv", "0F2147483647,0B2147483647\n")}).code, 3);
    EXPECT_EQ(pipetwin({"check", file("more.csv", "0F99999999999999999999\n")}).code, 3);
    const std::string scenario = file("huge.toml", small_scenario);
    EXPECT_EQ(pipetwin({"check", scenario, "--set", "pipeline.stages=1000000000"}).code, 3);
    EXPECT_EQ(pipetwin({"check", scenario, "--set", "training.batch=1e400"}).code, 3);
}

}  // namespace
}  // namespace pipetwin::cli
