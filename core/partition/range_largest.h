#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/as_index.h"

namespace pipetwin {

/// The largest number of any range, at once: a table of the largest of 1, 2, 4, ... numbers from
/// each place on, two of which cover any range (sparse table).
class RangeLargest {
  public:
    explicit RangeLargest(std::span<const std::int64_t> numbers)
        : count_(numbers.size()), largest_(numbers.begin(), numbers.end()) {
        for (std::size_t width = 1; 2 * width <= count_; width *= 2) {
            const std::size_t below = largest_.size() - count_;
            for (std::size_t i = 0; i < count_; ++i) {
                const std::size_t other = std::min(i + width, count_ - 1);
                largest_.push_back(std::max(largest_[below + i], largest_[below + other]));
            }
        }
    }

    /// The largest of the numbers `first` to `end` - 1, which are at least one.
    std::int64_t operator()(std::size_t first, std::size_t end) const {
        const std::size_t width = std::bit_floor(end - first);
        const std::size_t level = as_index(std::countr_zero(width));
        const std::int64_t* const row = &largest_[level * count_];
        return std::max(row[first], row[end - width]);
    }

  private:
    std::size_t count_;
    std::vector<std::int64_t> largest_;  ///< [level][place]
};

}  // namespace pipetwin
