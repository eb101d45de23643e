// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <QWidget>

#include "gui/base/palette.h"
#include "gui/timeline/selection.h"
#include "gui/what_if/simulation_controller.h"

class QComboBox;
class QDoubleSpinBox;
class QGridLayout;
class QLabel;
class QPushButton;
class QScrollArea;
class QSlider;
class QSpinBox;
class QUndoStack;

namespace pipetwin::gui {

class PartitionEditor;

/// The settings of a what-if, and its result. Every change can be undone; the ones of one drag are
/// one.
class WhatIfPanel : public QWidget {
    Q_OBJECT

  public:
    explicit WhatIfPanel(Selection* selection, QWidget* parent = nullptr);

    /// Begins anew with the settings of the run, and forgets what could be undone.
    void show_run(std::shared_ptr<const RunData> run);

    void set_colors(const Palette& palette);

    /// Sets whether link rows are shown: what-ifs that are drawn then have them.
    void show_links(bool shown);

    QUndoStack* undo_stack() const { return undo_; }

    /// The source of the run's what-ifs; null before it is there.
    const std::shared_ptr<const WhatIfSource>& source() const { return controller_->source(); }
    const WhatIf& settings() const { return settings_; }

    /// Chooses these settings as if it had been done here; can be undone.
    void choose(int stages, int micro_batches);

  public slots:
    /// Goes back to the settings of the run; can be undone.
    void reset();

  signals:
    /// The run to be drawn: the what-if, or the run itself where nothing is changed. Not sent for
    /// what cannot be planned.
    void run_changed(const std::shared_ptr<const RunData>& run);

    /// The settings have changed, by hand or because another run is shown.
    void settings_changed();

    /// The panel shows the result of its settings.
    void settled();

  private:
    friend class WhatIfCommand;

    /// A slider with the number beside it.
    struct Turn {
        QSlider* slider = nullptr;
        QSpinBox* number = nullptr;
    };
    /// A slider on a logarithmic scale with the number beside it; its least value means: as in the
    /// run.
    struct LogTurn {
        QSlider* slider = nullptr;
        QDoubleSpinBox* number = nullptr;
    };
    struct ResultLine {
        QLabel* value = nullptr;
        QLabel* change = nullptr;
    };
    struct Range {
        double least;
        double most;
    };
    static constexpr Range bandwidths{0.01, 10'000};
    static constexpr Range latencies{0.1, 100'000};

    Turn add_turn(QGridLayout* grid, const QString& name, int WhatIf::*value);
    LogTurn add_log_turn(QGridLayout* grid,
                         const QString& name,
                         const QString& unit,
                         Range range,
                         std::optional<double> WhatIf::*value);
    QComboBox* add_choice(QGridLayout* grid, const QString& name);
    void build_area();
    QWidget* build_controls();
    void build_choices(QGridLayout* grid);
    void build_scale(QGridLayout* grid);
    void build_partition(QGridLayout* grid);
    QWidget* build_results();
    ResultLine add_result(QGridLayout* grid, const QString& name);

    /// A change by hand; with `continues` it joins the one before it.
    void change(const QString& what, WhatIf settings, bool continues = false);
    void take_settings(const WhatIf& settings);
    void take_source();
    void show_settings();
    void show_turn(const Turn& turn, int least, int most, int value);
    void show_log_turn(const LogTurn& turn, Range range, const std::optional<double>& value);
    void show_choices(const WhatIfRanges& ranges);
    void show_scale();
    void show_partition();
    void show_result(const WhatIfResult& result);
    void show_step(const WhatIfStep& step);
    std::string expected_range_of(const WhatIfStep& step) const;
    void show_peaks(const WhatIfStep& step);
    void say(const QString& text);

    SimulationController* controller_;
    QUndoStack* undo_;
    WhatIf settings_;
    std::shared_ptr<const WhatIfStep> own_;    ///< what the run's own settings come to
    std::shared_ptr<const WhatIfStep> shown_;  ///< what is said about
    std::shared_ptr<const RunData> drawn_;
    int serial_ = 0;
    bool filling_ = false;  ///< the controls follow the settings, not the other way round

    QScrollArea* area_ = nullptr;  ///< shows the controls
    QWidget* controls_ = nullptr;
    Turn stages_;
    Turn micro_batches_;
    QComboBox* schedule_ = nullptr;
    QComboBox* chunks_ = nullptr;
    QComboBox* recompute_ = nullptr;
    LogTurn bandwidth_;
    LogTurn latency_;
    QSpinBox* scaled_stage_ = nullptr;
    QDoubleSpinBox* scale_ = nullptr;
    PartitionEditor* partition_ = nullptr;
    QLabel* partition_label_ = nullptr;
    QLabel* partition_text_ = nullptr;
    QPushButton* balance_ = nullptr;
    QPushButton* reset_ = nullptr;
    QLabel* sentence_ = nullptr;
    QWidget* results_ = nullptr;
    ResultLine step_;
    ResultLine pipeline_;
    ResultLine bubble_;
    ResultLine throughput_;
    ResultLine memory_;
    QLabel* note_ = nullptr;
};

}  // namespace pipetwin::gui
