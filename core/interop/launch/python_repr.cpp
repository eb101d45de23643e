// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/python_repr.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/ascii.h"
#include "core/base/error.h"

namespace pipetwin {

namespace {

using PythonJson = nlohmann::ordered_json;

/// The part of a dotted name behind its last dot.
std::string last_part(std::string_view name) {
    return std::string(name.substr(name.rfind('.') + 1));
}

/// Reads one value; one object for each.
class ReprReader {
  public:
    ReprReader(std::string_view text, std::string_view place) : text_(text), place_(place) {}

    PythonJson value() {
        constexpr int deepest = 64;
        if (++depth_ > deepest) {
            refuse("more than 64 levels");
        }
        skip_blanks();
        const char c = peek();
        PythonJson result;
        if (c == '{') {
            result = braces();
        } else if (c == '[' || c == '(') {
            result = sequence(c == '[' ? ']' : ')', c == '(');
        } else if (c == '<') {
            result = angle_brackets();
        } else if (c == '\'' || c == '"') {
            result = strings();
        } else {
            result = word();
        }
        --depth_;
        return result;
    }

  private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw Error(ErrorKind::BadInput,
                    std::string(place_),
                    fmt::format("the value that is printed here has {}", what),
                    "does the log end in the middle, or has another process written into it?");
    }

    char peek() const {
        if (at_ >= text_.size()) {
            refuse("no end");
        }
        return text_[at_];
    }

    void skip_blanks() {
        while (at_ < text_.size() &&
               std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
            ++at_;
        }
    }

    /// Whether a sequence ends here; else skips a comma.
    bool ends_with(char closing) {
        skip_blanks();
        if (peek() == ',') {
            ++at_;
            skip_blanks();
        }
        if (peek() != closing) {
            return false;
        }
        ++at_;
        return true;
    }

    PythonJson braces() {
        ++at_;
        PythonJson object = PythonJson::object();
        PythonJson list = PythonJson::array();
        while (!ends_with('}')) {
            PythonJson key = value();
            skip_blanks();
            if (peek() != ':') {
                list.push_back(std::move(key));  // of a set
                continue;
            }
            ++at_;
            object[key.is_string() ? key.get<std::string>() : key.dump()] = value();
        }
        return list.empty() ? object : list;
    }

    /// A list, or a tuple; a value in parentheses is that value.
    PythonJson sequence(char closing, bool may_be_one) {
        ++at_;
        PythonJson list = PythonJson::array();
        bool has_comma = false;
        while (!ends_with(closing)) {
            list.push_back(value());
            skip_blanks();
            has_comma = has_comma || peek() == ',';
        }
        return may_be_one && list.size() == 1 && !has_comma ? list[0] : list;
    }

    std::string string_here() {
        const char quote = text_[at_++];
        std::string result;
        for (; peek() != quote; ++at_) {
            if (text_[at_] != '\\') {
                result += text_[at_];
                continue;
            }
            ++at_;
            const char c = peek();
            result += c == 'n' ? '\n' : c == 't' ? '\t' : c;
        }
        ++at_;
        return result;
    }

    /// Strings that follow each other are one.
    PythonJson strings() {
        std::string result;
        while (at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"')) {
            result += string_here();
            skip_blanks();
        }
        return as_text(result);
    }

    /// A text in which what is no UTF-8 was replaced.
    static PythonJson as_text(const std::string& text) {
        return PythonJson::parse(
            PythonJson(text).dump(-1, ' ', false, PythonJson::error_handler_t::replace));
    }

    /// "<Mode.REDUCE: 2>", "<Option.WRAP: 'wrap'>", "<package.Class object at 0x7f>".
    PythonJson angle_brackets() {
        const std::size_t begin = ++at_;
        int depth = 1;
        for (; depth > 0; ++at_) {
            const char c = peek();
            depth += c == '<' ? 1 : c == '>' ? -1 : 0;
        }
        const std::string_view inside = text_.substr(begin, at_ - begin - 1);
        const std::size_t colon = inside.find(": ");
        if (colon == std::string_view::npos) {
            return as_text(last_part(inside.substr(0, inside.find(' '))));
        }
        const std::string_view held = inside.substr(colon + 2);
        const bool is_text = held.size() >= 2 && (held[0] == '\'' || held[0] == '"');
        return as_text(is_text ? std::string(held.substr(1, held.size() - 2))
                               : last_part(inside.substr(0, colon)));
    }

    /// A number, a name, or an object "Name(...)".
    PythonJson word() {
        const std::size_t begin = at_;
        const auto is_part = [](char c) {
            return ascii::is_letter(c) || ascii::is_digit(c) || c == '_' || c == '.' || c == '-' ||
                   c == '+' || (static_cast<unsigned char>(c) & 0x80U) != 0;
        };
        while (at_ < text_.size() && is_part(text_[at_])) {
            ++at_;
        }
        const std::string name(text_.substr(begin, at_ - begin));
        if (name.empty()) {
            refuse(fmt::format("'{}' where a value was expected", peek()));
        }
        if (at_ < text_.size() && text_[at_] == '(') {
            return object();
        }
        if (name == "True" || name == "False") {
            return name == "True";
        }
        if (name == "None") {
            return nullptr;
        }
        return PythonJson::accept(name) ? PythonJson::parse(name) : as_text(last_part(name));
    }

    PythonJson object() {
        ++at_;
        PythonJson members = PythonJson::object();
        PythonJson values = PythonJson::array();
        while (!ends_with(')')) {
            if (const std::optional<std::string> key = key_here()) {
                members[*key] = value();
            } else {
                values.push_back(value());
            }
        }
        return !members.empty() ? members : values.size() == 1 ? values[0] : values;
    }

    /// "name=", which is skipped; none: something else is here.
    std::optional<std::string> key_here() {
        std::size_t end = at_;
        while (end < text_.size() &&
               (ascii::is_letter(text_[end]) || ascii::is_digit(text_[end]) || text_[end] == '_')) {
            ++end;
        }
        if (end == at_ || end >= text_.size() || text_[end] != '=') {
            return std::nullopt;
        }
        std::string key(text_.substr(at_, end - at_));
        at_ = end + 1;
        return key;
    }

    std::string_view text_;
    std::string_view place_;
    std::size_t at_ = 0;
    int depth_ = 0;
};

}  // namespace

std::string json_of_python(std::string_view text, std::string_view place) {
    return ReprReader(text, place).value().dump();
}

}  // namespace pipetwin
