// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/shell_expansion.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"

namespace pipetwin {

namespace {

constexpr std::size_t nowhere = std::string_view::npos;

}  // namespace

/// Replaces the variables of one word.
class ShellExpansion {
  public:
    ShellExpansion(const ShellVariables& variables, std::size_t word_at, bool splits)
        : variables_(variables), word_at_(word_at), splits_(splits) {}

    std::vector<ShellText> words(std::string_view raw, std::size_t at) {
        current_ = fresh();
        run(raw, at, false);
        if (has_word_) {
            words_.push_back(std::move(current_));
        }
        return std::move(words_);
    }

  private:
    ShellText fresh() const { return {.text = {}, .at = {}, .word_at = word_at_, .unknown = {}}; }

    void put(char c, std::size_t at) {
        current_.text += c;
        current_.at.push_back(at);
        has_word_ = true;
    }

    void end_word() {
        if (has_word_) {
            words_.push_back(std::move(current_));
        }
        current_ = fresh();
        has_word_ = false;
    }

    void put_unknown(std::string_view what, bool holds_flags = false) {
        put_gap({.at = 0,
                 .where = construct_at_,
                 .unknown = std::string(what),
                 .holds_flags = holds_flags});
    }

    void put_gap(const ShellGap& gap) {
        add_gap(gap, current_);
        has_word_ = true;
    }

    /// The value of a variable: outside of quotes its blanks end a word.
    void put_value(const ShellText& value, bool in_quotes) {
        std::size_t gap = 0;
        const auto put_gaps = [&](std::size_t index) {
            for (; gap < value.gaps.size() && value.gaps[gap].at <= index; ++gap) {
                if (value.gaps[gap].is_apart && splits_ && !in_quotes) {
                    end_word();
                }
                ShellGap next = value.gaps[gap];
                next.where = value.text.empty() ? construct_at_ : next.where;
                put_gap(next);
            }
        };
        for (std::size_t i = 0; i < value.text.size(); ++i) {
            put_gaps(i);
            if (splits_ && !in_quotes && is_shell_blank(value.text[i])) {
                end_word();
            } else {
                put(value.text[i], value.at[i]);
            }
        }
        put_gaps(value.text.size());
        if (!value.unknown.empty() && value.gaps.empty()) {
            put_unknown(value.unknown, value.holds_flags);
        }
    }

    /// The elements of an array, each a word of its own, or all of them as one text.
    void put_words(const std::vector<ShellText>& words, bool in_quotes, bool as_one = false) {
        for (std::size_t i = 0; i < words.size(); ++i) {
            if (i > 0 && splits_ && !as_one) {
                end_word();
            } else if (i > 0) {
                put(' ', words[i].begin());
            }
            put_value(words[i], in_quotes);
            has_word_ = has_word_ || in_quotes;
        }
    }

    [[noreturn]] void refuse(std::size_t at, std::string what, std::string hint) const {
        throw Error(ErrorKind::BadInput,
                    text_place(variables_.script_, variables_.place_, at),
                    std::move(what),
                    std::move(hint));
    }

    void run(std::string_view raw, std::size_t at, bool in_quotes) {
        // Single quotes inside double ones hide from the splitter what nests here.
        if (++depth_ > deepest_construct + 1) {
            refuse(at,
                   fmt::format("quotes and braces stand in each other more than {} deep",
                               deepest_construct),
                   "write the value of the innermost ones out");
        }
        run_at_depth(raw, at, in_quotes);
        --depth_;
    }

    void run_at_depth(std::string_view raw, std::size_t at, bool in_quotes) {
        for (std::size_t i = 0; i < raw.size();) {
            const std::size_t end = std::min(end_of_construct(raw, i), raw.size());
            const std::string_view construct = raw.substr(i, end - i);
            const char c = raw[i];
            if (c == '\\') {
                backslash(construct, at + i, in_quotes);
            } else if (c == '\'' && !in_quotes) {
                literal(construct, at + i);
            } else if (c == '"' && !in_quotes) {
                has_word_ = true;
                run(construct.substr(1, construct.size() - 2), at + i + 1, true);
            } else if (c == '`' || construct.starts_with("$(")) {
                construct_at_ = at + i;
                command(construct);
            } else if (c == '$') {
                construct_at_ = at + i;
                i += variable(raw.substr(i), at + i, in_quotes);
                continue;
            } else {
                put(c, at + i);
                i += 1;  // a single quote inside double quotes is no construct
                continue;
            }
            i = end;
        }
    }

