// SPDX-License-Identifier: Apache-2.0
#include "cli/base/value_words.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/swept_keys.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin::cli {

namespace {

/// How a list is called in the type name of an option, "NAME:<clusters>". The help leaves out what
/// begins with the colon.
constexpr std::array<std::pair<NameList, std::string_view>, 7> list_words{
    {{NameList::Clusters, "clusters"},
     {NameList::Devices, "devices"},
     {NameList::Keys, "keys"},
     {NameList::Models, "models"},
     {NameList::Precisions, "precisions"},
     {NameList::Schedules, "schedules"},
     {NameList::Stacks, "stacks"}}};

/// A check that refuses nothing, with this text in the type name of its option.
CLI::Validator text_alone(const std::string& text) {
    return CLI::Validator([](std::string&) { return std::string(); }, fmt::format("<{}>", text));
}

std::vector<std::string> names_of(NameList list) {
    switch (list) {
        case NameList::Clusters:
            return cluster_names();
        case NameList::Devices:
            return device_names();
        case NameList::Keys:
            return scenario_key_names();
        case NameList::Models:
            return model_names();
        case NameList::Precisions:
            return {"bf16", "fp16", "fp32", "fp8", "fp8-block", "mxfp8", "nvfp4"};
        case NameList::Schedules: {
            std::vector<std::string> names;
            for (const ScheduleName& known : known_schedules()) {
                names.emplace_back(known.name);
            }
            return names;
        }
        case NameList::Stacks: {
            std::vector<std::string> names = stack_names();
            names.emplace_back("none");
            return names;
        }
    }
    return {};
}

/// The words between `open` and the last `close`, with commas between them.
std::vector<std::string> words_between(std::string_view text, char open, char close) {
    std::vector<std::string> words;
    const std::size_t begin = text.find(open);
    const std::size_t end = text.rfind(close);
    if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) {
        return words;
    }
    for (std::size_t at = begin + 1; at < end;) {
        const std::size_t comma = std::min(text.find(',', at), end);
        words.emplace_back(text.substr(at, comma - at));
        at = comma + 1;
    }
    return words;
}

}  // namespace

CLI::Validator suggests(NameList names) {
    const auto* const word =
        std::ranges::find(list_words, names, &std::pair<NameList, std::string_view>::first);
    return text_alone(std::string(word->second));
}

CLI::Validator suggests(std::span<const std::string_view> words) {
    return text_alone(fmt::format("{}", fmt::join(words, ",")));
}

std::vector<std::string> suggested_words(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const std::size_t begin = type.find(':');
    const std::string_view checks =
        begin == std::string::npos ? "" : std::string_view(type).substr(begin + 1);
    if (checks.starts_with('{')) {
        return words_between(checks, '{', '}');
    }
    std::vector<std::string> words = words_between(checks, '<', '>');
    if (words.size() == 1) {
        const auto* const list = std::ranges::find(
            list_words, words.front(), &std::pair<NameList, std::string_view>::second);
        return list == list_words.end() ? words : names_of(list->first);
    }
    return words;
}

std::string value_name(const CLI::Option& option) {
    constexpr std::array<std::string_view, 6> checks{
        ":INT", ":FLOAT", ":POSITIVE", ":NONNEGATIVE", ":{", ":<"};
    std::string type = option.get_type_name();
    for (const std::string_view check : checks) {
        type.resize(std::min(type.size(), type.find(check)));
    }
    return type;
}

}  // namespace pipetwin::cli
