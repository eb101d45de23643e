// SPDX-License-Identifier: Apache-2.0
#include "cli/base/picture_options.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"

namespace pipetwin::cli {

namespace {

/// "an SVG" of ".svg".
std::string_view picture_words(std::string_view ending) {
    return ending == ".svg" ? "an SVG" : ending == ".pdf" ? "a PDF" : "a PNG";
}

bool is_picture_ending(std::string_view ending) {
    return ending == ".svg" || ending == ".pdf" || ending == ".png";
}

CLI::Option* grouped(CLI::Option* option, const std::string& group) {
    return group.empty() ? option : option->group(group);
}

}  // namespace

std::string_view PictureOptions::first_option() const {
    return !svg.empty() ? "--svg" : !pdf.empty() ? "--pdf" : !png.empty() ? "--png" : "";
}

std::string option_of_look(const FigureLook& look) {
    return look.is_paper() ? "--width" : look.legend ? "--legend" : "--title";
}

void add_figure_look(CLI::App& app, FigureLook& look, const std::string& group) {
    const auto set_width = [&look](const std::string& text) {
        look.width = figure_width(text, "--width");
    };
    grouped(app.add_option_function<std::string>(
                   "--width",
                   set_width,
                   "Draw for a column of a paper of this width: a number with mm, cm, in or pt; "
                   "84mm is one of two columns")
                ->type_name("WIDTH"),
            group);
    grouped(app.add_flag("--legend", look.legend, "--width: also draw a legend"), group);
    grouped(app.add_option("--title", look.title, "Title of the picture")->type_name("TEXT"),
            group);
}

void add_pictures(CLI::App& app,
                  PictureOptions& pictures,
                  const std::string& what,
                  const std::string& group) {
    grouped(app.add_option("--svg", pictures.svg, what)->type_name("FILE.svg"), group);
    grouped(app.add_option("--pdf", pictures.pdf, "As --svg, as a PDF with text that stays text")
                ->type_name("FILE.pdf"),
            group);
    grouped(app.add_option("--png", pictures.png, "As --svg, in dots, 300 to an inch")
                ->type_name("FILE.png"),
            group);
    add_figure_look(app, pictures.look, group);
}

void check_pictures(const PictureOptions& pictures) {
    check_pictures_beside(pictures, false);
}

void check_pictures_beside(const PictureOptions& pictures, bool other_picture) {
    refuse_other_picture("--svg", pictures.svg, ".svg");
    refuse_other_picture("--pdf", pictures.pdf, ".pdf");
    refuse_other_picture("--png", pictures.png, ".png");
    const FigureLook& look = pictures.look;
    if (!pictures.any() && !other_picture && look != FigureLook{}) {
        throw Error(ErrorKind::Usage,
                    option_of_look(look),
                    "it is for a picture, but none is asked for",
                    "name one: --svg FILE.svg, --pdf FILE.pdf or --png FILE.png");
    }
}

void refuse_other_picture(const std::string& option,
                          const std::filesystem::path& file,
                          std::string_view ending) {
    const std::string other = file.extension().string();
    if (file.empty() || other.empty() || other == ending) {
        return;
    }
    const std::string named = std::filesystem::path(file).replace_extension(ending).string();
    throw Error(
        ErrorKind::Usage,
        option,
        fmt::format(
            "'{}' ends in {}, but the picture is {}", file.string(), other, picture_words(ending)),
        !is_picture_ending(other) ? fmt::format("name it {}", named)
        : option == "--out"
            ? fmt::format("name it {}, or write it by 'pipetwin export {}'", named, other.substr(1))
            : fmt::format("name it {}, or write it by --{}", named, other.substr(1)));
}

}  // namespace pipetwin::cli
