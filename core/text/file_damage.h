// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// Files that are no text, where a text was expected.
namespace pipetwin {

/// The mark that some programs put before a text in UTF-8.
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

/// A sentence about what is wrong with a file, and what to do about it.
struct FileDamage {
    std::string what{};  ///< empty: nothing that is known
    std::string hint{};
    std::size_t index = 0;  ///< of the byte that shows it
};

/// Says what a content is that cannot be a text of ours: a packed file, UTF-16, a pointer of Git
/// LFS, a page of HTML or XML, or bytes of value 0 in it. `expected` completes the sentence:
/// "JSON", "a schedule as CSV".
FileDamage damage_of_file(std::string_view content, std::string_view expected);

}  // namespace pipetwin
