// SPDX-License-Identifier: Apache-2.0
#include "core/base/number_text.h"

#include <cstddef>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace pipetwin {
namespace number_text_test {

TEST(Counted, ANounHasItsPluralButWithOne) {
    EXPECT_EQ(counted(1, "rank"), "1 rank");
    EXPECT_EQ(counted(0, "rank"), "0 ranks");
    EXPECT_EQ(counted(2, "replica"), "2 replicas");
    EXPECT_EQ(counted(std::size_t{1}, "plan"), "1 plan");
    EXPECT_EQ(counted(std::size_t{12}, "plan"), "12 plans");
    EXPECT_EQ(counted(std::numeric_limits<std::uint64_t>::max(), "byte"),
              "18446744073709551615 bytes");
    EXPECT_EQ(counted(-1, "rank"), "-1 ranks");
}

TEST(Counted, ThePluralIsSpeltAsInEnglish) {
    EXPECT_EQ(counted(8, "micro-batch"), "8 micro-batches");
    EXPECT_EQ(counted(3, "process"), "3 processes");
    EXPECT_EQ(counted(3, "entry"), "3 entries");
    EXPECT_EQ(counted(3, "day"), "3 days");
    EXPECT_EQ(counted(3, "prefix"), "3 prefixes");
}

TEST(VerbFor, OneHasItsOwnForm) {
    EXPECT_EQ(verb_for(1, "is", "are"), "is");
    EXPECT_EQ(verb_for(0, "is", "are"), "are");
    EXPECT_EQ(verb_for(std::size_t{2}, "was", "were"), "were");
}

}  // namespace number_text_test
}  // namespace pipetwin
