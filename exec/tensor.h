#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/footprint.h"
#include "core/units.h"

namespace pipetwin::exec {

class Arena;

enum class DType { F32, F64, I32 };
std::size_t size_of(DType type);
std::string_view to_string(DType type);

/// A row-major matrix of (rows, columns) in an arena; 64-byte aligned, move-only. Activations have rows = samples *
/// positions. An empty tensor owns nothing. Its bytes are exactly rows * columns * size_of(dtype); padding for
/// alignment does not count. Returns its memory to the arena when destroyed.
class Tensor {
  public:
    Tensor() = default;
    Tensor(Tensor&& other) noexcept;
    Tensor& operator=(Tensor&& other) noexcept;
    Tensor(const Tensor&) = delete;
    Tensor& operator=(const Tensor&) = delete;
    ~Tensor();

    bool empty() const { return data_ == nullptr; }
    DType dtype() const { return dtype_; }
    std::int64_t rows() const { return rows_; }
    std::int64_t columns() const { return columns_; }
    std::int64_t size() const { return rows_ * columns_; }
    Bytes bytes() const;
    MemoryKind kind() const { return kind_; }

    void* data() { return data_; }
    const void* data() const { return data_; }
    /// Throws InternalError if T is not the element type.
    template <class T>
    T* as();
    template <class T>
    const T* as() const;

    /// Accounts the tensor under another kind in its arena.
    void move_to(MemoryKind kind);

    /// Takes the tensor out of its arena's account, to be handed to another rank.
    void detach();
    /// Accounts a detached tensor in `arena`. Blocks of equal size flow back the other way in a training step (outputs one way,
    /// gradients the other), so free lists stay balanced.
    void attach(Arena& arena, MemoryKind kind);

  private:
    friend class Arena;
    void* data_ = nullptr;
    std::size_t capacity_ = 0;
    std::int64_t rows_ = 0;
    std::int64_t columns_ = 0;
    DType dtype_ = DType::F32;
    MemoryKind kind_ = MemoryKind::Stash;
    Arena* arena_ = nullptr;
};

}  // namespace pipetwin::exec
