// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "exec/device/memory.h"

namespace pipetwin::exec {

/// A rank's memory for messages that come from the memories of other ranks. A sender takes a block
/// and writes to it; the rank gives it back when it has issued the last call that reads it, and it
/// is free again once the rank's device has done everything.
class MessageRoom final : public Memory {
  public:
    /// `memory` is that of the rank's device, and outlives it.
    explicit MessageRoom(Memory& memory) : memory_(memory) {}
    MessageRoom(const MessageRoom&) = delete;
    MessageRoom& operator=(const MessageRoom&) = delete;
    ~MessageRoom() override;

    /// The memory of the rank's device.
    Memory& memory() { return memory_; }

    void* take(std::size_t bytes) override;
    void give_back(void* block, std::size_t bytes) noexcept override;

    /// Frees the blocks that were given back: the rank's device has done everything that was
    /// issued.
    void settle();

  private:
    Memory& memory_;
    std::mutex mutex_;
    /// Free blocks by size. The one with the lowest address comes first, independent of the order
    /// in which they came back: a step that repeats the one before gets its addresses.
    std::map<std::size_t, std::set<void*>> free_;
    std::vector<std::pair<void*, std::size_t>> in_use_;  ///< given back, but the device may read it
};

}  // namespace pipetwin::exec
