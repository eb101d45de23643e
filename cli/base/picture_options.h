// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "core/svg/figure_look.h"

/// Options of commands that draw: files, and the look of a figure for a paper.
namespace pipetwin::cli {

/// Pictures that a command is asked for, all of one drawing.
struct PictureOptions {
    std::filesystem::path svg{};  ///< empty: not asked for, as the others
    std::filesystem::path pdf{};
    std::filesystem::path png{};
    FigureLook look{};

    bool any() const { return !svg.empty() || !pdf.empty() || !png.empty(); }
    /// The first option that names a file, "--svg"; empty for none.
    std::string_view first_option() const;
};

/// The first option of a look that is not plain: "--width", "--legend" or "--title".
std::string option_of_look(const FigureLook& look);

/// Adds --width, --legend and --title to a command that draws, in a group of the help; an empty
/// group is that of all other options.
void add_figure_look(CLI::App& app, FigureLook& look, const std::string& group = "");

/// Adds --svg, --pdf, --png and the options of `add_figure_look`. `what` is the sentence of --svg
/// in the help.
void add_pictures(CLI::App& app,
                  PictureOptions& pictures,
                  const std::string& what,
                  const std::string& group = "");

/// Throws Error(Usage) for a file whose name says that it is another kind of picture, and for a
/// look without a picture.
void check_pictures(const PictureOptions& pictures);

/// Throws as `check_pictures`, but for a look without a picture where `other_picture` says that
/// another option names one.
void check_pictures_beside(const PictureOptions& pictures, bool other_picture);

/// Throws Error(Usage) for a file of `option` whose name has the ending of another kind of file
/// than `ending` (".svg", ".pdf" or ".png").
void refuse_other_picture(const std::string& option,
                          const std::filesystem::path& file,
                          std::string_view ending = ".svg");

}  // namespace pipetwin::cli
