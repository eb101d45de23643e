// SPDX-License-Identifier: Apache-2.0
#include "core/text/translation_scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "core/base/ascii.h"

namespace pipetwin {
namespace {

/// How many n-grams of one order hypotheses and references have, and how many of them match.
struct GramCounts {
    std::int64_t hypothesis = 0;
    std::int64_t reference = 0;
    std::int64_t matches = 0;
};

/// The n-grams of a list, each with the number of times that it is there.
template <class Item>
std::map<std::vector<Item>, std::int64_t> grams_of(const std::vector<Item>& items,
                                                   std::size_t order) {
    std::map<std::vector<Item>, std::int64_t> grams;
    for (auto first = items.begin(); items.end() - first >= static_cast<std::ptrdiff_t>(order);
         ++first) {
        ++grams[std::vector<Item>(first, first + static_cast<std::ptrdiff_t>(order))];
    }
    return grams;
}

/// Adds what the n-grams of order `index` + 1 of one text have in common to counts[index].
template <class Item>
void count_grams(const std::vector<Item>& hypothesis,
                 const std::vector<Item>& reference,
                 std::span<GramCounts> counts) {
    for (std::size_t index = 0; index < counts.size(); ++index) {
        const auto wanted = grams_of(reference, index + 1);
        for (const auto& [gram, times] : wanted) {
            counts[index].reference += times;
        }
        for (const auto& [gram, times] : grams_of(hypothesis, index + 1)) {
            counts[index].hypothesis += times;
            const auto found = wanted.find(gram);
            counts[index].matches += found == wanted.end() ? 0 : std::min(times, found->second);
        }
    }
}

/// Length of the UTF-8 character at the beginning of a text that is not empty; 1 where there is
/// none.
std::size_t character_length(std::string_view text) {
    const auto first = static_cast<unsigned char>(text.front());
    const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
    const std::string_view rest = text.substr(1, length - 1);
    const bool is_whole = rest.size() + 1 == length && std::ranges::all_of(rest, [](char byte) {
                              return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
                          });
    return is_whole ? length : 1;
}

/// True for what Unicode calls white space.
bool is_white(std::string_view character) {
    static constexpr std::array<std::string_view, 19> wide{"\u0085",
                                                           "\u00A0",
                                                           "\u1680",
                                                           "\u2000",
                                                           "\u2001",
                                                           "\u2002",
                                                           "\u2003",
                                                           "\u2004",
                                                           "\u2005",
                                                           "\u2006",
                                                           "\u2007",
                                                           "\u2008",
                                                           "\u2009",
                                                           "\u200A",
                                                           "\u2028",
                                                           "\u2029",
                                                           "\u202F",
                                                           "\u205F",
                                                           "\u3000"};
    if (character.size() == 1) {
        const char byte = character.front();
        return ascii::is_blank(byte) || (byte >= '\x1C' && byte <= '\x1F');
    }
    return std::ranges::find(wide, character) != wide.end();
}

/// The characters of a text, without white space.
std::vector<std::string> characters_of(std::string_view text) {
    std::vector<std::string> characters;
    while (!text.empty()) {
        const std::string_view one = text.substr(0, character_length(text));
        text.remove_prefix(one.size());
        if (!is_white(one)) {
            characters.emplace_back(one);
        }
    }
    return characters;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
    for (std::size_t at = text.find(from); at != std::string::npos;
         at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
    }
    return text;
}

/// True for the symbols that are words of their own wherever they are.
bool is_symbol(char byte) {
    return (byte >= '{' && byte <= '~') || (byte >= '[' && byte <= '`') ||
           (byte >= ' ' && byte <= '&') || (byte >= '(' && byte <= '+') ||
           (byte >= ':' && byte <= '@') || byte == '/';
}

bool is_stop(char byte) {
    return byte == '.' || byte == ',';
}

/// Writes each pair of bytes for which `parts` is true as the pattern has it, where '1' and '2' are
/// the two bytes. From left to right; the second byte of such a pair begins no other.
template <class Parts>
std::string parted(std::string_view text, const Parts& parts, std::string_view pattern) {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (i + 1 == text.size() || !parts(text[i], text[i + 1])) {
            result += text[i];
            continue;
        }
        for (const char place : pattern) {
            result += place == '1' ? text[i] : place == '2' ? text[i + 1] : ' ';
        }
        ++i;
    }
    return result;
}

std::vector<std::string> split_at_white(std::string_view text) {
    std::vector<std::string> words(1);
    while (!text.empty()) {
        const std::string_view one = text.substr(0, character_length(text));
        text.remove_prefix(one.size());
        if (!is_white(one)) {
            words.back() += one;
        } else if (!words.back().empty()) {
            words.emplace_back();
        }
    }
    if (words.back().empty()) {
        words.pop_back();
    }
    return words;
}

}  // namespace

