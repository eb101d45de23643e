// SPDX-License-Identifier: Apache-2.0
#include "core/text/file_blocks.h"

#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/text/input_file.h"

namespace pipetwin {

namespace {

void check_size(const std::filesystem::path& file, std::size_t size, std::size_t max_bytes) {
    if (size > max_bytes) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    fmt::format("larger than the limit of {} bytes", max_bytes),
                    "is it the right file? those of this kind are smaller");
    }
}

}  // namespace

void read_blocks(const std::filesystem::path& file,
                 std::size_t max_bytes,
                 const std::function<void(std::string_view)>& take) {
    InputFile source(file);
    check_size(file, source.size(), max_bytes);
    std::vector<char> buffer(std::size_t{1} << 16);
    std::size_t size = 0;
    while (const std::size_t count = source.read(buffer)) {
        size += count;
        take({buffer.data(), count});
        check_size(file, size, max_bytes);  // the file grew meanwhile
    }
}

}  // namespace pipetwin
