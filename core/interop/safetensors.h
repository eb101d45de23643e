// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/text/input_file.h"

/// The header of a safetensors file: an unsigned 64-bit little-endian N, then N bytes of JSON that
/// name the tensors in the bytes behind it.
namespace pipetwin {

/// One tensor of a file: its name, type, shape, and the place of its bytes.
struct SafetensorsEntry {
    std::string name{};
    std::string dtype{};  ///< "BF16"
    std::vector<std::int64_t> shape{};
    std::int64_t begin = 0;  ///< of its bytes, from the end of the header
    std::int64_t end = 0;

    bool operator==(const SafetensorsEntry&) const = default;
};

/// The header of a file: its tensors and its metadata.
struct SafetensorsHeader {
    std::vector<SafetensorsEntry> tensors{};  ///< in the order of their bytes, without a gap
    std::map<std::string, std::string> metadata{};
    std::int64_t data_begin = 0;  ///< in the file: 8 + N

    bool operator==(const SafetensorsHeader&) const = default;
};

/// Bytes of one number of a dtype; 0 for one that no such file has.
int bytes_of_dtype(std::string_view dtype);

/// Numbers in a tensor. Throws Error(BadInput) at `place` if that is more than 2^63 - 1.
std::int64_t value_count(const SafetensorsEntry& tensor, std::string_view place);

/// Reads a header. `begin` is the begin of a file of `file_size` bytes, with at least the whole
/// header in it. Throws Error(BadInput) with `place` and the byte, or the tensor, for: a header
/// that is cut off, longer than 100,000,000 bytes or no JSON object, a name that occurs twice, an
/// unknown dtype, more than 8 dimensions, a size that is not that of dtype and shape, bytes that
/// belong to no tensor or to two, an end that is not that of the file.
SafetensorsHeader parse_safetensors_header(std::string_view begin,
                                           std::int64_t file_size,
                                           std::string_view place);

/// Reads the header of a file, and nothing behind it. Throws as `parse_safetensors_header`, and
/// Error(Io).
SafetensorsHeader read_safetensors_header(const std::filesystem::path& file);
/// Reads the header of a file that was just opened; `place` names it in errors.
SafetensorsHeader read_safetensors_header(InputFile& file, std::string_view place);

/// Puts the tensors one behind the other in the order given: sets their begins and ends.
void place_tensors(SafetensorsHeader& header);

/// N and the JSON, padded with spaces so that the bytes behind begin at a multiple of 8:
/// parse(print(x)) = x but for `data_begin`, which is the length of the result.
std::string print_safetensors_header(const SafetensorsHeader& header);

}  // namespace pipetwin
