// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/yaml_settings.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/text/file_damage.h"

namespace pipetwin {

namespace {

/// One line of a YAML file without its comment; lines and columns count from 1.
struct YamlLine {
    std::string_view text;  ///< without the indentation and without blanks at the end
    std::size_t indent = 0;
    int number = 1;
};

std::string_view trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) {
        return {};
    }
    return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

/// The line up to a '#' that begins a comment.
std::string_view without_comment(std::string_view line) {
    char quote = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        const bool begins_word = i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t';
        const bool may_open =
            begins_word || std::string_view("[,:").find(line[i - 1]) != std::string_view::npos;
        if (quote != 0) {
            quote = c == quote ? 0 : quote;
        } else if ((c == '"' || c == '\'') && may_open) {
            quote = c;
        } else if (c == '#' && begins_word) {
            return line.substr(0, i);
        }
    }
    return line;
}

/// Where the ':' stands that ends the key at the begin of a line; npos: none does.
std::size_t end_of_key(std::string_view text) {
    if (text.starts_with('"') || text.starts_with('\'')) {
        const std::size_t quote = text.find(text.front(), 1);
        return quote != std::string_view::npos && text.substr(quote + 1).starts_with(':')
                   ? quote + 1
                   : std::string_view::npos;
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == ':' && (i + 1 == text.size() || text[i + 1] == ' ')) {
            return i;
        }
    }
    return std::string_view::npos;
}

std::string without_quotes(std::string_view text) {
    const bool is_quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                           text.back() == text.front();
    return std::string(is_quoted ? text.substr(1, text.size() - 2) : text);
}

bool is_null(std::string_view text) {
    return text.empty() || text == "null" || text == "~" || text == "Null" || text == "NULL";
}

/// Replaces "${NAME:otherwise}" by what stands behind the colon.
SettingWord with_defaults(std::string text, std::string place) {
    SettingWord word{.text = {}, .place = std::move(place), .unknown = {}};
    std::string_view rest = text;
    while (!rest.empty()) {
        const std::size_t begin = rest.find("${");
        const std::size_t end = begin == std::string_view::npos ? begin : rest.find('}', begin);
        if (end == std::string_view::npos) {
            break;
        }
        word.text += rest.substr(0, begin);
        const std::string_view inside = rest.substr(begin + 2, end - begin - 2);
        const std::size_t colon = inside.find(':');
        if (colon == std::string_view::npos) {
            word.unknown = rest.substr(begin, end + 1 - begin);
        } else {
            word.text += inside.substr(colon + 1);
        }
        rest.remove_prefix(end + 1);
    }
    word.text += rest;
    return word;
}

/// Reads a file; one object for each.
class YamlReader {
  public:
    explicit YamlReader(std::string_view place) : place_(place) {}

    LaunchFile read(std::string_view text) {
        split(text);
        while (next_ < lines_.size()) {
            take(lines_[next_]);
        }
        keep_arguments();
        return std::move(file_);
    }

  private:
    /// Megatron-LM's own tests have the flags, with their dashes, in a table MODEL_ARGS, and the
    /// environment in ENV_VARS; what stands around them is about the test.
    void keep_arguments() {
        const auto is_in = [](const Setting& setting, std::string_view table) {
            return !setting.sections.empty() && setting.sections.front() == table;
        };
        const bool has_arguments = std::ranges::any_of(
            file_.settings, [&is_in](const Setting& setting) { return is_in(setting, arguments); });
        if (!has_arguments) {
            return;
        }
        for (const Setting& setting : file_.settings) {
            if (is_in(setting, "ENV_VARS") && !setting.values.empty()) {
                file_.environment.emplace(setting.written.substr(setting.written.find('.') + 1),
                                          setting.values.front().text);
            }
        }
        std::erase_if(file_.settings,
                      [&is_in](const Setting& setting) { return !is_in(setting, arguments); });
        for (Setting& setting : file_.settings) {
            setting.name.erase(0,
                               std::min(setting.name.find_first_not_of('-'), setting.name.size()));
            setting.written = setting.written.substr(setting.written.find('.') + 1);
        }
    }

    static constexpr std::string_view arguments = "MODEL_ARGS";

    struct Level {
        std::size_t indent = 0;
        std::string key;
    };

    std::string place_of(const YamlLine& line, std::size_t column = 0) const {
        return fmt::format("{}:{}:{}", place_, line.number, line.indent + column + 1);
    }

    [[noreturn]] void refuse(const YamlLine& line, std::string what, std::string hint) const {
        throw Error(ErrorKind::BadInput, place_of(line), std::move(what), std::move(hint));
    }

