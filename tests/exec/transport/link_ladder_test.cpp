// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/link_ladder.h"

#include <gtest/gtest.h>

namespace pipetwin::exec {
namespace link_ladder_test {

LinkCost link(Duration latency, double bytes_per_second, std::int64_t half_bandwidth) {
    return {.latency = latency,
            .bytes_per_second = bytes_per_second,
            .half_bandwidth = Bytes{half_bandwidth}};
}

/// What a link with these costs would be measured as.
std::vector<LadderRung> ladder_of(const LinkCost& cost) {
    std::vector<LadderRung> rungs;
    for (std::int64_t bytes = 4 << 10; bytes <= std::int64_t{64} << 20; bytes *= 4) {
        rungs.push_back({.message = Bytes{bytes}, .time = message_time(cost, Bytes{bytes})});
    }
    return rungs;
}

void expect_within_two_percent(const LinkCost& found, const std::vector<LadderRung>& rungs) {
    for (const LadderRung& rung : rungs) {
        if (rung.message.count >= 64 << 10) {
            const double ratio =
                to_seconds(message_time(found, rung.message)) / to_seconds(rung.time);
            EXPECT_NEAR(ratio, 1, 0.02) << rung.message.count;
        }
    }
}

TEST(LinkLadder, OfAnExactLinkGivesItsCosts) {
    for (const LinkCost& exact : {link(std::chrono::microseconds(40), 1.2e8, 0),
                                  link(std::chrono::microseconds(3), 1e10, 4096),
                                  link(std::chrono::milliseconds(5), 2.4e7, 65536),
                                  link(std::chrono::nanoseconds(300), 2e10, 30000)}) {
        const std::vector<LadderRung> rungs = ladder_of(exact);
        const LinkCost found = link_of(rungs);
        expect_within_two_percent(found, rungs);
        EXPECT_NEAR(found.bytes_per_second / exact.bytes_per_second, 1, 1e-3);
    }
}

/// Small messages that are faster than the line through the others: a bucket that was full.
TEST(LinkLadder, ALatencyIsNotNegative) {
    std::vector<LadderRung> rungs = ladder_of(link(std::chrono::microseconds(50), 1e8, 0));
    for (LadderRung& rung : rungs) {
        rung.time -= rung.message.count > (1 << 20) ? std::chrono::microseconds(500) : Duration{};
    }
    const LinkCost found = link_of(rungs);
    EXPECT_GE(found.latency, Duration{});
    EXPECT_GE(found.half_bandwidth.count, 0);
    EXPECT_GT(found.bytes_per_second, 0.9e8);
}

/// Another program held back the small messages, and none of the large ones.
TEST(LinkLadder, ABandwidthIsPositiveWhereLargerMessagesTookNoLonger) {
    std::vector<LadderRung> rungs;
    std::chrono::milliseconds time{40};
    for (std::int64_t bytes = 4 << 10; bytes <= 16 << 20; bytes *= 4) {
        rungs.push_back({.message = Bytes{bytes}, .time = time});
        time -= std::chrono::milliseconds(5);
    }
    const LinkCost found = link_of(rungs);
    EXPECT_GT(found.bytes_per_second, 0);
    EXPECT_EQ(message_time(found, rungs.back().message), rungs.back().time);
}

}  // namespace link_ladder_test
}  // namespace pipetwin::exec
