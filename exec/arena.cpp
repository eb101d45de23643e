#include "exec/arena.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include <fmt/format.h>

#include "core/error.h"

namespace pipetwin::exec {

std::size_t Arena::capacity_for(Bytes bytes) {
    constexpr std::size_t cache_line = 64;
    const auto least = static_cast<std::size_t>(std::max(bytes.count, std::int64_t{1}));
    return (least + cache_line - 1) / cache_line * cache_line;
}

Arena::~Arena() {
    workspace_ = {};
    for (const auto& [capacity, blocks] : free_) {
        for (void* const block : blocks) {
            memory_.give_back(block, capacity);
        }
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
    tensor.data_ = take(tensor.capacity_);
    tensor.memory_ = &memory_;
    tensor.arena_ = this;
    add(kind, tensor.bytes());
    return tensor;
}

/// A freed block of that size, or a new one.
void* Arena::take(std::size_t capacity) {
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
                throw Error(error.kind(),
                            error.place(),
                            fmt::format("{}; until now the rank holds\n{}",
                                        error.text(),
                                        memory_table("", {{.name = "", .use = live_}})),
                            error.hint());
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
    try {
        free_[capacity].push_back(block);
    } catch (...) {  // no memory to remember the block by: let the system have it
        memory_.give_back(block, capacity);
    }
}

}  // namespace pipetwin::exec
