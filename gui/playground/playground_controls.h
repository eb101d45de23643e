// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QWidget>

#include "gui/view/playground/playground.h"

class QComboBox;
class QDoubleSpinBox;
class QFormLayout;
class QLabel;
class QLineEdit;
class QSpinBox;

namespace pipetwin::gui {

/// The settings of the playground, to be turned: schedule, sizes, costs and links.
class PlaygroundControls : public QWidget {
    Q_OBJECT

  public:
    explicit PlaygroundControls(QWidget* parent = nullptr);

    const PlaygroundSettings& settings() const { return settings_; }

    /// Shows other settings, made to fit their schedule; `changed` follows where they differ.
    void set_settings(const PlaygroundSettings& settings);

  signals:
    void changed();

  private:
    QSpinBox* add_number(QFormLayout* form,
                         const QString& name,
                         const QString& tip,
                         int most,
                         int PlaygroundSettings::*value);
    QDoubleSpinBox* add_time(QFormLayout* form,
                             const QString& name,
                             const QString& tip,
                             double PlaygroundSettings::*value);
    void add_schedule(QFormLayout* form);
    void add_factors(QFormLayout* form);
    void take_factors();
    void choose_schedule(const QString& name);
    void show_settings();
    void say_what_was_fitted(const PlaygroundSettings& wanted);

    PlaygroundSettings settings_;
    /// What was set, with numbers of chunks and micro-batches that the schedule may not allow: the
    /// next schedule may.
    PlaygroundSettings typed_;
    QComboBox* schedule_ = nullptr;
    QSpinBox* stages_ = nullptr;
    QSpinBox* micro_batches_ = nullptr;
    QSpinBox* chunks_ = nullptr;
    QDoubleSpinBox* forward_ = nullptr;
    QDoubleSpinBox* backward_input_ = nullptr;
    QDoubleSpinBox* backward_weight_ = nullptr;
    QLineEdit* factors_ = nullptr;
    QDoubleSpinBox* latency_ = nullptr;
    QDoubleSpinBox* transfer_ = nullptr;
    QLabel* note_;
};

}  // namespace pipetwin::gui
