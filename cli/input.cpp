#include "cli/input.h"

#include <iostream>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "core/formats/json_text.h"

namespace pipetwin::cli {

std::string input_name(const std::filesystem::path& file) {
    return file == "-" ? "standard input" : file.string();
}

bool for_each_part(std::istream& stream,
                   std::size_t max_bytes,
                   const std::function<void(std::string_view)>& look) {
    std::vector<char> part(std::size_t{1} << 16);
    for (std::size_t seen = 0; seen <= max_bytes;) {
        stream.read(part.data(), static_cast<std::streamsize>(part.size()));
        const auto count = static_cast<std::size_t>(stream.gcount());
        if (count == 0) {
            return true;
        }
        look({part.data(), count});
        seen += count;
    }
    return false;
}

std::string read_input(const std::filesystem::path& file,
                       std::size_t max_bytes,
                       const std::function<void(std::string_view)>& look) {
    if (file != "-") {
        return read_file(file, max_bytes);
    }
    std::string content;
    const bool whole = for_each_part(std::cin, max_bytes, [&](std::string_view part) {
        if (look) {
            look(part);
        }
        content += part;
    });
    if (!whole || content.size() > max_bytes) {
        throw Error(ErrorKind::BadInput,
                    input_name(file),
                    fmt::format("more than {} bytes, expected less", max_bytes),
                    "check what is piped in");
    }
    return content;
}

}  // namespace pipetwin::cli
