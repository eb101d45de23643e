// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/shell_words.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"

namespace pipetwin {

namespace {

constexpr std::size_t npos = std::string_view::npos;

bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

bool is_closed(std::size_t position) {
    return position != npos && position != too_deep;
}

/// `end_of_construct` of a construct that stands in `depth` others.
std::size_t end_at_depth(std::string_view script, std::size_t begin, int depth);

/// The end of a text in quotes that begins with its quote; in single ones a backslash means
/// nothing.
std::size_t end_of_quotes(std::string_view script, std::size_t begin, int depth) {
    const char quote = script[begin];
    for (std::size_t i = begin + 1; i < script.size();) {
        if (script[i] == quote) {
            return i + 1;
        }
        const bool is_plain = quote != '"' || script[i] == '\'';
        i = is_plain ? i + 1 : end_at_depth(script, i, depth + 1);
        if (!is_closed(i)) {
            return i;
        }
    }
    return npos;
}

/// The end of what begins with `open` and ends with the `close` that belongs to it.
std::size_t end_of_brackets(
    std::string_view script, std::size_t begin, char open, char close, int depth) {
    int open_brackets = 0;
    bool word_begins = false;
    for (std::size_t i = begin; i < script.size();) {
        const char c = script[i];
        if (c == '#' && word_begins && open == '(') {
            i = std::min(script.find('\n', i), script.size());
            continue;
        }
        word_begins = is_blank(c) || c == '\n' || c == '(';
        if (c == open || c == close) {
            open_brackets += c == open ? 1 : -1;
            ++i;
            if (open_brackets == 0) {
                return i;
            }
        } else {
            i = end_at_depth(script, i, depth + 1);
            if (!is_closed(i)) {
                return i;
            }
        }
    }
    return npos;
}

std::size_t end_at_depth(std::string_view script, std::size_t begin, int depth) {
    const char c = script[begin];
    const char next = begin + 1 < script.size() ? script[begin + 1] : '\0';
    if (c == '\\') {
        return std::min(begin + 2, script.size());
    }
    const bool is_quoted = c == '\'' || c == '"' || c == '`';
    if (!is_quoted && (c != '$' || (next != '(' && next != '{'))) {
        return begin + 1;
    }
    if (depth >= deepest_construct) {
        return too_deep;
    }
    return is_quoted ? end_of_quotes(script, begin, depth)
                     : end_of_brackets(script, begin + 1, next, next == '(' ? ')' : '}', depth);
}

/// Splits a script; one object for each.
class Splitter {
  public:
    Splitter(std::string_view script, std::string_view place) : script_(script), place_(place) {}

    std::vector<ShellStatement> split() {
        while (at_ < script_.size()) {
            step();
        }
        end_statement('\n');
        return std::move(statements_);
    }

  private:
    void step() {
        const char c = script_[at_];
        const std::string_view rest = script_.substr(at_);
        if (is_blank(c)) {
            ++at_;
        } else if (rest == "\\" || rest.starts_with("\\\n") || rest.starts_with("\\\r\n")) {
            at_ += rest.starts_with("\\\r") ? std::size_t{3} : std::size_t{2};
        } else if (c == '\n') {
            ++at_;
            end_statement('\n');
            skip_documents();
        } else if (c == '#') {
            at_ = std::min(script_.find('\n', at_), script_.size());
        } else if (c == ';' || c == '|' || c == '&') {
            const bool is_double = rest.starts_with("&&") || rest.starts_with("||");
            if (rest.starts_with("&>")) {
                redirection();
            } else {
                at_ += is_double ? std::size_t{2} : std::size_t{1};
                end_statement(is_double ? c : ';');
            }
        } else if (c == '(' || c == ')') {
            ++at_;  // of a subshell or of a function's head
            end_statement(';');
        } else if (is_redirection()) {
            redirection();
        } else {
            word();
        }
    }

    /// "2>&1", ">>", "<".
    bool is_redirection() const {
        const std::size_t sign = script_.find_first_not_of("0123456789", at_);
        return sign != npos && (script_[sign] == '>' || script_[sign] == '<');
    }

    void redirection() {
        at_ = script_.find_first_of("<>", at_);
        const bool is_document =
            script_.substr(at_).starts_with("<<") && !script_.substr(at_).starts_with("<<<");
        at_ = std::min(script_.find_first_not_of("<>&-|", at_), script_.size());
        at_ = std::min(script_.find_first_not_of(" \t", at_), script_.size());
        const std::size_t begin = at_;
        at_ = end_of_word();
        if (is_document) {
            std::string end(script_.substr(begin, at_ - begin));
            std::erase_if(end, [](char c) { return c == '\'' || c == '"' || c == '\\'; });
            documents_.push_back(std::move(end));
        }
    }

