// SPDX-License-Identifier: Apache-2.0
#include "cli/figures/figures.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/base/output_file.h"
#include "cli/figures/module/figures_module.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/version.h"
#include "exec/base/run_time_module.h"

namespace pipetwin::cli {

namespace {

constexpr const char* figures_file = "pipetwin_figures.so";
constexpr double png_dots_per_inch = 300;

struct FiguresModule {
    decltype(&pipetwin_figures_interface_version) interface_version = nullptr;
    decltype(&pipetwin_draw_figure) draw = nullptr;
};

std::string_view format_words(FigureFormat format) {
    return format == FigureFormat::Pdf ? "PDF" : "PNG";
}

FiguresModule load_figures(FigureFormat format) {
    const std::optional<std::filesystem::path> file = exec::find_module(figures_file);
    if (!file) {
        throw Error(ErrorKind::Unavailable,
                    std::string(format_words(format)),
                    fmt::format("this pipetwin was built without librsvg, which draws it: no {} "
                                "beside the program or in PIPETWIN_MODULE_PATH",
                                figures_file),
                    "write an SVG, or build pipetwin where librsvg is installed: apt-get install "
                    "librsvg2-dev");
    }
    try {
        void* const library = exec::load_library(*file);
        FiguresModule module;
        exec::look_up(library, "pipetwin_figures_interface_version", module.interface_version);
        exec::expect_interface(*file, module.interface_version(), pipetwin_figures_interface);
        exec::look_up(library, "pipetwin_draw_figure", module.draw);
        return module;
    } catch (const std::runtime_error& error) {
        throw Error(ErrorKind::Unavailable,
                    std::string(format_words(format)),
                    error.what(),
                    "write an SVG, or install what draws it: apt-get install librsvg2-2");
    }
}

void append_bytes(void* sink, const unsigned char* bytes, std::size_t count) {
    static_cast<std::string*>(sink)->append(reinterpret_cast<const char*>(bytes), count);
}

/// A file to write, its option and its format.
struct AskedPicture {
    const std::filesystem::path& file;
    const char* option;
    FigureFormat format;
};

std::vector<AskedPicture> asked_pictures(const PictureOptions& pictures) {
    std::vector<AskedPicture> all{{pictures.svg, "--svg", FigureFormat::Svg},
                                  {pictures.pdf, "--pdf", FigureFormat::Pdf},
                                  {pictures.png, "--png", FigureFormat::Png}};
    std::vector<AskedPicture> asked;
    std::ranges::copy_if(
        all, std::back_inserter(asked), [](const AskedPicture& one) { return !one.file.empty(); });
    return asked;
}

/// Pixels in which the names of three quarters of the actions fit, within reason.
int screen_width(const Timeline& timeline) {
    constexpr double pixels_per_name = 24;
    constexpr double narrowest = 960;
    constexpr double widest = 3840;
    std::vector<Duration> durations;
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            if (is_compute(span.action.op)) {
                durations.push_back(span.end - span.begin);
            }
        }
    }
    if (durations.empty()) {
        return static_cast<int>(narrowest);
    }
    const auto quarter = durations.begin() + std::ssize(durations) / 4;
    std::ranges::nth_element(durations, quarter);
    const double names = to_seconds(step_time(timeline)) / std::max(to_seconds(*quarter), 1e-9);
    return static_cast<int>(std::clamp(names * pixels_per_name, narrowest, widest));
}

}  // namespace

std::string figure_bytes(const std::string& svg, FigureFormat format) {
    if (format == FigureFormat::Svg) {
        return svg;
    }
    const FiguresModule module = load_figures(format);
    std::string bytes;
    const char* const problem = module.draw(svg.data(),
                                            svg.size(),
                                            format == FigureFormat::Png ? png_dots_per_inch : 0,
                                            fmt::format("pipetwin {}", program_version()).c_str(),
                                            append_bytes,
                                            &bytes);
    if (problem != nullptr) {
        throw Error(ErrorKind::Usage,
                    std::string(format_words(format)),
                    fmt::format("the picture cannot be drawn: {}", problem),
                    format == FigureFormat::Png ? "write a PDF, which has no dots, or an SVG"
                                                : "write an SVG");
    }
    return bytes;
}

FigureFormat format_of_picture(std::string_view option, const std::filesystem::path& file) {
    const std::string ending = file.extension().string();
    if (ending == ".pdf" || ending == ".png") {
        return ending == ".pdf" ? FigureFormat::Pdf : FigureFormat::Png;
    }
    if (!ending.empty() && ending != ".svg") {
        throw Error(
            ErrorKind::Usage,
            std::string(option),
            fmt::format(
                "'{}' ends in {}, but the picture is an SVG, PDF or PNG", file.string(), ending),
            fmt::format("name it {}",
                        std::filesystem::path(file).replace_extension(".svg").string()));
    }
    return FigureFormat::Svg;
}

void require_figures(FigureFormat format) {
    if (format != FigureFormat::Svg) {
        static_cast<void>(load_figures(format));
    }
}

void require_pictures(const PictureOptions& pictures, bool force) {
    for (const AskedPicture& picture : asked_pictures(pictures)) {
        require_figures(picture.format);
        require_free(picture.file, force, picture.option);
    }
}

void write_pictures(const PictureOptions& pictures,
                    const std::function<std::string(const FigureLook&)>& draw,
                    Console& console) {
    if (!pictures.any()) {
        return;
    }
    const std::string svg = draw(pictures.look);
    const std::vector<AskedPicture> asked = asked_pictures(pictures);
    std::vector<std::string> made;  // all of them before one is written
    made.reserve(asked.size());
    for (const AskedPicture& picture : asked) {
        made.push_back(figure_bytes(svg, picture.format));
    }
    for (std::size_t i = 0; i < asked.size(); ++i) {
        write_output(asked[i].file, made[i], console);
        console.note(fmt::format("picture: {}", asked[i].file.string()));
    }
}

std::string timeline_title(const TimelineName& name) {
    std::string title = fmt::format("{}, {}, {}",
                                    name.schedule,
                                    counted(name.ranks, "rank"),
                                    counted(name.micro_batches, "micro-batch"));
    if (name.replicas > 1) {
        title += fmt::format(
            ", replica 0 of 0 {} {}", name.replicas == 2 ? "and" : "to", name.replicas - 1);
    }
    if (name.devices_per_rank > 1) {
        title += fmt::format(", {} devices per rank", name.devices_per_rank);
    }
    return title + (name.has_unit_costs ? ", unit costs" : "");
}

SvgOptions timeline_look(const Timeline& timeline, std::string title, const FigureLook& look) {
    SvgOptions options;
    options.title = std::move(title);
    options.figure = look;
    if (timeline.origin == Origin::Predicted) {  // a measured one has actions of all lengths
        options.width = screen_width(timeline);
    }
    return options;
}

}  // namespace pipetwin::cli
