#include "exec/base/rank_threads.h"

#include <atomic>
#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipetwin::exec {
namespace rank_threads_test {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(RankThreads, EveryMemberDoesTheWorkOnceAtTheSameTimeAsTheOthers) {
    constexpr std::size_t size = 3;
    RankThreads threads(size);
    for (int turn = 0; turn < 5; ++turn) {
        std::vector<int> done(size);
        std::latch all(static_cast<std::ptrdiff_t>(size));
        threads.run([&](std::size_t index) {
            all.arrive_and_wait();
            ++done[index];
        });
        EXPECT_TRUE(threads.wait(hours(1)));
        EXPECT_THAT(done, ::testing::Each(1));
    }
}

TEST(RankThreads, ItsThreadsStayTheSame) {
    RankThreads threads(2);
    std::vector<std::thread::id> first(2);
    std::vector<std::thread::id> second(2);
    for (auto* const ids : {&first, &second}) {
        threads.run([&](std::size_t index) { (*ids)[index] = std::this_thread::get_id(); });
        EXPECT_TRUE(threads.wait(hours(1)));
    }
    EXPECT_EQ(first, second);
    EXPECT_NE(first[0], first[1]);
}

TEST(RankThreads, SaysWhichIsBusyAndWaitsForIt) {
    RankThreads threads(3);
    std::atomic<bool> held = true;
    threads.run([&](std::size_t index) {
        if (index == 1) {
            held.wait(true);
        }
    });
    while (threads.busy().size() > 1) {
        std::this_thread::yield();
    }
    EXPECT_FALSE(threads.wait(milliseconds(1)));
    EXPECT_THAT(threads.busy(), ::testing::ElementsAre(1));
    held = false;
    held.notify_all();
    EXPECT_TRUE(threads.wait(hours(1)));
    EXPECT_THAT(threads.busy(), ::testing::IsEmpty());
}

TEST(RankThreads, EndsWithoutHavingRun) {
    const RankThreads threads(2);
}

}  // namespace rank_threads_test
}  // namespace pipetwin::exec
