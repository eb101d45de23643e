#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>

#include "exec/tensor.h"

namespace pipetwin::exec {

/// What a blocked worker sees when a channel is closed under it: somebody else failed.
class ChannelClosed : public std::runtime_error {
  public:
    ChannelClosed();
};

using TimePoint = std::chrono::steady_clock::time_point;

struct Message {
    int micro_batch = 0;
    Tensor tensor;        ///< detached from the sender's arena
    TimePoint available;  ///< not to be received earlier (paced links); default: at once
};

/// One edge: one boundary, one direction, one producer, one consumer, first in first out.
class Channel {
  public:
    virtual ~Channel() = default;
    /// Blocks while `capacity` messages wait (capacity 0: until the receiver takes this one). Returns when the channel took
    /// the message. Throws ChannelClosed.
    virtual TimePoint send(Message message) = 0;
    /// Blocks until a message is there. `arrived` is when it was. Throws ChannelClosed.
    struct Received {
        Message message;
        TimePoint arrived;
    };
    virtual Received receive() = 0;
    /// Ends every blocked and later send and receive with ChannelClosed. Any thread.
    virtual void close() = 0;
    /// Empties and opens it again, when no thread is inside.
    virtual void reopen() = 0;
    virtual int capacity() const = 0;
};

/// Between threads of this process: spins briefly, then blocks. No capacity: unbounded.
std::unique_ptr<Channel> make_local_channel(std::optional<int> capacity);

}  // namespace pipetwin::exec
