#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

namespace pipetwin::sim {

/// Something for every message of every edge, in one piece of memory.
template <class Value>
class PerMessage {
  public:
    /// `count` messages on each edge.
    explicit PerMessage(const std::vector<std::size_t>& count) : first_(count.size() + 1, 0) {
        std::partial_sum(count.begin(), count.end(), first_.begin() + 1);
        values_.resize(first_.back());
    }

    Value& at(int edge, int number) {
        return values_[first_[static_cast<std::size_t>(edge)] + static_cast<std::size_t>(number)];
    }

  private:
    std::vector<std::size_t> first_;
    std::vector<Value> values_;
};

}  // namespace pipetwin::sim
