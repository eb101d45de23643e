// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <QWidget>

#include "gui/base/palette.h"
#include "gui/base/text_table.h"
#include "gui/view/run/run_data.h"

class QLabel;
class QSplitter;
class QTreeView;

namespace pipetwin::gui {

/// Shows what a translation model has learnt: the scores of each direction, and held-out texts with
/// the model's translation and a person's.
class TranslationsPanel : public QWidget {
    Q_OBJECT

  public:
    explicit TranslationsPanel(QWidget* parent = nullptr);

    void show_run(std::shared_ptr<const RunData> run);
    void set_colors(const Palette& palette);

  signals:
    void settled();

  protected:
    void resizeEvent(QResizeEvent* event) override;

  private:
    void share_room_of_lists();

    int room_of_scores_ = 0;  ///< pixels
    QLabel* sentence_;
    QSplitter* splitter_;
    TextTable* scores_;
    QTreeView* scores_view_;
    TextTable* texts_;
    QTreeView* texts_view_;
};

}  // namespace pipetwin::gui
