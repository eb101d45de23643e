// SPDX-License-Identifier: Apache-2.0
#include "exec/device/arena.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/timeline/memory_limits.h"
#include "exec/device/allocation_trace.h"

namespace pipetwin::exec {

std::size_t Arena::capacity_for(Bytes bytes) {
    constexpr std::size_t cache_line = 64;
    const auto least = static_cast<std::size_t>(std::max(bytes.count, std::int64_t{1}));
    return (least + cache_line - 1) / cache_line * cache_line;
}

void Arena::give_back_free_blocks() {
    for (auto& [capacity, blocks] : free_) {
        for (void* const block : blocks) {
            memory_.give_back(block, capacity);
        }
        blocks.clear();
    }
}

Arena::~Arena() {
    workspace_ = {};
    give_back_free_blocks();
    if (room_ != nullptr) {
        memory_.give_back(room_, room_bytes_);
    }
}

Tensor Arena::allocate(DType type, std::int64_t rows, std::int64_t columns, MemoryKind kind) {
    PIPETWIN_EXPECT(rows >= 0 && columns >= 0, "the shape of a tensor is not negative");
    Tensor tensor;
    tensor.rows_ = rows;
    tensor.columns_ = columns;
    tensor.dtype_ = type;
    tensor.kind_ = kind;
    tensor.capacity_ = capacity_for(tensor.bytes());
    if (void* const place = next_place(tensor.capacity_)) {
        tensor.data_ = place;
        tensor.place_ = Tensor::Place::Planned;
        ++at_work_;
    } else {
        tensor.data_ = take(tensor.capacity_);
    }
    tensor.memory_ = &memory_;
    tensor.arena_ = this;
    add(kind, tensor.bytes());
    return tensor;
}

void Arena::rehearse(AllocationTrace* trace) {
    trace_ = trace;
}

Tensor Arena::rehearse_arrival(DType type,
                               std::int64_t rows,
                               std::int64_t columns,
                               const MessageName& message) {
    Tensor tensor;
    tensor.rows_ = rows;
    tensor.columns_ = columns;
    tensor.dtype_ = type;
    tensor.kind_ = MemoryKind::Boundary;
    tensor.capacity_ = capacity_for(tensor.bytes());
    tensor.data_ = trace_->receive(tensor.capacity_, message);
    tensor.memory_ = &memory_;
    tensor.arena_ = this;
    add(tensor.kind_, tensor.bytes());
    return tensor;
}

void* Arena::take_room(std::size_t bytes) {
    PIPETWIN_EXPECT(room_ == nullptr, "an arena has one room");
    if (bytes > 0) {
        room_ = take(bytes);
        room_bytes_ = bytes;
    }
    return room_;
}

void Arena::begin_step() {
    next_ = 0;
    follows_ = !places_.asked.empty() && at_work_ == 0;
}

void Arena::turn_to(std::size_t cell) {
    if (follows_ && (next_ != places_.asked.at(cell) || at_work_ != places_.at_work.at(cell))) {
        leave_plan();
    }
}

/// The place that the plan has for the current request; null: none.
void* Arena::next_place(std::size_t capacity) {
    if (!follows_) {
        return nullptr;
    }
    if (next_ < places_.requests.size() && places_.requests[next_].bytes == capacity) {
        return places_.requests[next_++].address;
    }
    leave_plan();
    return nullptr;
}

void Arena::leave_plan() {
    follows_ = false;
    ++unforeseen_;
}

/// A freed block of that size, or a new one.
void* Arena::take(std::size_t capacity) {
    if (trace_ != nullptr) {
        return trace_->take(capacity);
    }
    while (true) {
        std::vector<void*>& reusable = free_[capacity];
        if (!reusable.empty()) {
            void* const block = reusable.back();
            reusable.pop_back();
            return block;
        }
        try {
            return memory_.take(capacity);
        } catch (const Error& error) {
            if (!free_some_ || !free_some_()) {
                throw error.with_text(fmt::format("{}; until now the rank holds\n{}",
                                                  error.text(),
                                                  memory_table("", {{.name = "", .use = live_}})));
            }
        }
    }
}

void Arena::reserve(MemoryKind kind, Bytes bytes) {
    add(kind, bytes);
}

std::byte* Arena::workspace(Bytes bytes) {
    if (bytes > workspace_.bytes()) {
        workspace_ = {};  // first, so that old and new are never counted together
        // Four-byte elements: sizes are whole elements of a training precision.
        workspace_ = allocate(DType::I32, 1, (bytes.count + 3) / 4, MemoryKind::Workspace);
    }
    return static_cast<std::byte*>(workspace_.data());
}

void Arena::reset_peak() {
    peak_ = live_;
    peak_total_ = live_total_;
}

void Arena::deal_free_blocks(std::span<Arena* const> arenas) {
    std::map<std::size_t, std::vector<void*>> all;
    for (const Arena* const arena : arenas) {
        for (const auto& [capacity, blocks] : arena->free_) {
            std::ranges::copy(blocks, std::back_inserter(all[capacity]));
        }
    }
    for (auto& [capacity, blocks] : all) {
        std::ranges::sort(blocks, std::less<void*>());
        auto next = blocks.begin();
        for (Arena* const arena : arenas) {
            for (void*& block : arena->free_[capacity]) {
                block = *next++;
            }
        }
    }
}

void Arena::add(MemoryKind kind, Bytes bytes) noexcept {
    live_[kind] += bytes;
    live_total_ += bytes;
    if (live_total_ > peak_total_) {
        peak_total_ = live_total_;
        peak_ = live_;
    }
}

void Arena::take_back(void* block, std::size_t capacity) noexcept {
    if (trace_ != nullptr) {
        trace_->give_back(block);
        return;
    }
    try {
        free_[capacity].push_back(block);
    } catch (...) {  // no memory to remember the block by: let the system have it
        memory_.give_back(block, capacity);
    }
}

}  // namespace pipetwin::exec
