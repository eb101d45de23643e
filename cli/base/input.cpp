// SPDX-License-Identifier: Apache-2.0
#include "cli/base/input.h"

#include <iostream>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/text/json_text.h"

namespace pipetwin::cli {

std::string input_name(const std::filesystem::path& file) {
    return file == "-" ? "standard input" : file.string();
}

bool is_folder(const std::filesystem::path& path) {
    std::error_code ignored;  // of links in a circle, for one
    return std::filesystem::is_directory(path, ignored);
}

std::string read_input(const std::filesystem::path& file,
                       std::size_t max_bytes,
                       const std::function<void(std::string_view)>& look) {
    if (file != "-") {
        return read_file(file, max_bytes, look);
    }
    std::string content;
    std::vector<char> buffer(std::size_t{1} << 16);
    while (std::cin.read(buffer.data(), std::ssize(buffer)) || std::cin.gcount() > 0) {
        const std::string_view part(buffer.data(), static_cast<std::size_t>(std::cin.gcount()));
        if (look) {
            look(part);
        }
        content += part;
        if (content.size() > max_bytes) {
            throw Error(ErrorKind::BadInput,
                        input_name(file),
                        fmt::format("more than {} bytes, expected less", max_bytes),
                        "check what is piped in");
        }
    }
    return content;
}

}  // namespace pipetwin::cli
