#pragma once

#include <string>

#include "core/timeline.h"

namespace pipetwin {

struct SvgOptions {
    int width = 960;            ///< pixels
    int row_height = 26;
    Duration span{};            ///< time shown; 0 = the timeline's own
    std::string title;
    bool legend = true;
};

/// A timeline as a picture: a row per rank, a rectangle per compute action with its micro-batch number where it
/// fits, waits hatched, an axis in ms. Okabe-Ito colours; every kind also differs by hatching or letter,
/// so that colour is never the only carrier of meaning. Neighbours thinner than half a pixel are merged.
std::string render_svg(const Timeline& timeline, const SvgOptions& options);

/// Predicted above measured, per rank, on one time axis.
std::string render_svg_pair(const Timeline& predicted, const Timeline& measured, const SvgOptions& options);

}  // namespace pipetwin
