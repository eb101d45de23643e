// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include <QFutureWatcher>
#include <QWidget>

#include "gui/timeline/selection.h"
#include "gui/what_if/heat_map_view.h"

class QComboBox;
class QLabel;

namespace pipetwin::gui {

/// The map of a what-if, computed on a worker, with the choice of what it shows.
class HeatMapPanel : public QWidget {
    Q_OBJECT

  public:
    explicit HeatMapPanel(Selection* selection, QWidget* parent = nullptr);
    ~HeatMapPanel() override;
    HeatMapPanel(const HeatMapPanel&) = delete;
    HeatMapPanel& operator=(const HeatMapPanel&) = delete;

    void set_colors(const Palette& palette);

    /// Shows the map of a what-if, or a sentence where the source is null or has no what-ifs.
    void show_what_if(std::shared_ptr<const WhatIfSource> source, const WhatIf& settings);

    HeatMapView& view() { return *view_; }

  signals:
    void chosen(int stages, int micro_batches);
    /// The map that is shown is that of the settings.
    void settled();

  protected:
    /// Computes the map, which is not done while it is hidden.
    void showEvent(QShowEvent* event) override;

  private:
    bool is_current() const;
    void want();
    void stop();
    void show_marks();
    void say(const QString& text);

    std::shared_ptr<const WhatIfSource> source_;
    WhatIf settings_;
    std::shared_ptr<const WhatIfSource> mapped_source_;
    WhatIf mapped_;
    std::shared_ptr<std::atomic<bool>> stopped_;
    QFutureWatcher<HeatMap> worker_;
    bool working_ = false;
    QComboBox* value_;
    QLabel* text_;
    HeatMapView* view_;
};

}  // namespace pipetwin::gui
