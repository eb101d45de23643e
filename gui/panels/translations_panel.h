// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "gui/panels/two_tables.h"
#include "gui/view/run/run_data.h"

namespace pipetwin::gui {

/// Shows what a translation model has learnt: the scores of each direction, and held-out texts with
/// the model's translation and a person's.
class TranslationsPanel : public TwoTables {
    Q_OBJECT

  public:
    explicit TranslationsPanel(QWidget* parent = nullptr);

    void show_run(std::shared_ptr<const RunData> run);
};

}  // namespace pipetwin::gui
