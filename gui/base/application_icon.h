// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QIcon>

namespace pipetwin::gui {

/// The icon of the program, from its resources, in every size.
QIcon application_icon();

}  // namespace pipetwin::gui
