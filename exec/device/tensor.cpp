// SPDX-License-Identifier: Apache-2.0
#include "exec/device/tensor.h"

#include <utility>

#include <fmt/format.h>

#include "exec/device/arena.h"

namespace pipetwin::exec {

std::size_t size_of(DType type) {
    switch (type) {
        case DType::U8:
            return 1;
        case DType::BF16:
            return 2;
        case DType::F64:
            return 8;
        case DType::F32:
        case DType::I32:
            return 4;
    }
    throw InternalError("a type of elements");
}

std::string_view to_string(DType type) {
    switch (type) {
        case DType::F32:
            return "fp32";
        case DType::F64:
            return "fp64";
        case DType::I32:
            return "int32";
        case DType::BF16:
            return "bf16";
        case DType::U8:
            return "uint8";
    }
    return "?";
}

std::string shape_text(DType type, std::int64_t rows, std::int64_t columns) {
    return fmt::format("({}, {}) {}", rows, columns, to_string(type));
}

Tensor::Tensor(Tensor&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      capacity_(std::exchange(other.capacity_, 0)),
      rows_(std::exchange(other.rows_, 0)),
      columns_(std::exchange(other.columns_, 0)),
      dtype_(other.dtype_),
      kind_(other.kind_),
      place_(other.place_),
      memory_(other.memory_),
      arena_(std::exchange(other.arena_, nullptr)) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
    if (this != &other) {
        release();
        data_ = std::exchange(other.data_, nullptr);
        capacity_ = std::exchange(other.capacity_, 0);
        rows_ = std::exchange(other.rows_, 0);
        columns_ = std::exchange(other.columns_, 0);
        dtype_ = other.dtype_;
        kind_ = other.kind_;
        place_ = other.place_;
        memory_ = other.memory_;
        arena_ = std::exchange(other.arena_, nullptr);
    }
    return *this;
}

Tensor::~Tensor() {
    release();
}

void Tensor::release() noexcept {
    if (data_ == nullptr) {
        return;
    }
    if (arena_ != nullptr) {
        arena_->add(kind_, -bytes());
    }
    if (place_ != Place::Block) {
        give_up_place();
    } else if (arena_ != nullptr && memory_ == &arena_->memory_) {
        arena_->take_back(data_, capacity_);
    } else {  // a message that was never received, or that came from another memory
        memory_->give_back(data_, capacity_);
    }
    data_ = nullptr;
}

Tensor Tensor::detached(Memory& memory, DType type, std::int64_t rows, std::int64_t columns) {
    Tensor tensor;
    tensor.rows_ = rows;
    tensor.columns_ = columns;
    tensor.dtype_ = type;
    tensor.capacity_ = Arena::capacity_for(tensor.bytes());
    tensor.data_ = memory.take(tensor.capacity_);
    tensor.memory_ = &memory;
    return tensor;
}

Tensor Tensor::placed(
    Memory& memory, void* address, DType type, std::int64_t rows, std::int64_t columns) {
    Tensor tensor;
    tensor.rows_ = rows;
    tensor.columns_ = columns;
    tensor.dtype_ = type;
    tensor.capacity_ = Arena::capacity_for(tensor.bytes());
    tensor.data_ = address;
    tensor.memory_ = &memory;
    tensor.place_ = Place::HandedOn;
    return tensor;
}

Bytes Tensor::bytes() const {
    return {size() * static_cast<std::int64_t>(size_of(dtype_))};
}

void Tensor::move_to(MemoryKind kind) {
    PIPETWIN_EXPECT(arena_ != nullptr, "the tensor is in an arena's account");
    arena_->add(kind_, -bytes());
    kind_ = kind;
    arena_->add(kind_, bytes());
}

void Tensor::detach() {
    PIPETWIN_EXPECT(arena_ != nullptr, "the tensor is in an arena's account");
    arena_->add(kind_, -bytes());
    give_up_place();
    arena_ = nullptr;
}

void Tensor::give_up_place() {
    if (place_ == Place::Planned) {
        --arena_->at_work_;
        place_ = Place::HandedOn;
    }
}

void Tensor::vanish() {
    PIPETWIN_EXPECT(arena_ != nullptr && arena_->trace_ != nullptr, "the arena rehearses");
    arena_->add(kind_, -bytes());
    arena_ = nullptr;
    data_ = nullptr;
}

void Tensor::attach(Arena& arena, MemoryKind kind) {
    PIPETWIN_EXPECT(data_ != nullptr && arena_ == nullptr, "the tensor is detached");
    arena_ = &arena;
    kind_ = kind;
    arena_->add(kind_, bytes());
}

}  // namespace pipetwin::exec
