// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/svg/figure_look.h"
#include "core/timeline/timeline.h"

namespace pipetwin {

/// Size, scale and title of a picture of a timeline.
struct SvgOptions {
    int width = 960;  ///< pixels of a screen; a figure has its own
    int row_height = 26;
    Duration span{};  ///< time shown; 0 = the timeline's own
    std::string title;
    bool legend = true;
    FigureLook figure{};
};

/// A timeline as a picture: a row per rank, a rectangle per action with its kind and micro-batch
/// where they fit, idle time hatched, an axis in ms, tooltips. Okabe-Ito colours; every kind also
/// differs by hatching or letter, so that colour is never the only carrier of meaning. Where a rank
/// holds several stages, lines across a rectangle tell the second, the third and those that follow
/// from the first. Neighbours
/// thinner than two pixels are drawn together, their height shared out among the kinds. Each skip
/// message is a curve from the end of its send to the end of its receive (core/svg/skip_curves.h);
/// of more than 300 the legend says how many are drawn. The origin stands in the picture.
///
/// A figure (FigureLook::width) has points in place of pixels: stages of a rank differ by shade,
/// and kinds by lightness, too (core/svg/paper.h).
std::string render_svg(const Timeline& timeline, const SvgOptions& options);

/// Two timelines as one picture: for each rank the predicted row above the measured one, on one
/// time axis.
std::string render_svg_pair(const Timeline& predicted,
                            const Timeline& measured,
                            const SvgOptions& options);

/// A timeline of a list, and the line above it.
struct NamedTimeline {
    std::string name;
    const Timeline* timeline = nullptr;
};

/// Timelines below each other on one time axis, each with its name above it.
std::string render_svg_list(const std::vector<NamedTimeline>& timelines, const SvgOptions& options);

}  // namespace pipetwin
