// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/near_name.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/suggest.h"

namespace pipetwin {

namespace {

bool is_number_sign(char c) {
    return c >= '0' && c <= '9';
}

/// A name without signs and capitals: people leave them out, or put others there.
std::string letters_of(std::string_view name) {
    std::string letters;
    for (const char c : name) {
        const bool is_capital = c >= 'A' && c <= 'Z';
        if (is_capital || (c >= 'a' && c <= 'z') || is_number_sign(c)) {
            letters += is_capital ? static_cast<char>(c - 'A' + 'a') : c;
        }
    }
    return letters;
}

std::string digits_of(std::string_view name) {
    std::string digits(name);
    std::erase_if(digits, [](char c) { return !is_number_sign(c); });
    return digits;
}

/// The shortest of the names for which `fits` says so; empty: there is none.
template <class Fits>
std::string_view shortest(std::span<const std::string> known, const Fits& fits) {
    std::string_view best;
    for (const std::string& one : known) {
        if ((best.empty() || one.size() < best.size()) && fits(one)) {
            best = one;
        }
    }
    return best;
}

/// "h100", "sxm" and "80" of "8xH100-SXM-80": the parts of a name, without a count before an x.
std::vector<std::string> words_of(std::string_view name) {
    std::vector<std::string> words(1);
    for (const char c : name) {
        const std::string letter = letters_of(std::string_view(&c, 1));
        if (letter.empty()) {
            words.emplace_back();
        } else if (letter == "x" && !words.back().empty() &&
                   std::ranges::all_of(words.back(), is_number_sign)) {
            words.back().clear();
        } else {
            words.back() += letter;
        }
    }
    return words;
}

/// The words of a name that say which hardware it is: "h100", "4090".
std::vector<std::string> codes_of(std::string_view name) {
    std::vector<std::string> codes = words_of(name);
    std::erase_if(
        codes, [](const std::string& word) { return word.size() < 3 || digits_of(word).empty(); });
    return codes;
}

/// The first letters of the words that say which hardware it is: "p" of "8x-p40". Where they differ
/// it is other hardware, not a slip.
std::string first_letters_of_codes(std::string_view name) {
    std::string letters;
    for (const std::string& code : codes_of(name)) {
        letters += code.front();
    }
    return letters;
}

/// "llama-3-80b" as "llama3", 80 and "b"; the unit of "llama-3-80" is empty.
struct SizedModel {
    std::string family;
    double number = 0;
    std::string unit;
};

/// The parts of a model's name; none where it does not end in a size.
std::optional<SizedModel> sized_model(std::string_view name) {
    const std::size_t dash = name.find_last_of("-_ ");
    const std::string_view size = name.substr(dash == std::string_view::npos ? 0 : dash + 1);
    double number = 0;
    const auto [end, failed] = std::from_chars(size.data(), size.data() + size.size(), number);
    const std::string unit = letters_of(size.substr(static_cast<std::size_t>(end - size.data())));
    if (failed != std::errc{} || (!unit.empty() && unit != "b" && unit != "m")) {
        return std::nullopt;
    }
    return SizedModel{.family = letters_of(name.substr(0, name.size() - size.size())),
                      .number = number,
                      .unit = unit};
}

double parameters_of(const SizedModel& model, std::string_view unit) {
    return model.number * (unit == "b" ? 1e9 : 1e6);
}

/// Whether the models are of one family, whose name may be misspelled or lack its version, and of
/// nearly one size; or of one size, and the version of one goes on where that of the other ends
/// ("llama-3-405b" and "llama-3.1-405b"). A size without a unit has that of the known model.
bool are_near(const SizedModel& asked, const SizedModel& known) {
    constexpr double most_apart = 1.25;
    const std::string version = digits_of(asked.family);
    const std::string_view family = known.family;
    const double size = parameters_of(asked, asked.unit.empty() ? known.unit : asked.unit);
    const double known_size = parameters_of(known, known.unit);
    const std::string known_version = digits_of(known.family);
    return size <= most_apart * known_size && known_size <= most_apart * size &&
           (version.empty() || version == known_version ||
            (size == known_size && known_version.starts_with(version))) &&
           !nearest_word(asked.family, std::span(&family, 1)).empty();
}

/// The longest of the names whose letters are in `letters`, with no digit before or behind them:
/// "llama-3-70b" in those of "Meta-Llama-3-70B-Instruct".
std::string_view longest_within(const std::string& letters, std::span<const std::string> known) {
    std::string_view best;
    for (const std::string& one : known) {
        const std::string part = letters_of(one);
        const std::size_t begin = part.empty() ? std::string::npos : letters.find(part);
        if (begin == std::string::npos || one.size() <= best.size()) {
            continue;
        }
        const std::size_t end = begin + part.size();
        const bool digit_before = begin > 0 && is_number_sign(letters[begin - 1]);
        const bool digit_behind = end < letters.size() && is_number_sign(letters[end]);
        if (!digit_before && !digit_behind) {
            best = one;
        }
    }
    return best;
}

}  // namespace

std::string_view near_hardware(std::string_view name, std::span<const std::string> known) {
    const std::string letters = letters_of(name);
    if (letters.empty()) {
        return {};
    }
    const std::vector<std::string> codes = codes_of(name);
    const auto begins = [&](const std::string& one) {
        return letters_of(one).starts_with(letters);
    };
    const auto has_code = [&](const std::string& one) {
        return std::ranges::any_of(codes_of(one), [&codes](const std::string& code) {
            return std::ranges::find(codes, code) != codes.end();
        });
    };
    const std::string digits = digits_of(name);
    const auto is_misspelled = [&](const std::string& one) {
        const std::string_view candidate = one;
        return digits_of(one) == digits &&
               first_letters_of_codes(one) == first_letters_of_codes(name) &&
               !nearest_word(name, std::span(&candidate, 1)).empty();
    };
    if (const std::string_view found = shortest(known, begins); !found.empty()) {
        return found;
    }
    const std::string_view found = shortest(known, has_code);
    return found.empty() ? shortest(known, is_misspelled) : found;
}

std::string_view near_model(std::string_view name, std::span<const std::string> known) {
    const std::string letters = letters_of(name);
    constexpr auto other_names =
        std::to_array<std::pair<std::string_view, std::string_view>>({{"gpt2xl", "gpt2-1.5b"},
                                                                      {"gpt2large", "gpt2-774m"},
                                                                      {"gpt2medium", "gpt2-355m"},
                                                                      {"gpt2small", "gpt2-124m"}});
    for (const auto& [other, ours] : other_names) {
        if (letters == other && std::ranges::find(known, ours) != known.end()) {
            return ours;
        }
    }
    const std::string_view within = longest_within(letters, known);
    if (!within.empty()) {
        return within;
    }
    constexpr std::size_t fewest_letters = 4;
    const auto is_its_family = [&letters](const std::string& one) {
        return letters.size() >= fewest_letters && letters_of(one).starts_with(letters);
    };
    const std::string_view longer = std::ranges::count_if(known, is_its_family) == 1
                                        ? *std::ranges::find_if(known, is_its_family)
                                        : std::string_view();
    const std::optional<SizedModel> asked = sized_model(name);
    if (!longer.empty() || !asked) {
        return longer;
    }
    return shortest(known, [&asked](const std::string& one) {
        const std::optional<SizedModel> model = sized_model(one);
        return model && are_near(*asked, *model);
    });
}

}  // namespace pipetwin
