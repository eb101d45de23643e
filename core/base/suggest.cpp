#include "core/base/suggest.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pipetwin {

namespace {

/// Longest word that is compared, in characters: the bound keeps a hostile key of megabytes cheap.
constexpr std::size_t longest_word = 64;

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// Optimal string alignment: insert, delete, replace, or swap two neighbours, one each.
///
///     d(i, j) = min( d(i-1, j) + 1,  d(i, j-1) + 1,  d(i-1, j-1) + (a[i] != b[j]),
///                    d(i-2, j-2) + 1   if the last two characters are swapped )
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before_last(b.size() + 1);
    std::vector<std::size_t> last(b.size() + 1);
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::swap(before_last, last);
        std::swap(last, row);
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const bool same = lower(a[i - 1]) == lower(b[j - 1]);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
            const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                                 lower(a[i - 2]) == lower(b[j - 1]);
            if (swapped) {
                row[j] = std::min(row[j], before_last[j - 2] + 1);
            }
        }
    }
    return row[b.size()];
}

}  // namespace

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known) {
    if (word.empty() || word.size() > longest_word) {
        return {};
    }
    std::string_view best;
    std::size_t best_distance = longest_word;
    for (const std::string_view candidate : known) {
        const std::size_t allowed =
            std::max<std::size_t>(1, std::max(word.size(), candidate.size()) / 3);
        const std::size_t distance = edit_distance(word, candidate);
        if (distance <= allowed && distance < best_distance) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
    const std::string_view near = nearest_word(word, known);
    if (near.empty()) {
        return fmt::format("known: {}", fmt::join(known, ", "));
    }
    return fmt::format("did you mean '{}'?", near);
}

}  // namespace pipetwin
