// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include <QAbstractTableModel>
#include <QWidget>

#include "gui/view/run/run_data.h"

class QPushButton;
class QTableView;

namespace pipetwin::gui {

/// Figures by which runs are compared. None where a side does not know it.
struct RunHeadline {
    std::vector<std::filesystem::path> paths;  ///< at least one; the others laid over it
    std::string title{};                       ///< of what no file holds; else ""
    std::string plan;                          ///< "gpipe, 2 ranks, 8 micro-batches"
    std::optional<Duration> predicted_step{};
    std::optional<Duration> measured_step{};
    bool is_emulated = false;                  ///< the measured side was emulated
    std::optional<double> predicted_bubble{};  ///< shares of the pipeline time
    std::optional<double> measured_bubble{};
    std::optional<Throughput> throughput{};       ///< measured where it was
    std::string says_nothing{};                   ///< why the error says nothing; else ""
    std::optional<Bytes> peak{};                  ///< of the fullest rank, measured where it was
    std::shared_ptr<const PlannedRun> planned{};  ///< to tell its model; null where none is known
};
RunHeadline headline_of(const RunData& run);

/// The paths that the run was read from.
std::vector<std::filesystem::path> paths_of(const RunData& run);

/// Name of a run for the user: the names of its folders and files, "a + b".
QString name_of(const std::vector<std::filesystem::path>& paths);

/// Name of a run for the user: its title, else the names of its files.
QString name_of_shown(const RunData& run);

/// The full paths, a line each.
QString whole_paths(const std::vector<std::filesystem::path>& paths);

/// The runs that were opened, a row each, with what they differ by from the baseline.
class RunListModel : public QAbstractTableModel {
    Q_OBJECT

  public:
    enum Column {
        Name,
        Plan,
        PredictedStep,
        MeasuredStep,
        Error,
        MeasuredBubble,
        Peak,
        PerSecond,
        ToBaseline,
        PerSecondToBaseline,
        column_count
    };

    using QAbstractTableModel::QAbstractTableModel;

    /// Adds a run, or replaces the one that was read from the same place.
    void add(const RunData& run);
    void remove(int row);

    const std::vector<RunHeadline>& runs() const { return runs_; }
    int baseline() const { return baseline_; }
    void set_baseline(int row);
    /// The row of the run of these files and this title; -1: none.
    int row_of(const RunData& run) const;

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

  private:
    static QVariant alignment(int column);
    QString text(const RunHeadline& run, int column) const;
    bool has_model_of_baseline(const RunHeadline& run) const;
    QString tip(const RunHeadline& run, int column) const;
    QString step_difference(const RunHeadline& run) const;
    QString throughput_difference(const RunHeadline& run) const;

    std::vector<RunHeadline> runs_;
    int baseline_ = 0;
};

/// The list, with keys to make a run the baseline, to open it again and to take it off.
class CompareRunsPanel : public QWidget {
    Q_OBJECT

  public:
    explicit CompareRunsPanel(QWidget* parent = nullptr);

    void add(const RunData& run);
    void remove(const RunData& run);

    /// Makes the run the baseline; does nothing if it is not in the list.
    void make_baseline(const RunData& run);

    RunListModel& model() { return *model_; }

  signals:
    void open_wanted(const pipetwin::gui::RunHeadline& run);
    void baseline_wanted(const pipetwin::gui::RunHeadline& run);
    void remove_wanted(const pipetwin::gui::RunHeadline& run);

  protected:
    bool eventFilter(QObject* watched, QEvent* event) override;

  private:
    void hide_empty_columns();
    void fit_names();
    void enable_buttons();
    void open_current();
    const RunHeadline* current() const;

    RunListModel* model_;
    QTableView* table_;
    std::vector<QPushButton*> buttons_;  ///< each about the current run
};

}  // namespace pipetwin::gui
