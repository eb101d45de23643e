// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pipetwin {

/// The text as a basic string of TOML, in quotes, with `"`, `\` and control characters escaped.
std::string toml_string(std::string_view text);

/// Writes a scenario as TOML, line by line.
class ScenarioWriter {
  public:
    /// "[training]"
    void table(std::string_view name) {
        fmt::format_to(out(), "{}[{}]\n", text_.empty() ? "" : "\n", name);
    }
    /// "[[model.layer]]"
    void list_entry(std::string_view name) { fmt::format_to(out(), "\n[[{}]]\n", name); }

    /// `key = "value"`
    void string(std::string_view key, std::string_view value);
    /// `key = 3`, or true or false.
    template <class Number>
    void number(std::string_view key, Number value) {
        fmt::format_to(out(), "{} = {}\n", key, value);
    }
    /// `key = [1, 2]`
    template <class Number>
    void list(std::string_view key, const std::vector<Number>& values) {
        fmt::format_to(out(), "{} = [{}]\n", key, fmt::join(values, ", "));
    }
    /// `key = [[1, 2], [3, 4]]`
    template <class Number>
    void lists(std::string_view key, const std::vector<std::vector<Number>>& rows) {
        std::vector<std::string> all;
        for (const std::vector<Number>& row : rows) {
            all.push_back(fmt::format("[{}]", fmt::join(row, ", ")));
        }
        list(key, all);
    }
    /// `key = ["a", "b"]`
    void strings(std::string_view key, const std::vector<std::string>& values);

    /// All that was written.
    std::string take() { return std::move(text_); }

  private:
    std::back_insert_iterator<std::string> out() { return std::back_inserter(text_); }

    std::string text_;
};

}  // namespace pipetwin
