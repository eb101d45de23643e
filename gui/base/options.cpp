#include "gui/base/options.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <tuple>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

namespace pipetwin::gui {

namespace {

constexpr int usage_exit = 2;
constexpr int min_size = 200;
constexpr int max_size = 16384;

/// "1920x1080". Nothing if it is no size or not one between 200 and 16384.
std::optional<std::pair<int, int>> parse_size(const std::string& text) {
    std::pair<int, int> size;
    const char* const end = text.data() + text.size();
    const auto [cross, width_error] = std::from_chars(text.data(), end, size.first);
    if (width_error != std::errc{} || cross == end || *cross != 'x') {
        return std::nullopt;
    }
    const auto [rest, height_error] = std::from_chars(cross + 1, end, size.second);
    const auto fits = [](int pixels) { return pixels >= min_size && pixels <= max_size; };
    if (height_error != std::errc{} || rest != end || !fits(size.first) || !fits(size.second)) {
        return std::nullopt;
    }
    return size;
}

std::string check_size(const std::string& text) {
    return parse_size(text) ? "" : "'" + text + "', expected WIDTHxHEIGHT such as 1920x1080";
}

}  // namespace

const std::vector<std::string>& view_names() {
    static const std::vector<std::string> names{"timeline",
                                                "step",
                                                "what-if",
                                                "ranks",
                                                "why",
                                                "actions",
                                                "errors",
                                                "heat-map",
                                                "critical-path",
                                                "runs",
                                                "run",
                                                "start",
                                                "playground",
                                                "side-by-side"};
    return names;
}

ParsedOptions parse_options(std::vector<std::string> arguments) {
    CLI::App app{"Shows the predicted above the measured timeline of a run.", "pipetwin-gui"};
    std::vector<std::string> runs;
    std::string screenshot;
    std::string size = "1280x800";
    std::string theme;
    std::string parsed_view;
    int parsed_replica = 0;
    app.add_option(
           "run",
           runs,
           "run folder, trace, schedule CSV or trace of PyTorch's profiler; several files are "
           "overlaid")
        ->option_text("[RUN or FILE]...");
    app.add_option("--screenshot", screenshot, "write a PNG picture and exit; needs no display")
        ->option_text("FILE");
    app.add_option("--size", size, "size of the window")->option_text("WxH")->check(check_size);
    app.add_option("--theme", theme, "colours of the window")
        ->option_text("light|dark|high-contrast|print")
        ->check(CLI::IsMember({"light", "dark", "high-contrast", "print"}));
    app.add_option("--view",
                   parsed_view,
                   fmt::format("panel that --screenshot shows beside the timeline, one of {}",
                               fmt::join(view_names(), ", ")))
        ->option_text("NAME")
        ->check(CLI::IsMember(view_names()));
    app.add_option("--replica", parsed_replica, "replica whose rows are shown")
        ->option_text("N=0")
        ->check(CLI::NonNegativeNumber);
    app.set_version_flag("--version", "pipetwin-gui " PIPETWIN_VERSION);

    ParsedOptions parsed;
    try {
        std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
        app.parse(arguments);
    } catch (const CLI::ParseError& error) {
        std::ostringstream text;
        const int code = app.exit(error, text, text);
        parsed.end = EarlyEnd{.exit_code = code == 0 ? 0 : usage_exit, .text = text.str()};
        return parsed;
    }
    parsed.options.runs.assign(runs.begin(), runs.end());
    if (!screenshot.empty()) {
        parsed.options.screenshot = screenshot;
    }
    if (!theme.empty()) {
        parsed.options.theme = theme_called(QString::fromStdString(theme));
    }
    parsed.options.view = parsed_view;
    parsed.options.replica = parsed_replica;
    std::tie(parsed.options.width, parsed.options.height) = *parse_size(size);
    return parsed;
}

}  // namespace pipetwin::gui