std::vector<std::string> words_of(std::string_view text) {
    std::string line = replaced(std::string(text), "<skipped>", "");
    line = replaced(std::move(line), "-\n", "");
    line = replaced(std::move(line), "\n", " ");
    for (const auto& [entity, meaning] : {std::pair{"&quot;", "\""},
                                          std::pair{"&amp;", "&"},
                                          std::pair{"&lt;", "<"},
                                          std::pair{"&gt;", ">"}}) {
        line = replaced(std::move(line), entity, meaning);
    }
    std::string spaced = " ";
    for (const char byte : line) {
        spaced += is_symbol(byte) ? std::string{' ', byte, ' '} : std::string(1, byte);
    }
    spaced += ' ';
    spaced = parted(
        spaced, [](char a, char b) { return !ascii::is_digit(a) && is_stop(b); }, "1 2 ");
    spaced = parted(
        spaced, [](char a, char b) { return is_stop(a) && !ascii::is_digit(b); }, " 1 2");
    spaced = parted(
        spaced, [](char a, char b) { return ascii::is_digit(a) && b == '-'; }, "1 2 ");
    return split_at_white(spaced);
}

double bleu(std::span<const TranslatedText> texts) {
    std::array<GramCounts, 4> counts;
    std::size_t hypothesis_length = 0;
    std::size_t reference_length = 0;
    for (const TranslatedText& text : texts) {
        const std::vector<std::string> hypothesis = words_of(text.hypothesis);
        const std::vector<std::string> reference = words_of(text.reference);
        count_grams(hypothesis, reference, counts);
        hypothesis_length += hypothesis.size();
        reference_length += reference.size();
    }
    const bool any =
        std::ranges::any_of(counts, [](const GramCounts& order) { return order.matches > 0; });
    if (!any || counts.back().hypothesis == 0) {
        return 0;
    }
    double log_sum = 0;
    double smoothing = 1;
    for (const GramCounts& order : counts) {
        const auto total = static_cast<double>(order.hypothesis);
        smoothing *= order.matches > 0 ? 1 : 2;
        log_sum += std::log(order.matches > 0 ? static_cast<double>(order.matches) / total
                                              : 1 / (smoothing * total));
    }
    const double ratio =
        static_cast<double>(reference_length) / static_cast<double>(hypothesis_length);
    const double brevity = ratio > 1 ? std::exp(1 - ratio) : 1;
    constexpr double percent = 100;
    return percent * brevity * std::exp(log_sum / static_cast<double>(counts.size()));
}

double chrf(std::span<const TranslatedText> texts) {
    constexpr double weight_of_recall = 4;  // beta squared, of beta = 2
    std::array<GramCounts, 6> counts;
    for (const TranslatedText& text : texts) {
        std::array<GramCounts, 6> own;
        count_grams(characters_of(text.hypothesis), characters_of(text.reference), own);
        for (std::size_t order = 0; order < counts.size(); ++order) {
            // Where the reference has no n-gram, sacreBLEU counts none of the hypothesis.
            counts[order].hypothesis += own[order].reference > 0 ? own[order].hypothesis : 0;
            counts[order].reference += own[order].reference;
            counts[order].matches += own[order].matches;
        }
    }
    double precision = 0;
    double recall = 0;
    int orders = 0;
    for (const GramCounts& order : counts) {
        if (order.hypothesis > 0 && order.reference > 0) {
            const auto matches = static_cast<double>(order.matches);
            precision += matches / static_cast<double>(order.hypothesis);
            recall += matches / static_cast<double>(order.reference);
            ++orders;
        }
    }
    if (precision + recall == 0) {
        return 0;
    }
    precision /= orders;
    recall /= orders;
    constexpr double percent = 100;
    return percent * (1 + weight_of_recall) * precision * recall /
           (weight_of_recall * precision + recall);
}

}  // namespace pipetwin
