// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>

#include <QWidget>

#include "gui/base/palette.h"
#include "gui/view/what_if/heat_map.h"

namespace pipetwin::gui {

/// Colour of a share, 0 to 1, from dark blue to yellow, growing in lightness only: Nunez, Anderton
/// and Renslow, "Optimizing colormaps with consideration for color vision deficiency" (2018).
QColor cividis(double share);

/// Black or white, whichever is read better on a colour.
QColor text_on(const QColor& ground);

/// The heat map: stages down, micro-batches across, a rectangle with its number each. It shows as
/// many rows and columns as it has room for with readable numbers, and a line below them names the
/// numbers that it leaves out. Infeasible cells are hatched, cells without costs dotted, the best
/// one has a star and a double frame, the current settings a ring, and what was measured a dot.
/// Stages that the machine has no devices for are written faintly, and none of them is the best.
/// The arrows move, Enter or a click takes a cell.
class HeatMapView : public QWidget {
    Q_OBJECT

  public:
    explicit HeatMapView(QWidget* parent = nullptr);

    using Cell = HeatMap::Place;

    void set_colors(const Palette& palette);
    void show_map(HeatMap map);
    void show_value(HeatValue value);

    /// Stages and micro-batches of a cell.
    using Numbers = std::pair<int, int>;
    /// Marks the cells of the settings and of the measured run; none: no such cell.
    /// `measured_name`: "measured" or "emulated".
    void show_marks(const std::optional<Numbers>& current,
                    const std::optional<Numbers>& measured,
                    const QString& measured_name);

    /// The map with all rows and columns, also those that there is no room for.
    const HeatMap& whole_map() const { return whole_; }
    /// The rows and columns on the screen.
    const HeatMap& map() const { return map_; }
    std::optional<Cell> cell_of(int stages, int micro_batches) const {
        return map_.place_of(stages, micro_batches);
    }
    const std::optional<Cell>& best() const { return best_; }
    /// The number that stands in a cell; "" in an infeasible one.
    QString label_of(const Cell& cell) const;
    QRect place_of(const Cell& cell) const;
    const Cell& focused_cell() const { return focused_; }

    /// "4 stages, 8 micro-batches: 512.3 samples/s, bubble 27.3 %, peak 1.2 GiB", or the reason.
    QString sentence_of(const Cell& cell) const;

    /// Text that names the best cell, and explains the marks.
    QString summary() const;

    /// The numbers without a row or column, in a line that fits below the map (LeftOut).
    QString left_out() const;

    /// All numbers of `left_out`, and why those without costs and the infeasible ones are so.
    QString tip_of_left_out() const;

    /// Where the title of the columns is written: below their numbers. A low view has no room for
    /// it, and "M" beside the numbers.
    QRect title_of_columns() const;
    /// Where `left_out` is written.
    QRect place_of_left_out() const;
    static QString columns_title();

    /// Whether a scale of colours is drawn: no if all cells have one value.
    bool has_scale() const;

    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

  signals:
    void chosen(int stages, int micro_batches);

  protected:
    bool event(QEvent* event) override;
    void paintEvent(QPaintEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    QRect area() const;
    int height_with_title() const;
    bool has_title() const;
    void fit_map();
    int widest_label() const;
    std::optional<Cell> cell_at(QPoint position) const;
    void focus(const Cell& cell);
    void choose(const Cell& cell);
    QString number_of(double value) const;
    double share_of(const HeatCell& cell) const;
    void paint_cell(QPainter& painter, const Cell& cell) const;
    void paint_number(QPainter& painter, const Cell& at) const;
    bool has_color(const Cell& at) const;
    void paint_frames(QPainter& painter) const;
    void paint_dot(QPainter& painter, const Cell& at) const;
    void paint_axes(QPainter& painter) const;
    void paint_legend(QPainter& painter) const;
    void paint_left_out(QPainter& painter) const;

    Palette palette_;
    HeatMap whole_;
    HeatMap map_;  ///< the part of `whole_` on the screen
    HeatValue value_ = HeatValue::Throughput;
    std::optional<std::pair<double, double>> range_;
    std::optional<Numbers> current_numbers_;
    std::optional<Numbers> measured_numbers_;
    std::optional<Cell> best_;
    std::optional<Cell> current_;
    std::optional<Cell> measured_;
    QString measured_name_;
    Cell focused_;
    bool has_line_below_ = false;  ///< for `left_out`
};

/// "samples/s" or "micro-batches/s": what the throughputs of a map count.
QString per_second(const HeatMap& map);

}  // namespace pipetwin::gui
