// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/timeline_painter.h"

#include <algorithm>
#include <cmath>

#include <QFontMetrics>
#include <QPaintEngine>

#include "core/base/as_index.h"
#include "core/base/short_number.h"
#include "gui/base/label_text.h"
#include "gui/timeline/overlay_painter.h"
#include "gui/timeline/row_painter.h"
#include "gui/view/analysis/action_details.h"

namespace pipetwin::gui {

namespace {

constexpr int padding = 12;
constexpr int narrowest_bordered_step = 16;
constexpr int tick_room = 14;  // of the ruler, below the text

QFont bold(QFont font) {
    font.setBold(true);
    return font;
}

QString rank_text(int rank) {
    return QStringLiteral("rank %1").arg(rank);
}

/// Which way a track can be unfolded, and whether it is pinned.
QString track_marks(const Track& track) {
    return QString(track.folded ? QChar(0x25b8) : QChar(0x25be)) +
           (track.pinned ? QStringLiteral("\u25cf") : QString()) + ' ';
}

QString utilisation_text(double utilisation) {
    return QString::fromStdString(short_percent(utilisation));
}

QString qt(const std::string& text) {
    return QString::fromStdString(text);
}

/// Paints one scene; the parts are in the order in which they lie over each other.
class ScenePainter {
  public:
    ScenePainter(QPainter& painter, const TimelineScene& scene)
        : painter_(painter), scene_(scene), rank_column_(rank_column(painter.font())) {}

    void paint() {
        axis_ = axis_ticks(scene_.view, scene_.time_width(), tick_spacing());
        if (!scene_.has_run()) {
            painter_.fillRect(QRect(QPoint(0, 0), scene_.size), palette().background);
            paint_invitation();
            return;
        }
        // Rows of pinned ranks stay; the others pass below them.
        const int border = scene_.ruler_height + pinned_height();
        paint_time_area(border, scene_.size.height(), false);
        paint_labels(border, scene_.size.height(), false);
        if (pinned_height() > 0) {
            paint_time_area(scene_.ruler_height, border, true);
            paint_labels(scene_.ruler_height, border, true);
            painter_.fillRect(0, border - 1, scene_.size.width(), 1, palette().faint_text);
        }
        if (scene_.ruler_height > 0) {
            paint_ruler();
        }
    }

  private:
    const Palette& palette() const { return scene_.palette; }

    int pinned_height() const { return static_cast<int>(std::lround(scene_.layout.pinned_height)); }

    void paint_invitation() {
        painter_.setPen(palette().faint_text);
        painter_.drawText(QRect(QPoint(0, 0), scene_.size),
                          Qt::AlignCenter,
                          QStringLiteral("Drop a run folder, scenario, schedule, trace or profile "
                                         "here, or open one with Ctrl+O"));
    }

    double tick_spacing() const {
        return 1.6 * painter_.fontMetrics().horizontalAdvance(QStringLiteral("000.000 ms"));
    }

    int label_text_width() const { return scene_.label_width - 2 * padding; }
    int text_height() const { return painter_.fontMetrics().height(); }

    /// Whether a part of the layout is pinned as wanted and lies within the area, in which case it
    /// is painted.
    bool wanted(double y, double height, int top, int bottom, bool pinned) const {
        const QRect rect = scene_.rect_at(y, height);
        return (y < scene_.layout.pinned_height) == pinned && rect.bottom() >= top &&
               rect.top() < bottom;
    }

    void paint_time_area(int top, int bottom, bool pinned) {
        painter_.save();
        const QRect area(scene_.label_width, top, scene_.time_width(), bottom - top);
        painter_.setClipRect(area);
        RowPainter rows(painter_, scene_, paint_background(area, pinned));
        for (const Row& row : scene_.layout.rows) {
            if (wanted(row.y, row.height, top, bottom, pinned)) {
                rows.paint_row(row);
            }
        }
        for (const Band& strip : scene_.layout.strips) {
            if (wanted(strip.y, strip.height, top, bottom, pinned)) {
                rows.paint_errors(strip);
            }
        }
        for (const Band& curve : scene_.layout.curves) {
            if (wanted(curve.y, curve.height, top, bottom, pinned)) {
                rows.paint_memory(curve);
            }
        }
        for (const Band& links : scene_.layout.links) {
            if (wanted(links.y, links.height, top, bottom, pinned)) {
                rows.paint_links(links);
            }
        }
        OverlayPainter(painter_, scene_).paint_skips();
        rows.paint_names();
        paint_step_borders();
        paint_cursor_line();
        OverlayPainter(painter_, scene_).paint();
        painter_.restore();
    }

