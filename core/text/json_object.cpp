// SPDX-License-Identifier: Apache-2.0
#include "core/text/json_object.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/suggest.h"

namespace pipetwin {

using nlohmann::json;

namespace {

constexpr std::int64_t largest_exact = std::int64_t{1} << 53;
constexpr std::string_view whole_number = "a whole number from 0 to 2^53";
constexpr const char* correct_it =
    "correct it there, or write the file anew with the program that made it";
constexpr const char* add_it = "add the key, or write the file anew with the program that made it";

/// The hint itself, or what can be done about any value.
std::string hint_or(std::string hint, const char* otherwise) {
    return hint.empty() ? otherwise : std::move(hint);
}

std::string describe(const json& value) {
    constexpr std::size_t longest = 60;
    if (value.is_object()) {
        return "{an object}";
    }
    if (value.is_array()) {
        return "[a list]";
    }
    if (value.is_number_float() && !std::isfinite(value.get<double>())) {
        const auto number = value.get<double>();  // as Python writes it
        return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
    }
    const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

/// A key as part of a JSON pointer (RFC 6901).
std::string escaped(std::string_view key) {
    std::string result;
    for (const char c : key) {
        if (c == '~') {
            result += "~0";
        } else if (c == '/') {
            result += "~1";
        } else {
            result += c;
        }
    }
    return printable(result);
}

}  // namespace

JsonObject::JsonObject(const json& value, std::string_view place, std::string pointer)
    : value_(&value), place_(place), pointer_(std::move(pointer)) {
    if (!value.is_object()) {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}: {}", place_, pointer_.empty() ? "/" : pointer_),
                    fmt::format("{}, expected an object", describe(value)),
                    correct_it);
    }
}

const json* JsonObject::find(std::string_view key) const {
    const auto found = value_->find(key);
    return found == value_->end() ? nullptr : &*found;
}

std::string JsonObject::place_of(std::string_view key) const {
    return fmt::format("{}: {}/{}", place_, pointer_, escaped(key));
}

void JsonObject::expect_keys(std::span<const std::string_view> known) const {
    for (const auto& [key, value] : value_->items()) {
        bool is_known = false;
        for (const std::string_view one : known) {
            is_known = is_known || key == one;
        }
        if (!is_known) {
            throw Error(ErrorKind::BadInput, place_of(key), "unknown key", suggestion(key, known));
        }
    }
}

bool JsonObject::has(std::string_view key) const {
    return find(key) != nullptr;
}

std::string JsonObject::shown(std::string_view key) const {
    const json* const value = find(key);
    return value == nullptr ? "missing" : describe(*value);
}

void JsonObject::refuse(std::string_view key, std::string_view expected, std::string hint) const {
    throw Error(ErrorKind::BadInput,
                place_of(key),
                fmt::format("{}, expected {}", shown(key), expected),
                hint_or(std::move(hint), has(key) ? correct_it : add_it));
}

void JsonObject::missing(std::string_view key, std::string_view expected, std::string hint) const {
    throw Error(ErrorKind::BadInput,
                place_of(key),
                fmt::format("missing, expected {}", expected),
                hint_or(std::move(hint), add_it));
}

std::int64_t JsonObject::whole(std::string_view key) const {
    const json* const value = find(key);
    if (value == nullptr) {
        missing(key, whole_number);
    }
    if (value->is_number_float()) {
        const double number = value->get<double>();  // some writers have floats only: 1200.0
        if (number != std::floor(number) || number < 0 ||
            number > static_cast<double>(largest_exact)) {
            refuse(key, whole_number);
        }
        return static_cast<std::int64_t>(number);
    }
    if (!value->is_number_integer() || value->get<std::int64_t>() < 0) {
        refuse(key, whole_number);
    }
    return value->get<std::int64_t>();
}

std::int64_t JsonObject::whole_or(std::string_view key, std::int64_t otherwise) const {
    return has(key) ? whole(key) : otherwise;
}