    void split(std::string_view text) {
        text.remove_prefix(text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
        for (int number = 1; !text.empty(); ++number) {
            const std::size_t end = std::min(text.find('\n'), text.size());
            const std::string_view whole = text.substr(0, end);
            text.remove_prefix(std::min(end + 1, text.size()));
            const std::string_view content = trimmed(without_comment(whole));
            if (content.empty() || content.starts_with('%')) {
                continue;
            }
            const auto indent = static_cast<std::size_t>(content.data() - whole.data());
            const YamlLine line{.text = content, .indent = indent, .number = number};
            if (whole.substr(0, indent).find('\t') != std::string_view::npos) {
                refuse(
                    line, "a tab as indentation, which YAML does not take", "write blanks there");
            }
            if (content == "---" || content == "...") {
                if (!lines_.empty() && content == "---") {
                    refuse(line, "a second document begins here, expected one", "keep one of them");
                }
                continue;
            }
            lines_.push_back(line);
        }
    }

    void take(const YamlLine& line) {
        while (!levels_.empty() && levels_.back().indent >= line.indent) {
            levels_.pop_back();
        }
        const std::size_t end = end_of_key(line.text);
        if (end == std::string_view::npos) {
            refuse(line,
                   fmt::format("'{}' is not a key with a value", line.text.substr(0, 40)),
                   "write it as in num_layers: 32");
        }
        const std::string key = without_quotes(line.text.substr(0, end));
        const std::string_view value = trimmed(line.text.substr(end + 1));
        ++next_;
        if (key == "<<" || value.starts_with('&') || value.starts_with('*')) {
            refuse(line,
                   fmt::format("'{}' uses an anchor of YAML, which is not understood", key),
                   "write the keys out in place of it");
        }
        if (value.starts_with('{') && value != "{}") {
            refuse(line,
                   fmt::format("'{}' is a mapping in braces, which is not understood", key),
                   "write its keys in lines of their own below it, indented");
        }
        if (value.starts_with('|') || value.starts_with('>')) {
            skip_block(line.indent);
            return;
        }
        expect_new(line, key);
        if (!value.empty()) {
            add(line, key, words_of(line, value));
            return;
        }
        const bool is_list = next_ < lines_.size() && lines_[next_].indent >= line.indent &&
                             (lines_[next_].text == "-" || lines_[next_].text.starts_with("- "));
        if (is_list) {
            add(line, key, list_below(line.indent));
        } else if (next_ < lines_.size() && lines_[next_].indent > line.indent) {
            levels_.push_back({line.indent, key});
        } else {
            add(line, key, {});
        }
    }

    void expect_new(const YamlLine& line, const std::string& key) {
        std::string path;
        for (const Level& level : levels_) {
            path += level.key + '\n';
        }
        if (!known_.insert(path + key).second) {
            refuse(line, fmt::format("the key '{}' is here a second time", key), "keep one");
        }
    }

    /// Leaves out a text in lines of its own.
    void skip_block(std::size_t indent) {
        while (next_ < lines_.size() && lines_[next_].indent > indent) {
            ++next_;
        }
    }

    std::vector<SettingWord> list_below(std::size_t indent) {
        std::vector<SettingWord> words;
        while (next_ < lines_.size() && lines_[next_].indent >= indent &&
               lines_[next_].text.starts_with('-')) {
            const YamlLine& line = lines_[next_++];
            const std::string_view value = trimmed(line.text.substr(1));
            if (end_of_key(value) != std::string_view::npos) {
                skip_block(line.indent);  // a list of mappings says nothing about a model
                continue;
            }
            if (value.starts_with('[')) {
                words.push_back(with_defaults(std::string(value), place_of(line)));
            } else {
                std::ranges::move(words_of(line, value), std::back_inserter(words));
            }
        }
        return words;
    }

    /// The value itself, or the elements of "[a, b]".
    std::vector<SettingWord> words_of(const YamlLine& line, std::string_view value) const {
        const std::string place =
            place_of(line, static_cast<std::size_t>(value.data() - line.text.data()));
        if (!value.starts_with('[')) {
            return {with_defaults(without_quotes(value), place)};
        }
        if (!value.ends_with(']')) {
            refuse(line, "the list does not end in its line", "write it in one line: [a, b]");
        }
        if (value.starts_with("[[")) {
            return {with_defaults(std::string(value), place)};  // lists of lists stay as they are
        }
        std::vector<SettingWord> words;
        value = value.substr(1, value.size() - 2);
        while (!trimmed(value).empty()) {
            const std::size_t comma = std::min(value.find(','), value.size());
            words.push_back(with_defaults(without_quotes(trimmed(value.substr(0, comma))), place));
            value.remove_prefix(std::min(comma + 1, value.size()));
        }
        return words;
    }

    void add(const YamlLine& line, const std::string& key, std::vector<SettingWord> words) {
        const bool in_module = !levels_.empty() && levels_.front().key == "modules";
        const bool names_files =
            (levels_.empty() && (key == "extends" || key == "bases" || key == "includes")) ||
            (in_module && levels_.size() == 2 && key == "model");
        if (names_files) {
            for (const SettingWord& word : words) {
                if (!is_null(word.text)) {
                    file_.models.push_back(word.text);
                }
            }
            return;
        }
        const bool is_empty = std::ranges::all_of(words, [](const SettingWord& word) {
            return is_null(word.text) && word.unknown.empty();
        });
        Setting setting{.name = key, .written = {}, .place = place_of(line)};
        setting.is_unset = is_empty;
        std::ranges::replace(setting.name, '_', '-');
        for (const Level& level : levels_) {
            setting.sections.push_back(level.key);
        }
        setting.written = setting.sections.empty() || in_module
                              ? key
                              : fmt::format("{}.{}", fmt::join(setting.sections, "."), key);
        setting.values = std::move(words);
        setting.is_key = true;
        file_.settings.push_back(std::move(setting));
    }

    std::string_view place_;
    std::vector<YamlLine> lines_;
    std::size_t next_ = 0;
    std::vector<Level> levels_;
    std::set<std::string> known_;
    LaunchFile file_;
};

}  // namespace

bool is_yaml(std::string_view text) {
    text.remove_prefix(text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = trimmed(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.empty() || line.starts_with('#')) {
            continue;
        }
        const std::size_t key = end_of_key(line);
        const bool is_name =
            key != std::string_view::npos && key > 0 &&
            line.substr(0, key).find_first_of(" \t$(){}=;&|-") == std::string_view::npos;
        return line == "---" || is_name;
    }
    return false;
}

LaunchFile parse_yaml_settings(std::string_view text, std::string_view place) {
    return YamlReader(place).read(text);
}

}  // namespace pipetwin
