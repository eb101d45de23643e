// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "exec/device/device.h"
#include "exec/device/memory.h"

namespace pipetwin::exec {

/// An engine for copies between the memory of a device and another, the host's or that of a
/// neighbour. They run beside what the device computes: those of one direction one after the other,
/// the two directions at the same time. Used by its device's thread.
class CopyEngine {
  public:
    enum class Direction { Out, In };  ///< out of the device's memory, into it

    /// Bytes to copy, from one address to another.
    struct Piece {
        const void* from = nullptr;
        void* to = nullptr;
        std::size_t bytes = 0;
    };

    /// Times of one copy, on the device's clock.
    struct Times {
        TimePoint begin;
        TimePoint ready;  ///< the last byte is on the link, which is free for the next copy
        TimePoint end;    ///< the copy is complete
    };

    virtual ~CopyEngine() = default;

    /// The host memory that it copies to and from fastest.
    virtual Memory& memory() = 0;

    /// Begins a step: no copy is under way, and the numbers of copies count from 0 again.
    virtual void restart() = 0;

    /// Begins to copy all of `pieces`, which stay as they are until the copy is complete. The copy
    /// starts when the copy `after` is complete. What the device computed in actions that are
    /// complete is complete. Returns the number of the copy.
    virtual int start(Direction direction,
                      std::span<const Piece> pieces,
                      std::optional<int> after = {}) = 0;

    /// True if the copy is complete; does not wait.
    virtual bool is_complete(int copy) = 0;

    /// Returns when the copy is complete.
    virtual void wait(int copy) = 0;

    /// The times of a copy that is complete.
    virtual Times times(int copy) = 0;

    /// Returns a function for another thread, once until `restart`: it waits until the copy is
    /// complete, and returns when that was.
    virtual std::function<TimePoint()> arrival(int copy) = 0;
};

}  // namespace pipetwin::exec
