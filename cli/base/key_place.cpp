// SPDX-License-Identifier: Apache-2.0
#include "cli/base/key_place.h"

#include <string>

#include "core/text/json_text.h"
#include "core/text/toml_table.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_scenario = std::size_t{16} << 20;

}  // namespace

Error with_place_of_key(const Error& error,
                        const std::filesystem::path& scenario,
                        const std::vector<Override>& overrides) {
    const std::string file = scenario.string();
    const bool is_of_scenario = !error.key().empty() || error.is_at(file);
    if (scenario.empty() || error.is_placed() || !is_of_scenario || error.kind() == ErrorKind::Io ||
        error.kind() == ErrorKind::Usage) {
        return error;
    }
    try {
        return TomlDocument(read_file(scenario, largest_scenario), file, overrides).placed(error);
    } catch (const std::exception&) {
        return error;  // what was read a moment ago is gone, or is no TOML: that is another error
    }
}

}  // namespace pipetwin::cli
