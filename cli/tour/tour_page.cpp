// SPDX-License-Identifier: Apache-2.0
#include "cli/tour/tour_page.h"

#include <array>
#include <system_error>

#include <fmt/format.h>

#include "cli/run_folder/page.h"
#include "core/text/json_text.h"

namespace pipetwin::cli {

namespace {

namespace fs = std::filesystem;

/// A path as the address of a link: letters that mean something in an address are written as %XX.
std::string link_address(const fs::path& path) {
    constexpr std::string_view plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    std::string address;
    for (const char letter : path.generic_string()) {
        address += plain.find(letter) != std::string_view::npos
                       ? std::string(1, letter)
                       : fmt::format("%{:02X}", static_cast<unsigned char>(letter));
    }
    return address;
}

/// A picture as the page shows it, any other file as a link.
std::string file_html(const fs::path& file, const fs::path& tour, std::string_view title) {
    const fs::path near = file.lexically_relative(tour);
    const std::string address = link_address(near);
    if (near.extension() == ".svg") {
        return fmt::format(
            "<figure class=\"paper\"><img src=\"{}\" alt=\"{}\"></figure>\n", address, title);
    }
    return fmt::format("<p class=\"note\"><a href=\"{}\">{}</a></p>\n",
                       address,
                       html_escaped(near.generic_string()));
}

std::string step_html(const fs::path& folder, int number, const TourStep& step) {
    constexpr std::size_t most_bytes = std::size_t{16} << 20U;
    const fs::path tour = tour_folder(folder);
    const std::string printed = read_file(step_text_file(folder, number, step), most_bytes);
    std::string html = fmt::format("<p>{}</p>\n", html_escaped(step.why));
    for (const fs::path& file : step.files) {
        std::error_code ignored;
        html += fs::exists(file, ignored) ? file_html(file, tour, step.title) : "";
    }
    html += fmt::format(
        "<details{}>\n<summary>Commands and what they printed</summary>\n"
        "<pre>{}</pre>\n</details>\n",
        step.commands.empty() ? " open" : "",
        html_escaped(printed));
    return html_section(fmt::format("{}. {}", number, step.title), html);
}

}  // namespace

std::string tour_page(const fs::path& folder) {
    std::string html =
        page_begin("A tour of pipetwin") +
        "<p class=\"about\">The steps that 'pipetwin demo' has done. Run it again to continue "
        "with the first step that is missing here.</p>\n"
        "<div class=\"column wide\">\n";
    int number = 0;
    for (const TourStep& step : tour_steps(folder)) {
        std::error_code ignored;
        if (fs::exists(step_text_file(folder, ++number, step), ignored)) {
            html += step_html(folder, number, step);
        }
    }
    return html + "</div>\n" + page_end();
}

}  // namespace pipetwin::cli
