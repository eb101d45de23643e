// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/device/update_table.h"

#include <algorithm>
#include <utility>

namespace pipetwin::cuda {
namespace {

/// Parts of one block, each at a multiple of 256 bytes.
class Parts {
  public:
    /// Adds a part of `bytes`; returns its offset.
    std::size_t add(std::size_t bytes) {
        constexpr std::size_t part_alignment = 256;
        return std::exchange(end_,
                             end_ + (bytes + part_alignment - 1) / part_alignment * part_alignment);
    }
    std::size_t bytes() const { return end_; }

  private:
    std::size_t end_ = 0;
};

}  // namespace

UpdateTable::UpdateTable(Lane& lane, std::vector<UpdateTensor> tensors)
    : lane_(lane), tensors_(std::move(tensors)) {
    const std::vector<UpdateChunk> chunks = update_chunks(tensors_);
    Parts parts;
    const std::size_t tensors_at = parts.add(tensors_.size() * sizeof(UpdateTensor));
    const std::size_t chunks_at = parts.add(chunks.size() * sizeof(UpdateChunk));
    const std::size_t squares_at = parts.add(chunks.size() * sizeof(double));
    const std::size_t factors_at = parts.add(sizeof(UpdateFactors));
    bytes_ = parts.bytes();
    lane.finish();
    memory_ = static_cast<std::byte*>(lane.memory().take(bytes_));
    try {  // done before the table is used: a copy that fails must leave no table
        upload(tensors_at, std::as_bytes(std::span(tensors_)));
        upload(chunks_at, std::as_bytes(std::span(chunks)));
    } catch (...) {
        lane.memory().give_back(memory_, bytes_);
        throw;
    }
    factors_ = memory_ + factors_at;
    updates_ = {.tensors = reinterpret_cast<const UpdateTensor*>(memory_ + tensors_at),
                .tensor_count = static_cast<std::int64_t>(tensors_.size()),
                .chunks = reinterpret_cast<const UpdateChunk*>(memory_ + chunks_at),
                .chunk_count = static_cast<std::int64_t>(chunks.size()),
                .factors = reinterpret_cast<const UpdateFactors*>(memory_ + factors_at),
                .chunk_squares = reinterpret_cast<double*>(memory_ + squares_at)};
}

void UpdateTable::upload(std::size_t at, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const std::size_t count = std::min(bytes.size(), lane_.staging_bytes());
        std::byte* const staged = lane_.staged(count);
        std::ranges::copy(bytes.first(count), staged);
        lane_.list_copy(memory_ + at, staged, count);
        lane_.finish();
        at += count;
        bytes = bytes.subspan(count);
    }
}

UpdateTable::~UpdateTable() {
    lane_.memory().give_back(memory_, bytes_);
}

bool UpdateTable::is_of(const std::vector<UpdateTensor>& tensors) const {
    return std::ranges::equal(tensors_, tensors, [](const UpdateTensor& a, const UpdateTensor& b) {
        return a.value == b.value && a.gradient == b.gradient && a.squares == b.squares &&
               a.size == b.size && a.counted == b.counted;
    });
}

}  // namespace pipetwin::cuda
