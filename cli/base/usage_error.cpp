// SPDX-License-Identifier: Apache-2.0
#include "cli/base/usage_error.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/option_lists.h"
#include "cli/base/value_words.h"
#include "core/artifacts/model_flops.h"
#include "core/base/suggest.h"

namespace pipetwin::cli {

namespace {

/// The first word of a text that is an option: "--nodes" of "--nodes: Value 0 not in range".
std::string option_in(std::string_view text) {
    const std::size_t begin = text.find("--");
    if (begin == std::string_view::npos) {
        return "";
    }
    const std::size_t end = text.find_first_of(": ,=", begin);
    return std::string(text.substr(begin, end - begin));
}

/// What the user wrote for an option; none where it stands last.
std::optional<std::string> written_for(const std::string& option,
                                       const std::vector<std::string>& args) {
    for (std::size_t i = 0; i < args.size(); ++i) {
        if (args[i].starts_with(option + "=")) {
            return args[i].substr(option.size() + 1);
        }
        if (args[i] == option && i + 1 < args.size()) {
            return args[i + 1];
        }
    }
    return std::nullopt;
}

/// The words of "N:{fused,standard}"; empty: it is no list of words.
std::vector<std::string> words_of(std::string_view type) {
    const std::size_t open = type.find('{');
    const std::size_t close = type.find('}');
    std::vector<std::string> words;
    if (open == std::string_view::npos || close == std::string_view::npos) {
        return words;
    }
    std::string_view rest = type.substr(open + 1, close - open - 1);
    while (!rest.empty()) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        words.emplace_back(rest.substr(0, comma));
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return words;
}

/// The words that an option takes; empty: any.
std::vector<std::string> choices_of(const CLI::Option& option) {
    if (option.get_name() == "--color") {
        return {"auto", "always", "never"};
    }
    if (option.get_name() == "--mfu") {
        std::vector<std::string> words;
        for (const FlopsCount count : flops_counts) {
            words.emplace_back(to_string(count));
        }
        return words;
    }
    return words_of(option.get_type_name());
}

/// "a whole number from 1 to 65536", as the type of an option says: "N:INT in [1 - 65536]".
std::string expected_of(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    if (const std::vector<std::string> words = choices_of(option); !words.empty()) {
        return fmt::format("one of {}", fmt::join(words, ", "));
    }
    if (type.starts_with("N[k|M|G|B|T]")) {
        return "a number above zero, optionally followed by k, M, G, B or T";
    }
    if (type.starts_with("N[k|M]")) {
        return "a whole number above zero, optionally followed by k (1024) or M (1024 * 1024)";
    }
    if (type.find("NONNEGATIVE") != std::string::npos) {
        return "a whole number of zero or more";
    }
    if (type.find("POSITIVE") != std::string::npos) {
        return "a number above zero";
    }
    const std::size_t open = type.find('[');
    const std::size_t close = type.find(']');
    const std::size_t dash = type.find(" - ");
    if (type.find(" in [") != std::string::npos && dash != std::string::npos && dash < close) {
        return fmt::format("{} from {} to {}",
                           type.find("INT") != std::string::npos ? "a whole number" : "a number",
                           type.substr(open + 1, dash - open - 1),
                           type.substr(dash + 3, close - dash - 3));
    }
    return type.starts_with('X') ? "a number" : "a whole number";
}

/// Whether an option of numbers takes the text.
bool takes(CLI::Option& option, std::string text) {
    const std::string type = option.get_type_name();
    const bool has_unit = type.starts_with("N[");  // which its validator reads
    double number = 0;
    const char* const end = text.data() + text.size();
    const bool is_number = type.starts_with('X')
                               ? std::from_chars(text.data(), end, number).ptr == end
                               : text.find_first_not_of("0123456789") == std::string::npos;
    if (!has_unit && !is_number) {
        return false;
    }
    try {
        for (int i = 0;; ++i) {
            if (!(*option.get_validator(i))(text).empty()) {
                return false;
            }
        }
    } catch (const CLI::OptionNotFound&) {  // behind the last of them
        return true;
    } catch (const CLI::ParseError&) {
        return false;
    }
}

/// Whether the only comma in a text is a decimal point, as in "2,5": thousands have three digits.
bool has_decimal_comma(const std::string& text) {
    const std::size_t comma = text.find(',');
    if (comma == std::string::npos || text.find(',', comma + 1) != std::string::npos) {
        return false;
    }
    const std::size_t end = text.find_first_not_of("0123456789", comma + 1);
    const std::size_t digits = std::min(end, text.size()) - (comma + 1);
    return digits > 0 && digits != 3;
}

/// "0.05" of "5%"; the text itself if it is something else.
std::string share_of_percent(const std::string& text) {
    double percent = 0;
    const char* const end = text.data() + text.find_first_of(" %");
    const auto [rest, status] = std::from_chars(text.data(), end, percent);
    return status == std::errc{} && rest == end ? fmt::format("{:g}", percent / 100) : text;
}

/// The number in a text that has more than that, as the option takes it: "2.2" of "$2.2", "4M" of
/// "4MB", "4000000" of "4,000,000", "2.5" of "2,5"; empty: there is none, or its unit is not known.
std::string number_in(const std::string& written, CLI::Option& option) {
    const std::string type = option.get_type_name();
    if (written.ends_with('%') && type.starts_with('X') &&
        type.find("POSITIVE") == std::string::npos) {
        const std::string share = share_of_percent(written);
        return takes(option, share) ? share : "";
    }
    std::string text = written;
    if (has_decimal_comma(text)) {
        text[text.find(',')] = '.';
    }
    std::erase_if(text, [](char c) { return c == ',' || c == '_' || c == ' '; });
    const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || c == '.'; };
    const auto begin = std::ranges::find_if(text, is_digit);
    auto end = std::find_if_not(begin, text.end(), is_digit);
    if (begin == end || (begin != text.begin() && *(begin - 1) == '-')) {
        return "";
    }
    const std::string number(begin, end);
    const bool is_written = end == text.end();
    if (!is_written && (*end == 'e' || *end == 'E')) {  // "1e3": its digits are another number
        return "";
    }
    constexpr std::string_view thousands = "kKMGT";
    if (!is_written && !type.starts_with("N[") && thousands.find(*end) != std::string_view::npos) {
        return "";  // 1000 or 1024 times as much
    }
    if (!is_written) {
        const bool is_small = *end >= 'a' && *end <= 'z';
        for (const char unit : {*end, is_small ? static_cast<char>(*end - 'a' + 'A') : *end}) {
            if (takes(option, number + unit)) {
                return number + unit;
            }
        }
    }
    // A number of tokens whose unit is not known: without one it would be far too small.
    const bool needs_unit = !is_written && type.starts_with("N[k|M");
    return takes(option, number) && !needs_unit ? number : "";
}

/// The entries of "4,6,8", or the ends of "4-8" and "4..8", each of which the option takes; empty:
/// it is no such list. A number with
/// a decimal comma, or with commas between its thousands, is none.
std::vector<std::string> entries_of(const std::string& written, CLI::Option& option) {
    std::vector<std::string> entries;
    std::string rest = written;
    std::erase(rest, ' ');
    const std::size_t first_end = rest.find_first_not_of("0123456789");
    for (const std::string_view to : {"-", "..", ":"}) {
        const bool is_range = first_end > 0 && first_end != std::string::npos &&
                              rest.compare(first_end, to.size(), to) == 0;
        const std::string last = is_range ? rest.substr(first_end + to.size()) : std::string();
        if (!last.empty() && takes(option, rest.substr(0, first_end)) && takes(option, last)) {
            return {rest.substr(0, first_end), last};
        }
    }
    const bool takes_fractions = option.get_type_name().starts_with('X');
    const auto ends_in_digit = [](const std::string& text) {
        return text.find_last_of("0123456789") + 1 == text.size();
    };
    const std::string first = rest.substr(0, rest.find(','));
    const bool has_unit_at_end = ends_in_digit(first) && !ends_in_digit(rest);  // "4,5M"
    const bool is_half = rest.ends_with(",5");
    if (has_decimal_comma(rest) && (takes_fractions || has_unit_at_end || is_half)) {
        return entries;
    }
    bool are_thousands = true;
    for (std::size_t begin = 0; begin <= rest.size();) {
        const std::size_t end = std::min(rest.find(',', begin), rest.size());
        entries.push_back(rest.substr(begin, end - begin));
        constexpr std::size_t digits = 3;
        are_thousands = are_thousands && (begin == 0 || end - begin == digits);
        begin = end + 1;
    }
    const bool are_all_taken = std::ranges::all_of(
        entries, [&option](const std::string& entry) { return takes(option, entry); });
    return entries.size() < 2 || are_thousands || !are_all_taken ? std::vector<std::string>{}
                                                                 : entries;
}

/// A word as a shell takes it.
std::string quoted(const std::string& word) {
    constexpr std::string_view plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:@%+";
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) {
        return word;
    }
    std::string text = "'";
    for (const char c : word) {
        text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return text + '\'';
}

/// The command line with another value for an option: "pipetwin plan m --nodes 4".
std::string command_with(const std::vector<std::string>& args,
                         const std::string& option,
                         const std::string& value) {
    std::string command = "pipetwin";
    for (std::size_t i = 0; i < args.size(); ++i) {
        if (args[i].starts_with(option + "=")) {
            command += fmt::format(" {}={}", option, value);
        } else if (i > 0 && args[i - 1] == option) {
            command += ' ' + value;
        } else {
            command += ' ' + quoted(args[i]);
        }
    }
    return command;
}

/// Refuses a list where an option takes one number, with one command for each of them.
Error list_error(const std::string& option,
                 const std::string& written,
                 const std::vector<std::string>& entries,
                 const std::vector<std::string>& args) {
    std::vector<std::string> one_each;
    for (const std::string& entry : entries) {
        one_each.push_back(command_with(args, option, entry));
    }
    return {ErrorKind::Usage,
            option,
            fmt::format("'{}' is a list, expected one number", written),
            fmt::format("one command for each: {}", fmt::join(one_each, "; "))};
}

/// How often an option is among the words of a command line.
std::ptrdiff_t times_given(const std::string& option, const std::vector<std::string>& args) {
    return std::ranges::count_if(args, [&option](const std::string& word) {
        return word == option || word.starts_with(option + "=");
    });
}

/// A value that the option takes, for a hint; empty: none is known.
std::string example_of(const CLI::Option& option) {
    constexpr auto examples = std::to_array<std::pair<std::string_view, std::string_view>>(
        {{"--nodes", "8"},
         {"--sequence", "8192"},
         {"--batch-tokens", "4M"},
         {"--tokens", "15T"},
         {"--price", "2.5"},
         {"--ranks", "4"},
         {"--seed", "1"},
         {"--chunks", "2"},
         {"--group-size", "8"},
         {"--samples", "256"},
         {"--capacity", "1"},
         {"--micro-batch-size", "1"},
         {"--matrix", "8192"},
         {"--beam", "4"},
         {"--from", "2"},
         {"--to", "3"},
         {"--efficiency", "0.5"},
         {"--memory-efficiency", "0.8"},
         {"--jitter", "0.05"},
         {"--transfer-jitter", "0.05"},
         {"--device-jitter", "0.05"},
         {"--deferred-weights", "1"},
         {"--mtbf-hours", "10000"},
         {"--failing-devices", "64"},
         {"--checkpoint-every", "100"},
         {"--checkpoint-s", "10"},
         {"--restart-s", "60"},
         {"--days", "30"}});
    const std::vector<std::string> words = choices_of(option);
    if (option.get_type_name() == "DATE") {  // '--from' of other commands is a number
        return "2027-03-31";
    }
    const auto* const found = std::ranges::find(
        examples, option.get_name(), &std::pair<std::string_view, std::string_view>::first);
    return !words.empty()            ? words.front()
           : found == examples.end() ? ""
                                     : std::string(found->second);
}

std::string help_of(const CLI::App* command) {
    return command == nullptr || command->get_parent() == nullptr
               ? "pipetwin --help"
               : fmt::format("pipetwin {} --help", command->get_name());
}

/// "FILE" of an option that takes one, for "add --out FILE".
std::string kind_of(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    return type.substr(0, type.find(':'));
}

/// The command with all that it needs: "pipetwin export FORMAT SOURCE --out FILE"; where that is
/// one word of some, with the first of them: "pipetwin completion bash".
std::string whole_command(const CLI::App& command) {
    std::string all = fmt::format("pipetwin {}", command.get_name());
    std::string options;
    std::vector<std::string> words;
    int needed = 0;
    for (const CLI::Option* one : command.get_options()) {
        if (one->get_required()) {
            ++needed;
            words = suggested_words(*one);
            (one->get_positional() ? all : options) +=
                one->get_positional() ? ' ' + kind_of(*one)
                                      : fmt::format(" {} {}", one->get_name(), kind_of(*one));
        }
    }
    return needed == 1 && !words.empty()
               ? fmt::format("pipetwin {} {}", command.get_name(), words.front())
               : all + options;
}

Error missing_error(const CLI::App& command, std::string_view message) {
    const std::string name(message.substr(0, message.find(' ')));
    const CLI::Option* const option = command.get_option_no_throw(name);
    if (option == nullptr) {
        return {ErrorKind::Usage, command.get_name(), std::string(message), help_of(&command)};
    }
    const std::string kind = kind_of(*option);
    const auto is_missing = [](const CLI::Option* one) {
        return one->get_positional() && one->get_required() && one->count() == 0;
    };
    const std::vector<const CLI::Option*> all_options = command.get_options();
    const auto positional = std::ranges::find_if(all_options, is_missing);
    if (name.starts_with("--") && positional != all_options.end()) {
        return {ErrorKind::Usage,
                command.get_name(),
                fmt::format("no {} is given", kind_of(**positional)),
                whole_command(command)};
    }
    if (name.starts_with("--")) {
        return {ErrorKind::Usage,
                command.get_name(),
                fmt::format("{} is missing", name),
                fmt::format("add {} {}", name, kind)};
    }
    return {ErrorKind::Usage,
            command.get_name(),
            fmt::format("no {} is given, expected {}", name, kind),
            whole_command(command)};
}

}  // namespace

