// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace pipetwin::exec {

/// Allocates blocks in one large piece of memory, as offsets into it. A block comes from the
/// smallest free part that holds it, of several from the first; free neighbours become one. So the
/// same requests in the same order get the same offsets.
class BlockHeap {
  public:
    explicit BlockHeap(std::size_t bytes);

    /// Offset of a new block; none if no free part is large enough. `bytes` > 0.
    std::optional<std::size_t> take(std::size_t bytes);

    /// Frees a block that `take` gave, with the same number of bytes.
    void give_back(std::size_t offset, std::size_t bytes);

    std::size_t free_bytes() const { return free_bytes_; }
    /// Bytes of the largest free part.
    std::size_t largest_free() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

  private:
    using Parts = std::map<std::size_t, std::size_t>;  ///< offset, bytes
    void insert(std::size_t offset, std::size_t bytes);
    void erase(Parts::iterator part);

    Parts by_offset_;
    std::set<std::pair<std::size_t, std::size_t>> by_size_;  ///< bytes, offset
    std::size_t free_bytes_ = 0;
};

}  // namespace pipetwin::exec
