// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>

#include <QScrollArea>

#include "gui/view/analysis/action_details.h"

class QGridLayout;
class QLabel;

namespace pipetwin::gui {

/// A heading, a line below it, and a table with the columns predicted, measured and error. The
/// columns are equally wide in all tables, so that tables below each other are aligned; the names
/// of lines wrap where there is little room. Hidden while there are no lines.
class DetailTable : public QWidget {
    Q_OBJECT

  public:
    explicit DetailTable(const QString& heading, QWidget* parent = nullptr);

    void set_heading(const QString& heading, const QString& subtitle);
    /// Sets the lines; `last` is the heading of the last column, of a run with two sides.
    void set_lines(const RunData& run,
                   const std::vector<DetailLine>& lines,
                   const char* last = "error");

  private:
    void add_row(int row, const std::array<std::string, 4>& texts, bool is_header);

    QLabel* heading_;
    QLabel* subtitle_;
    QGridLayout* grid_;
};

/// Beside the timeline: a step in numbers, the whole run where it has several, and the selected
/// action on both sides.
class DetailsPanel : public QScrollArea {
    Q_OBJECT

  public:
    explicit DetailsPanel(QWidget* parent = nullptr);

    /// `run` is only read during the call.
    void show_run(const RunData& run);
    void show_step(const RunData& run, int step);
    void show_selection(const RunData& run, const std::optional<SpanRef>& selection);

    /// Room for names of one line.
    QSize sizeHint() const override;
    /// The width of the tables, whose names wrap then.
    QSize minimumSizeHint() const override;

  private:
    int width_with(int name) const;

    DetailTable* step_;
    DetailTable* ops_;
    DetailTable* breakdown_;
    DetailTable* whole_;
    DetailTable* selection_;
    QLabel* note_;
};

}  // namespace pipetwin::gui
