#include "exec/speed_witness.h"

#include <gtest/gtest.h>

#include "exec/cores.h"

namespace pipetwin::exec {
namespace {

TEST(SpeedWitness, SaysAShare) {
    SpeedWitness witness(allowed_cores());
    for (int look = 0; look < 10; ++look) {
        const double missing = witness.missing();
        EXPECT_GE(missing, 0);
        EXPECT_LT(missing, 1);
    }
}

TEST(SpeedWitness, LooksOnceWhereThereIsNoTimeToWait) {
    SpeedWitness witness({allowed_cores().front()});
    EXPECT_LT(witness.wait({}), 1);
}

/// A small share is how exactly it is timed, a larger one is lost, if it is more than was stolen.
TEST(LostShare, IsTheLargestOfWhatWasSeen) {
    EXPECT_EQ(lost_share(0.005, 0, most_missing), 0.005);
    EXPECT_EQ(lost_share(0.005, 0.2, 0), 0.2);
    EXPECT_EQ(lost_share(0.005, 0, 0.3), 0.3);
    EXPECT_EQ(lost_share(0.4, 0.2, 0.3), 0.4);
}

}  // namespace
}  // namespace pipetwin::exec