    /// The background and the lines of the grid; the colours of each of its columns.
    std::vector<QRgb> paint_background(const QRect& area, bool pinned) {
        std::vector<QRgb> columns(as_index(std::max(0, area.width())), palette().background.rgb());
        for (const QRect& gap : beside_rows(area, pinned)) {
            painter_.fillRect(gap, palette().background);
        }
        for (const Tick& tick : axis_.ticks) {
            const auto x = static_cast<int>(std::lround(tick.x));
            if (!tick.label.empty() && x < area.width()) {
                painter_.fillRect(area.x() + x, area.y(), 1, area.height(), palette().grid);
                columns[as_index(x)] = palette().grid.rgb();
            }
        }
        return columns;
    }

    /// The region that no canvas covers: rows and curves bring the background with them. Where the
    /// painter's units are no pixels their borders lie within some.
    QRegion beside_rows(const QRect& area, bool pinned) const {
        QRegion region(area);
        if (painter_.deviceTransform().m11() != 1 ||
            painter_.paintEngine()->type() != QPaintEngine::Raster) {
            return region;
        }
        const auto leave_out = [&](const auto& parts) {
            for (const auto& part : parts) {
                if (wanted(part.y, part.height, area.top(), area.bottom() + 1, pinned)) {
                    region -= scene_.rect_at(part.y, part.height);
                }
            }
        };
        leave_out(scene_.layout.rows);
        leave_out(scene_.layout.strips);
        return region;
    }

    bool has_room(const TimelineScene::Steps& steps) const {
        return (steps.last - steps.first + 1) * narrowest_bordered_step <= scene_.time_width();
    }

    /// Paints the borders of steps, where there is room between them: lines at every few pixels
    /// would hide what they part.
    void paint_step_borders() {
        const TimelineScene::Steps steps = scene_.steps_in_sight();
        if (!has_room(steps)) {
            return;
        }
        for (int step = std::max(1, steps.first); step <= steps.last; ++step) {
            const int x = scene_.x_of(scene_.places.begin(step));
            painter_.fillRect(x, 0, 1, scene_.size.height(), palette().faint_text);
        }
    }

    void paint_cursor_line() {
        if (scene_.cursor_x) {
            QColor color = palette().text;
            color.setAlphaF(0.35F);
            painter_.fillRect(
                scene_.label_width + *scene_.cursor_x, 0, 1, scene_.size.height(), color);
        }
    }

    void paint_labels(int top, int bottom, bool pinned) {
        painter_.save();
        const QRect area(0, top, scene_.label_width, bottom - top);
        painter_.setClipRect(area);
        painter_.fillRect(area, palette().window);
        for (const Track& track : scene_.tracks) {
            if (!track.hidden && track.pinned == pinned) {
                paint_track_label(track, top, bottom);
            }
        }
        painter_.fillRect(area.right(), area.y(), 1, area.height(), palette().grid);
        painter_.restore();
    }

    /// The name of the rank beside all that it has, and what each of its rows is.
    void paint_track_label(const Track& track, int top, int bottom) {
        QRect whole;
        const auto add = [&](double y, double height) {
            QRect rect = scene_.rect_at(y, height);
            rect.setLeft(padding);
            rect.setWidth(label_text_width());
            whole = whole.isNull() ? rect : whole.united(rect);
            return rect;
        };
        for (const Row& row : scene_.layout.rows) {
            if (row.rank == track.rank) {
                const QRect rect = add(row.y, row.height);
                if (!row.folded && rect.bottom() >= top && rect.top() < bottom) {
                    paint_row_label(row, rect);
                }
            }
        }
        for (const Band& strip : scene_.layout.strips) {
            if (strip.rank == track.rank) {
                const QRect rect = add(strip.y, strip.height);
                if (scene_.mode == Mode::Error && !track.folded) {
                    paint_name(QStringLiteral("error"), rect);
                }
            }
        }
        for (const Band& curve : scene_.layout.curves) {
            if (curve.rank == track.rank) {
                paint_memory_label(track.rank, add(curve.y, curve.height));
            }
        }
        for (const Band& links : scene_.layout.links) {
            if (links.rank == track.rank) {
                paint_name(QStringLiteral("links"), add(links.y, links.height));
            }
        }
        painter_.save();
        painter_.setFont(bold(painter_.font()));
        painter_.setPen(palette().text);
        draw_label(painter_,
                   whole.adjusted(-padding / 2, -4, 0, 4),
                   Qt::AlignLeft | Qt::AlignVCenter,
                   track_marks(track) + rank_text(track.rank));
        painter_.restore();
    }

