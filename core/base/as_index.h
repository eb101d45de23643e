// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace pipetwin {

/// An index or a count, none negative, as the standard containers take it: `row[as_index(rank)]`.
template <class Integer>
constexpr std::size_t as_index(Integer index) {
    return static_cast<std::size_t>(index);
}

}  // namespace pipetwin
