// SPDX-License-Identifier: Apache-2.0
#include "exec/base/rank_threads.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <string_view>
#include <system_error>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

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

/// Gives up the rights of root and takes no more threads than there are: true where the system
/// obeys.
bool takes_no_more_threads() {
    constexpr uid_t nobody = 65534;
    if (geteuid() == 0 && setuid(nobody) != 0) {
        return false;
    }
    rlimit limit{};
    if (setrlimit(RLIMIT_NPROC, &limit) != 0) {
        return false;
    }
    try {
        std::thread([] {}).join();
    } catch (const std::system_error&) {
        return true;
    }
    return false;
}

TEST(RankThreads, ThatTheSystemDoesNotGiveAreAnErrorThatSaysHowManyAndWhatToDo) {
    constexpr int obeyed = 0;
    constexpr int limitless = 77;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {  // gives up rights that this process needs
        if (!takes_no_more_threads()) {
            _exit(limitless);
        }
        try {
            const RankThreads threads(3);
        } catch (const Error& error) {
            const std::string_view text = error.text();
            const std::string_view hint = error.hint();
            const bool is_told = error.kind() == ErrorKind::Unavailable &&
                                 text.starts_with(
                                     "the system gives 0 of the 3 threads that the "
                                     "ranks need: ") &&
                                 hint.find("ulimit -u") != std::string_view::npos &&
                                 hint.find("fewer stages") != std::string_view::npos;
            _exit(is_told ? obeyed : 1);
        }
        _exit(2);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == limitless) {
        GTEST_SKIP() << "the system has no limit on threads for this user";
    }
    EXPECT_EQ(WEXITSTATUS(status), obeyed);
}

}  // namespace rank_threads_test
}  // namespace pipetwin::exec
