// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QString>

namespace pipetwin::gui {

/// The text as a label shows it on several lines: a number and its unit stay on one.
QString unbroken(const QString& text);

}  // namespace pipetwin::gui
