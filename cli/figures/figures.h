// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cli/base/console.h"
#include "cli/base/picture_options.h"
#include "core/svg/svg.h"

/// Pictures as files: SVG, and by a module (cli/figures/module) PDF and PNG.
namespace pipetwin::cli {

enum class FigureFormat { Svg, Pdf, Png };

/// The bytes of a file of that format for a document of SVG: a PDF of the document's size, a PNG of
/// 300 dots per inch. Throws Error(Unavailable) where the module or what it needs is not there, and
/// Error(Usage) for a PNG of too many dots.
std::string figure_bytes(const std::string& svg, FigureFormat format);

/// The format that the ending of a file names; SVG for no ending. Throws Error(Usage) for another
/// ending; `option` named the file.
FigureFormat format_of_picture(std::string_view option, const std::filesystem::path& file);

/// Throws Error(Unavailable) where no files of that format can be made.
void require_figures(FigureFormat format);

/// Throws what `require_figures` throws, and Error(Io) if something stands where a picture is to go
/// and `force` does not allow to replace it. Called before any work.
void require_pictures(const PictureOptions& pictures, bool force);

/// Draws the picture as SVG once and writes each file that is asked for, with a note.
void write_pictures(const PictureOptions& pictures,
                    const std::function<std::string(const FigureLook&)>& draw,
                    Console& console);

/// What the title of a timeline's picture says of its plan.
struct TimelineName {
    std::string schedule;
    int ranks = 0;
    int micro_batches = 0;
    int replicas = 1;
    int devices_per_rank = 1;
    bool has_unit_costs = false;
};

/// "1f1b, 4 ranks, 8 micro-batches, unit costs".
std::string timeline_title(const TimelineName& name);

/// How one plan's timeline is drawn: on a screen, wide enough for the names of three quarters of
/// the actions of a prediction, within reason.
SvgOptions timeline_look(const Timeline& timeline, std::string title, const FigureLook& look);

}  // namespace pipetwin::cli