Error usage_error(const CLI::ParseError& error,
                  CLI::App* command,
                  const std::vector<std::string>& args) {
    const std::string message = error.what();
    const Error plain(ErrorKind::Usage, "", message, help_of(command));
    if (command == nullptr || command->get_parent() == nullptr) {
        return plain;
    }
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError)) {
        return missing_error(*command, message);
    }
    const std::string name = option_in(message);
    CLI::Option* const option = name.empty() ? nullptr : command->get_option_no_throw(name);
    if (option == nullptr) {
        return plain;
    }
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiresError)) {
        const std::string other = option_in(message.substr(message.find(name) + name.size()));
        const CLI::Option* const needed = command->get_option_no_throw(other);
        return needed == nullptr ? plain
                                 : Error(ErrorKind::Usage,
                                         name,
                                         fmt::format("needs {}, which is missing", other),
                                         needed->get_items_expected_max() == 0
                                             ? fmt::format("add {}", other)
                                             : fmt::format("add {} {}", other, kind_of(*needed)));
    }
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExcludesError)) {
        const std::string other = option_in(message.substr(message.find(name) + name.size()));
        return {ErrorKind::Usage,
                name,
                fmt::format("cannot be used together with {}", other),
                "leave one of the two out"};
    }
    if (const std::ptrdiff_t times = times_given(name, args);
        times > 1 && error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch)) {
        return {ErrorKind::Usage,
                name,
                times == 2 ? "given twice" : fmt::format("given {} times", times),
                kind_of(*option).find(',') == std::string::npos
                    ? "give it once"
                    : fmt::format("give one list, as in {} {}", name, list_example(name))};
    }
    const std::optional<std::string> written = written_for(name, args);
    if (!written || written->starts_with("--")) {
        return {ErrorKind::Usage,
                name,
                fmt::format("no value given, expected {}", kind_of(*option)),
                fmt::format("write {} {}", name, kind_of(*option))};
    }
    const std::vector<std::string> words = choices_of(*option);
    if (words.empty()) {
        const std::vector<std::string> entries = entries_of(*written, *option);
        if (!entries.empty()) {
            return list_error(name, *written, entries, args);
        }
    }
    const std::vector<std::string_view> known(words.begin(), words.end());
    std::string near =
        known.empty() ? number_in(*written, *option) : std::string(nearest_word(*written, known));
    if (near == *written) {  // a fault of another kind, such as a number out of range
        near.clear();
    }
    const std::string example = example_of(*option);
    if (name == "--days" && std::ranges::count(*written, '-') == 2 && !written->starts_with('-')) {
        return {ErrorKind::Usage,
                name,
                fmt::format("'{}', expected {}", *written, expected_of(*option)),
                fmt::format("a day is that of --until {}", *written)};
    }
    return {ErrorKind::Usage,
            name,
            fmt::format("'{}', expected {}", *written, expected_of(*option)),
            !near.empty()     ? fmt::format("did you mean '{}'?", near)
            : example.empty() ? fmt::format("{} says what {} means", help_of(command), name)
                              : fmt::format("write it as in {} {}", name, example)};
}

}  // namespace pipetwin::cli
