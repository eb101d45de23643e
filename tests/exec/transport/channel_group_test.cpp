// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/channel_group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/as_index.h"
#include "tests/support/soak.h"

namespace pipetwin::exec {
namespace channel_group_test {

/// Groups of threads, and the channels between their members.
class Threads {
  public:
    explicit Threads(int size) : size_(size) {
        for (int pair = 0; pair < size * size; ++pair) {
            channels_.push_back(make_local_channel(std::nullopt, Spin::Never));
        }
        for (int index = 0; index < size; ++index) {
            members_.push_back(make_channel_group(
                {.size = size, .index = index}, *device_, [this](int from, int to) -> Channel& {
                    return *channels_[as_index(from * size_ + to)];
                }));
        }
    }

    Group& member(int index) { return *members_[as_index(index)]; }

    /// Calls act(member) on a thread each.
    template <class Do>
    void run(const Do& act) {
        std::vector<std::jthread> threads;
        for (int index = 0; index < size_; ++index) {
            threads.emplace_back([&, index] { act(member(index)); });
        }
    }

  private:
    int size_;
    std::unique_ptr<Device> device_ = make_cpu_device();
    std::vector<std::unique_ptr<Channel>> channels_;  ///< [from][to]
    std::vector<std::unique_ptr<Group>> members_;
};

template <class T>
View view_of(std::vector<T>& numbers) {
    return {numbers.data(), dtype_of<T>, 1, static_cast<std::int64_t>(numbers.size())};
}

/// Numbers whose sum depends on the order in which they are added.
template <class T>
std::vector<std::vector<T>> drawn_numbers(int members, std::size_t count, std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    std::uniform_int_distribution<int> scale(-20, 20);
    std::vector<std::vector<T>> all(as_index(members), std::vector<T>(count));
    for (std::vector<T>& own : all) {
        for (T& number : own) {
            number = static_cast<T>(std::ldexp(normal(random), scale(random)));
        }
    }
    return all;
}

template <class T>
void expect_sums_in_order(int members, std::size_t count, std::mt19937_64& random) {
    SCOPED_TRACE(::testing::Message() << members << " members, " << count << " numbers");
    std::vector<std::vector<T>> numbers = drawn_numbers<T>(members, count, random);
    std::vector<T> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
        T sum = numbers.front()[i];
        for (std::size_t member = 1; member < numbers.size(); ++member) {
            sum += numbers[member][i];
        }
        expected[i] = sum;
    }
    Threads threads(members);
    threads.run([&](Group& group) { group.all_reduce(view_of(numbers[as_index(group.index())])); });
    for (const std::vector<T>& own : numbers) {
        EXPECT_EQ(0, std::memcmp(own.data(), expected.data(), count * sizeof(T)));
    }
}

/// Fewer numbers than members, too.
TEST(ChannelGroup, AddsUpInTheOrderOfItsMembers) {
    std::mt19937_64 random(tests::seed());
    for (const int members : {2, 3, 4, 7}) {
        for (const std::size_t count : {1U, 2U, 5U, 64U, 1001U}) {
            expect_sums_in_order<float>(members, count, random);
            expect_sums_in_order<double>(members, count, random);
        }
    }
}

/// 6 members in threes: each sum is over neighbours, in their order; sums of all go on as before.
TEST(ChannelGroup, AddsUpNumbersOfNeighboursAlone) {
    constexpr int members = 6;
    constexpr int together = 3;
    std::mt19937_64 random(tests::seed());
    std::vector<std::vector<double>> numbers = drawn_numbers<double>(members, 5, random);
    const std::vector<std::vector<double>> drawn = numbers;
    std::vector<std::vector<double>> all(members, std::vector<double>{1});
    Threads threads(members);
    threads.run([&](Group& group) {
        group.all_reduce_of_neighbours(view_of(numbers[as_index(group.index())]), together);
        group.all_reduce(view_of(all[as_index(group.index())]));
    });
    for (std::size_t member = 0; member < members; ++member) {
        const std::size_t first = member / together * together;
        for (std::size_t i = 0; i < 5; ++i) {
            EXPECT_EQ(numbers[member][i],
                      drawn[first][i] + drawn[first + 1][i] + drawn[first + 2][i]);
        }
        EXPECT_EQ(all[member], std::vector<double>{members});
    }
}

/// Only the neighbour of a member that has not come waits for it.
TEST(ChannelGroup, SaysWhichNeighbourHasNotCome) {
    Threads threads(4);
    threads.run([&](Group& group) {
        std::vector<double> numbers{1, 2};
        group.at_layer(7);
        if (group.index() == 2) {
            while (threads.member(3).waits_for() != GroupWait{.call = GroupCall::AllReduce,
                                                              .kind = GroupKind::Neighbours,
                                                              .member = 2,
                                                              .layer = 7}) {
                std::this_thread::yield();
            }
            EXPECT_NE(threads.member(0).waits_for().value_or(no_wait).member, 2);
        }
        group.all_reduce_of_neighbours(view_of(numbers), 2);
    });
    EXPECT_EQ(group_text(GroupKind::Neighbours, 2, 2, 1), "devices 2-3 of the rank");
}

/// Until the last member comes, the others say in which call they wait, at which layer, and for
/// whom.
TEST(ChannelGroup, SaysWhoHasNotCome) {
    Threads threads(3);
    for (int member = 0; member < 3; ++member) {
        EXPECT_FALSE(threads.member(member).waits_for());
    }
    std::atomic<bool> comes = false;
    threads.run([&](Group& group) {
        std::vector<double> numbers{1, 2, 3};
        group.at_layer(7);
        if (group.index() == 1) {
            for (const int other : {0, 2}) {
                while (threads.member(other).waits_for() !=
                       GroupWait{.call = GroupCall::AllReduce, .member = 1, .layer = 7}) {
                    std::this_thread::yield();
                }
            }
            comes = true;
        }
        group.all_reduce(view_of(numbers));
        EXPECT_TRUE(comes);
    });
    for (int member = 0; member < 3; ++member) {
        EXPECT_FALSE(threads.member(member).waits_for());
        EXPECT_FALSE(threads.member(member).broken_wait());
    }
}

/// A wait that ends as another member stops is kept.
TEST(ChannelGroup, RemembersTheWaitThatAStopHasEnded) {
    Threads threads(2);
    threads.run([&](Group& group) {
        if (group.index() == 1) {
            while (!threads.member(0).waits_for()) {
                std::this_thread::yield();
            }
            group.close();
            return;
        }
        std::vector<double> own{1};
        std::vector<double> all(2);
        group.at_layer(4);
        EXPECT_THROW(group.all_gather(view_of(own), view_of(all)), ChannelClosed);
        EXPECT_EQ(group.broken_wait(),
                  (GroupWait{.call = GroupCall::AllGather, .member = 1, .layer = 4}));
        group.forget_broken_wait();
        EXPECT_FALSE(group.broken_wait());
    });
}

TEST(ChannelGroup, GathersInTheOrderOfItsMembers) {
    constexpr int members = 3;
    Threads threads(members);
    std::vector<std::vector<double>> all(members, std::vector<double>(6));
    threads.run([&](Group& group) {
        std::vector<double> own{group.index() + 0.25, group.index() + 0.5};
        group.all_gather(view_of(own), view_of(all[as_index(group.index())]));
    });
    for (const std::vector<double>& found : all) {
        EXPECT_EQ(found, (std::vector{0.25, 0.5, 1.25, 1.5, 2.25, 2.5}));
    }
}

/// Every member has a part of its own for each other, of any size, and writes over it as soon as
/// the call is over.
TEST(ChannelGroup, ExchangesPartsOfAllWithAll) {
    std::mt19937_64 random(tests::seed());
    for (const int members : {2, 3, 5}) {
        const auto all = as_index(members);
        std::vector<std::vector<std::size_t>> sizes(all, std::vector<std::size_t>(all));
        for (std::vector<std::size_t>& row : sizes) {
            for (std::size_t& size : row) {
                size = random() % 4;
            }
        }
        Threads threads(members);
        threads.run([&](Group& group) {
            const std::size_t own = as_index(group.index());
            for (int call = 0; call < 3; ++call) {
                const auto number = [&](std::size_t from, std::size_t to) {
                    return 1000.0 * call + 10.0 * static_cast<double>(from) +
                           static_cast<double>(to);
                };
                std::vector<std::vector<double>> sent;
                std::vector<std::vector<double>> received;
                for (std::size_t other = 0; other < all; ++other) {
                    sent.emplace_back(sizes[own][other], number(own, other));
                    received.emplace_back(sizes[other][own]);
                }
                std::vector<ConstView> to;
                std::vector<View> from;
                for (std::size_t other = 0; other < all; ++other) {
                    to.emplace_back(view_of(sent[other]));
                    from.push_back(view_of(received[other]));
                }
                group.all_to_all(to, from);
                for (std::vector<double>& part : sent) {
                    std::ranges::fill(part, -1);
                }
                for (std::size_t other = 0; other < all; ++other) {
                    EXPECT_EQ(received[other],
                              std::vector<double>(sizes[other][own], number(other, own)));
                }
            }
        });
        std::size_t sent = 0;
        for (std::size_t other = 1; other < all; ++other) {
            sent += sizes.front()[other];
        }
        EXPECT_EQ(threads.member(0).use().carried, Bytes{static_cast<std::int64_t>(3 * 8 * sent)});
    }
}

/// Each member comes when it likes, and writes over its numbers as soon as a call is over: none
/// hangs, and all have the sums of every call.
TEST(ChannelGroup, IsRightWhateverItsMembersAreLateBy) {
    constexpr int calls = 6;
    for (int round = 0; round < tests::soaked(50); ++round) {
        const std::uint64_t seed = tests::seed() * 1'000'000 + static_cast<std::uint64_t>(round);
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const int members = 2 + static_cast<int>(seed % 3);
        Threads threads(members);
        threads.run([&](Group& group) {
            std::mt19937_64 random(seed * 31 + as_index(group.index()));
            std::vector<double> numbers(5);
            for (int call = 0; call < calls; ++call) {
                if (random() % 2 == 0) {
                    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
                }
                for (std::size_t i = 0; i < numbers.size(); ++i) {
                    numbers[i] = call * 100.0 + static_cast<double>(i) + group.index();
                }
                group.all_reduce(view_of(numbers));
                for (std::size_t i = 0; i < numbers.size(); ++i) {
                    EXPECT_EQ(numbers[i],
                              members * (call * 100.0 + static_cast<double>(i)) +
                                  members * (members - 1) / 2.0);
                }
            }
        });
        EXPECT_EQ(threads.member(0).use().carried, (Bytes{2 * calls * 5 * 8}));
        EXPECT_FALSE(threads.member(0).waits_for());
    }
}

TEST(ChannelGroup, EndsTheWaitsOfOthersWhereAMemberStops) {
    Threads threads(3);
    std::atomic<int> ended = 0;
    threads.run([&](Group& group) {
        if (group.index() == 1) {
            group.close();
            return;
        }
        std::vector<float> numbers(4);
        try {
            group.all_reduce(view_of(numbers));
        } catch (const ChannelClosed&) {
            group.close();
            ++ended;
        }
    });
    EXPECT_EQ(ended, 2);
}

}  // namespace channel_group_test
}  // namespace pipetwin::exec
