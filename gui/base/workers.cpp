// SPDX-License-Identifier: Apache-2.0
#include "gui/base/workers.h"

#include <QThreadPool>

namespace pipetwin::gui {

QThreadPool* workers() {
    static QThreadPool pool;
    return &pool;
}

}  // namespace pipetwin::gui