    void backslash(std::string_view construct, std::size_t at, bool in_quotes) {
        const char next = construct.size() > 1 ? construct[1] : '\n';
        if (next == '\n' || next == '\r') {
            return;  // the line goes on
        }
        const bool is_kept = in_quotes && std::string_view("$`\"\\").find(next) == nowhere;
        if (is_kept) {
            put('\\', at);
        }
        put(next, at + 1);
    }

    void literal(std::string_view construct, std::size_t at) {
        has_word_ = true;
        for (std::size_t i = 1; i + 1 < construct.size(); ++i) {
            put(construct[i], at + i);
        }
    }

    /// "$((2 * X))" is computed; what "$(command)" prints is not known.
    void command(std::string_view construct) {
        if (!construct.starts_with("$((") || !construct.ends_with("))")) {
            put_unknown(construct.substr(0, 40));
            return;
        }
        const std::string_view formula = construct.substr(3, construct.size() - 5);
        std::string numbers;
        for (std::size_t i = 0; i < formula.size();) {
            std::string_view rest = formula.substr(i);
            const std::size_t mark = rest.starts_with("${") ? 2 : rest.starts_with('$') ? 1 : 0;
            const std::string_view name = shell_name_at(rest.substr(mark));
            if (name.empty()) {
                numbers += formula[i++];
                continue;
            }
            const auto* const value = known(name);
            if (value == nullptr || !value->words.front().unknown.empty()) {
                put_unknown("$" + std::string(name));
                return;
            }
            numbers += value->words.front().text;
            i += mark + name.size() + (mark == 2 ? 1 : 0);
        }
        const std::optional<std::int64_t> result = shell_arithmetic(numbers);
        if (!result) {
            put_unknown(construct.substr(0, 40));
            return;
        }
        for (const char c : std::to_string(*result)) {
            put(c, word_at_);
        }
    }

    /// A variable with a certain value, which is not empty; null: none.
    const ShellVariables::Value* known(std::string_view name) const {
        const auto found = variables_.values_.find(name);
        return found == variables_.values_.end() || !found->second.is_certain ||
                       found->second.words.empty()
                   ? nullptr
                   : &found->second;
    }

    bool is_set(std::string_view name) const {
        return variables_.values_.find(name) != variables_.values_.end();
    }

    /// Whether a variable has a value that may be another one at this point.
    bool is_uncertain(std::string_view name) const {
        const auto found = variables_.values_.find(name);
        return found != variables_.values_.end() && !found->second.is_certain;
    }

    bool may_hold_flags(std::string_view name) const {
        const auto found = variables_.values_.find(name);
        return found != variables_.values_.end() && found->second.holds_flags;
    }

    /// Replaces the variable at the begin of `raw`; returns how many characters it takes there.
    std::size_t variable(std::string_view raw, std::size_t at, bool in_quotes) {
        if (raw.starts_with("${")) {
            const std::size_t end = end_of_construct(raw, 0);
            if (end > raw.size()) {
                refuse(at,
                       end == too_deep ? "the brace holds too many others in each other"
                                       : "the brace is not closed",
                       "single quotes inside double ones do not hide it: look for its }, or write "
                       "\\$ for the character itself");
            }
            braces(raw.substr(2, end - 3), at + 2, in_quotes);
            return end;
        }
        const std::string_view name = shell_name_at(raw.substr(1));
        if (!name.empty()) {
            plain(name, in_quotes);
            return 1 + name.size();
        }
        constexpr std::string_view special = "0123456789@*#?$!-";
        if (raw.size() > 1 && special.find(raw[1]) != nowhere) {
            if (const auto* const value = known(raw.substr(1, 1))) {
                put_value(value->words.front(), in_quotes);
                return 2;
            }
            put_unknown(raw.substr(0, 2));
            return 2;
        }
        put('$', at);
        return 1;
    }

    void plain(std::string_view name, bool in_quotes) {
        if (const auto* const value = known(name)) {
            put_value(value->words.front(), in_quotes);
        } else if (const auto found = variables_.values_.find(name);
                   found == variables_.values_.end() || !found->second.is_certain) {
            put_unknown(fmt::format("${}", name), may_hold_flags(name));
        }
    }