    /// Leaves out the here-documents that the line before announced.
    void skip_documents() {
        for (const std::string& end : documents_) {
            while (at_ < script_.size()) {
                const std::size_t line_end = std::min(script_.find('\n', at_), script_.size());
                std::string_view line = script_.substr(at_, line_end - at_);
                at_ = std::min(line_end + 1, script_.size());
                line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
                line.remove_suffix(line.ends_with('\r') ? 1 : 0);
                if (line == end) {
                    break;
                }
            }
        }
        documents_.clear();
    }

    void word() {
        const std::size_t begin = at_;
        at_ = std::max(end_of_word(), begin + 1);
        statement_.words.push_back({script_.substr(begin, at_ - begin), begin});
    }

    std::size_t end_of_word() const {
        std::size_t i = at_;
        while (i < script_.size()) {
            const char c = script_[i];
            const std::string_view rest = script_.substr(i);
            const bool line_goes_on = rest.starts_with("\\\n") || rest.starts_with("\\\r\n");
            const bool is_array = c == '(' && i > at_ && script_[i - 1] == '=';
            if (is_array) {
                i = closed(i, end_of_brackets(script_, i, '(', ')', 0));
            } else if (is_blank(c) || c == '\n' || line_goes_on || c == ';' || c == '|' ||
                       c == '&' || c == '(' || c == ')' || c == '<' || c == '>') {
                break;
            } else {
                i = closed(i, end_of_construct(script_, i));
            }
        }
        return i;
    }

    std::size_t closed(std::size_t begin, std::size_t end) const {
        if (end == too_deep) {
            throw Error(ErrorKind::BadInput,
                        text_place(script_, place_, begin),
                        fmt::format("quotes, braces and parentheses stand in each other more than "
                                    "{} deep",
                                    deepest_construct),
                        "write the value of the innermost ones out");
        }
        if (end == npos) {
            const char c = script_[begin];
            const bool is_quote = c == '"' || c == '\'' || c == '`';
            throw Error(
                ErrorKind::BadInput,
                text_place(script_, place_, begin),
                is_quote ? "the quote is not closed" : "the parenthesis or brace is not closed",
                fmt::format("look for the {} that belongs to it",
                            is_quote ? std::string(1, c) : ") or }"));
        }
        return end;
    }

    void end_statement(char end) {
        if (!statement_.words.empty()) {
            statement_.end = end;
            statements_.push_back(std::move(statement_));
        }
        statement_ = {};
    }

    std::string_view script_;
    std::string_view place_;
    std::size_t at_ = 0;
    ShellStatement statement_;
    std::vector<ShellStatement> statements_;
    std::vector<std::string> documents_;
};

}  // namespace

std::size_t end_of_construct(std::string_view script, std::size_t begin) {
    return end_at_depth(script, begin, 0);
}

std::vector<ShellStatement> shell_statements(std::string_view script, std::string_view place) {
    return Splitter(script, place).split();
}

std::string text_place(std::string_view text, std::string_view place, std::size_t at) {
    const std::string_view before = text.substr(0, at);
    const std::size_t line_end = before.rfind('\n');
    const std::size_t begin = line_end == npos ? 0 : line_end + 1;
    return fmt::format(
        "{}:{}:{}", place, 1 + std::ranges::count(before, '\n'), before.size() - begin + 1);
}

namespace {

/// Whole numbers with + - * / % and parentheses.
class Arithmetic {
  public:
    explicit Arithmetic(std::string_view text) : text_(text) {}

    std::optional<std::int64_t> value() {
        const std::int64_t result = sum();
        skip_blanks();
        return is_good_ && at_ == text_.size() ? std::optional(result) : std::nullopt;
    }

  private:
    static constexpr std::int64_t largest = std::int64_t{1} << 31;

    void skip_blanks() {
        while (at_ < text_.size() && is_shell_blank(text_[at_])) {
            ++at_;
        }
    }

    bool take(char c) {
        skip_blanks();
        const bool is_there = at_ < text_.size() && text_[at_] == c;
        at_ += is_there ? 1 : 0;
        return is_there;
    }

    std::int64_t bounded(std::int64_t value) {
        is_good_ = is_good_ && value > -largest && value < largest;
        return is_good_ ? value : 0;
    }

    std::int64_t sum() {
        std::int64_t result = product();
        while (is_good_) {
            if (take('+')) {
                result = bounded(result + product());
            } else if (take('-')) {
                result = bounded(result - product());
            } else {
                break;
            }
        }
        return result;
    }

