// SPDX-License-Identifier: Apache-2.0
#include "core/interop/hf_keys.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/suggest.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr const char* as_published =
    "compare with the config.json that was published with the model";

std::string hint_for_missing(const JsonObject& object, string_view key) {
    const std::vector<std::string> keys = object.keys();
    const std::vector<string_view> known(keys.begin(), keys.end());
    const string_view near = nearest_word(key, known);
    return near.empty() || near == key
               ? "no size is guessed: write it out as published, or is model_type another one?"
               : fmt::format("there is a key '{}'; is that the one?", near);
}

/// The number, or that of all entries of a list; none where it is neither.
std::optional<std::int64_t> whole_or_equal(const JsonObject& object, string_view key) {
    try {
        if (!object.is_list(key)) {
            return object.whole(key);
        }
        const std::vector<std::int64_t> all = object.wholes(key);
        const bool alike = !all.empty() && std::ranges::count(all, all.front()) == std::ssize(all);
        return alike ? std::optional(all.front()) : std::nullopt;
    } catch (const Error&) {
        return std::nullopt;
    }
}

}  // namespace

bool HfConfig::has(string_view key) const {
    read_.emplace(key);
    return object_.has(key) && !object_.is_null(key);
}

int HfConfig::size_at(string_view key, int most, int least) const {
    const std::string expected = fmt::format("a whole number from {} to {}", least, most);
    if (!has(key)) {
        object_.missing(key, expected, hint_for_missing(object_, key));
    }
    const std::optional<std::int64_t> value = whole_or_equal(object_, key);
    if (!value || *value < least || *value > most) {
        object_.refuse(key, expected, as_published);
    }
    return static_cast<int>(*value);
}

int HfConfig::size(const HfSize& size, int most, int least) const {
    const auto there =
        std::ranges::find_if(size.keys, [this](string_view key) { return has(key); });
    if (there == size.keys.end() && size.otherwise != hf_required) {
        return size.otherwise;
    }
    return size_at(there == size.keys.end() ? size.keys.at(0) : *there, most, least);
}

bool HfConfig::flag(const HfFlag& flag) const {
    const auto there =
        std::ranges::find_if(flag.keys, [this](string_view key) { return has(key); });
    return there == flag.keys.end() ? flag.otherwise : object_.flag(*there);
}

string_view HfConfig::name(const HfSize& size) const {
    const auto there =
        std::ranges::find_if(size.keys, [this](string_view key) { return has(key); });
    return there == size.keys.end() ? size.keys.at(0) : *there;
}

void HfConfig::refuse(string_view key, string_view expected, std::string hint) const {
    object_.refuse(key, expected, std::move(hint));
}

std::vector<string_view> HfConfig::unread(const std::vector<string_view>& keys) const {
    std::vector<string_view> all;
    std::ranges::copy_if(keys, std::back_inserter(all), [this](string_view key) {
        return object_.has(key) && object_.says_something(key) && !read_.contains(key);
    });
    return all;
}

std::vector<std::string> HfConfig::unknown() const {
    std::vector<std::string> all;
    std::ranges::copy_if(object_.keys(), std::back_inserter(all), [this](const std::string& key) {
        return object_.says_something(key) && !read_.contains(key) && !hf_is_harmless(key);
    });
    return all;
}

std::vector<HfConfig::Misspelt> HfConfig::misspelt() const {
    std::vector<Misspelt> all;
    for (const std::string& there : object_.keys()) {
        if (read_.contains(there)) {
            continue;
        }
        for (const std::string& meant : read_) {
            const std::size_t most = std::min(there.size(), meant.size()) < 12 ? 1 : 2;
            if (!object_.has(meant) && edit_distance(there, meant) <= most) {
                all.push_back({there, meant});
            }
        }
    }
    return all;
}

}  // namespace pipetwin
