// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Parts of the HTML pages that the program writes.
namespace pipetwin::cli {

/// A cell of a table, of plain text.
struct HtmlCell {
    std::string text;
    std::string title{};  ///< shown where the pointer rests on the cell; empty: nothing is
};

using HtmlRow = std::vector<HtmlCell>;

/// Begin of a page up to its heading; `title` is plain text. The style is inside the page.
std::string page_begin(std::string_view title);

/// End of a page.
std::string page_end();

/// Cells that show nothing but their text.
HtmlRow html_row(std::vector<std::string> texts);

/// A table; the first row is the head.
std::string html_table(const std::vector<HtmlRow>& rows);

/// A list of sentences, which are plain text.
std::string html_sentences(const std::vector<std::string>& sentences);

/// A section with a heading of plain text above `content`, which is HTML.
std::string html_section(std::string_view title, const std::string& content);

/// `text` with the characters that mean something in HTML replaced.
std::string html_escaped(std::string_view text);

}  // namespace pipetwin::cli
