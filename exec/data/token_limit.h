// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace pipetwin::exec {

/// Index of the first token whose id is above `most`; the number of tokens where there is none.
/// Each token is an unsigned little-endian number of `token_bytes`, 2 or 4. As fast as memory is
/// read.
std::size_t first_above(std::span<const std::byte> tokens,
                        std::size_t token_bytes,
                        std::size_t most);

}  // namespace pipetwin::exec