    /// "X", "X:-otherwise", "X[@]", "#X", ...
    void braces(std::string_view inside, std::size_t at, bool in_quotes) {
        std::string_view name = shell_name_at(inside);
        if (name.empty() && !inside.empty() && inside.front() >= '0' && inside.front() <= '9') {
            name =
                inside.substr(0, std::min(inside.find_first_not_of("0123456789"), inside.size()));
        }
        const std::string_view rest = inside.substr(name.size());
        const bool is_argument = !name.empty() && name.front() >= '0' && name.front() <= '9';
        if (rest.empty() && !name.empty() && (!is_argument || known(name) != nullptr)) {
            plain(name, in_quotes);
            return;
        }
        if (rest == "[@]" || rest == "[*]") {
            if (const auto* const value = known(name)) {
                put_words(value->words, in_quotes, in_quotes && rest == "[*]");
            } else if (!is_set(name) || is_uncertain(name)) {
                put_unknown(fmt::format("${{{}}}", inside), may_hold_flags(name));
            }
            return;
        }
        const std::size_t colon = rest.starts_with(':') ? 1 : 0;
        const char sign = rest.size() > colon ? rest[colon] : '\0';
        const std::string_view word = rest.substr(std::min(colon + 1, rest.size()));
        const std::size_t word_at = at + (inside.size() - word.size());
        const auto* const value = known(name);
        const bool has_text =
            value != nullptr && !(colon == 1 && value->words.front().text.empty() &&
                                  value->words.front().unknown.empty());
        const bool is_known = !is_uncertain(name);
        if ((sign == '-' || sign == '=') && is_known) {
            if (has_text) {
                put_words(value->words, in_quotes);
            } else {
                run(word, word_at, in_quotes);
            }
        } else if (sign == '+' && is_known) {
            if (has_text) {
                run(word, word_at, in_quotes);
            }
        } else if (sign == '?' && has_text) {
            put_words(value->words, in_quotes);
        } else {
            put_unknown(fmt::format("${{{}}}", inside.substr(0, 40)),
                        may_hold_flags(name) || word.find("--") != nowhere);
        }
    }

