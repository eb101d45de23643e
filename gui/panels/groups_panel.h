// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "gui/panels/two_tables.h"
#include "gui/view/run/run_data.h"

namespace pipetwin::gui {

/// Shows what the groups of devices of a plan send in a step, and what routed experts take of each
/// rank's memory.
class GroupsPanel : public TwoTables {
    Q_OBJECT

  public:
    explicit GroupsPanel(QWidget* parent = nullptr);

    void show_run(std::shared_ptr<const RunData> run);
};

}  // namespace pipetwin::gui
