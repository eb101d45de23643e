// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string_view>

namespace pipetwin {

/// Hands a regular file on block by block, in order; `take` may throw. Throws Error(Io) if the file
/// cannot be read, Error(BadInput) if it is not a regular one or larger than `max_bytes`, also when
/// it only becomes so meanwhile.
void read_blocks(const std::filesystem::path& file,
                 std::size_t max_bytes,
                 const std::function<void(std::string_view)>& take);

}  // namespace pipetwin
