// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pipetwin {

/// What a figure of a paper asks of a picture. A picture with a width is laid out in points for
/// exactly that width: no text is smaller than `least_text`, and labels without room are left out.
struct FigureLook {
    double width = 0;     ///< points (1/72 inch); 0: the picture has the size of one on a screen
    bool legend = false;  ///< draws a legend; pictures for screens have one anyway
    std::optional<std::string> title{};  ///< none: of a figure no title, else that of the picture

    bool is_paper() const { return width > 0; }

    bool operator==(const FigureLook&) const = default;

    /// Size of the smallest text of a figure, in points.
    static constexpr double least_text = 7;
    /// Narrowest and widest figure, in points: 20 mm, and 2 m.
    static constexpr double narrowest = 20 * 72 / 25.4;
    static constexpr double widest = 2000 * 72 / 25.4;
};

/// The width that a text names, "84mm", "8.4 cm", "3.3in" or "240pt", in points. Throws
/// Error(Usage) for another unit, and for a width outside of FigureLook's range; `where` is the
/// option in the message.
double figure_width(std::string_view text, std::string_view where);

}  // namespace pipetwin
