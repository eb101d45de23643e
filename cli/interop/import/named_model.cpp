// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/named_model.h"

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/input.h"
#include "core/base/ascii.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/interop/hf_config.h"
#include "core/interop/launch/setting_values.h"
#include "core/interop/megatron_config.h"
#include "core/interop/megatron_flags.h"
#include "core/text/json_text.h"
#include "sim/questions/estimated_model.h"

namespace pipetwin::cli {

std::string shipped_name(std::string_view theirs) {
    while (theirs.ends_with('/')) {
        theirs.remove_suffix(1);
    }
    std::string name(theirs.substr(theirs.find_last_of('/') + 1));
    std::ranges::transform(name, name.begin(), [](char c) { return ascii::lower(c); });
    // Qwen3's releases of July 2025 have the sizes of the first ones.
    for (const std::string_view end :
         {"-2507", "-hf", "-instruct", "-thinking", "-chat", "-base"}) {
        if (name.ends_with(end)) {
            name.erase(name.size() - end.size());
        }
    }
    const std::string meta = "meta-";
    name.erase(0, name.starts_with(meta) ? meta.size() : 0);
    return std::ranges::count(model_names(), name) > 0 ? name : std::string();
}

namespace {

/// The tokens of a sample, which config.json does not say; 1 where the file does not either.
int sequence_of(const LaunchFile& file) {
    for (const Setting& setting : file.settings) {
        if (setting.name == "seq-length" && !setting.is_unset) {
            return whole_value(setting, 1);
        }
    }
    return 1;
}

void add_model(LaunchFile& file, const std::string& name) {
    const std::filesystem::path config = sim::config_file(name, "import megatron --model");
    const std::string place = config.string();
    const MegatronModelFlags model =
        megatron_model_flags(read_input(config, JsonLimits{}.max_bytes), place, sequence_of(file));
    LaunchFile base = parse_launch_file(print_megatron_flags(model.flags), place);
    std::erase_if(base.settings,
                  [](const Setting& setting) { return setting.name == "seq-length"; });
    for (Setting& setting : base.settings) {
        setting.written = fmt::format("{} of {}", setting.written, name);
    }
    add_base_settings(file, base);
    file.notes.push_back(fmt::format("the model is {}, where the file does not say it", name));
    if (!model.missing.empty()) {
        file.notes.push_back(fmt::format(
            "{} has what no flag of Megatron says: {}", name, fmt::join(model.missing, "; ")));
    }
}

/// Samples of as many tokens as the model takes.
void add_longest_samples(LaunchFile& file, const std::string& name, const std::string& place) {
    const std::filesystem::path config = sim::config_file(name, "import megatron --model");
    const int tokens =
        parse_hf_config(read_input(config, JsonLimits{}.max_bytes), config.string()).context;
    if (tokens == 0) {
        return;
    }
    file.settings.push_back({.name = "seq-length",
                             .written = fmt::format("--max_length of {}", name),
                             .place = place,
                             .values = {{.text = fmt::to_string(tokens), .place = place}}});
    file.notes.push_back(
        fmt::format("{}: without --max_length a sample has up to {} tokens, as {} takes them",
                    place,
                    tokens,
                    name));
}

}  // namespace

void add_named_model(LaunchFile& file, const ImportOptions& options) {
    const auto found = std::ranges::find_if(file.settings, [](const Setting& setting) {
        const bool is_own = !setting.is_key || setting.written == "model";  // a flag, or of JSON
        return is_own && setting.name == "model" && setting.values.size() == 1;
    });
    std::string name = options.model;
    if (found != file.settings.end()) {
        const SettingWord word = found->values.front();
        file.settings.erase(found);
        // ms-swift has another name for the tokens of a sample.
        for (Setting& setting : file.settings) {
            setting.name = setting.name == "max-length" ? "seq-length" : setting.name;
        }
        const std::string shipped = word.unknown.empty() ? shipped_name(word.text) : "";
        // swift/arguments/base_args: without --max_length as many tokens as the model takes, which
        // later releases of it may have more of.
        const bool has_own_length = word.text.find("2507") == std::string::npos;
        if (!shipped.empty() && has_own_length && sequence_of(file) == 1) {
            add_longest_samples(file, shipped, word.place);
        }
        if (name.empty() && shipped.empty()) {
            file.notes.push_back(fmt::format(
                "{}: --model {}: its sizes are not known here; --model FILE names a config.json",
                word.place,
                word.unknown.empty() ? word.text : word.unknown));
        }
        name = name.empty() ? shipped : name;
    }
    if (!name.empty()) {
        add_model(file, name);
    }
}

}  // namespace pipetwin::cli