double JsonObject::number_or(std::string_view key, double otherwise) const {
    const json* const value = find(key);
    if (value == nullptr) {
        return otherwise;
    }
    if (!value->is_number() || value->get<double>() < 0 || !std::isfinite(value->get<double>())) {
        refuse(key, "a number that is not negative");
    }
    return value->get<double>();
}

std::string JsonObject::text(std::string_view key) const {
    const json* const value = find(key);
    if (value == nullptr) {
        missing(key, "a text");
    }
    if (!value->is_string()) {
        refuse(key, "a text");
    }
    return value->get<std::string>();
}

std::string JsonObject::text_or(std::string_view key, std::string otherwise) const {
    return has(key) ? text(key) : std::move(otherwise);
}

const json& JsonObject::list(std::string_view key) const {
    static const json nothing = json::array();
    const json* const value = find(key);
    if (value != nullptr && !value->is_array()) {
        refuse(key, "a list");
    }
    return value == nullptr ? nothing : *value;
}

std::vector<std::string> JsonObject::texts(std::string_view key) const {
    std::vector<std::string> all;
    for (const json& element : list(key)) {
        if (!element.is_string()) {
            throw Error(ErrorKind::BadInput,
                        fmt::format("{}/{}", place_of(key), all.size()),
                        fmt::format("{}, expected a text", describe(element)),
                        correct_it);
        }
        all.push_back(element.get<std::string>());
    }
    return all;
}

std::vector<std::int64_t> JsonObject::wholes(std::string_view key) const {
    std::vector<std::int64_t> all;
    for (const json& element : list(key)) {
        if (!element.is_number_integer() || element < 0) {
            throw Error(ErrorKind::BadInput,
                        fmt::format("{}/{}", place_of(key), all.size()),
                        fmt::format("{}, expected {}", describe(element), whole_number),
                        correct_it);
        }
        all.push_back(element.get<std::int64_t>());
    }
    return all;
}

bool JsonObject::flag(std::string_view key) const {
    const json* const value = find(key);
    if (value == nullptr || !value->is_boolean()) {
        refuse(key, "true or false");
    }
    return value->get<bool>();
}

bool JsonObject::is_list(std::string_view key) const {
    const json* const value = find(key);
    return value != nullptr && value->is_array();
}

bool JsonObject::is_text(std::string_view key) const {
    const json* const value = find(key);
    return value != nullptr && value->is_string();
}

bool JsonObject::is_object(std::string_view key) const {
    const json* const value = find(key);
    return value != nullptr && value->is_object();
}

bool JsonObject::says_something(std::string_view key) const {
    const json* const value = find(key);
    if (value == nullptr || value->is_null()) {
        return false;
    }
    if (value->is_boolean()) {
        return value->get<bool>();
    }
    if (value->is_number()) {
        return *value != 0 && *value != 1;
    }
    return value->is_string() ? !value->get_ref<const std::string&>().empty() : !value->empty();
}

std::vector<std::string> JsonObject::keys() const {
    std::vector<std::string> all;
    for (const auto& [key, value] : value_->items()) {
        all.push_back(key);
    }
    return all;
}

bool JsonObject::is_null(std::string_view key) const {
    const json* const value = find(key);
    return value != nullptr && value->is_null();
}

JsonObject JsonObject::object(std::string_view key) const {
    const json* const value = find(key);
    if (value == nullptr) {
        missing(key, "an object");
    }
    return {*value, place_, fmt::format("{}/{}", pointer_, escaped(key))};
}

std::vector<JsonObject> JsonObject::objects(std::string_view key) const {
    std::vector<JsonObject> all;
    for (const json& element : list(key)) {
        all.emplace_back(
            element, place_, fmt::format("{}/{}/{}", pointer_, escaped(key), all.size()));
    }
    return all;
}

}  // namespace pipetwin
