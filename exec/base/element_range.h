#pragma once

#include <algorithm>
#include <cstdint>

namespace pipetwin::exec {

/// Some numbers that follow one another.
struct ElementRange {
    std::int64_t begin = 0;
    std::int64_t size = 0;

    std::int64_t end() const { return begin + size; }
};

/// What one of several has of so many numbers: shares follow one another and differ by one at most;
/// the first has no less than any other.
inline ElementRange share_of(std::int64_t count, int index, int shares) {
    const auto begin = [&](std::int64_t of) { return (count * of + shares - 1) / shares; };
    return {.begin = begin(index), .size = begin(index + 1) - begin(index)};
}

/// What both have, counted as they are.
inline ElementRange common(const ElementRange& a, const ElementRange& b) {
    const std::int64_t begin = std::max(a.begin, b.begin);
    return {.begin = begin, .size = std::max<std::int64_t>(0, std::min(a.end(), b.end()) - begin)};
}

}  // namespace pipetwin::exec
