// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <utility>
#include <vector>

#include <QWidget>

#include "gui/base/palette.h"
#include "gui/start/recent_files.h"

class QCheckBox;
class QLabel;
class QLayout;
class QPushButton;
class QScrollArea;
class QVBoxLayout;

namespace pipetwin::gui {

class TaskButton;

/// The page of a window in which nothing is open: what the program is, and every way to begin.
class StartPage : public QWidget {
    Q_OBJECT

  public:
    explicit StartPage(RecentFiles recent, QWidget* parent = nullptr);

    void set_colors(const Palette& palette);

    /// Lists the recent files anew.
    void show_recent();

  signals:
    void open_wanted();
    void plan_wanted();
    void playground_wanted();
    /// Two schedules are to be compared.
    void comparison_wanted();
    /// Files are to be chosen and compared.
    void compare_wanted();
    /// An example or a recent file was chosen.
    void file_wanted(const std::filesystem::path& file);
    /// Several examples are to be shown side by side.
    void several_wanted(const std::vector<std::filesystem::path>& files);

  private:
    QLayout* build_tasks(QWidget* parent);
    QWidget* build_buttons();
    QLayout* build_head_of_examples(QWidget* parent);
    QWidget* build_examples();
    QWidget* build_recent();
    QWidget* file_line(const QString& path);
    std::vector<std::filesystem::path> ticked() const;
    void count_ticked();
    static QLabel* heading(const QString& text, QWidget* parent);

    RecentFiles recent_;
    QScrollArea* area_;
    QVBoxLayout* recent_lines_ = nullptr;
    QPushButton* together_ = nullptr;  ///< opens the ticked examples side by side
    std::vector<TaskButton*> tasks_;
    std::vector<std::pair<QCheckBox*, std::filesystem::path>> ticks_;  ///< of every example
};

}  // namespace pipetwin::gui
