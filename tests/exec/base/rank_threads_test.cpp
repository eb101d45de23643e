#include "exec/base/rank_threads.h"

#include <atomic>
#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipetwin::exec {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(RankThreads, EveryMemberDoesTheWorkOnceAtTheSameTimeAsTheOthers) {
    constexpr std::size_t size = 3;
    RankThreads crew(size);
    for (int turn = 0; turn < 5; ++turn) {
        std::vector<int> done(size);
        std::latch all(static_cast<std::ptrdiff_t>(size));
        crew.send([&](std::size_t index) {
            all.arrive_and_wait();
            ++done[index];
        });
        EXPECT_TRUE(crew.wait(hours(1)));
        EXPECT_THAT(done, testing::Each(1));
    }
}

TEST(RankThreads, ItsThreadsStayTheSame) {
    RankThreads crew(2);
    std::vector<std::thread::id> first(2);
    std::vector<std::thread::id> second(2);
    for (auto* const ids : {&first, &second}) {
        crew.send([&](std::size_t index) { (*ids)[index] = std::this_thread::get_id(); });
        EXPECT_TRUE(crew.wait(hours(1)));
    }
    EXPECT_EQ(first, second);
    EXPECT_NE(first[0], first[1]);
}

TEST(RankThreads, SaysWhoIsAwayAndComesBackLater) {
    RankThreads crew(3);
    std::atomic<bool> held = true;
    crew.send([&](std::size_t index) {
        if (index == 1) {
            held.wait(true);
        }
    });
    while (crew.away().size() > 1) {
        std::this_thread::yield();
    }
    EXPECT_FALSE(crew.wait(milliseconds(1)));
    EXPECT_THAT(crew.away(), testing::ElementsAre(1));
    held = false;
    held.notify_all();
    EXPECT_TRUE(crew.wait(hours(1)));
    EXPECT_THAT(crew.away(), testing::IsEmpty());
}

TEST(RankThreads, EndsWithoutHavingBeenSent) {
    const RankThreads crew(2);
}

}  // namespace
}  // namespace pipetwin::exec
