// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan/message_room.h"

namespace pipetwin::exec {

MessageRoom::~MessageRoom() {
    settle();
    for (const auto& [bytes, blocks] : free_) {
        for (void* const block : blocks) {
            memory_.give_back(block, bytes);
        }
    }
}

void* MessageRoom::take(std::size_t bytes) {
    {
        const std::lock_guard lock(mutex_);
        std::set<void*>& blocks = free_[bytes];
        if (!blocks.empty()) {
            return blocks.extract(blocks.begin()).value();
        }
    }
    return memory_.take(bytes);
}

void MessageRoom::give_back(void* block, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    in_use_.emplace_back(block, bytes);
}

void MessageRoom::settle() {
    const std::lock_guard lock(mutex_);
    for (const auto& [block, bytes] : in_use_) {
        free_[bytes].insert(block);
    }
    in_use_.clear();
}

}  // namespace pipetwin::exec
