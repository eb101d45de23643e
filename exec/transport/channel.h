// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>

#include "exec/base/spin.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {

/// Ends the wait of a worker whose channel's other end has stopped: another rank failed.
class ChannelClosed : public std::runtime_error {
  public:
    ChannelClosed();
};

/// A moment on this process's steady clock.
using TimePoint = std::chrono::steady_clock::time_point;

/// A tensor of one micro-batch on its way to another rank.
struct Message {
    int micro_batch = 0;
    Tensor tensor;        ///< detached from the sender's arena
    TimePoint available;  ///< not to be received earlier (paced links); default: at once
    /// Waits until the tensor's bytes are there, and returns when they were; empty: they are.
    std::function<TimePoint()> arrival{};
    /// Waits until `available` is known, where that depends on other messages; empty: it is known.
    std::function<TimePoint()> shared_link{};
};

/// One edge: one boundary, one direction, one producer, one consumer, first in first out.
class Channel {
  public:
    Channel() = default;
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;
    virtual ~Channel() = default;

    /// Blocks while `capacity` messages wait (capacity 0: until the receiver takes this one).
    /// Returns when the channel took the message. Throws ChannelClosed.
    virtual TimePoint send(Message message) = 0;

    /// A message, and when it was there.
    struct Received {
        Message message;
        TimePoint arrived;  ///< when it was sent, or when it became available if that is later
    };
    /// Blocks until a message is there and available. Throws ChannelClosed.
    virtual Received receive() = 0;

    /// Where the receiver is to have the next message of which nothing was said yet. Only between
    /// processes: messages arrive there while the receiver does something else.
    virtual void expect(Tensor place);

    /// Whether the next message that is expected is there. Only between processes.
    virtual bool has_come();

    /// Returns when the tensors that were sent, and that the sender still has, are read no more.
    virtual void settle() {}

    /// One end stops. Ends a blocked send and every later one with ChannelClosed; a receiver still
    /// gets what was sent before, then ChannelClosed. Any thread, any number of times.
    virtual void close() = 0;

    /// Empties and opens it again, when no thread is inside.
    virtual void reopen() = 0;

    /// None: unbounded.
    virtual std::optional<int> capacity() const = 0;
};

/// Between threads of this process. Hands the tensor over without copying it.
std::unique_ptr<Channel> make_local_channel(std::optional<int> capacity, Spin spin = Spin::Briefly);

}  // namespace pipetwin::exec
