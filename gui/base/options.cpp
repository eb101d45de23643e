// SPDX-License-Identifier: Apache-2.0
#include "gui/base/options.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>
#include <tuple>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/base/version.h"

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

/// "--theme" of "--theme: x not in {light,dark}", and of every text that names an option.
std::string option_in(const std::string& text) {
    const std::size_t begin = text.find("--");
    const std::size_t end = text.find_first_of(": ,=", begin);
    return begin == std::string::npos ? "" : text.substr(begin, end - begin);
}

/// What stands behind an option; empty where nothing does.
std::string written_for(const std::string& option, const std::vector<std::string>& words) {
    const auto found = std::ranges::find_if(words, [&option](const std::string& word) {
        return word == option || word.starts_with(option + "=");
    });
    if (found == words.end()) {
        return "";
    }
    if (*found != option) {
        return found->substr(option.size() + 1);
    }
    return found + 1 == words.end() ? "" : *(found + 1);
}

std::string usage_text(const std::string& place, const std::string& what, const std::string& hint) {
    return fmt::format("error: {}: {}\nhint: {}\n", place, what, hint);
}

/// Usage error for a picture that would be called anything else than a PNG; empty for a good name.
std::string wrong_ending_text(const std::filesystem::path& picture) {
    const std::string ending = picture.extension().string();
    return ending.empty() || std::ranges::equal(ending, std::string_view(".png"), {}, ascii::lower)
               ? ""
               : usage_text(
                     "--screenshot",
                     fmt::format(
                         "'{}' ends in {}, but the picture is a PNG", picture.string(), ending),
                     fmt::format(
                         "name it {}",
                         std::filesystem::path(picture).replace_extension(".png").string()));
}

/// Error of a command line in the words of those of `pipetwin`: the option, what stands there, what
/// was expected, and one thing to do. `words` are the arguments as they were given.
std::string text_of(const CLI::ParseError& error,
                    const CLI::App& app,
                    const std::vector<std::string>& words) {
    const std::string name = option_in(error.what());
    const std::string help = "pipetwin-gui --help lists the options";
    const CLI::Option* const option = name.empty() ? nullptr : app.get_option_no_throw(name);
    if (option == nullptr) {
        std::vector<std::string> names;
        for (const CLI::Option* one : app.get_options()) {
            names.push_back(one->get_name());
        }
        const std::vector<std::string_view> known(names.begin(), names.end());
        const std::string_view near = nearest_word(name, known);
        return name.empty()
                   ? usage_text("pipetwin-gui", error.what(), help)
                   : usage_text("pipetwin-gui",
                                fmt::format("unknown option '{}'", name),
                                near.empty() ? help : fmt::format("did you mean '{}'?", near));
    }
    const std::string otherwise = name == "--size" ? "write it as in --size 1280x720" : help;
    static const std::map<std::string, std::vector<std::string>> choices{
        {"--theme", {"light", "dark", "high-contrast", "print"}}, {"--view", view_names()}};
    const std::string written = written_for(name, words);
    const auto words_of_option = choices.find(name);
    const std::string expected =
        words_of_option != choices.end()
            ? fmt::format("one of {}", fmt::join(words_of_option->second, ", "))
        : name == "--size"    ? "WIDTHxHEIGHT from 200 to 16384, such as 1920x1080"
        : name == "--at"      ? "a place such as step=3,rank=1,ms=12.5"
        : name == "--replica" ? "a whole number of zero or more"
        : name == "--nodes"   ? "a whole number above 0"
        : name == "--cluster" ? "the name of a kind of node, such as 8x-h100-sxm"
                              : "the name of a file";
    std::string_view near;
    if (words_of_option != choices.end()) {
        const std::vector<std::string_view> known(words_of_option->second.begin(),
                                                  words_of_option->second.end());
        near = nearest_word(written, known);
    }
    return usage_text(name,
                      written.empty() ? fmt::format("no value given, expected {}", expected)
                                      : fmt::format("'{}', expected {}", written, expected),
                      near.empty() ? otherwise : fmt::format("did you mean '{}'?", near));
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
                                                "translations",
                                                "groups",
                                                "start",
                                                "playground",
                                                "side-by-side",
                                                "plan"};
    return names;
}

ParsedOptions parse_options(std::vector<std::string> arguments) {
    CLI::App app{"Shows the predicted timeline of a run above the measured one.", "pipetwin-gui"};
    std::vector<std::string> runs;
    std::string screenshot;
    std::string size = "1280x800";
    std::string theme;
    std::string parsed_view;
    int parsed_replica = 0;
    ParsedOptions parsed;
    app.add_option(
           "run",
           runs,
           "scenario, schedule, trace, profile or run folder; a prediction and a measurement are "
           "overlaid; several predictions or measurements are opened side by side, as with --view "
           "side-by-side")
        ->option_text("[RUN or FILE]...");
    app.add_option("--screenshot", screenshot, "write a PNG picture and exit; needs no display")
        ->option_text("FILE");
    app.add_option("--size", size, "size of the window")->option_text("WxH")->check(check_size);
    app.add_option("--theme", theme, "colours of the window")
        ->option_text("light|dark|high-contrast|print")
        ->check(CLI::IsMember({"light", "dark", "high-contrast", "print"}));
    app.add_option(
           "--view",
           parsed_view,
           fmt::format(
               "page or panel to show, one of {}; runs is the table of the comparison, run is "
               "the panel Train",
               fmt::join(view_names(), ", ")))
        ->option_text("NAME")
        ->check(CLI::IsMember(view_names()));
    app.add_option("--replica", parsed_replica, "replica to show")
        ->option_text("N=0")
        ->check(CLI::NonNegativeNumber);
    app.add_option(
           "--cluster", parsed.options.cluster, "kind of node that --view plan plans a model on")
        ->option_text("NAME");
    app.add_option("--nodes", parsed.options.nodes, "number of nodes that --view plan plans on")
        ->option_text("N=1")
        ->check(CLI::PositiveNumber);
    std::string place;
    app.add_option("--at", place, "place of the run to show")->option_text("step=N,rank=N,ms=X");
    app.set_version_flag("--version", fmt::format("pipetwin-gui {}", program_version()));

    const std::vector<std::string> words = arguments;
    try {
        std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
        app.parse(arguments);
    } catch (const CLI::ParseError& error) {
        std::ostringstream text;
        const int code = app.exit(error, text, text);
        parsed.end = EarlyEnd{.exit_code = code == 0 ? 0 : usage_exit,
                              .text = code == 0 ? text.str() : text_of(error, app, words)};
        return parsed;
    }
    parsed.options.runs.assign(runs.begin(), runs.end());
    if (std::string wrong = wrong_ending_text(screenshot); !wrong.empty()) {
        parsed.end = EarlyEnd{.exit_code = usage_exit, .text = std::move(wrong)};
        return parsed;
    }
    parsed.options.has_place = !place.empty();
    if (parsed.options.has_place) {
        try {
            parsed.options.at = parse_place(place, "--at");
        } catch (const Error& error) {
            parsed.end = EarlyEnd{.exit_code = usage_exit,
                                  .text = usage_text(error.place(), error.text(), error.hint())};
            return parsed;
        }
    }
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

QSize first_size(const Options& options, const QSize& room) {
    const QSize wished(options.width, options.height);
    return options.screenshot ? wished : wished.boundedTo(room);
}

}  // namespace pipetwin::gui