    void paint_name(const QString& name, const QRect& rect) {
        painter_.setPen(palette().faint_text);
        draw_label(painter_,
                   rect.adjusted(rank_column_ - padding, 0, 0, 0),
                   Qt::AlignLeft | Qt::AlignVCenter,
                   name);
    }

    void paint_value(const QString& value, const QRect& rect) {
        if (scene_.has_figures) {
            painter_.setPen(palette().text);
            draw_label(painter_, rect, Qt::AlignRight | Qt::AlignVCenter, value);
        }
    }

    void paint_row_label(const Row& row, const QRect& rect) {
        const auto& side = *scene_.run->side(row.side);
        paint_name(qt(side_name(*scene_.run, row.side)), rect);
        const std::size_t rank = as_index(row.rank);
        if (rank < side.ranks.size()) {
            paint_value(utilisation_text(side.ranks[rank].utilisation), rect);
        }
    }

    void paint_memory_label(int rank, const QRect& rect) {
        paint_name(QStringLiteral("memory"), rect);
        Bytes peak;
        for (const Side side : {Side::Predicted, Side::Measured}) {
            const auto& data = scene_.run->side(side);
            if (data && as_index(rank) < data->memory.size()) {
                peak = data->memory[as_index(rank)].peak();
            }
        }
        paint_value(qt(format_bytes(peak)), rect);
    }

    void paint_ruler() {
        const QRect area(0, 0, scene_.size.width(), scene_.ruler_height);
        painter_.fillRect(area, palette().window);
        painter_.fillRect(0, area.bottom(), area.width(), 1, palette().grid);
        if (scene_.has_figures) {
            painter_.setPen(palette().faint_text);
            painter_.drawText(QRect(padding,
                                    scene_.ruler_height - tick_room - text_height() + 6,
                                    label_text_width(),
                                    text_height()),
                              Qt::AlignRight | Qt::AlignVCenter,
                              QStringLiteral("utilisation"));
        }
        painter_.fillRect(scene_.label_width - 1, 0, 1, area.height(), palette().grid);
        painter_.save();
        painter_.setClipRect(area.adjusted(scene_.label_width, 0, 0, 0));
        for (const Tick& tick : axis_.ticks) {
            paint_tick(tick);
        }
        paint_step_names();
        OverlayPainter(painter_, scene_).paint_in_ruler();
        paint_cursor_time();
        painter_.restore();
    }

    QRect tick_text_rect(int left, int width) const {
        return {left, scene_.ruler_height - tick_room - text_height() + 6, width, text_height()};
    }

    void paint_tick(const Tick& tick) {
        const bool labelled = !tick.label.empty();
        const int x = scene_.label_width + static_cast<int>(std::lround(tick.x));
        const int length = labelled ? 7 : 4;
        painter_.fillRect(x,
                          scene_.ruler_height - length,
                          1,
                          length,
                          labelled ? palette().faint_text : palette().grid);
        if (labelled) {
            const QString text = qt(tick.label) + ' ' + qt(axis_.unit);
            painter_.setPen(palette().text);
            const int width = painter_.fontMetrics().horizontalAdvance(text) + 2;
            const int left =
                std::clamp(x - width / 2,
                           scene_.label_width + 4,
                           std::max(scene_.label_width + 4, scene_.size.width() - width));
            const QRect place = tick_text_rect(left, width);
            if (!cursor_chip().intersects(place.adjusted(-4, 0, 4, 0))) {
                painter_.drawText(place, Qt::AlignCenter, text);
            }
        }
    }

