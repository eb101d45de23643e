// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include <QProcess>
#include <QWidget>

#include "gui/base/palette.h"
#include "gui/run/live_feed.h"

class QLabel;
class QLineEdit;
class QPlainTextEdit;
class QPushButton;

namespace pipetwin::gui {

class LossPlot;

/// Starts a training as a process of its own (`pipetwin run`, the command line beside this
/// program), stops it so that it can finish its step, watches it or one that was started elsewhere
/// with --live, and shows its loss and its output. If the process dies, its output stands here and
/// the window lives.
class RunPanel : public QWidget {
    Q_OBJECT

  public:
    /// `program`: the command line; empty: the one beside this program, else the one in PATH.
    explicit RunPanel(QString program = {}, QWidget* parent = nullptr);
    ~RunPanel() override;

    void set_colors(const Palette& palette);

    /// Fills in the form.
    void set_scenario(const QString& file);
    void set_folder(const QString& folder);
    /// Fills in a scenario and a folder that is not there yet: runs/NAME-1 of the current folder,
    /// or of the home folder where the current one cannot be written to. A training run that is
    /// under way keeps what it has.
    void prepare(const std::filesystem::path& scenario);

    void start();
    void stop_training();
    void watch();
    bool is_training() const { return process_.state() != QProcess::NotRunning; }
    bool is_watching() const { return feed_.is_watching(); }

    /// Output of the training so far.
    QString log() const;

  signals:
    /// The latest steps of the training that is watched.
    void run_grew(std::shared_ptr<const pipetwin::gui::RunData> run);
    /// The training is over; its folder is complete.
    void finished(const std::filesystem::path& folder);
    void failed(const QString& sentence);
    /// The report of the training is to be opened.
    void report_wanted(const std::filesystem::path& report);
    void watching_changed();

  private:
    void build_form();
    void take_update(const LiveUpdate& update);
    void take_output();
    void take_end(int exit_code, QProcess::ExitStatus status);
    void show_state();
    std::filesystem::path folder() const;
    std::filesystem::path report() const;

    QString program_;
    QProcess process_;
    LiveFeed feed_;
    QLineEdit* scenario_;
    QLineEdit* folder_;
    QPushButton* start_;
    QPushButton* stop_;
    QPushButton* watch_;
    QPushButton* report_;
    QString used_folder_;  ///< of the training that runs, or ran last, or is watched
    QLabel* state_;
    LossPlot* plot_;
    QPlainTextEdit* log_;
    int last_step_ = -1;
    double last_step_ms_ = 0;
    bool told_to_stop_ = false;
};

}  // namespace pipetwin::gui
