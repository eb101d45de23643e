// SPDX-License-Identifier: Apache-2.0
#include "core/base/typed_text.h"

#include <algorithm>
#include <array>
#include <utility>

namespace pipetwin {

namespace {

using std::string_view;

/// A character of documents, and how it is typed.
constexpr auto typed_signs = std::to_array<std::pair<string_view, string_view>>({
    {"\u2010", "-"},  {"\u2011", "-"},  {"\u2012", "-"},  {"\u2013", "-"},  {"\u2014", "-"},
    {"\u2015", "-"},  {"\u2212", "-"},  {"\ufe63", "-"},  {"\uff0d", "-"},  {"\u201c", "\""},
    {"\u201d", "\""}, {"\u201e", "\""}, {"\u201f", "\""}, {"\u00ab", "\""}, {"\u00bb", "\""},
    {"\u2018", "'"},  {"\u2019", "'"},  {"\u201a", "'"},  {"\u201b", "'"},  {"\u00a0", " "},
    {"\u202f", " "},  {"\u200b", ""},   {"\ufeff", ""},   {"\uff1d", "="},
});

/// The typed form of the sign that a text begins with, and the sign's length; length 0: it begins
/// with none.
std::pair<string_view, std::size_t> sign_at(string_view text) {
    const auto* const found = std::ranges::find_if(
        typed_signs, [text](const auto& sign) { return text.starts_with(sign.first); });
    return found == typed_signs.end() ? std::pair(string_view(), std::size_t{0})
                                      : std::pair(found->second, found->first.size());
}

}  // namespace

std::string as_typed(std::string_view text) {
    std::string typed;
    while (!text.empty()) {
        const auto [sign, length] = sign_at(text);
        typed += length > 0 ? sign : text.substr(0, 1);
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return typed;
}

bool begins_with_dash(std::string_view text) {
    const std::size_t hyphens = std::min(text.find_first_not_of('-'), text.size());
    return sign_at(text.substr(hyphens)).first == "-";
}

bool is_in_foreign_signs(std::string_view text) {
    return std::ranges::any_of(typed_signs, [text](const auto& sign) {
        return text.starts_with(sign.first) || text.ends_with(sign.first);
    });
}

std::string_view trimmed(std::string_view text) {
    constexpr string_view blanks = " \t\r\n";
    text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
    return text.substr(0, text.find_last_not_of(blanks) + 1);
}

}  // namespace pipetwin
