// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pipetwin {

/// A size in pixels, of an image or of a window that moves over one.
struct Pixels {
    int height = 0;
    int width = 0;

    bool operator==(const Pixels&) const = default;
};

/// Pixels added on each side of an image; negative ones are cut off.
struct Margins {
    int top = 0;
    int left = 0;
    int bottom = 0;
    int right = 0;

    bool operator==(const Margins&) const = default;
};

}  // namespace pipetwin
