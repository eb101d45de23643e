#pragma once

#include <algorithm>
#include <cstdint>

namespace pipetwin::exec {

/// Elements of a list that follow one another: the first, and how many.
struct ElementRange {
    std::int64_t begin = 0;
    std::int64_t size = 0;

    std::int64_t end() const { return begin + size; }
};

/// The range that one of several has of so many elements: shares follow one another and differ by
/// one at most; the first has no less than any other.
inline ElementRange share_of(std::int64_t count, int index, int shares) {
    const auto begin = [&](std::int64_t of) { return (count * of + shares - 1) / shares; };
    return {.begin = begin(index), .size = begin(index + 1) - begin(index)};
}

/// The elements that are in both ranges.
inline ElementRange common(const ElementRange& a, const ElementRange& b) {
    const std::int64_t begin = std::max(a.begin, b.begin);
    return {.begin = begin, .size = std::max<std::int64_t>(0, std::min(a.end(), b.end()) - begin)};
}

}  // namespace pipetwin::exec
