// SPDX-License-Identifier: Apache-2.0
#pragma once

class QThreadPool;

namespace pipetwin::gui {

/// The threads on which everything is computed that takes long. They are not those of Qt's global
/// pool: its painter gives parts of large areas to that one and waits until they are done, behind
/// whatever else stands in line there.
QThreadPool* workers();

}  // namespace pipetwin::gui
