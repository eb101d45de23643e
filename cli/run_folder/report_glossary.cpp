// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder/report_glossary.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/run_folder/page.h"
#include "core/base/ascii.h"
#include "gui/view/analysis/glossary.h"

namespace pipetwin::cli {

namespace {

std::string lower_case(std::string_view text) {
    std::string result(text);
    std::ranges::transform(result, result.begin(), ascii::lower);
    return result;
}

/// Whether a word of the page begins with `word`; both in lower case.
bool has_word(std::string_view page, std::string_view word) {
    const auto is_inside = [&](std::size_t at) {
        return at > 0 && (ascii::is_digit(page[at - 1]) || ascii::is_letter(page[at - 1]));
    };
    std::size_t at = page.find(word);
    while (at != std::string_view::npos && is_inside(at)) {
        at = page.find(word, at + 1);
    }
    return at != std::string_view::npos;
}

/// The meaning as a sentence of its own.
std::string sentence_of(std::string_view meaning) {
    std::string text(meaning);
    text.front() = ascii::upper(text.front());
    return text + '.';
}

}  // namespace

std::string report_glossary(std::string_view page) {
    const std::string used = lower_case(page);
    std::string html = "<dl>\n";
    for (const gui::GlossaryEntry& entry : gui::glossary()) {
        if (has_word(used, lower_case(entry.word))) {
            html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n",
                                entry.word,
                                html_escaped(sentence_of(entry.meaning)));
        }
    }
    return html_section("Glossary", html + "</dl>\n");
}

}  // namespace pipetwin::cli
