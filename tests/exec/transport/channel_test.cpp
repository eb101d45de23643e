// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/channel.h"

#include <atomic>
#include <future>
#include <latch>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace pipetwin::exec {
namespace channel_test {

using Clock = std::chrono::steady_clock;

Message message(int micro_batch) {
    return {.micro_batch = micro_batch, .tensor = {}, .available = {}};
}

/// Both kinds of waiting at every kind of capacity.
struct Kind {
    std::optional<int> capacity;
    Spin spin;
};
class EveryChannel : public ::testing::TestWithParam<Kind> {
  protected:
    std::unique_ptr<Channel> channel = make_local_channel(GetParam().capacity, GetParam().spin);
};

INSTANTIATE_TEST_SUITE_P(Channel,
                         EveryChannel,
                         ::testing::Values(Kind{std::nullopt, Spin::Briefly},
                                           Kind{std::nullopt, Spin::Never},
                                           Kind{0, Spin::Briefly},
                                           Kind{0, Spin::Never},
                                           Kind{1, Spin::Briefly},
                                           Kind{1, Spin::Never},
                                           Kind{3, Spin::Never}));

TEST_P(EveryChannel, DeliversEveryMessageInTheOrderOfSending) {
    constexpr int count = 2000;
    std::jthread sender([&] {
        for (int index = 0; index < count; ++index) {
            channel->send(message(index));
        }
    });
    for (int index = 0; index < count; ++index) {
        ASSERT_EQ(channel->receive().message.micro_batch, index);
    }
}

TEST_P(EveryChannel, NeverHoldsMoreMessagesThanItsCapacity) {
    if (!channel->capacity()) {
        GTEST_SKIP() << "unbounded";
    }
    std::atomic<int> received = 0;
    std::atomic<int> most_ahead = 0;
    std::jthread sender([&] {
        for (int index = 0; index < 200; ++index) {
            channel->send(message(index));
            // Messages 0..index were taken by the channel; the receiver counts one later than it
            // takes.
            most_ahead = std::max(most_ahead.load(), index + 1 - received.load());
        }
    });
    for (int index = 0; index < 200; ++index) {
        channel->receive();
        ++received;
    }
    sender.join();
    EXPECT_LE(most_ahead, *channel->capacity() + 1);
}

TEST_P(EveryChannel, CloseEndsABlockedReceive) {
    std::future<void> receiver = std::async(std::launch::async, [&] { channel->receive(); });
    channel->close();
    EXPECT_THROW(receiver.get(), ChannelClosed);
}

TEST_P(EveryChannel, CloseEndsABlockedSend) {
    if (!channel->capacity()) {
        GTEST_SKIP() << "a send never blocks";
    }
    std::future<void> sender = std::async(std::launch::async, [&] {
        for (int index = 0; index <= *channel->capacity(); ++index) {
            channel->send(message(index));
        }
    });
    channel->close();
    EXPECT_THROW(sender.get(), ChannelClosed);
}

TEST_P(EveryChannel, ReopenedItIsEmptyAndWorksAgain) {
    channel->close();
    EXPECT_THROW(channel->send(message(1)), ChannelClosed);
    EXPECT_THROW(channel->receive(), ChannelClosed);
    channel->reopen();
    std::jthread sender([&] { channel->send(message(7)); });
    EXPECT_EQ(channel->receive().message.micro_batch, 7);
}

TEST(Channel, WhatWasSentBeforeTheCloseIsStillReceived) {
    const std::unique_ptr<Channel> channel = make_local_channel(std::nullopt);
    channel->send(message(0));
    channel->send(message(1));
    channel->close();
    EXPECT_EQ(channel->receive().message.micro_batch, 0);
    EXPECT_EQ(channel->receive().message.micro_batch, 1);
    EXPECT_THROW(channel->receive(), ChannelClosed);
}

TEST(Channel, UnboundedItNeverBlocksASend) {
    const std::unique_ptr<Channel> channel = make_local_channel(std::nullopt);
    for (int index = 0; index < 100; ++index) {
        channel->send(message(index));
    }
    EXPECT_EQ(channel->receive().message.micro_batch, 0);
}

TEST(Channel, AtCapacityZeroASendEndsWhenTheReceiverTakesTheMessage) {
    const std::unique_ptr<Channel> channel = make_local_channel(0);
    std::atomic<bool> receiving = false;
    bool was_receiving = false;
    std::jthread sender([&] {
        channel->send(message(0));
        was_receiving = receiving;
    });
    receiving = true;
    channel->receive();
    sender.join();
    EXPECT_TRUE(was_receiving);
}

TEST(Channel, AMessageIsNotReceivedBeforeItIsAvailable) {
    const std::unique_ptr<Channel> channel = make_local_channel(std::nullopt);
    const TimePoint available = Clock::now() + std::chrono::milliseconds(5);
    channel->send({.micro_batch = 0, .tensor = {}, .available = available});
    const Channel::Received received = channel->receive();
    EXPECT_GE(Clock::now(), available);
    EXPECT_EQ(received.arrived, available);
}

TEST(Channel, AMessageHasArrivedWhenItWasSent) {
    const std::unique_ptr<Channel> channel = make_local_channel(std::nullopt);
    const TimePoint before = Clock::now();
    channel->send(message(0));
    const TimePoint after = Clock::now();
    const TimePoint arrived = channel->receive().arrived;
    EXPECT_LE(before, arrived);
    EXPECT_LE(arrived, after);
}

}  // namespace channel_test
}  // namespace pipetwin::exec
