// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <QString>

#include "core/base/short_number.h"

namespace pipetwin::gui {

/// Margin between the edge of a panel and its text, in pixels.
inline constexpr int panel_margin = 10;

inline QString text_of(const std::string& text) {
    return QString::fromStdString(text);
}

/// "3.2 ms".
inline QString time_text(Duration time) {
    return text_of(short_time(time));
}

/// The unit in which a time is shown: "ms".
inline QString unit_of(Duration time) {
    return time_text(time).section(' ', -1);
}

}  // namespace pipetwin::gui
