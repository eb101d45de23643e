// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/scenario_writer.h"

#include <algorithm>

namespace pipetwin {

std::string toml_string(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        const auto code = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            result += '\\';
            result += c;
        } else if (code < 0x20 || code == 0x7f) {
            result += fmt::format("\\u{:04X}", code);
        } else {
            result += c;
        }
    }
    return result + '"';
}

void ScenarioWriter::string(std::string_view key, std::string_view value) {
    fmt::format_to(out(), "{} = {}\n", key, toml_string(value));
}

void ScenarioWriter::strings(std::string_view key, const std::vector<std::string>& values) {
    std::vector<std::string> all;
    std::ranges::transform(values, std::back_inserter(all), toml_string);
    list(key, all);
}

}  // namespace pipetwin
