// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace pipetwin {

/// One object of a parsed JSON text, read strictly: every refusal names file and JSON pointer, the
/// value found and what was expected.
class JsonObject {
  public:
    /// Throws Error(BadInput) if `value` is no object. `value` outlives the result.
    JsonObject(const nlohmann::json& value, std::string_view place, std::string pointer);

    /// Refuses every key that is not `known`, naming the nearest one that is.
    void expect_keys(std::span<const std::string_view> known) const;

    /// True if the object has the key, whatever its value.
    bool has(std::string_view key) const;

    /// A whole number from 0 to 2^53. Throws Error(BadInput) if the key is missing.
    std::int64_t whole(std::string_view key) const;
    /// A whole number from 0 to 2^53; `otherwise` if the key is missing.
    std::int64_t whole_or(std::string_view key, std::int64_t otherwise) const;

    double number_or(std::string_view key, double otherwise) const;  ///< not negative

    /// A string. Throws Error(BadInput) if the key is missing.
    std::string text(std::string_view key) const;
    /// A string; `otherwise` if the key is missing.
    std::string text_or(std::string_view key, std::string otherwise) const;
    std::vector<std::string> texts(std::string_view key) const;  ///< a missing key is an empty list

    std::vector<std::int64_t> wholes(
        std::string_view key) const;  ///< a missing key is an empty list

    bool flag(std::string_view key) const;       ///< true or false; required
    bool is_null(std::string_view key) const;    ///< there, and null
    bool is_list(std::string_view key) const;    ///< there, and a list
    bool is_text(std::string_view key) const;    ///< there, and a string
    bool is_object(std::string_view key) const;  ///< there, and an object
    /// True if the key is there with a value other than null, false, 0, 1, "", and empty lists and
    /// objects.
    bool says_something(std::string_view key) const;
    /// All keys, in alphabetical order.
    std::vector<std::string> keys() const;
    /// The object under the key. Throws Error(BadInput) if the key is missing or its value is no
    /// object.
    JsonObject object(std::string_view key) const;

    std::vector<JsonObject> objects(
        std::string_view key) const;  ///< a missing key is an empty list

    /// Returns the value as errors show it: short, strings in quotes; "missing" if the key is not
    /// there.
    std::string shown(std::string_view key) const;

    /// Throws Error(BadInput): the place of the key, the value found (or "missing") and what was
    /// expected.
    [[noreturn]] void refuse(std::string_view key,
                             std::string_view expected,
                             std::string hint = {}) const;
    /// Throws Error(BadInput): the place of the key, "missing", and what was expected.
    [[noreturn]] void missing(std::string_view key,
                              std::string_view expected,
                              std::string hint = {}) const;

  private:
    const nlohmann::json* find(std::string_view key) const;
    const nlohmann::json& list(std::string_view key) const;
    std::string place_of(std::string_view key) const;

    const nlohmann::json* value_;
    std::string_view place_;
    std::string pointer_;
};

}  // namespace pipetwin
