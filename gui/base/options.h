// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <QSize>

#include "core/timeline/linked_place.h"
#include "gui/base/palette.h"

namespace pipetwin::gui {

/// The command line of pipetwin-gui.
struct Options {
    std::vector<std::filesystem::path> runs;          ///< laid over each other, or side by side
    std::optional<std::filesystem::path> screenshot;  ///< write a picture and end
    int width = 1280;
    int height = 800;
    std::optional<Theme> theme;
    LinkedPlace at{};  ///< the place of the run that is shown
    bool has_place = false;
    int replica = 0;      ///< of a run with several: the one that is shown
    std::string cluster;  ///< of a model that is planned; empty: the usual
    int nodes = 1;        ///< of a model that is planned
    /// What is shown first, a name of `view_names`; "" for the timeline, or the start page where
    /// there are no runs. "side-by-side" shows the runs below each other, "plan" plans the first of
    /// them.
    std::string view;
};

/// Names that --view can show: the pages of the window, and the panels beside the timeline.
const std::vector<std::string>& view_names();

/// The reason why the program ends before it has begun: --help, --version or wrong usage.
struct EarlyEnd {
    int exit_code = 0;
    std::string text;
};

struct ParsedOptions {
    Options options;
    std::optional<EarlyEnd> end;
};

/// Reads the command line; `arguments` are without the program's name. Needs no QApplication, so
/// that --help works without a display.
ParsedOptions parse_options(std::vector<std::string> arguments);

/// The size at which the window opens: as wished, but no larger than the room on the screen. A
/// picture needs no screen.
QSize first_size(const Options& options, const QSize& room);

}  // namespace pipetwin::gui
