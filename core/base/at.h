#pragma once

#include <cstddef>

namespace pipetwin {

/// An index or a count, none negative, as the standard containers take it: `row[at(rank)]`.
template <class Integer>
constexpr std::size_t at(Integer index) {
    return static_cast<std::size_t>(index);
}

}  // namespace pipetwin
