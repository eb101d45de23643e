// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/runtime/device_memory.h"

#include <algorithm>
#include <cstdint>
#include <future>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/units.h"

namespace pipetwin::cuda {
namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t least_growth = std::size_t{256} << 20U;

std::size_t rounded(std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

std::string text_of(std::size_t bytes) {
    return format_bytes({static_cast<std::int64_t>(bytes)});
}

}  // namespace

DeviceMemory::Piece DeviceMemory::new_piece(std::size_t bytes) const {
    PIPETWIN_CUDA_CHECK(cudaSetDevice(device_));
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
        static_cast<void>(cudaGetLastError());  // it is not sticky, and handled here
        std::size_t left = 0;
        std::size_t total = 0;
        PIPETWIN_CUDA_CHECK(cudaMemGetInfo(&left, &total));
        throw Error(ErrorKind::Infeasible,
                    "memory",
                    fmt::format("{} wanted, but the GPU has {} left of {}",
                                text_of(bytes),
                                text_of(left),
                                text_of(total)),
                    "a smaller micro-batch, recompute = \"always\", or more stages")
            .because(ErrorReason::Memory);
    }
    check_runtime("cudaMalloc", error);
    return {.memory = Owned<std::byte*, cudaFree>(static_cast<std::byte*>(memory)),
            .bytes = bytes,
            .heap = exec::BlockHeap(bytes)};
}

DeviceMemory::DeviceMemory(int device, std::size_t bytes) : device_(device) {
    pieces_.push_back(new_piece(rounded(std::max(bytes, alignment))));
}

std::size_t DeviceMemory::bytes() {
    const std::lock_guard lock(mutex_);
    std::size_t sum = 0;
    for (const Piece& piece : pieces_) {
        sum += piece.bytes;
    }
    return sum;
}

void* DeviceMemory::take(std::size_t bytes) {
    const std::size_t size = rounded(bytes);
    const std::lock_guard lock(mutex_);
    for (Piece& piece : pieces_) {
        if (const auto offset = piece.heap.take(size)) {
            return piece.memory.get() + *offset;
        }
    }
    // On a thread of its own: the calling one may work on another GPU, for which it wants a message
    // taken, or in a context that is a part of this one.
    auto grown =
        std::async(std::launch::async, [&] { return new_piece(std::max(size, least_growth)); });
    Piece& piece = pieces_.emplace_back(grown.get());
    return piece.memory.get() + piece.heap.take(size).value();
}

void DeviceMemory::give_back(void* block, std::size_t bytes) noexcept {
    auto* const place = static_cast<std::byte*>(block);
    const std::lock_guard lock(mutex_);
    for (Piece& piece : pieces_) {
        if (place >= piece.memory.get() && place < piece.memory.get() + piece.bytes) {
            piece.heap.give_back(as_index(place - piece.memory.get()), rounded(bytes));
            return;
        }
    }
}

}  // namespace pipetwin::cuda
