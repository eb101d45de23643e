// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

// The interface of the module pipetwin_figures.so, which draws SVG as PDF and PNG by librsvg and
// cairo. It is loaded when a picture of these kinds is asked for, so that the program starts as
// fast, and runs, where neither is installed.

extern "C" {

/// Version of this interface.
inline constexpr int pipetwin_figures_interface = 1;

/// What the module was built for.
int pipetwin_figures_interface_version();

/// Takes the next bytes of a file; `sink` is what the caller gave.
using PipetwinTakeBytes = void (*)(void* sink, const unsigned char* bytes, std::size_t count);

/// Draws a document of SVG and hands its bytes on. `dots_per_inch` is that of a PNG, or 0 for a
/// PDF. Returns null, or why it could not be drawn: a text that is valid until the next call.
const char* pipetwin_draw_figure(const char* svg,
                                 std::size_t size,
                                 double dots_per_inch,
                                 const char* creator,
                                 PipetwinTakeBytes take,
                                 void* sink);

}  // extern "C"
