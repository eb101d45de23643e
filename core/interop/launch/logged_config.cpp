// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/logged_config.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/interop/launch/log_lines.h"

namespace pipetwin {

namespace {

/// "[rank0]:" or "[default3]:", as torchrun puts it in front of each line of a process; empty: none
/// is there.
std::string_view rank_in_front(std::string_view line) {
    const std::size_t end = line.find("]:");
    if (!line.starts_with('[') || end == std::string_view::npos || end < 2 ||
        !ascii::is_digit(line[end - 1])) {
        return {};
    }
    const std::string_view inside = line.substr(1, end - 1);
    const bool is_word = std::ranges::all_of(
        inside, [](char c) { return ascii::is_digit(c) || (c >= 'a' && c <= 'z'); });
    return is_word ? line.substr(0, end + 2) : std::string_view();
}

/// "[2026-03-01 10:00:00,123]", as programs begin a line of their own.
bool begins_with_time(std::string_view line) {
    constexpr std::string_view digits = "0123456789";
    return line.starts_with('[') && line.find_first_not_of(digits, 1) == 5 && line[5] == '-';
}

/// Finds where a value that begins with a brace ends. Quotes of Python and of JSON hide brackets.
class Brackets {
  public:
    /// Takes a line; the number of its characters that belong to the value, if it ends there.
    std::optional<std::size_t> end_in(std::string_view line) {
        for (std::size_t i = 0; i < line.size(); ++i) {
            const char c = line[i];
            if (quote_ != '\0') {
                i += c == '\\' ? 1 : 0;
                quote_ = c == quote_ ? '\0' : quote_;
            } else if (c == '"' || c == '\'') {
                quote_ = c;
            } else if (c == '{' || c == '[' || c == '(') {
                ++depth_;
            } else if (c == '}' || c == ']' || c == ')') {
                --depth_;
                if (depth_ == 0) {
                    return i + 1;
                }
            }
        }
        return std::nullopt;
    }

  private:
    int depth_ = 0;
    char quote_ = '\0';
};

/// Writes a Python value of plain types as JSON; one object for each. What Python writes in other
/// ways, as <class 'x'> or Path('y'), becomes the text of it.
class PythonValue {
  public:
    explicit PythonValue(std::string_view text) : text_(text) {}

    std::string json() {
        std::string result;
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == '\'' || c == '"') {
                result += string(c);
            } else if (c == '(' || c == ')' || c == ']' || c == '}') {
                if (c != '(' && result.ends_with(',')) {
                    result.pop_back();  // a tuple of one is "(1,)"
                }
                result += c == '(' ? '[' : c == ')' ? ']' : c;
                ++at_;
            } else if (std::string_view("{[:, \t\r\n").find(c) != std::string_view::npos) {
                result += c;
                ++at_;
            } else {
                result += word();
            }
        }
        return result;
    }

  private:
    std::string string(char quote) {
        std::string value;
        for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
            if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
                ++at_;
                value += text_[at_] == 'n' ? '\n' : text_[at_] == 't' ? '\t' : text_[at_];
            } else {
                value += text_[at_];
            }
        }
        ++at_;
        return quoted(value);
    }

    static std::string quoted(const std::string& value) {
        return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }

    /// A number, a name, or another value up to the comma or bracket behind it.
    std::string word() {
        const std::size_t begin = at_;
        int depth = 0;
        char inside = '\0';
        for (; at_ < text_.size(); ++at_) {
            const char c = text_[at_];
            if (inside != '\0') {
                inside = c == inside ? '\0' : inside;
            } else if (c == '\'' || c == '"') {
                inside = c;
            } else if (c == '(' || c == '<' || c == '[') {
                ++depth;
            } else if (depth > 0 && (c == ')' || c == '>' || c == ']')) {
                --depth;
            } else if (depth == 0 && (c == ',' || c == '}' || c == ']' || c == ')' ||
                                      (c == ':' && text_.substr(at_, 2) == ": "))) {
                break;
            }
        }
        const std::string_view found = trimmed_line(text_.substr(begin, at_ - begin));
        if (found == "True" || found == "False" || found == "None") {
            return found == "True" ? "true" : found == "False" ? "false" : "null";
        }
        return nlohmann::json::accept(found) ? std::string(found) : quoted(std::string(found));
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

/// The text of a configuration as JSON; none: it is no plain value.
std::optional<std::string> as_json(const std::string& text) {
    if (nlohmann::json::accept(text)) {
        return text;
    }
    std::string json = PythonValue(text).json();
    return nlohmann::json::accept(json) ? std::optional(std::move(json)) : std::nullopt;
}

/// Reads the configurations of a log line by line; one object for each.
class ConfigLines {
  public:
    ConfigLines(std::span<const std::string_view> marks, std::string_view place)
        : marks_(marks), place_(place) {}

    void take(std::string_view line, int number) {
        if (is_open_) {
            if (rank_in_front(line) == rank_ && !begins_with_time(line.substr(rank_.size()))) {
                add(line.substr(rank_.size()));
            }
            return;
        }
        for (const std::string_view mark : marks_) {
            const std::size_t at = line.find(mark);
            if (at != std::string_view::npos && line.substr(at + mark.size()).starts_with('{')) {
                is_open_ = true;
                begin_ = number;
                rank_ = rank_in_front(line);
                brackets_ = Brackets();
                text_.clear();
                add(line.substr(at + mark.size()));
                return;
            }
        }
    }

    LoggedConfig finish() {
        if (is_open_) {
            throw Error(ErrorKind::BadInput,
                        place_of(begin_),
                        "the configuration that is printed here has no end",
                        "does the log end in the middle? expected the closing brace");
        }
        return std::move(found_);
    }

  private:
    std::string place_of(int line) const { return fmt::format("{}:{}", place_, line); }

    void add(std::string_view part) {
        const std::optional<std::size_t> end = brackets_.end_in(part);
        text_ += part.substr(0, end.value_or(part.size()));
        text_ += '\n';
        if (!end) {
            return;
        }
        is_open_ = false;
        std::optional<std::string> json = as_json(text_);
        if (!json) {
            throw Error(
                ErrorKind::BadInput,
                place_of(begin_),
                "the configuration that is printed here is neither JSON nor a dict of "
                "Python",
                "has another program written into it? import the file of the configuration");
        }
        if (found_.line > 0 && nlohmann::json::parse(found_.json) != nlohmann::json::parse(*json)) {
            throw Error(ErrorKind::BadInput,
                        place_of(begin_),
                        fmt::format("another configuration than in line {}", found_.line),
                        "cut the log, so that it has one run");
        }
        if (found_.line == 0) {
            found_ = {.json = *std::move(json), .line = begin_};
        }
    }

    std::span<const std::string_view> marks_;
    std::string_view place_;
    LoggedConfig found_{};
    bool is_open_ = false;
    int begin_ = 0;
    std::string rank_{};  ///< in front of its lines
    std::string text_{};
    Brackets brackets_{};
};

}  // namespace

bool has_logged_config(std::string_view text, std::span<const std::string_view> marks) {
    return std::ranges::any_of(marks, [text](std::string_view mark) {
        return text.find(fmt::format("{}{{", mark)) != std::string_view::npos;
    });
}

LoggedConfig logged_config(std::string_view text,
                           std::span<const std::string_view> marks,
                           std::string_view place) {
    ConfigLines lines(marks, place);
    for_each_log_line(text, [&](std::string_view line, int number) { lines.take(line, number); });
    return lines.finish();
}

}  // namespace pipetwin
