// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder/page.h"

#include <utility>

#include <fmt/format.h>

#include "core/base/printable.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view page_style = R"css(
:root { color-scheme: light dark; --ink: #1d2127; --faint: #646b75; --line: #dcdfe4; --page: #ffffff;
        --panel: #f6f7f9; --accent: #0072b2; --second: #b45309; --good: #1a7f4b; --bad: #b42318;
        --warn: #fdf0d9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --faint: #9aa2ad; --line: #363c45; --page: #16191d; --panel: #1e2227;
          --accent: #56b4e9; --second: #e69f00; --good: #4cc38a; --bad: #ff8a7a;
          --warn: #3d2c0c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 2.5rem 2rem 4rem; background: var(--page); color: var(--ink);
       font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif;
       font-variant-numeric: tabular-nums; }
h1 { margin: 0; font-size: 1.7rem; font-weight: 650; letter-spacing: -0.01em; }
h2 { margin: 0 0 .6rem; font-size: 1rem; font-weight: 650; }
.about { margin: .2rem 0 0; color: var(--faint); }
.headline { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); margin: 1.8rem 0 2.2rem;
            padding: 1.1rem 0; border-block: 1px solid var(--line); gap: 1rem; }
.figure b { display: block; font-size: 1.65rem; font-weight: 600; line-height: 1.25; letter-spacing: -0.01em; }
.figure span { color: var(--faint); font-size: .88rem; }
.good b { color: var(--good); } .bad b { color: var(--bad); }
.top { display: grid; grid-template-columns: minmax(0, 1fr); gap: 2.2rem; }
.column { display: grid; gap: 2.2rem; align-content: start; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(25rem, 100%), 1fr)); gap: 2.2rem 3rem;
         margin-top: 2.4rem; }
@media (min-width: 72rem) { .top { grid-template-columns: minmax(0, 1fr) 25rem; } }
figure { margin: 0; } figure svg { display: block; width: 100%; height: auto; }
figure.paper svg, figure.paper img { max-width: 100%; background: #ffffff; border-radius: 4px; }
figcaption { margin-top: .5rem; color: var(--faint); font-size: .88rem; }
table { width: 100%; border-collapse: collapse; font-size: .92rem; }
th, td { padding: .28rem .1rem .28rem .9rem; text-align: right; border-bottom: 1px solid var(--line);
         white-space: nowrap; vertical-align: top; }
th { color: var(--faint); font-weight: 500; font-size: .84rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
a { color: var(--accent); }
code { font: .92em ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.warning { margin: 1.4rem 0 0; padding: .8rem 1.1rem; background: var(--warn); border-left: 4px solid var(--second);
           border-radius: 4px; max-width: 60rem; }
.sentences { margin: 0 0 1rem; padding-left: 1.1rem; max-width: 46rem; } .sentences li { margin-bottom: .45rem; }
h3 { margin: 1rem 0 .4rem; font-size: .92rem; font-weight: 650; }
dl { columns: 26rem 2; column-gap: 3rem; margin: 0; font-size: .92rem; } dl div { break-inside: avoid; margin-bottom: .55rem; }
dt { font-weight: 600; } dd { margin: 0; color: var(--faint); }
.wide { margin-top: 2.4rem; }
.note { color: var(--faint); font-size: .88rem; margin: .6rem 0 0; }
pre { margin: 0; padding: 1rem 1.1rem; overflow-x: auto; background: var(--panel); border-radius: 6px;
      font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
summary { cursor: pointer; font-weight: 650; margin-bottom: .6rem; }
details { margin-top: 2.4rem; }
@media print { body { padding: 0; max-width: none; font-size: 11px; }
  .cards { grid-template-columns: 1fr 1fr; gap: 1.2rem 2rem; } section, figure { break-inside: avoid; } }
)css";

}  // namespace

std::string html_table(const std::vector<HtmlRow>& rows) {
    std::string html = "<table>\n";
    for (std::size_t index = 0; index < rows.size(); ++index) {
        const std::string_view tag = index == 0 ? "th" : "td";
        html += "<tr>";
        for (const HtmlCell& cell : rows[index]) {
            const std::string title =
                cell.title.empty() ? "" : fmt::format(" title=\"{}\"", html_escaped(cell.title));
            html += fmt::format("<{0}{1}>{2}</{0}>", tag, title, html_escaped(cell.text));
        }
        html += "</tr>\n";
    }
    return html + "</table>\n";
}

HtmlRow html_row(std::vector<std::string> texts) {
    HtmlRow row;
    for (std::string& text : texts) {
        row.push_back({.text = std::move(text)});
    }
    return row;
}

std::string html_sentences(const std::vector<std::string>& sentences) {
    std::string html = "<ul class=\"sentences\">\n";
    for (const std::string& sentence : sentences) {
        html += fmt::format("<li>{}</li>\n", html_escaped(sentence));
    }
    return html + "</ul>\n";
}

std::string html_section(std::string_view title, const std::string& content) {
    return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", html_escaped(title), content);
}

std::string html_escaped(std::string_view text) {
    std::string html;
    html.reserve(text.size());
    for (const char letter : printable_lines(text)) {
        switch (letter) {
            case '&':
                html += "&amp;";
                break;
            case '<':
                html += "&lt;";
                break;
            case '>':
                html += "&gt;";
                break;
            case '"':
                html += "&quot;";
                break;
            case '\'':
                html += "&#39;";
                break;
            default:
                html += letter;
        }
    }
    return html;
}

std::string page_begin(std::string_view title) {
    const std::string name = html_escaped(title);
    return fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<title>{} - pipetwin</title>\n<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
        name,
        page_style,
        name);
}

std::string page_end() {
    return "</body>\n</html>\n";
}

}  // namespace pipetwin::cli
