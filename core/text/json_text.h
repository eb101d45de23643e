// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace pipetwin {

/// Limits beyond which `parse_json` refuses a text.
struct JsonLimits {
    std::size_t max_bytes = std::size_t{16} << 20;
    int max_depth = 64;
};

/// Reads a whole regular file. `look`, if given, gets every part of it as it comes and may throw.
/// Throws Error(Io) if it cannot be read, Error(BadInput) if it is larger than `max_bytes` (naming
/// the limit) or not a regular file.
std::string read_file(const std::filesystem::path& file,
                      std::size_t max_bytes,
                      const std::function<void(std::string_view)>& look = {});

/// Writes a file that the user named: beside it, and renamed, so that a reader sees the old or the
/// new content. What a link points to is replaced, a device or FIFO is written to. Throws
/// Error(Io).
void write_file(const std::filesystem::path& file, std::string_view content);

/// Strict JSON: refuses doubled keys, depth above the limit, numbers that are not finite or lose
/// precision (integers above 2^53), and anything after the value. A byte-order mark in front is
/// skipped. Throws Error(BadInput) with file:line:column; of a file that is no text at all it says
/// what it is.
nlohmann::json parse_json(std::string_view text,
                          std::string_view place,
                          const JsonLimits& limits = {});

/// Reads JSON as `parse_json` does, but numbers as Python writes them: NaN, Infinity and -Infinity,
/// and whole numbers beyond 2^53, which become floating-point numbers.
nlohmann::json parse_python_json(std::string_view text,
                                 std::string_view place,
                                 const JsonLimits& limits = {});

/// Whether the bytes are UTF-8 (RFC 3629), the only text that JSON can hold.
bool is_utf8(std::string_view bytes);

}  // namespace pipetwin
