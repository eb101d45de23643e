// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/yaml_settings.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/word_list.h"
#include "core/interop/launch/shell_words.h"
#include "core/text/file_damage.h"

namespace pipetwin {

namespace {

/// How deep mappings and lists may stand in each other.
constexpr std::size_t deepest_yaml = 64;

/// How many values aliases may stand for: an alias of a list of aliases multiplies them.
constexpr std::size_t most_alias_values = 10'000;

/// The whole number that a plain scalar is for YAML 1.1, in which 0x20, 040, 0b100000, +32 and 3_2
/// are 32, and 1:30 is 90; none: it is none (PyYAML, resolver.py).
std::optional<std::int64_t> yaml_integer(std::string_view text) {
    const bool is_negative = text.starts_with('-');
    text.remove_prefix(is_negative || text.starts_with('+') ? 1 : 0);
    int base = 10;
    if (text.starts_with("0x") || text.starts_with("0b")) {
        base = text[1] == 'x' ? 16 : 2;
        text.remove_prefix(2);
    } else if (text.size() > 1 && text.starts_with('0')) {
        base = 8;
    }
    std::string digits(text);
    std::erase(digits, '_');
    std::int64_t number = 0;
    for (std::string_view rest = digits;;) {
        std::int64_t part = 0;
        const char* const end = rest.data() + rest.size();
        const auto [stop, status] = std::from_chars(rest.data(), end, part, base);
        const bool is_first = rest.size() == digits.size();
        if (status != std::errc{} || rest.starts_with('-') || text.starts_with('_') ||
            (!is_first && (part > 59 || stop - rest.data() > 2)) ||
            number > (INT64_MAX - part) / 60) {
            return std::nullopt;
        }
        number = number * 60 + part;
        if (stop == end) {
            return is_negative ? -number : number;
        }
        if (*stop != ':' || base != 10 || number == 0) {
            return std::nullopt;
        }
        rest = std::string_view(stop + 1, end);
    }
}

/// A plain scalar as the readers of these files understand it, which have YAML 1.1 (PyYAML,
/// OmegaConf): a whole number in decimal digits, and yes, no, on and off as true and false.
std::string plain_text(const std::string& text) {
    if (has_word("yes Yes YES on On ON", text)) {
        return "true";
    }
    if (has_word("no No NO off Off OFF", text)) {
        return "false";
    }
    const std::optional<std::int64_t> number = yaml_integer(text);
    return number ? fmt::to_string(*number) : text;
}

/// A value of a YAML text; those that hold others have their numbers.
struct YamlValue {
    enum class Kind { Null, Scalar, List, Mapping };
    Kind kind = Kind::Null;
    YAML::Mark at{};
    std::string text{};                ///< of a scalar
    bool is_plain = false;             ///< a scalar without quotes
    std::vector<std::size_t> parts{};  ///< of a mapping: key, value, key, value, ...
    bool is_open = false;              ///< its end is still to come
};

/// The values of a text; that of the document is the first.
class YamlValues final : public YAML::EventHandler {
  public:
    YamlValues(std::string_view text, std::string_view place) : text_(text), place_(place) {
        text_.remove_prefix(text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
        for (std::size_t i = 0; i < text_.size(); ++i) {
            const auto code = static_cast<unsigned char>(text_[i]);
            if ((code < 0x20 && code != '\t' && code != '\n' && code != '\r') || code == 0x7F) {
                throw Error(ErrorKind::BadInput,
                            text_place(text_, place_, i),
                            fmt::format("the byte {:#04x}, which YAML does not take", code),
                            "take it out");
            }
        }
        std::istringstream stream{std::string(text_)};
        try {
            YAML::Parser parser(stream);
            while (parser.HandleNextDocument(*this)) {
            }
        } catch (const YAML::Exception& error) {
            const bool is_open_flow = error.msg == YAML::ErrorMsg::END_OF_SEQ_FLOW ||
                                      error.msg == YAML::ErrorMsg::END_OF_MAP_FLOW;
            refuse_text(is_open_flow && !open_.empty() ? values_[open_.back()].at : error.mark,
                        error.msg);
        }
    }

    const std::vector<YamlValue>& all() const { return values_; }

    std::string place_of(const YAML::Mark& at) const {
        return fmt::format("{}:{}:{}", place_, at.line + 1, at.column + 1);
    }

    [[noreturn]] void refuse(const YAML::Mark& at, std::string what, std::string hint) const {
        throw Error(ErrorKind::BadInput, place_of(at), std::move(what), std::move(hint));
    }

    void OnDocumentStart(const YAML::Mark& at) override {
        if (!values_.empty()) {
            refuse(at, "a second document begins here, expected one", "keep one of them");
        }
    }
    void OnDocumentEnd() override {}

    void OnNull(const YAML::Mark& at, YAML::anchor_t anchor) override {
        add({.kind = YamlValue::Kind::Null, .at = at}, anchor);
    }
    void OnScalar(const YAML::Mark& at,
                  const std::string& tag,
                  YAML::anchor_t anchor,
                  const std::string& value) override {
        expect_known_tag(at, tag);
        expect_closed_quote(at);
        const bool is_text = tag == "!" || tag == own_tag("str");
        const bool is_python =
            tag.starts_with(own_tag("python/"));  // "!!python/name:torch.half ''"
        add({.kind = YamlValue::Kind::Scalar,
             .at = at,
             .text = (is_python ? tag.substr(own_tag("").size()) : std::string()) + value,
             .is_plain = !is_text},
            anchor);
    }
    void OnAlias(const YAML::Mark& at, YAML::anchor_t anchor) override {
        const std::size_t number = numbers_.at(anchor);
        if (values_[number].is_open) {
            refuse(at, "a value that holds itself", "write the keys out in place of the alias");
        }
        values_[open_.back()].parts.push_back(number);
    }
    void OnSequenceStart(const YAML::Mark& at,
                         const std::string& tag,
                         YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        begin(YamlValue::Kind::List, at, tag, anchor);
    }
    void OnMapStart(const YAML::Mark& at,
                    const std::string& tag,
                    YAML::anchor_t anchor,
                    YAML::EmitterStyle::value) override {
        begin(YamlValue::Kind::Mapping, at, tag, anchor);
    }
    void OnSequenceEnd() override { end(); }
    void OnMapEnd() override { end(); }

  private:
    void begin(YamlValue::Kind kind,
               const YAML::Mark& at,
               const std::string& tag,
               YAML::anchor_t anchor) {
        expect_known_tag(at, tag);
        if (open_.size() == deepest_yaml) {
            refuse(at,
                   fmt::format("more than {} levels of mappings and lists", deepest_yaml),
                   "settings stand a few levels deep: is this another file?");
        }
        add({.kind = kind, .at = at, .is_open = true}, anchor);
        open_.push_back(values_.size() - 1);
    }

    void end() {
        values_[open_.back()].is_open = false;
        open_.pop_back();
    }

    void add(YamlValue value, YAML::anchor_t anchor) {
        // The library goes round in circles on some texts: "," is null after null to it.
        if (values_.size() > 2 * text_.size() + 2) {
            refuse_text(value.at, "more values than characters");
        }
        if (!open_.empty()) {
            values_[open_.back()].parts.push_back(values_.size());
        }
        if (anchor != YAML::NullAnchor) {
            numbers_[anchor] = values_.size();
        }
        values_.push_back(std::move(value));
    }

    /// "!!name", as the library hands it over.
    static std::string own_tag(std::string_view name) {
        return fmt::format("tag:yaml.org,2002:{}", name);
    }

    /// Tags of YAML's own say what kind of value the reader sees; others are a program's.
    void expect_known_tag(const YAML::Mark& at, const std::string& tag) const {
        if (tag.size() > 1 && !tag.starts_with(own_tag(""))) {
            refuse(at,
                   fmt::format("the tag '{}', which is not understood", tag.substr(0, 60)),
                   "write the value that it stands for");
        }
    }

    /// The library takes a text in quotes that ends with the file for closed.
    void expect_closed_quote(const YAML::Mark& at) const {
        auto i = static_cast<std::size_t>(at.pos);
        const char quote = i < text_.size() ? text_[i] : '\0';
        if (quote != '"' && quote != '\'') {
            return;
        }
        for (++i; i < text_.size() && text_[i] != quote; ++i) {
            i += std::size_t{text_[i] == '\\' && quote == '"'};
        }
        if (i >= text_.size()) {
            refuse(at, "the quotes are not closed", "close them, or leave them out");
        }
    }

    [[noreturn]] void refuse_text(const YAML::Mark& at, const std::string& why) const {
        std::string_view line = text_;
        for (int i = 0; i < at.line; ++i) {
            line.remove_prefix(std::min(line.find('\n') + 1, line.size()));
        }
        if (const std::size_t blanks = line.find_first_not_of(' ');
            blanks != line.npos && line[blanks] == '\t') {
            throw Error(ErrorKind::BadInput,
                        fmt::format("{}:{}:{}", place_, at.line + 1, blanks + 1),
                        "a tab as indentation, which YAML does not take",
                        "write blanks there");
        }
        line = line.substr(std::min(static_cast<std::size_t>(std::max(0, at.column)), line.size()));
        refuse(at,
               fmt::format("'{}' is not YAML that can be read here: {}",
                           line.substr(0, std::min<std::size_t>(line.find_first_of("\r\n"), 40)),
                           why),
               "expected a key with a value in each line, as in num_layers: 32");
    }

    std::string_view text_;
    std::string_view place_;
    std::vector<YamlValue> values_;
    std::vector<std::size_t> open_;
    std::map<YAML::anchor_t, std::size_t> numbers_;  ///< of values with an anchor
};

/// Replaces "${NAME:otherwise}" by the value that is given for the name, or by what stands behind
/// the colon.
SettingWord with_values(std::string_view rest, std::string place, const LaunchVariables& given) {
    SettingWord word{.text = {}, .place = std::move(place), .unknown = {}};
    while (!rest.empty()) {
        const std::size_t begin = rest.find("${");
        const std::size_t end = begin == std::string_view::npos ? begin : rest.find('}', begin);
        if (end == std::string_view::npos) {
            break;
        }
        word.text += rest.substr(0, begin);
        const std::string_view inside = rest.substr(begin + 2, end - begin - 2);
        const std::size_t colon = inside.find(':');
        if (const auto known = given.find(inside.substr(0, colon)); known != given.end()) {
            word.text += known->second;
        } else if (colon == std::string_view::npos) {
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
    YamlReader(std::string_view text, std::string_view place, const LaunchVariables& given)
        : values_(text, place), given_(given) {}

    LaunchFile read() {
        if (!values_.all().empty() && values_.all().front().kind != Kind::Null) {
            take_mapping(values_.all().front());
        }
        keep_arguments();
        return std::move(file_);
    }

  private:
    using Kind = YamlValue::Kind;
    using Entries = std::vector<std::pair<const YamlValue*, const YamlValue*>>;

    const YamlValue& value(std::size_t number) {
        if (++visits_ > values_.all().size() + most_alias_values) {
            values_.refuse(values_.all()[number].at,
                           fmt::format("aliases stand for more than {} values", most_alias_values),
                           "write the keys out in place of them");
        }
        return values_.all()[number];
    }

    /// Notes a key that stands among the entries with the same plain value; refuses another value.
    void take_again(const Entries& entries, const YamlValue& key, const YamlValue& held) {
        const auto first = std::ranges::find(
            entries, key.text, [](const auto& entry) { return entry.first->text; });
        const bool is_merge = first == entries.end();  // "<<", which is no entry
        const bool is_same =
            !is_merge && held.kind == Kind::Scalar && first->second->kind == Kind::Scalar &&
            first->second->text == held.text && first->second->is_plain == held.is_plain;
        if (!is_same) {
            values_.refuse(
                key.at,
                is_merge ? fmt::format("the key '{}' is here a second time", key.text)
                         : fmt::format("the key '{}' is here a second time, first in line {}, with "
                                       "another value",
                                       key.text,
                                       first->first->at.line + 1),
                "keep one");
        }
        file_.notes.push_back(
            fmt::format("{}: the key '{}' is here a second time, with the value "
                        "that it has in line {}",
                        values_.place_of(key.at),
                        key.text,
                        first->first->at.line + 1));
    }

    /// The keys and values of a mapping, and behind them those of the mappings that its key "<<"
    /// merges, as far as it has not the same keys.
    Entries entries_of(const YamlValue& mapping) {
        Entries entries;
        std::set<std::string_view> known;
        const YamlValue* merged = nullptr;
        for (std::size_t i = 0; i + 1 < mapping.parts.size(); i += 2) {
            const YamlValue& key = value(mapping.parts[i]);
            const YamlValue& held = value(mapping.parts[i + 1]);
            // Without a colon behind it the key is in the place of its value, too.
            const bool has_colon = held.kind != Kind::Null || held.at.pos != key.at.pos;
            if (key.kind != Kind::Scalar || key.text.empty() || !has_colon) {
                refuse_key(key);
            }
            if (!known.insert(key.text).second) {
                take_again(entries, key, held);
                continue;
            }
            if (key.text == "<<") {
                merged = &held;
            } else {
                entries.emplace_back(&key, &held);
            }
        }
        if (merged != nullptr) {
            const bool is_list = merged->kind == Kind::List;
            for (const std::size_t part : is_list ? merged->parts : std::vector<std::size_t>{0}) {
                for (const auto& entry :
                     entries_of(expect_mapping(is_list ? value(part) : *merged))) {
                    if (known.insert(entry.first->text).second) {
                        entries.push_back(entry);
                    }
                }
            }
        }
        return entries;
    }

    const YamlValue& expect_mapping(const YamlValue& mapping) const {
        if (mapping.kind != Kind::Mapping) {
            refuse_key(mapping);
        }
        return mapping;
    }

    [[noreturn]] void refuse_key(const YamlValue& held) const {
        values_.refuse(held.at,
                       held.kind == Kind::Scalar
                           ? fmt::format("'{}' is not a key with a value", held.text.substr(0, 40))
                           : "no name of a key here",
                       "write it as in num_layers: 32");
    }

    void take_mapping(const YamlValue& mapping) {
        for (const auto& [key, held] : entries_of(expect_mapping(mapping))) {
            if (held->kind == Kind::Mapping && !held->parts.empty()) {
                sections_.push_back(key->text);
                take_mapping(*held);
                sections_.pop_back();
            } else if (held->text.find('\n') == std::string::npos) {  // a text says nothing
                add(*key, words_of(*held), held->kind == Kind::List);
            }
        }
    }

    /// The value itself, or the elements of a list; a mapping in a list says nothing about a model.
    std::vector<SettingWord> words_of(const YamlValue& held) {
        std::vector<SettingWord> words;
        if (held.kind == Kind::List) {
            for (const std::size_t part : held.parts) {
                const YamlValue& element = value(part);
                if (element.kind != Kind::Mapping) {
                    words.push_back(word_of(element));
                }
            }
        } else if (held.kind != Kind::Null) {
            words.push_back(word_of(held));
        }
        return words;
    }

    SettingWord word_of(const YamlValue& held) {
        return with_values(text_of(held), values_.place_of(held.at), given_);
    }

    std::string text_of(const YamlValue& held) {
        if (held.kind == Kind::Null) {
            return "null";
        }
        if (held.kind != Kind::List) {
            return held.is_plain               ? plain_text(held.text)
                   : held.kind == Kind::Scalar ? held.text
                                               : "{}";
        }
        std::vector<std::string> texts;
        for (const std::size_t part : held.parts) {
            texts.push_back(text_of(value(part)));
        }
        return fmt::format("[{}]", fmt::join(texts, ", "));
    }

    void add(const YamlValue& at, std::vector<SettingWord> words, bool is_list) {
        const std::string& key = at.text;
        const bool in_module = !sections_.empty() && sections_.front() == "modules";
        const bool names_files =
            (sections_.empty() && (key == "extends" || key == "bases" || key == "includes")) ||
            (in_module && sections_.size() == 2 && key == "model");
        if (names_files) {
            for (SettingWord& word : words) {
                file_.models.push_back(std::move(word.text));
            }
            return;
        }
        Setting setting{.name = key, .written = {}, .place = values_.place_of(at.at)};
        setting.is_unset = words.empty();
        setting.is_list = is_list;
        std::ranges::replace(setting.name, '_', '-');
        setting.sections = sections_;
        setting.written = setting.sections.empty() || in_module
                              ? key
                              : fmt::format("{}.{}", fmt::join(setting.sections, "."), key);
        setting.values = std::move(words);
        setting.is_key = true;
        file_.settings.push_back(std::move(setting));
    }

    /// Megatron-LM's own tests have the flags, with their dashes, in a table MODEL_ARGS, and the
    /// environment in ENV_VARS; what stands around them is about the test.
    void keep_arguments() {
        constexpr std::string_view arguments = "MODEL_ARGS";
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

    YamlValues values_;
    const LaunchVariables& given_;
    std::size_t visits_ = 0;
    std::vector<std::string> sections_;
    LaunchFile file_;
};

}  // namespace

bool is_yaml(std::string_view text) {
    text.remove_prefix(text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
    while (!text.empty()) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
        line.remove_suffix(line.size() - (line.find_last_not_of(" \t\r") + 1));
        if (line.empty() || line.starts_with('#')) {
            continue;
        }
        const std::size_t colon =
            std::min(line.find(": "), line.ends_with(':') ? line.size() - 1 : line.npos);
        const bool is_name = colon != line.npos && colon > 0 &&
                             line.substr(0, colon).find_first_of(" \t$(){}=;&|-") == line.npos;
        return line == "---" || is_name;
    }
    return false;
}

LaunchFile parse_yaml_settings(std::string_view text,
                               std::string_view place,
                               const LaunchVariables& given) {
    return YamlReader(text, place, given).read();
}

}  // namespace pipetwin
