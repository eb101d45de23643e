// SPDX-License-Identifier: Apache-2.0
#include "cli/base/option_lists.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/base/plain_options.h"
#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"

namespace pipetwin::cli {

namespace {

std::string hint_of_list(std::string_view option) {
    return fmt::format("write it as in {} {}", option, list_example(option));
}

/// The whole number that the text is; none where it is something else or has leading zeros.
std::optional<int> whole_number(std::string_view text) {
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, number);
    const bool has_leading_zero = text.size() > 1 && text.front() == '0';
    return status == std::errc{} && rest == end && !has_leading_zero ? std::optional(number)
                                                                     : std::nullopt;
}

/// "1000" of "1,000", whose commas separate thousands; empty for any other text.
std::string without_thousands_separators(std::string text) {
    for (std::size_t comma = text.find(','); comma != std::string::npos;) {
        const std::size_t next = text.find(',', comma + 1);
        if (std::min(next, text.size()) - comma != 4) {
            return "";
        }
        comma = next;
    }
    return std::erase(text, ',') > 0 && whole_number(text) ? text : "";
}

/// "8,16" of "8 16", "8;16" and "[8, 16]"; empty where the text has commas alone, or names a file.
std::string with_commas(std::string_view text) {
    constexpr std::string_view dividers = " \t,;[](){}";
    if (text.find_first_of(" \t;[](){}") == std::string_view::npos ||
        text.find(".csv") != std::string_view::npos) {
        return "";
    }
    std::string list;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find_first_of(dividers, begin), text.size());
        if (end > begin) {
            list += fmt::format("{}{}", list.empty() ? "" : ",", text.substr(begin, end - begin));
        }
        begin = end + 1;
    }
    return list;
}

/// The whole number that is written as another number: "4" of "4.0", "1000" of "1e3"; empty: the
/// text is none.
std::string as_whole_number(std::string_view text) {
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, number);
    const bool is_plain = !text.starts_with('0') || text.starts_with("0.");
    const bool is_whole = is_plain && status == std::errc{} && rest == end && number >= 1 &&
                          number < 1e9 && number == static_cast<double>(static_cast<int>(number));
    return is_whole ? fmt::to_string(static_cast<int>(number)) : "";
}

}  // namespace

std::string_view list_example(std::string_view option) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 9> examples{
        {{"--schedule", "gpipe,1f1b"},
         {"--stages", "2,4"},
         {"--micro-batches", "8,16"},
         {"--recompute", "none,always"},
         {"--skips", "0:3,1:2"},
         {"--nodes", "4,8"},
         {"--price", "2.5,4"},
         {"--cluster", "8x-h100-sxm,8x-h200-sxm"},
         {"--stack", "megatron-bridge-2026,torchtitan-2026"}}};
    const auto* const found =
        std::ranges::find(examples, option, &std::pair<std::string_view, std::string_view>::first);
    return found == examples.end() ? "1,2" : found->second;
}

std::vector<std::string> list_entries(std::string_view option, std::string_view text) {
    constexpr std::string_view blanks = " \t";
    std::vector<std::string> entries;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        std::string_view entry = text.substr(begin, end - begin);
        entry.remove_prefix(std::min(entry.find_first_not_of(blanks), entry.size()));
        entry = entry.substr(0, entry.find_last_not_of(blanks) + 1);
        if (const std::string meant = with_commas(entry); !meant.empty()) {
            throw Error(ErrorKind::Usage,
                        std::string(option),
                        fmt::format("'{}' is no list with commas", text),
                        fmt::format("did you mean '{}'?", with_commas(text)));
        }
        if (entry.empty()) {
            throw Error(ErrorKind::Usage,
                        std::string(option),
                        fmt::format("the list '{}' has an empty entry", text),
                        hint_of_list(option));
        }
        entries.emplace_back(entry);
        begin = end + 1;
    }
    return entries;
}

std::vector<std::string> list_entries(std::string_view option,
                                      const std::vector<std::string>& texts) {
    std::vector<std::string> all;
    for (const std::string& text : texts) {
        std::ranges::move(list_entries(option, text), std::back_inserter(all));
    }
    return all;
}

std::vector<std::string> whole_numbers(std::string_view option, const std::string& text) {
    std::vector<std::string> entries = list_entries(option, text);
    for (const std::string& entry : entries) {
        if (!whole_number(entry)) {
            const std::string joined = without_thousands_separators(text);
            const std::string meant = joined.empty() ? as_whole_number(entry) : joined;
            throw Error(
                ErrorKind::Usage,
                std::string(option),
                fmt::format("'{}', expected a whole number", joined.empty() ? entry : text),
                meant.empty() ? hint_of_list(option) : fmt::format("did you mean '{}'?", meant));
        }
    }
    return entries;
}

std::string list_with(const std::string& extra, const std::vector<std::string>& args) {
    const auto at = std::ranges::find(args, extra);
    const auto is_option = [](const std::string& word) { return word.starts_with("--"); };
    const auto is_list = [&extra](std::string_view name) {
        if (name == "--nodes") {  // of 'plan' alone
            return whole_number(extra).has_value();
        }
        if (name == "--cluster") {
            const std::vector<std::string> clusters = cluster_names();
            return std::ranges::count(clusters, extra) > 0;
        }
        const auto costs = cost_options();
        const auto cost = std::ranges::find(costs, name, &CostOption::name);
        return std::ranges::count(list_options, name) > 0 ||
               (cost != costs.end() && cost->is_time());
    };
    const auto option = std::find_if(std::make_reverse_iterator(at), args.rend(), is_option);
    if (at == args.end() || option == args.rend() || !is_list(*option) || option.base() == at) {
        return "";
    }
    const auto end = std::find_if(at, args.end(), [](const std::string& word) {
        return word.starts_with("--") || word.ends_with(".toml");
    });
    std::string list;
    for (auto word = option.base(); word != end; ++word) {
        list += (list.empty() || list.ends_with(',') ? "" : ",") + *word;
    }
    return fmt::format("{} {}", *option, list);
}

}  // namespace pipetwin::cli