    const ShellVariables& variables_;
    std::size_t word_at_;
    bool splits_;
    std::vector<ShellText> words_;
    ShellText current_;
    bool has_word_ = false;
    std::size_t construct_at_ = word_at_;  ///< of the variable that is being replaced
    int depth_ = 0;
};

std::vector<ShellText> ShellVariables::expand(const ShellWord& word) const {
    return ShellExpansion(*this, word.at, true).words(word.text, word.at);
}

std::vector<ShellText> ShellVariables::array_words(std::string_view inside, std::size_t at) const {
    std::vector<ShellStatement> statements;
    try {
        statements = shell_statements(inside, "");
    } catch (const Error& error) {  // its place is one inside the array
        throw Error(error.kind(), text_place(script_, place_, at), error.text(), error.hint());
    }
    std::vector<ShellText> words;
    for (const ShellStatement& statement : statements) {
        for (const ShellWord& word : statement.words) {
            std::ranges::move(expand({word.text, at + word.at}), std::back_inserter(words));
        }
    }
    return words;
}

namespace {

/// Adds what a branch may put behind a text: words of their own.
void add_apart(std::string unknown, std::size_t where, bool holds_flags, ShellText& text) {
    add_gap({.at = 0,
             .where = where,
             .unknown = std::move(unknown),
             .holds_flags = holds_flags,
             .is_apart = !text.text.empty()},
            text);
}

}  // namespace

void ShellVariables::fix(const std::string& name, const std::string& value) {
    Value& fixed = values_[name];
    fixed = {};
    fixed.words = {ShellText{.text = value, .at = std::vector<std::size_t>(value.size(), 0)}};
    fixed_.insert(name);
}

void ShellVariables::set(const std::string& name, ShellText value, bool is_optional) {
    if (fixed_.contains(name)) {
        return;
    }
    const auto [entry, is_new] = values_.try_emplace(name);
    if (is_new) {
        order_.push_back(name);
        entry->second.at = value.begin();
    }
    Value& kept = entry->second;
    kept.is_array = false;
    kept.is_certain = !is_optional;
    kept.holds_flags = value.holds_flags || value.text.find("--") != std::string::npos ||
                       (is_optional && kept.holds_flags);
    kept.words = {std::move(value)};
}

void ShellVariables::assign(const ShellWord& assignment, bool is_optional) {
    const std::string name(shell_name_at(assignment.text));
    if (fixed_.contains(name)) {
        return;
    }
    std::string_view rest = assignment.text.substr(name.size());
    const bool appends = rest.starts_with('+');
    rest.remove_prefix(appends ? 2 : 1);
    const std::size_t at = assignment.at + (assignment.text.size() - rest.size());

    Value value;
    value.at = assignment.at;
    if (rest.starts_with('(')) {
        value.is_array = true;
        value.words = array_words(rest.substr(1, rest.size() - 2), at + 1);
    } else {
        value.words = ShellExpansion(*this, at, false).words(rest, at);
        value.words.resize(1, ShellText{.text = {}, .at = {}, .word_at = at, .unknown = {}});
    }

    const bool holds_flags = std::ranges::any_of(value.words, [](const ShellText& word) {
        return word.holds_flags || word.text.find("--") != std::string::npos;
    });
    const auto [entry, is_new] = values_.try_emplace(name);
    if (is_new) {
        order_.push_back(name);
        entry->second.at = assignment.at;
    }
    Value& kept = entry->second;
    // A branch that may be left out keeps the flags of the value before it.
    const bool may_hold_flags = holds_flags || ((appends || is_optional) && kept.holds_flags);
    // X="$X more" under a condition: the known begin stays.
    const bool goes_on = is_optional && !is_new && kept.is_certain && !kept.is_array &&
                         !value.is_array && !kept.words.empty() &&
                         !kept.words.front().text.empty() &&
                         value.words.front().text.starts_with(kept.words.front().text);
    if (!appends && goes_on) {
        add_apart(fmt::format("${}", name), at, holds_flags, kept.words.front());
        kept.holds_flags = may_hold_flags;
        return;
    }
    if (!appends) {
        kept = std::move(value);
        kept.is_certain = !is_optional;
        kept.holds_flags = may_hold_flags;
        return;
    }
    kept.holds_flags = may_hold_flags;
    kept.is_array = kept.is_array || value.is_array;
    if (is_optional) {
        const ShellText unknown{.text = {},
                                .at = {},
                                .word_at = at,
                                .unknown = fmt::format("${{{}}}", name),
                                .holds_flags = holds_flags};
        if (kept.is_array || kept.words.empty()) {
            kept.words.push_back(unknown);
        } else {
            add_apart(unknown.unknown, at, holds_flags, kept.words.front());
        }
    } else if (kept.is_array || kept.words.empty()) {
        std::ranges::move(value.words, std::back_inserter(kept.words));
    } else {
        ShellText& text = kept.words.front();
        const ShellText& more = value.words.front();
        for (ShellGap gap : more.gaps) {
            gap.at += text.text.size();
            text.gaps.push_back(std::move(gap));
        }
        text.text += more.text;
        text.at.insert(text.at.end(), more.at.begin(), more.at.end());
        text.unknown = text.unknown.empty() ? more.unknown : text.unknown;
        text.holds_flags = text.holds_flags || more.holds_flags;
    }
}

std::map<std::string, std::string, std::less<>> ShellVariables::values_of(
    std::string_view prefix) const {
    std::map<std::string, std::string, std::less<>> found;
    for (const auto& [name, value] : values_) {
        if (name.starts_with(prefix) && value.is_certain && !value.is_array &&
            !value.words.empty() && value.words.front().unknown.empty()) {
            found.emplace(name, value.words.front().text);
        }
    }
    return found;
}

std::vector<ShellText> ShellVariables::all_words() const {
    std::vector<ShellText> words;
    for (const std::string& name : order_) {
        const Value& value = values_.find(name)->second;
        if (!value.is_certain) {
            if (value.is_array || value.holds_flags) {
                words.push_back({.text = {},
                                 .at = {},
                                 .word_at = value.at,
                                 .unknown = fmt::format("${}", name),
                                 .holds_flags = true});
            }
            continue;
        }
        for (const ShellText& word : value.words) {
            if (value.is_array) {
                words.push_back(word);
            } else if (word.holds_flags || word.text.find("--") != std::string::npos) {
                std::ranges::move(split_at_blanks(word), std::back_inserter(words));
            }
        }
    }
    return words;
}

}  // namespace pipetwin
