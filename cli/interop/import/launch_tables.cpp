#include "cli/interop/import/launch_tables.h"

#include "core/text/json_text.h"

namespace pipetwin::cli {

std::filesystem::path profile_beside(const std::filesystem::path& out) {
    std::filesystem::path file = out;
    return file.replace_extension(".profile.json");
}

std::string toml_comment(std::string_view text) {
    std::string line = "# ";
    const bool readable = is_utf8(text);
    for (const char c : text) {
        const auto code = static_cast<unsigned char>(c);
        line += code < 0x20 || code == 0x7f ? ' ' : code >= 0x80 && !readable ? '?' : c;
    }
    return line + '\n';
}

}  // namespace pipetwin::cli
