// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cli/base/memory_left.h"
#include "core/base/error.h"
#include "sim/questions/plan_memory.h"
#include "tests/cli/support.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"

namespace pipetwin::cli {
namespace memory_need_test {

using testing::error_of;
using ::testing::HasSubstr;

constexpr sim::PlanSize large{.stages = 64, .micro_batches = 65'536};

TEST(MemoryNeed, APlanBeyondTheMemoryThatIsLeftIsRefusedWithBothSizesAndWhatWouldDo) {
    const Bytes left{1'000'000'000};
    const Error error = error_of([&] { sim::expect_memory_for(large, "--micro-batches", left); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_EQ(error.place(), "--micro-batches = 65536");
    EXPECT_THAT(error.text(), HasSubstr(format_bytes(sim::memory_of_plan(large))));
    EXPECT_THAT(error.text(), HasSubstr(format_bytes(left)));
    ASSERT_THAT(error.hint(), HasSubstr("use at most "));
    const int fit = std::stoi(error.hint().substr(std::string("use at most ").size()));
    EXPECT_NO_THROW(sim::expect_memory_for({.stages = 64, .micro_batches = fit}, "", left));
    EXPECT_THROW(sim::expect_memory_for({.stages = 64, .micro_batches = fit + 1}, "", left), Error);
}

TEST(MemoryNeed, NothingIsRefusedWhereTheSystemDoesNotSayWhatIsLeft) {
    EXPECT_NO_THROW(sim::expect_memory_for(large, "--micro-batches", std::nullopt));
}

TEST(MemoryNeed, ThisMachineSaysWhatIsLeft) {
    ASSERT_TRUE(memory_left().has_value());
    EXPECT_GT(memory_left()->count, 0);
}

/// Runs the program with so many kilobytes of address space; its code and all that it says.
class LimitedMemory : public InFolder {
  protected:
    Outcome simulate(int micro_batches, int kilobytes) const {
        const std::string said = path("said.txt");
        const std::string command = fmt::format(
            "ulimit -v {}; '{}' simulate --schedule 1f1b --stages 64 --micro-batches {} "
            "--forward-ms 1 --backward-ms 2 > /dev/null 2> '{}'",
            kilobytes,
            places::program_folder() + "/pipetwin",
            micro_batches,
            said);
        const int status =
            std::system(command.c_str());  // NOLINT(cert-env33-c): a test's own words
        return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                .out = "",
                .err = content_of(said)};
    }
};

// It ended after seven seconds with "out of memory" and advice on models and batches.
TEST_F(LimitedMemory, SixtyFourStagesOf65536MicroBatchesInOneGigabyteAreRefusedAtOnce) {
    const Outcome refused = simulate(65'536, 1'000'000);
    if (refused.err.find("AddressSanitizer failed to allocate") != std::string::npos) {
        GTEST_SKIP() << "the sanitizer takes more address space than there is memory";
    }
    EXPECT_EQ(refused.code, 4) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("take about 2.66 GiB"));
    EXPECT_THAT(refused.err, HasSubstr("hint: use at most "));
    EXPECT_EQ(simulate(1'024, 1'000'000).code, 0);
}

}  // namespace memory_need_test
}  // namespace pipetwin::cli
