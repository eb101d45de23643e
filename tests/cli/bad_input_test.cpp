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

/// A schedule file, and what every command that reads it must say.
struct BadSchedule {
    const char* content;
    int code;
    const char* said;
};

constexpr BadSchedule bad_schedules[] = {
    // What the grammar refuses: line, column and cell.
    {"0F0,0F1x\n", 3, ":1:8: cell 1, '0F1x': unexpected 'x'"},
    {"0F0,0B0\n1F0,1Q0\n", 3, ":2:6: cell 1, '1Q0': 'Q' is not a type"},
    {"", 3, ":1:1: cell 0, '': the file holds no action"},
    {",,\n", 3, ":1:1: cell 0, '': the file holds no action"},
    {"0F0,0F65536\n", 3, ":1:7: cell 1, '0F65536': '65536' is too large for a micro-batch"},
    {"0F0,(0F1;0B0)OVERLAP\n", 3, ":1:5: cell 1, '(0F1;0B0)OVERLAP': expected"},
    // What reads well but is no valid schedule: rank and cell.
    {"0F0,0F1,0B0\n", 4, "rank 0: 0B1 is missing"},
    {"0F0,0F0,0B0\n", 4, "rank 0, cell 1: 0F0 stands in cell 0 already"},
    {"0F0,0B0,0B0\n", 4, "rank 0, cell 2: 0B0 stands in cell 1 already"},
    {"0B0,0F0\n", 4, "rank 0, cell 0: 0B0 stands before 0F0 (cell 1)"},
    {"0F0,0W0,0I0\n", 4, "rank 0, cell 1: 0W0 stands before 0I0 (cell 2)"},
    {"0F0,0B0\n0F1,0B1\n", 4, "rank 1, cell 0: 0F1 stage 0 is on rank 0"},
    {"0F0,0B0\n2F0,2B0\n", 4, "stage 1 is on no rank"},
    {"0F0,0B0,0F5,0B5\n", 4, "is missing: forward of micro-batches 1 to 4 on stage 0"},
    {"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n", 4, "rank 1: 1RECV_F0 is missing"},
    {"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", 4, "rank 1, cell 0: 1RECV_F1 order mismatch"},
    {"0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1B0\n", 4, "order mismatch"},
    // Rank 0 waits for the gradient that rank 1 has only after the forward that rank 0 sends last.
    {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", 4, "rank 0, cell 2: 0RECV_B0 waits for"},
};

TEST_F(BadInput, EveryReaderOfAScheduleRefusesWhatIsWrongWithItAndWhere) {
    for (const BadSchedule& bad : bad_schedules) {
        const std::string csv = file("bad.csv", bad.content);
        const std::string out = path("out");
        const std::vector<std::vector<std::string>> commands{
            {"check", csv},
            {"import", "torch-csv", csv, "--out", out},
            {"export", "torch-csv", csv, "--out", out},
            {"export", "svg", csv, "--out", out},
            {"simulate", "--schedule-file", csv, "--forward-ms", "1", "--backward-ms", "2"},
        };
        for (const auto& command : commands) {
            const Outcome outcome = pipetwin(command);
            EXPECT_EQ(outcome.code, bad.code) << command.front() << ' ' << bad.content;
            EXPECT_THAT(outcome.out + outcome.err, ::testing::HasSubstr(bad.said))
                << command.front();
            EXPECT_FALSE(std::filesystem::exists(out));
        }
    }
}

TEST_F(BadInput, AFileOfTooManyColumnsIsRefusedWithLineAndCell) {
    const std::string csv = file("wide.csv", "0F0,0B0\n" + std::string(64'000'000, ','));
    const Outcome outcome = pipetwin({"check", csv});
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                ::testing::HasSubstr(":2:64000000: cell 63999999, '': the file has more than "
                                     "64000000 cells"));
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
