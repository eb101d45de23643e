// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/units.h"
#include "core/timeline/footprint.h"
#include "exec/base/element_range.h"

namespace pipetwin::exec {

class Arena;
class Memory;

/// Type of a tensor's numbers.
enum class DType { F32, F64, I32, BF16, U8 };
/// Bytes of one number.
std::size_t size_of(DType type);
/// "fp32", "fp64", "int32", "bf16" or "uint8".
std::string_view to_string(DType type);

/// The DType of a C++ element type.
template <class T>
inline constexpr DType dtype_of = DType::F32;
template <>
inline constexpr DType dtype_of<double> = DType::F64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::I32;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::U8;

/// A row-major matrix of (rows, columns) in an arena; 64-byte aligned, move-only. Activations have
/// rows = samples * positions. An empty tensor owns nothing. Its bytes are exactly rows * columns *
/// size_of(dtype); padding for alignment does not count. Returns its memory to the arena when
/// destroyed.
class Tensor {
  public:
    Tensor() = default;
    Tensor(Tensor&& other) noexcept;
    Tensor& operator=(Tensor&& other) noexcept;
    Tensor(const Tensor&) = delete;
    Tensor& operator=(const Tensor&) = delete;
    ~Tensor();

    /// Makes a tensor that no arena counts yet: a message that is written for another rank.
    /// Contents are undefined. Throws what `memory` throws.
    static Tensor detached(Memory& memory, DType type, std::int64_t rows, std::int64_t columns);
    /// Makes a tensor that no arena counts yet, at an address that the plan of a step has for it.
    static Tensor placed(
        Memory& memory, void* address, DType type, std::int64_t rows, std::int64_t columns);

    bool empty() const { return data_ == nullptr; }
    DType dtype() const { return dtype_; }
    std::int64_t rows() const { return rows_; }
    std::int64_t columns() const { return columns_; }
    std::int64_t size() const { return rows_ * columns_; }
    /// Bytes of its numbers: rows * columns * size_of(dtype).
    Bytes bytes() const;
    MemoryKind kind() const { return kind_; }

    void* data() { return data_; }
    const void* data() const { return data_; }
    /// Throws InternalError if T is not the element type.
    template <class T>
    T* as() {
        PIPETWIN_EXPECT(dtype_ == dtype_of<T>, "element type of a tensor");
        return static_cast<T*>(data_);
    }
    template <class T>
    const T* as() const {
        PIPETWIN_EXPECT(dtype_ == dtype_of<T>, "element type of a tensor");
        return static_cast<const T*>(data_);
    }

    /// Accounts the tensor under another kind in its arena.
    void move_to(MemoryKind kind);

    /// The memory that its block came from.
    const Memory* memory() const { return memory_; }

    /// Takes the tensor out of its arena's account, to be handed to another rank.
    void detach();
    /// Accounts a detached tensor in `arena`.
    void attach(Arena& arena, MemoryKind kind);
    /// Keeps the tensor in its arena's account, but leaves its place in the step's plan to others.
    void give_up_place();
    /// Ends the tensor here, as it goes on in another rank; where arenas only rehearse.
    void vanish();

  private:
    friend class Arena;
    /// Owner of the memory when the tensor ends: a block goes back to its memory, while a place of
    /// the step's plan is used again as planned - by its arena, if the tensor is not handed on.
    enum class Place { Block, Planned, HandedOn };
    void release() noexcept;

    void* data_ = nullptr;
    std::size_t capacity_ = 0;
    std::int64_t rows_ = 0;
    std::int64_t columns_ = 0;
    DType dtype_ = DType::F32;
    MemoryKind kind_ = MemoryKind::Stash;
    Place place_ = Place::Block;
    Memory* memory_ = nullptr;  ///< where the block came from
    Arena* arena_ = nullptr;
};

/// "(64, 128) fp32".
std::string shape_text(DType type, std::int64_t rows, std::int64_t columns);

/// A matrix that the view does not own: what kernels read. Row-major, without gaps; empty where
/// data is null.
struct ConstView {
    const void* data = nullptr;
    DType dtype = DType::F32;
    std::int64_t rows = 0;
    std::int64_t columns = 0;

    ConstView() = default;
    ConstView(const void* where, DType type, std::int64_t row_count, std::int64_t column_count)
        : data(where), dtype(type), rows(row_count), columns(column_count) {}
    ConstView(
        const Tensor& tensor)  // NOLINT(google-explicit-constructor): a tensor is a view of itself
        : ConstView(tensor.data(), tensor.dtype(), tensor.rows(), tensor.columns()) {}

    bool empty() const { return data == nullptr; }
    std::int64_t size() const { return rows * columns; }
    std::size_t bytes() const { return static_cast<std::size_t>(size()) * size_of(dtype); }
    /// The numbers. Throws InternalError if T is not their type.
    template <class T>
    const T* as() const {
        PIPETWIN_EXPECT(data == nullptr || dtype == dtype_of<T>, "element type of a view");
        return static_cast<const T*>(data);
    }
};

/// A matrix that the view does not own: what kernels write. Row-major, without gaps; empty where
/// data is null.
struct View {
    void* data = nullptr;
    DType dtype = DType::F32;
    std::int64_t rows = 0;
    std::int64_t columns = 0;

    View() = default;
    View(void* where, DType type, std::int64_t row_count, std::int64_t column_count)
        : data(where), dtype(type), rows(row_count), columns(column_count) {}
    View(Tensor& tensor)  // NOLINT(google-explicit-constructor): a tensor is a view of itself
        : View(tensor.data(), tensor.dtype(), tensor.rows(), tensor.columns()) {}

    operator ConstView() const {
        return {data, dtype, rows, columns};
    }  // NOLINT(google-explicit-constructor)

    bool empty() const { return data == nullptr; }
    std::int64_t size() const { return rows * columns; }
    /// The numbers. Throws InternalError if T is not their type.
    template <class T>
    T* as() const {
        PIPETWIN_EXPECT(data == nullptr || dtype == dtype_of<T>, "element type of a view");
        return static_cast<T*>(data);
    }
};

/// A view of the numbers in `range`, counted in row-major order, as one row. Throws InternalError
/// if they are not all there.
template <class AnyView>
AnyView part_of(const AnyView& view, const ElementRange& range) {
    PIPETWIN_EXPECT(range.begin >= 0 && range.end() <= view.size(), "a part of a view");
    AnyView part = view;
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(part.data)>>,
                                    const std::byte,
                                    std::byte>;
    part.data = static_cast<Byte*>(part.data) + as_index(range.begin) * size_of(part.dtype);
    part.rows = 1;
    part.columns = range.size;
    return part;
}

}  // namespace pipetwin::exec
