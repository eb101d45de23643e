// SPDX-License-Identifier: Apache-2.0
#include "core/text/toml_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/suggest.h"
#include "core/text/toml_slips.h"

namespace pipetwin {

namespace {

constexpr int deepest = 64;
constexpr const char* write_it_flat =
    "write the tables one below the other, as in [model] and [pipeline]";

/// The index after the string that begins at `begin`, npos where it has no closing quote; TOML has
/// "basic" and 'literal' strings, and either in three quotes may span lines and end in two more.
std::size_t after_string(std::string_view text, std::size_t begin) {
    const char quote = text[begin];
    const std::string_view three = quote == '"' ? R"(""")" : "'''";
    const bool long_string = text.substr(begin, 3) == three;
    std::size_t i = begin + (long_string ? 3 : 1);
    while (i < text.size() && (long_string || text[i] != '\n')) {
        if (quote == '"' && text[i] == '\\' && text.substr(i + 1, 1) != "\n") {
            i += 2;
        } else if (long_string && text.substr(i, 3) == three) {
            const std::size_t end = std::min(text.find_first_not_of(quote, i), text.size());
            return std::min(end, i + 5);
        } else if (!long_string && text[i] == quote) {
            return i + 1;
        } else {
            ++i;
        }
    }
    return std::string_view::npos;
}

std::int64_t line_number(std::string_view text, std::size_t index) {
    return 1 + std::ranges::count(text.substr(0, index), '\n');
}

std::string place_in(std::string_view text, std::size_t index, std::string_view place) {
    const std::string_view before = text.substr(0, index);
    const std::size_t line_begin = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
    return fmt::format("{}:{}:{}", place, line_number(text, index), index - line_begin + 1);
}

/// toml++ bounds nested values but not dotted keys, whose tables it takes apart recursively:
/// "a.a.a. ..." would end in a stack overflow. So nesting is counted before it sees the text.
/// Returns the index of the first string that has no closing quote; npos: all have one.
std::size_t check_depth(std::string_view text, std::string_view place) {
    std::size_t unclosed = std::string_view::npos;
    int brackets = 0;
    int dots_of_line = 0;
    std::size_t i = 0;
    while (i < text.size()) {
        const char c = text[i];
        if (c == '"' || c == '\'') {
            const std::size_t end = after_string(text, i);
            unclosed = end == text.npos ? std::min(unclosed, i) : unclosed;
            i = std::min(end == text.npos ? text.find('\n', i) : end, text.size());
            continue;
        }
        if (c == '#') {
            i = std::min(text.find('\n', i), text.size());
            continue;
        }
        if (c == '[' || c == '{') {
            ++brackets;
        } else if (c == ']' || c == '}') {
            brackets = std::max(0, brackets - 1);
        } else if (c == '.') {
            ++dots_of_line;
        } else if (c == '\n') {
            dots_of_line = 0;
        }
        if (brackets > deepest || dots_of_line > deepest) {
            throw Error(ErrorKind::BadInput,
                        place_in(text, i, place),
                        fmt::format("nested deeper than {}", deepest),
                        write_it_flat);
        }
        ++i;
    }
    return unclosed;
}

/// The line of the character at `index`, without blanks around it.
std::string_view line_at(std::string_view text, std::size_t index) {
    constexpr const char* around = " \t\r";
    const std::size_t begin = text.find_last_of('\n', index) + 1;  // 0 in the first line
    std::string_view line = text.substr(begin, text.find('\n', index) - begin);
    line.remove_prefix(std::min(line.find_first_not_of(around), line.size()));
    return line.substr(0, line.find_last_not_of(around) + 1);
}

[[noreturn]] void refuse_unclosed(std::string_view text,
                                  std::size_t index,
                                  const std::string& place) {
    constexpr std::size_t longest = 60;
    const std::string three(3, text[index]);
    const std::string quote = text.substr(index, 3) == three ? three : three.substr(2);
    const std::string line = printable(line_at(text, index));
    const std::size_t equals = line.find_first_of("=\"'#,");
    const bool is_key_with_text = equals != line.npos && line.substr(equals, 2) == "= " &&
                                  line.find_first_of("\"'#,", equals + 3) == line.npos;
    throw Error(ErrorKind::BadInput,
                place_in(text, index, place),
                "the text that begins here has no closing quote",
                is_key_with_text && quote.size() == 1 && line.size() <= longest
                    ? line + quote
                    : fmt::format("write {} where the text ends", quote));
}

/// What to do about a document that toml++ refuses at a line.
std::string syntax_hint(std::string_view text,
                        const toml::source_position& at,
                        std::string_view description) {
    constexpr std::string_view twice = "cannot redefine existing";
    std::size_t begin = 0;
    for (toml::source_index line = 1; line < at.line && begin < text.size(); ++line) {
        begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
    }
    const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
    const std::size_t redefined = description.find(twice);
    if (redefined != std::string_view::npos) {
        return description.find("table", redefined) != std::string_view::npos
                   ? "write all keys of the table below one header"
                   : "leave one of the two out";
    }
    const std::string mended = mended_line(line);
    return mended.empty() ? "expected TOML: [table] lines and key = value lines, strings in quotes"
           : mended.starts_with("leave") ? printable(mended)
                                         : fmt::format("write {}", printable(mended));
}

toml::table parse_toml(std::string_view text, const std::string& place) {
    const std::size_t unclosed = check_depth(text, place);
    try {
        return toml::parse(text, std::string_view{});
    } catch (const toml::parse_error& error) {
        const toml::source_position at = error.source().begin;
        if (unclosed < text.size() && at.line >= line_number(text, unclosed)) {
            refuse_unclosed(text, unclosed, place);
        }
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}:{}:{}", place, at.line, at.column),
                    printable(error.description()),
                    syntax_hint(text, at, error.description()));
    }
}

/// The list '[1f1b, zb-h1]' with quotes around its words; empty: it is no list of words alone.
std::string quoted_list(std::string_view text) {
    constexpr std::string_view of_words =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-., ";
    if (text.size() < 3 || !text.starts_with('[') || !text.ends_with(']')) {
        return "";
    }
    std::string_view rest = text.substr(1, text.size() - 2);
    if (rest.find_first_not_of(of_words) != std::string_view::npos) {
        return "";
    }
    std::string list;
    while (!rest.empty()) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        std::string_view word = rest.substr(0, comma);
        word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
        word = word.substr(0, word.find_last_not_of(' ') + 1);
        if (word.find_first_not_of("0123456789.-") == std::string_view::npos) {
            return "";
        }
        list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", word);
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return fmt::format("[{}]", list);
}

/// The value of an override as `value` of a table of its own. What is no TOML but looks like a word
/// is a string.
toml::table parse_value(const std::string& text, const std::string& place) {
    const bool quoted =
        !text.empty() && std::string_view(R"("'[{)").find(text.front()) != std::string_view::npos;
    const bool one_line = text.find_first_of("\r\n") == std::string::npos;
    check_depth(text, place);
    try {
        toml::table parsed = toml::parse("value = " + text);
        if (parsed.size() == 1) {
            return parsed;
        }
    } catch (const toml::parse_error& error) {
        if (!quoted && one_line) {
            toml::table word;
            word.insert("value", text);
            return word;
        }
        const std::string list = quoted_list(text);
        throw Error(
            ErrorKind::BadInput,
            place,
            fmt::format("'{}' is no value: {}", text, error.description()),
            list.empty()
                ? "write a number, true, false, a word, a \"string\" or a [list]"
                : fmt::format("words in a list have quotes, and the shell keeps them within "
                              "others: '{}'",
                              list));
    }
    throw Error(ErrorKind::BadInput,
                place,
                "more than one value, expected one",
                "repeat --set for each key");
}

std::string describe(const toml::node& node);

/// "[0.9, 0.95]", or where that is long the number of entries.
std::string describe_list(const toml::array& list) {
    constexpr std::size_t longest = 60;
    std::string text = "[";
    for (const toml::node& entry : list) {
        text += fmt::format("{}{}", text.size() > 1 ? ", " : "", describe(entry));
    }
    text += ']';
    return text.size() <= longest ? text : fmt::format("[a list of {} entries]", list.size());
}

/// Text of a value in errors: short values as they are, others by their type.
std::string describe(const toml::node& node) {
    constexpr std::size_t longest = 60;
    switch (node.type()) {
        case toml::node_type::string: {
            const std::string text = printable(node.as_string()->get());
            return text.size() <= longest ? fmt::format("\"{}\"", text)
                                          : fmt::format("\"{}...\"", text.substr(0, longest));
        }
        case toml::node_type::integer:
            return fmt::format("{}", node.as_integer()->get());
        case toml::node_type::floating_point:
            return fmt::format("{}", node.as_floating_point()->get());
        case toml::node_type::boolean:
            return fmt::format("{}", node.as_boolean()->get());
        case toml::node_type::array:
            return describe_list(*node.as_array());
        case toml::node_type::table:
            return "{a table}";
        default:
            return "a date or time";
    }
}

/// Whether a string holds what would be a number without quotes.
bool is_quoted_number(const toml::node& node) {
    if (!node.is_string()) {
        return false;
    }
    const std::string& text = node.as_string()->get();
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, number);
    return !text.empty() && status == std::errc{} && rest == end;
}

std::string describe(Range range) {
    return range.high >= std::numeric_limits<std::int32_t>::max()
               ? fmt::format("not below {}", range.low)
               : fmt::format("from {} to {}", range.low, range.high);
}

/// A word as it is written: other programs have true, or a number, where a word stands here.
std::string word_of(const toml::node& node) {
    return node.is_string() ? node.as_string()->get() : describe(node);
}

/// "did you mean 'block'?" of a word that is none of `built`; empty where none of them is near.
Hint meant_word(std::string_view word, std::span<const std::string_view> built) {
    const std::string_view near = nearest_word(word, built);
    return near.empty() ? Hint() : did_you_mean(near);
}

bool holds(std::string_view outer, std::string_view path) {
    return path.starts_with(outer) &&
           (path.size() == outer.size() || path[outer.size()] == '.' || path[outer.size()] == '[');
}

}  // namespace

TomlDocument::TomlDocument(std::string_view text,
                           std::string place,
                           const std::vector<Override>& overrides,
                           std::string_view page)
    : place_(std::move(place)), page_(page), table_(parse_toml(text, place_)) {
    for (const Override& change : overrides) {
        put(change);
    }
}

std::string TomlDocument::where_keys_are(std::string_view path) const {
    return fmt::format("{} says what {} may be", page_, path);
}

void TomlDocument::put(const Override& change) {
    const std::string place = "--set " + change.key;
    if (std::ranges::count(change.key, '.') > deepest) {
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("nested deeper than {}", deepest),
                    "write the key as in --set pipeline.stages=4");
    }
    overridden_.push_back(change.key);
    toml::table parsed = parse_value(change.value, place);
    toml::table* table = &table_;
    std::string_view rest = change.key;
    for (std::size_t dot = rest.find('.'); dot != rest.npos; dot = rest.find('.')) {
        const std::string_view name = rest.substr(0, dot);
        toml::node* const inner = table->insert(name, toml::table{}).first->second.as_table();
        if (inner == nullptr) {
            throw Error(ErrorKind::BadInput,
                        place,
                        fmt::format("'{}' is no table", name),
                        "write the key as in --set pipeline.stages=4");
        }
        table = inner->as_table();
        rest.remove_prefix(dot + 1);
    }
    if (rest.empty()) {
        throw Error(ErrorKind::BadInput,
                    place,
                    "no key, expected one as in pipeline.stages",
                    "write the key as in --set pipeline.stages=4");
    }
    parsed.get("value")->visit(
        [&](auto& value) { table->insert_or_assign(rest, std::move(value)); });
}

TomlTable TomlDocument::root() const {
    return {*this, &table_, ""};
}

void TomlDocument::fill_in(std::string_view table,
                           const TomlDocument& other,
                           std::span<const std::string_view> without) {
    const toml::table* const from = other.table_[table].as_table();
    toml::table* const to = table_.insert(table, toml::table{}).first->second.as_table();
    if (from == nullptr || to == nullptr) {
        return;
    }
    for (const auto& [key, node] : *from) {
        const bool wanted = std::ranges::find(without, key.str()) == without.end();
        if (wanted && to->insert(key, node).second) {
            const std::string path = fmt::format("{}.{}", table, key.str());
            filled_in_[path] = other.place_of(path, node.source());
        }
    }
}

void TomlDocument::replace_text(std::string_view table,
                                std::string_view key,
                                const std::string& text) {
    toml::value<std::string>* const old = table_[table][key].as_string();
    PIPETWIN_EXPECT(old != nullptr, "a document has no string under the key to be replaced");
    *old = text;
}

bool TomlDocument::is_filled_in(std::string_view path) const {
    return filled_in_.contains(path);
}

std::string TomlDocument::place_of(std::string_view path, const toml::source_region& source) const {
    for (const auto& [key, place] : filled_in_) {
        if (holds(key, path)) {
            return place;
        }
    }
    if (const std::string* const change = override_of(path)) {
        return "--set " + *change;
    }
    return source.begin ? fmt::format("{}:{}:{}", place_, source.begin.line, source.begin.column)
                        : place_;
}

Error TomlDocument::placed(const Error& error) const {
    if (error.is_placed()) {
        return error;
    }
    const std::string& key = error.key();
    const std::size_t dot = std::min(key.find('.'), key.size());
    const TomlTable table = root().table(key.substr(0, dot));
    std::string place =
        key.empty() ? place_ : table.place(key.substr(std::min(dot + 1, key.size())));
    if (place == place_) {
        place += ":1:1";
    }
    const std::string* const option = key.empty() ? nullptr : override_of(key);
    const bool names_key = error.is_at(with_its_table(error.subject()));
    if (option != nullptr && *option == key && names_key) {
        const std::string& value = error.subject().value;
        return error.placed(place + (value.empty() ? "" : "=" + value));
    }
    const bool names_more = !error.is_at("") && !error.is_at(place_);
    return error.placed(names_more ? fmt::format("{}: {}", place, error.place()) : place);
}

const std::string* TomlDocument::override_of(std::string_view path) const {
    const bool is_filled = std::ranges::any_of(
        filled_in_, [path](const auto& entry) { return holds(entry.first, path); });
    // The last override wins, so it is to blame.
    const auto change =
        std::find_if(overridden_.rbegin(), overridden_.rend(), [path](const std::string& key) {
            return holds(key, path) || holds(path, key);
        });
    return is_filled || change == overridden_.rend() ? nullptr : &*change;
}

const toml::node* TomlTable::find(std::string_view key) const {
    return table_ == nullptr ? nullptr : table_->get(key);
}

std::string TomlTable::path_of(std::string_view key) const {
    return path_.empty() ? printable(key) : fmt::format("{}.{}", path_, printable(key));
}

std::string TomlTable::place(std::string_view key) const {
    const toml::node* const node = find(key);
    if (node != nullptr) {
        return document_->place_of(path_of(key), node->source());
    }
    return document_->place_of(path_of(key),
                               table_ == nullptr ? toml::source_region{} : table_->source());
}

bool TomlTable::is_filled_in(std::string_view key) const {
    return document_->is_filled_in(path_of(key));
}

void TomlTable::expect_keys(std::span<const std::string_view> known) const {
    if (table_ == nullptr) {
        return;
    }
    const toml::key* first = nullptr;  // of the text, not of the alphabet
    for (const auto& [key, node] : *table_) {
        const bool is_known = std::ranges::find(known, key.str()) != known.end();
        if (!is_known && (first == nullptr || key.source().begin < first->source().begin)) {
            first = &key;
        }
    }
    if (first != nullptr) {
        const std::string path = path_of(first->str());
        throw Error(ErrorKind::BadInput,
                    KeyValue{path},
                    path_.empty()
                        ? fmt::format("unknown key '{}'", printable(first->str()))
                        : fmt::format("unknown key '{}' in '{}'", printable(first->str()), path_),
                    suggestion(first->str(), known))
            .placed(document_->place_of(path, first->source()));
    }
}

bool TomlTable::has(std::string_view key) const {
    return find(key) != nullptr;
}

bool TomlTable::is_auto(std::string_view key) const {
    const toml::node* const node = find(key);
    return node != nullptr && node->value_exact<std::string_view>() == "auto";
}

std::string TomlTable::beside_place(std::string_view key) const {
    const std::string path = path_of(key);
    const std::string* const change = document_->override_of(path);
    return change != nullptr && *change == path ? "" : path + " = ";
}

TomlTable TomlTable::or_auto() const {
    TomlTable table = *this;
    table.may_be_auto_ = true;
    return table;
}

void TomlTable::refuse(std::string_view key,
                       std::string_view expected,
                       Hint hint,
                       ErrorReason reason) const {
    const toml::node* const node = find(key);
    throw about(key,
                Error(ErrorKind::BadInput,
                      "",
                      fmt::format("{}, expected {}{}",
                                  node == nullptr ? "nothing" : describe(*node),
                                  expected,
                                  may_be_auto_ ? ", or \"auto\"" : ""),
                      hint.empty() ? hint_of_value(key, ValueKind::Other) : std::move(hint)))
        .because(reason);
}

Hint TomlTable::key_with(std::string_view key, std::string_view value) const {
    KeyValue setting{path_of(key), std::string(value)};
    const bool is_override = document_->override_of(setting.key) != nullptr;
    return {"write " + (is_override ? fmt::format("--set {}={}", setting.key, value)
                                    : line_of_table(setting)),
            {setting}};
}

Hint TomlTable::hint_of_value(std::string_view key, ValueKind expected) const {
    const toml::node* const node = find(key);
    if (node != nullptr && is_quoted_number(*node) &&
        document_->override_of(path_of(key)) == nullptr) {
        return fmt::format("leave the quotes out: {} = {}", key, node->as_string()->get());
    }
    const std::string meant = node == nullptr ? "" : meant_value(key, *node, expected);
    return meant.empty() ? Hint(document_->where_keys_are(path_of(key))) : key_with(key, meant);
}

Error TomlTable::about(std::string_view key, const Error& error) const {
    return error.with_text(beside_place(key) + error.text()).about(path_of(key)).placed(place(key));
}

void TomlTable::missing(std::string_view key, std::string_view expected) const {
    throw Error(ErrorKind::BadInput,
                "",
                fmt::format("{} is missing, expected {}", path_of(key), expected),
                document_->where_keys_are(path_of(key)))
        .about(path_of(key))
        .placed(place(key));
}

TomlTable TomlTable::table(std::string_view key) const {
    const toml::node* const node = find(key);
    if (node != nullptr && !node->is_table()) {
        const bool is_one = node->is_array_of_tables() && node->as_array()->size() == 1;
        refuse(key,
               "a table",
               is_one ? fmt::format("write [{}], with single brackets", path_of(key)) : "");
    }
    return {*document_, node == nullptr ? nullptr : node->as_table(), path_of(key)};
}

std::vector<TomlTable> TomlTable::tables(std::string_view key) const {
    const toml::node* const node = find(key);
    if (node == nullptr) {
        return {};
    }
    const toml::array* const array = node->as_array();
    if (array == nullptr) {
        refuse(key, fmt::format("a list of tables, each written as [[{}]]", path_of(key)));
    }
    std::vector<TomlTable> all;
    all.reserve(array->size());
    for (const toml::node& element : *array) {
        if (!element.is_table()) {
            refuse(key, fmt::format("tables only, each written as [[{}]]", path_of(key)));
        }
        all.emplace_back(
            *document_, element.as_table(), fmt::format("{}[{}]", path_of(key), all.size()));
    }
    return all;
}

std::optional<bool> TomlTable::boolean(std::string_view key) const {
    const toml::node* const node = find(key);
    if (node == nullptr) {
        return std::nullopt;
    }
    if (!node->is_boolean()) {
        refuse(key, "true or false", hint_of_value(key, ValueKind::Boolean));
    }
    return node->as_boolean()->get();
}

std::optional<std::int64_t> TomlTable::integer(std::string_view key, Range range) const {
    const toml::node* const node = find(key);
    if (node == nullptr) {
        return std::nullopt;
    }
    const std::optional<std::int64_t> value = node->value_exact<std::int64_t>();
    if (!value || *value < range.low || *value > range.high) {
        const std::string nearest =
            value ? fmt::to_string(std::clamp(*value, range.low, range.high)) : std::string();
        refuse(
            key,
            fmt::format("a whole number {}", describe(range)),
            nearest.empty() ? hint_of_value(key, ValueKind::WholeNumber) : key_with(key, nearest));
    }
    return value;
}

bool TomlTable::is_text(std::string_view key) const {
    const toml::node* const node = find(key);
    return node != nullptr && node->is_string();
}

bool TomlTable::is_list(std::string_view key) const {
    const toml::node* const node = find(key);
    return node != nullptr && node->is_array();
}

template <class Read>
auto TomlTable::list(std::string_view key,
                     std::string_view of,
                     ValueKind kind,
                     const std::string& expected,
                     Read read,
                     const std::function<Hint(const toml::node&)>& hint_of) const {
    using Value = typename std::invoke_result_t<Read, const toml::node&>::value_type;
    const toml::node* const node = find(key);
    if (node == nullptr) {
        return std::optional<std::vector<Value>>{};
    }
    const toml::array* const array = node->as_array();
    if (array == nullptr) {
        refuse(key, fmt::format("a list of {}", of), hint_of_value(key, kind));
    }
    std::vector<Value> values;
    values.reserve(array->size());
    for (const toml::node& element : *array) {
        const std::optional<Value> value = read(element);
        if (!value) {
            const Hint hint = hint_of ? hint_of(element) : Hint();
            throw Error(ErrorKind::BadInput,
                        "",
                        fmt::format("{}[{}] = {}, expected {}",
                                    path_of(key),
                                    values.size(),
                                    describe(element),
                                    expected),
                        hint.empty() ? Hint(document_->where_keys_are(path_of(key))) : hint)
                .about(path_of(key))
                .placed(document_->place_of(path_of(key), element.source()));
        }
        values.push_back(*value);
    }
    return std::optional(std::move(values));
}

std::optional<std::vector<int>> TomlTable::integers(std::string_view key, Range range) const {
    return list(key,
                "whole numbers",
                ValueKind::Numbers,
                fmt::format("a whole number {}", describe(range)),
                [range](const toml::node& element) -> std::optional<int> {
                    const auto value = element.value_exact<std::int64_t>();
                    const bool inside = value && *value >= range.low && *value <= range.high;
                    return inside ? std::optional(static_cast<int>(*value)) : std::nullopt;
                });
}

namespace {

/// A finite number of the range.
std::optional<double> number_in(const toml::node& node, Range range) {
    const std::optional<double> value =
        node.is_number() ? node.value<double>() : std::optional<double>{};
    const bool inside = value && std::isfinite(*value) &&
                        *value >= static_cast<double>(range.low) &&
                        *value <= static_cast<double>(range.high);
    return inside ? value : std::nullopt;
}

}  // namespace

std::optional<std::vector<double>> TomlTable::numbers(std::string_view key, Range range) const {
    return list(key,
                "numbers",
                ValueKind::Numbers,
                fmt::format("a number from {} to {}", range.low, range.high),
                [range](const toml::node& element) { return number_in(element, range); });
}

std::optional<std::vector<std::vector<double>>> TomlTable::rows_of_numbers(std::string_view key,
                                                                           Range range) const {
    using Row = std::vector<double>;
    return list(key,
                "lists of numbers",
                ValueKind::Numbers,
                fmt::format("a list of numbers from {} to {}", range.low, range.high),
                [range](const toml::node& element) -> std::optional<Row> {
                    const toml::array* const entries = element.as_array();
                    Row row;
                    for (std::size_t i = 0; entries != nullptr && i < entries->size(); ++i) {
                        const std::optional<double> value = number_in(*entries->get(i), range);
                        if (!value) {
                            return std::nullopt;
                        }
                        row.push_back(*value);
                    }
                    return entries != nullptr ? std::optional(row) : std::nullopt;
                });
}

std::optional<double> TomlTable::number(std::string_view key, Range range) const {
    const toml::node* const node = find(key);
    if (node == nullptr) {
        return std::nullopt;
    }
    const std::optional<double> value = number_in(*node, range);
    if (!value) {
        refuse(key,
               fmt::format("a number from {} to {}", range.low, range.high),
               hint_of_value(key, ValueKind::Number));
    }
    return value;
}

std::optional<std::string> TomlTable::text(std::string_view key) const {
    const toml::node* const node = find(key);
    if (node == nullptr) {
        return std::nullopt;
    }
    if (!node->is_string()) {
        refuse(key, "a string in quotes");
    }
    return node->as_string()->get();
}

std::optional<std::vector<std::string>> TomlTable::texts(std::string_view key) const {
    return list(
        key, "strings", ValueKind::Other, "a string in quotes", [](const toml::node& element) {
            return element.value_exact<std::string>();
        });
}

std::optional<Bytes> TomlTable::bytes(std::string_view key) const {
    const toml::node* const node = find(key);
    if (node == nullptr) {
        return std::nullopt;
    }
    if (node->is_integer()) {
        return Bytes{*integer(key, {1, std::numeric_limits<std::int64_t>::max()})};
    }
    const std::optional<std::string> written = node->value_exact<std::string>();
    if (!written) {
        refuse(key,
               "an amount of memory as in \"4 GiB\", or a number of bytes",
               hint_of_value(key, ValueKind::Bytes));
    }
    try {
        return parse_bytes(*written);
    } catch (const Error& error) {
        throw about(key, error);
    }
}

std::optional<std::vector<Bytes>> TomlTable::all_bytes(std::string_view key) const {
    return list(key,
                "amounts of memory",
                ValueKind::Other,
                "an amount of memory as in \"4 GiB\", or a number of bytes",
                [](const toml::node& element) -> std::optional<Bytes> {
                    if (const auto count = element.value_exact<std::int64_t>()) {
                        return *count > 0 ? std::optional(Bytes{*count}) : std::nullopt;
                    }
                    const auto written = element.value_exact<std::string>();
                    try {
                        return written ? std::optional(parse_bytes(*written)) : std::nullopt;
                    } catch (const Error&) {
                        return std::nullopt;  // named with its place in the list
                    }
                });
}

std::optional<std::size_t> TomlTable::choice(std::string_view key,
                                             std::span<const std::string_view> words) const {
    const toml::node* const node = find(key);
    if (node == nullptr) {
        return std::nullopt;
    }
    const std::string word = word_of(*node);
    const auto found = std::ranges::find(words, word);
    if (node->is_string() && found != words.end()) {
        return static_cast<std::size_t>(found - words.begin());
    }
    const std::string expected = fmt::format(
        "{}one of {}", node->is_string() ? "" : "a string in quotes, ", fmt::join(words, ", "));
    refuse(key, expected, meant_word(word, words));
}

std::optional<std::vector<std::size_t>> TomlTable::choices(
    std::string_view key, std::span<const std::string_view> built) const {
    const auto index_of = [&](const toml::node& element) {
        const auto found = std::ranges::find(built, element.value_exact<std::string_view>());
        return found == built.end()
                   ? std::nullopt
                   : std::optional(static_cast<std::size_t>(found - built.begin()));
    };
    const auto hint_of = [&](const toml::node& element) {
        return meant_word(word_of(element), built);
    };
    return list(key,
                "words",
                ValueKind::Other,
                fmt::format("one of {}", fmt::join(built, ", ")),
                index_of,
                hint_of);
}

bool TomlTable::is_list_of_lists(std::string_view key) const {
    const toml::node* const node = find(key);
    const toml::array* const array = node == nullptr ? nullptr : node->as_array();
    return array != nullptr && !array->empty() && array->front().is_array();
}

namespace {

/// Reads a word that may have a number behind it; none for any other.
std::optional<TomlTable::CountedWord> counted_word(const toml::node& element,
                                                   std::span<const std::string_view> built,
                                                   Range counts) {
    const std::string_view text = element.value_exact<std::string_view>().value_or("");
    const std::size_t colon = std::min(text.find(':'), text.size());
    const auto found = std::ranges::find(built, text.substr(0, colon));
    if (found == built.end()) {
        return std::nullopt;
    }
    TomlTable::CountedWord word{.word = static_cast<std::size_t>(found - built.begin())};
    if (colon < text.size()) {
        const std::string_view digits = text.substr(colon + 1);
        int count = 0;
        const auto [rest, status] =
            std::from_chars(digits.data(), digits.data() + digits.size(), count);
        if (status != std::errc{} || rest != digits.data() + digits.size() || count < counts.low ||
            count > counts.high || counts.high == 0) {
            return std::nullopt;
        }
        word.count = count;
    }
    return word;
}

/// The word of an element, without a number behind it.
std::string plain_word(const toml::node& element) {
    const std::string word = word_of(element);
    return word.substr(0, word.find(':'));
}

}  // namespace

std::optional<std::vector<std::vector<TomlTable::CountedWord>>> TomlTable::rows_of_choices(
    std::string_view key, std::span<const std::string_view> built, Range counts) const {
    using Row = std::vector<CountedWord>;
    const auto read = [&](const toml::node& element) {
        return counted_word(element, built, counts);
    };
    const std::string expected =
        fmt::format("one of {}{}",
                    fmt::join(built, ", "),
                    counts.high > 0 ? ", or with a number of blocks behind it, as in \"" +
                                          std::string(built.front()) + ":2\""
                                    : "");
    if (!is_list_of_lists(key)) {
        const auto row =
            list(key, "words", ValueKind::Other, expected, read, [&](const auto& node) {
                return meant_word(plain_word(node), built);
            });
        return row ? std::optional(std::vector<Row>{*row}) : std::nullopt;
    }
    const auto read_row = [&](const toml::node& element) -> std::optional<Row> {
        const toml::array* const entries = element.as_array();
        Row row;
        for (std::size_t i = 0; entries != nullptr && i < entries->size(); ++i) {
            const std::optional<CountedWord> word = read(*entries->get(i));
            if (!word) {
                return std::nullopt;
            }
            row.push_back(*word);
        }
        return entries != nullptr ? std::optional(row) : std::nullopt;
    };
    const auto hint_of = [&](const toml::node& element) {
        const toml::array* const entries = element.as_array();
        for (std::size_t i = 0; entries != nullptr && i < entries->size(); ++i) {
            if (!read(*entries->get(i))) {
                return meant_word(plain_word(*entries->get(i)), built);
            }
        }
        return Hint();
    };
    return list(key,
                "lists of words",
                ValueKind::Other,
                fmt::format("a list of words, each {}", expected),
                read_row,
                hint_of);
}

int TomlTable::required_int(std::string_view key, Range range) const {
    const std::optional<std::int64_t> value = integer(key, range);
    if (!value) {
        missing(key, fmt::format("a whole number {}", describe(range)));
    }
    return static_cast<int>(*value);
}

}  // namespace pipetwin