    std::int64_t product() {
        std::int64_t result = factor();
        while (is_good_) {
            if (take('*')) {
                result = bounded(result * factor());
                continue;
            }
            const bool is_rest = take('%');
            if (!is_rest && !take('/')) {
                break;
            }
            const std::int64_t by = factor();
            is_good_ = is_good_ && by != 0;
            result = !is_good_ ? 0 : is_rest ? result % by : result / by;
        }
        return result;
    }

    std::int64_t factor() {
        if (++depth_ > 64) {
            is_good_ = false;
            return 0;
        }
        std::int64_t result = 0;
        if (take('(')) {
            result = sum();
            is_good_ = is_good_ && take(')');
        } else if (take('-')) {
            result = -factor();
        } else {
            skip_blanks();
            const char* const end = text_.data() + text_.size();
            const auto [rest, status] = std::from_chars(text_.data() + at_, end, result);
            is_good_ = is_good_ && status == std::errc{};
            at_ = static_cast<std::size_t>(rest - text_.data());
        }
        --depth_;
        return bounded(result);
    }

    std::string_view text_;
    std::size_t at_ = 0;
    int depth_ = 0;
    bool is_good_ = true;
};

}  // namespace

bool is_shell_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

std::string_view shell_name_at(std::string_view text) {
    constexpr std::string_view name_characters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    if (text.empty() || (text.front() >= '0' && text.front() <= '9')) {
        return {};
    }
    return text.substr(0, std::min(text.find_first_not_of(name_characters), text.size()));
}

std::optional<std::int64_t> shell_arithmetic(std::string_view text) {
    return Arithmetic(text).value();
}

void add_gap(const ShellGap& gap, ShellText& word) {
    if (word.unknown.empty()) {
        word.unknown = gap.unknown;
    }
    if (word.text.empty() && word.gaps.empty()) {
        word.word_at = gap.where;
    }
    word.holds_flags = word.holds_flags || gap.holds_flags;
    word.gaps.push_back(gap);
    word.gaps.back().at = word.text.size();
}

ShellText ShellText::from(std::size_t first) const {
    ShellText rest{.text = text.substr(first),
                   .at = {},
                   .word_at = word_at,
                   .unknown = unknown,
                   .holds_flags = holds_flags};
    if (first < at.size()) {
        rest.at.assign(at.begin() + static_cast<std::ptrdiff_t>(first), at.end());
    } else if (!at.empty()) {
        rest.word_at = at.back() + 1;
    }
    return rest;
}

namespace {

/// Adds the unknown parts of a text that stand in front of its character number `index` to a word,
/// from number `gap` on.
void add_gaps_at(const ShellText& text, std::size_t index, std::size_t& gap, ShellText& word) {
    for (; gap < text.gaps.size() && text.gaps[gap].at <= index && !text.gaps[gap].is_apart;
         ++gap) {
        add_gap(text.gaps[gap], word);
    }
}

/// Adds a word for the unknown parts that stand between blanks in front of character `index`.
void add_words_of_gaps(const ShellText& text,
                       std::size_t index,
                       std::size_t& gap,
                       std::vector<ShellText>& words) {
    while (gap < text.gaps.size() && text.gaps[gap].at <= index) {
        ShellText word{.text = {}, .at = {}, .word_at = text.word_at, .unknown = {}};
        add_gap(text.gaps[gap], word);
        ++gap;
        add_gaps_at(text, index, gap, word);
        words.push_back(std::move(word));
    }
}

}  // namespace

std::vector<ShellText> split_at_blanks(const ShellText& text) {
    std::vector<ShellText> words;
    std::size_t gap = 0;
    for (std::size_t i = 0; i < text.text.size();) {
        if (is_shell_blank(text.text[i])) {
            add_words_of_gaps(text, i, gap, words);
            ++i;
            continue;
        }
        ShellText word{.text = {}, .at = {}, .word_at = text.word_at, .unknown = {}};
        for (; i < text.text.size() && !is_shell_blank(text.text[i]); ++i) {
            add_gaps_at(text, i, gap, word);
            word.text += text.text[i];
            word.at.push_back(text.at[i]);
        }
        add_gaps_at(text, i, gap, word);
        words.push_back(std::move(word));
    }
    add_words_of_gaps(text, text.text.size(), gap, words);
    if (!text.unknown.empty() && text.gaps.empty()) {
        words.push_back({.text = {},
                         .at = {},
                         .word_at = text.begin(),
                         .unknown = text.unknown,
                         .holds_flags = text.holds_flags});
    }
    return words;
}

bool is_assignment(std::string_view word) {
    const std::string_view name = shell_name_at(word);
    word.remove_prefix(name.size());
    return !name.empty() && (word.starts_with('=') || word.starts_with("+="));
}

}  // namespace pipetwin
