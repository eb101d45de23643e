#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Parts of the HTML pages that the program writes.
namespace pipetwin::cli {

using HtmlRow = std::vector<std::string>;

/// Begin of a page up to its heading; `title` is plain text. The style is inside the page.
std::string page_begin(std::string_view title);

/// End of a page.
std::string page_end();

/// A table; the first row is the head, cells are plain text.
std::string html_table(const std::vector<HtmlRow>& rows);

/// A section with a heading of plain text above `content`, which is HTML.
std::string html_section(std::string_view title, const std::string& content);

/// `text` with the characters that mean something in HTML replaced.
std::string html_escaped(std::string_view text);

}  // namespace pipetwin::cli