    /// The rectangle of the time at the mouse, inside the ruler; empty where there is none. Times
    /// of the axis give way to it.
    QRect cursor_chip() const {
        if (!scene_.cursor_x || scene_.view.time_at(*scene_.cursor_x) < Duration{0}) {
            return {};
        }
        const int width = painter_.fontMetrics().horizontalAdvance(cursor_text()) + 12;
        const int x = std::clamp(scene_.label_width + *scene_.cursor_x - width / 2,
                                 scene_.label_width,
                                 std::max(scene_.label_width, scene_.size.width() - width));
        return tick_text_rect(x, width);
    }
    QString cursor_text() const {
        // Neighbouring pixels have different times.
        const Duration length = std::max(Duration{1}, scene_.places.length());
        const double pixels = static_cast<double>(length.count()) / scene_.view.ns_per_pixel;
        const int digits = 1 + static_cast<int>(std::ceil(std::log10(std::max(1.0, pixels))));
        return qt(time_within(scene_.view.time_at(*scene_.cursor_x), length, digits));
    }

    /// Above the times, where there are several steps: each name at the left of what is seen of it.
    void paint_step_names() {
        if (scene_.places.step_count() < 2) {
            return;
        }
        const TimelineScene::Steps steps = scene_.steps_in_sight();
        painter_.setPen(palette().faint_text);
        if (!has_room(steps)) {
            painter_.drawText(QRect(scene_.label_width + 5, 2, scene_.time_width(), text_height()),
                              Qt::AlignLeft | Qt::AlignVCenter,
                              QStringLiteral("steps %1 to %2")
                                  .arg(scene_.run->step_number(steps.first))
                                  .arg(scene_.run->step_number(steps.last)));
            return;
        }
        const int narrowest = painter_.fontMetrics().horizontalAdvance(QStringLiteral("0000"));
        for (int step = steps.first; step <= steps.last; ++step) {
            const int left = std::max(scene_.label_width, scene_.x_of(scene_.places.begin(step)));
            const int right = scene_.x_of(scene_.places.end(step));
            painter_.fillRect(left, 0, 1, scene_.ruler_height, palette().faint_text);
            const int number = scene_.run->step_number(step);
            for (const QString& text :
                 {QStringLiteral("step %1").arg(number), QString::number(number)}) {
                if (right - left > narrowest &&
                    painter_.fontMetrics().horizontalAdvance(text) + 10 <= right - left) {
                    painter_.drawText(QRect(left + 5, 2, right - left, text_height()),
                                      Qt::AlignLeft | Qt::AlignVCenter,
                                      text);
                    break;
                }
            }
        }
    }

    void paint_cursor_time() {
        const QRect chip = cursor_chip();
        if (!chip.isEmpty()) {
            painter_.fillRect(chip, palette().text);
            painter_.setPen(palette().background);
            painter_.drawText(chip, Qt::AlignCenter, cursor_text());
        }
    }

    static int rank_column(const QFont& font) {
        return QFontMetrics(bold(font))
                   .horizontalAdvance(track_marks({.pinned = true}) + rank_text(0)) +
               2 * padding;
    }

    QPainter& painter_;
    const TimelineScene& scene_;
    int rank_column_;  ///< how wide the column of the ranks' names is
    Axis axis_;
};

}  // namespace

void paint_timeline(QPainter& painter, const TimelineScene& scene) {
    ScenePainter(painter, scene).paint();
}

int label_width_for(const RunData& run, const QFont& font, bool has_figures) {
    const QFontMetrics metrics(font);
    const int rank =
        QFontMetrics(bold(font))
            .horizontalAdvance(track_marks({.pinned = true}) + rank_text(run.twin.rank_count()));
    int name = metrics.horizontalAdvance(QStringLiteral("memory"));
    for (const Side side : {Side::Predicted, Side::Measured}) {
        name = std::max(name, metrics.horizontalAdvance(qt(side_name(run, side))));
    }
    const int figure = std::max(metrics.horizontalAdvance(utilisation_text(1)),
                                metrics.horizontalAdvance(QStringLiteral("100.00 MiB")));
    return rank + name + 4 * padding + (has_figures ? figure + padding : 0);
}

int ruler_height_for(const RunData* run, const QFont& font) {
    const int line = QFontMetrics(font).height();
    const bool steps = run != nullptr && run->twin.step_count() > 1;
    return line + tick_room + (steps ? line : 0);
}

}  // namespace pipetwin::gui
