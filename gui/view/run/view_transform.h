// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/base/units.h"

namespace pipetwin::gui {

/// Mapping from times to pixels.
struct ViewTransform {
    Duration origin{};           ///< the time at x = 0
    double ns_per_pixel = 1000;  ///< above 0

    /// The x of a time, in pixels.
    double x_of(Duration time) const {
        return static_cast<double>((time - origin).count()) / ns_per_pixel;
    }
    /// The time at x.
    Duration time_at(double x) const;

    /// Magnified `factor` times; the time under `x` stays there (to a nanosecond).
    ViewTransform zoomed(double factor, double x) const;

    /// The view moved `pixels` to the right.
    ViewTransform panned(double pixels) const;

    bool operator==(const ViewTransform&) const = default;
};

/// The view that shows `begin` to `end` with a margin of 2 % on both sides. An empty range is shown
/// as one of a microsecond.
ViewTransform fitted(Duration begin, Duration end, double width);

/// The nearest view that does not lose the run: a pixel is at least a nanosecond, the window at
/// most twice as long as the run, and the window's middle lies inside the run.
ViewTransform clamped(const ViewTransform& view, Duration length, double width);

}  // namespace pipetwin::gui
