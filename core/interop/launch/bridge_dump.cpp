// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/bridge_dump.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/word_list.h"

namespace pipetwin {

namespace {

constexpr std::string_view class_key = "-target-";
constexpr std::string_view arguments_key = "-args-";

/// An object below a table: its class, and what it was made with.
struct DumpedObject {
    const Setting* of_class = nullptr;
    std::string name{};      ///< of the class, behind its last dot
    std::string argument{};  ///< the first; empty: none
};

std::string dumped_text(const Setting& setting) {
    return setting.values.empty() ? std::string() : setting.values.front().text;
}

std::string behind_last_dot(const std::string& name) {
    return name.substr(name.rfind('.') + 1);
}

/// A type of numbers as Megatron's flags call it; empty: it is none.
std::string_view word_of_type(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> types{
        {{"float32", "fp32"}, {"bfloat16", "bf16"}, {"float16", "fp16"}, {"uint8", "fp8"}}};
    const auto* const found =
        std::ranges::find(types, name, &std::pair<std::string_view, std::string_view>::first);
    return found == types.end() ? std::string_view() : found->second;
}

/// megatron/core/transformer/enums.py, AttnBackend.
std::string word_of_backend(const std::string& number) {
    constexpr std::array<std::string_view, 5> words{"flash", "fused", "unfused", "local", "auto"};
    std::size_t index = 0;
    const char* const end = number.data() + number.size();
    const auto [rest, status] = std::from_chars(number.data(), end, index);
    const bool is_known =
        status == std::errc{} && rest == end && index >= 1 && index <= words.size();
    return std::string(is_known ? words[index - 1] : std::string_view("unknown"));
}

/// Whether an object changes no step: a function, a clock, a tokenizer.
bool says_nothing(std::string_view key, const DumpedObject& object) {
    const bool is_plain_spec =
        (key == "transformer_layer_spec" || key == "mamba_stack_spec") &&
        has_word(
            "default_layer_spec transformer_engine_layer_spec local_layer_spec "
            "default_mamba_stack_spec get_default_mamba_stack_spec",
            object.name);
    return key.ends_with("_func") || key.ends_with("init_method") || is_plain_spec ||
           has_word(
               "timers tokenizer generation_config exit_signal autocast_dtype "
               "pipeline_dtype moe_router_dtype",
               key);
}

/// The plain value that stands for an object; none: there is none.
std::optional<std::string> value_for_object(std::string_view key, const DumpedObject& object) {
    if (const std::string_view type = word_of_type(object.name); !type.empty()) {
        return std::string(type);
    }
    if (object.name == "AttnBackend") {
        return word_of_backend(object.argument);
    }
    if (key == "activation_func") {
        return object.name;
    }
    return std::nullopt;
}

Setting* setting_named(LaunchFile& file, std::string_view written) {
    const auto found = std::ranges::find(file.settings, written, &Setting::written);
    return found == file.settings.end() ? nullptr : &*found;
}

/// Runs of some versions have the model's longest sample in `model.seq_length`; data are as long as
/// they say.
void settle_samples(LaunchFile& file) {
    Setting* const of_model = setting_named(file, "model.seq_length");
    for (const std::string_view key : {"dataset.sequence_length", "dataset.seq_length"}) {
        Setting* const of_data = setting_named(file, key);
        if (of_model == nullptr || of_data == nullptr || of_data->is_unset || of_model->is_unset ||
            dumped_text(*of_model) == dumped_text(*of_data)) {
            continue;
        }
        file.notes.push_back(
            fmt::format("{}: {} = {}, but {} = {}: samples are as long as the data say",
                        of_model->place,
                        of_model->written,
                        dumped_text(*of_model),
                        of_data->written,
                        dumped_text(*of_data)));
        of_model->values = of_data->values;
    }
}

/// The model's words are those that it has in the end: whole, or to be filled up to a multiple.
/// What the tokenizer has says nothing more.
void settle_words(LaunchFile& file) {
    Setting* const words = setting_named(file, "model.vocab_size");
    if (words == nullptr || words->is_unset) {
        return;
    }
    const Setting* const pads = setting_named(file, "model.should_pad_vocab");
    if (pads == nullptr || dumped_text(*pads) != "true") {
        words->name = "padded-vocab-size";
    }
    std::erase_if(file.settings, [](const Setting& setting) {
        return setting.sections == std::vector<std::string>{"tokenizer"};
    });
}

}  // namespace

bool is_bridge_dump(const LaunchFile& file) {
    return std::ranges::any_of(file.settings, [](const Setting& setting) {
        return setting.sections.empty() && setting.name == class_key &&
               dumped_text(setting).ends_with("config.ConfigContainer");
    });
}

void settle_bridge_dump(LaunchFile& file) {
    std::map<std::vector<std::string>, DumpedObject> objects;
    for (const Setting& setting : file.settings) {
        if (setting.sections.size() < 2) {
            continue;
        }
        const std::vector<std::string> path(setting.sections.begin(), setting.sections.begin() + 2);
        DumpedObject& object = objects[path];
        if (setting.sections.size() == 2 && setting.name == class_key) {
            object.of_class = &setting;
            object.name = behind_last_dot(dumped_text(setting));
        }
        if (setting.sections.size() == 2 && setting.name == arguments_key) {
            object.argument = dumped_text(setting);
        }
    }
    std::vector<Setting> plain;
    std::vector<std::vector<std::string>> done;
    for (const auto& [path, object] : objects) {
        if (object.of_class == nullptr) {
            continue;
        }
        const std::string& key = path.back();
        if (says_nothing(key, object)) {
            done.push_back(path);
            continue;
        }
        // Any other object is its class, which the key may have or not.
        const std::string value =
            value_for_object(key, object).value_or(dumped_text(*object.of_class));
        Setting setting{.name = key,
                        .written = fmt::format("{}.{}", path.front(), key),
                        .place = object.of_class->place,
                        .values = {{.text = value, .place = object.of_class->place}},
                        .is_key = true,
                        .sections = {path.front()}};
        std::ranges::replace(setting.name, '_', '-');
        plain.push_back(std::move(setting));
        done.push_back(path);
    }
    std::erase_if(file.settings, [&done](const Setting& setting) {
        const bool is_class = setting.name == class_key && setting.sections.size() < 2;
        return is_class || std::ranges::any_of(done, [&setting](const auto& path) {
                   return setting.sections.size() >= path.size() &&
                          std::equal(path.begin(), path.end(), setting.sections.begin());
               });
    });
    file.settings.insert(file.settings.end(), plain.begin(), plain.end());
    settle_samples(file);
    settle_words(file);
    file.is_printed = true;
}

}  // namespace pipetwin
