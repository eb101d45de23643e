#include "gui/timeline_painter.h"

#include <algorithm>
#include <cmath>

#include <QFontMetrics>

#include "gui/action_details.h"

namespace pipetwin::gui {

namespace {

constexpr int padding = 12;
constexpr double full_error = 0.1;  // the error at which a bar of the strip has its full height

QFont bold(QFont font) {
    font.setBold(true);
    return font;
}

QString rank_text(int rank) {
    return QStringLiteral("rank %1").arg(rank);
}

QString utilisation_text(double utilisation) {
    return QStringLiteral("%1 %").arg(100 * utilisation, 0, 'f', 1);
}

QString qt(const std::string& text) {
    return QString::fromStdString(text);
}

/// The longest of "F12", "F" that fits; empty if none does.
QString label_for(const Span& span,
                  const Palette& palette,
                  const QFontMetrics& metrics,
                  int width) {
    const Action& action = span.action;
    const QString letter = palette.style(action.op).letter;
    const QString whole = is_compute(action.op) ? letter + QString::number(action.micro_batch)
                          : has_micro_batch(action.op) ? qt(to_string(action))
                                                       : letter;
    for (const QString& text : {whole, letter}) {
        if (metrics.horizontalAdvance(text) + 4 <= width) {
            return text;
        }
    }
    return {};
}

/// Paints one scene; the parts are in the order in which they lie over each other.
class ScenePainter {
  public:
    ScenePainter(QPainter& painter, const TimelineScene& scene)
        : painter_(painter), scene_(scene) {}

    void paint() {
        painter_.fillRect(QRect(QPoint(0, 0), scene_.size), palette().background);
        axis_ = axis_ticks(scene_.view, scene_.time_width(), tick_spacing());
        if (scene_.run == nullptr || scene_.run->empty()) {
            paint_invitation();
            return;
        }
        paint_time_area();
        paint_labels();
        paint_ruler();
    }

  private:
    const Palette& palette() const { return scene_.palette; }

    void paint_invitation() {
        painter_.setPen(palette().faint_text);
        painter_.drawText(QRect(QPoint(0, 0), scene_.size),
                          Qt::AlignCenter,
                          QStringLiteral("Drop a run folder here, or open one with Ctrl+O"));
    }

    double tick_spacing() const {
        return 1.6 * painter_.fontMetrics().horizontalAdvance(QStringLiteral("000.000 ms"));
    }

    QRect row_rect(const Row& row) const {
        return {scene_.label_width,
                scene_.ruler_height + static_cast<int>(std::lround(row.y)) - scene_.scroll,
                scene_.time_width(),
                static_cast<int>(std::lround(row.height))};
    }

    int label_text_width() const { return scene_.label_width - 2 * padding; }
    int ruler_text_height() const { return scene_.ruler_height - 8; }

    bool in_sight(const QRect& rect) const {
        return rect.bottom() >= scene_.ruler_height && rect.top() < scene_.size.height();
    }

    void paint_time_area() {
        painter_.save();
        painter_.setClipRect(scene_.label_width,
                             scene_.ruler_height,
                             scene_.time_width(),
                             scene_.size.height() - scene_.ruler_height);
        paint_grid();
        for (const Row& row : scene_.layout.rows) {
            if (in_sight(row_rect(row))) {
                paint_row(row);
            }
        }
        for (const Strip& strip : scene_.layout.strips) {
            paint_strip(strip);
        }
        paint_cursor_line();
        paint_marks();
        painter_.restore();
    }

    void paint_grid() {
        for (const Tick& tick : axis_.ticks) {
            if (!tick.label.empty()) {
                const int x = scene_.label_width + static_cast<int>(std::lround(tick.x));
                painter_.fillRect(x, 0, 1, scene_.size.height(), palette().grid);
            }
        }
    }

    /// The row's ground reaches from the start of the step to the end of this side's step, so that
    /// the two sides' lengths can be compared at their right ends.
    void paint_ground(const Row& row, const QRect& rect) {
        const double begin = std::max(-1.0, scene_.view.x_of(Duration{0}));
        const double end = scene_.view.x_of(scene_.run->side(row.side)->step);
        const double right = std::min(scene_.time_width() + 1.0, end);
        if (right > begin) {
            const int left = static_cast<int>(std::lround(begin));
            const int width = static_cast<int>(std::lround(right)) - left;
            painter_.fillRect(rect.x() + left, rect.y(), width, rect.height(), palette().row);
        }
    }

    void paint_row(const Row& row) {
        const QRect rect = row_rect(row);
        paint_ground(row, rect);
        const std::vector<Span>& spans = *scene_.run->twin.row(row.side, row.rank);
        for (const Box& box : boxes_of(spans, scene_.view, scene_.time_width())) {
            const QRect place(rect.x() + box.x, rect.y(), box.width, rect.height());
            paint_box(box, spans[static_cast<std::size_t>(box.cell)], place);
        }
    }

    void paint_box(const Box& box, const Span& span, const QRect& rect) {
        const OpStyle style = palette().style(box.op);
        switch (box.kind) {
            case BoxKind::Coalesced:
                paint_coalesced(rect, style, box.compute);
                return;
            case BoxKind::Wait:
                paint_wait(painter_, rect, palette());
                return;
            case BoxKind::Action:
                break;
        }
        paint_sample(painter_, rect, style);
        paint_parting(span, style, rect);
        paint_label(span, style, rect);
    }

    /// Many actions at once: the paler, the less of the time is compute.
    void paint_coalesced(const QRect& rect, const OpStyle& style, double compute) {
        OpStyle paler = style;
        paler.fill = mixed(palette().row, style.fill, compute);
        paler.hatch = mixed(palette().row, style.hatch, compute);
        paint_sample(painter_, rect, paler);
    }

    /// A line that parts an action from the next. It fades with the width: at a few pixels per
    /// action rounding would make some lines appear and others not, in a pattern that means
    /// nothing.
    void paint_parting(const Span& span, const OpStyle& style, const QRect& rect) {
        constexpr double invisible_below = 3;
        constexpr double full_from = 14;
        const double width = scene_.view.x_of(span.end) - scene_.view.x_of(span.ready);
        const double share =
            std::clamp((width - invisible_below) / (full_from - invisible_below), 0.0, 1.0);
        QColor color = mixed(style.fill, Qt::black, 0.4);
        color.setAlphaF(static_cast<float>(share));
        painter_.fillRect(rect.right(), rect.y(), 1, rect.height(), color);
    }

    void paint_label(const Span& span, const OpStyle& style, const QRect& rect) {
        const QRect seen = rect.intersected(
            QRect(scene_.label_width, rect.y(), scene_.time_width(), rect.height()));
        const QString text = label_for(span, palette(), painter_.fontMetrics(), seen.width());
        if (!text.isEmpty()) {
            painter_.setPen(style.text);
            painter_.drawText(seen, Qt::AlignCenter, text);
        }
    }

    /// Up is faster than predicted, down is slower; full height from 10 % on.
    void paint_strip(const Strip& strip) {
        const int top =
            scene_.ruler_height + static_cast<int>(std::lround(strip.y)) - scene_.scroll;
        const int height = static_cast<int>(std::lround(strip.height));
        const QRect rect(scene_.label_width, top, scene_.time_width(), height);
        if (!in_sight(rect)) {
            return;
        }
        const int middle = top + height / 2;
        painter_.fillRect(rect.x(), middle, rect.width(), 1, palette().grid);
        const Twin& twin = scene_.run->twin;
        const auto bars = error_bars_of(*twin.row(Side::Predicted, strip.rank),
                                        *twin.row(Side::Measured, strip.rank),
                                        scene_.view,
                                        scene_.time_width());
        for (const ErrorBar& bar : bars) {
            const double share = std::min(1.0, std::abs(bar.error) / full_error);
            const int length = static_cast<int>(std::ceil(share * (height / 2 - 1)));
            const bool faster = bar.error > 0;
            const int gap = bar.width >= 4 ? 1 : 0;
            painter_.fillRect(rect.x() + bar.x,
                              faster ? middle - length : middle,
                              bar.width - gap,
                              length,
                              faster ? palette().faster : palette().slower);
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

    /// The selected action, its twin (dashed) and the one under the mouse.
    void paint_marks() {
        if (scene_.hovered && scene_.hovered != scene_.selection) {
            outline(*scene_.hovered, QPen(palette().selection, 1));
        }
        if (!scene_.selection) {
            return;
        }
        if (const auto twin = twin_of(scene_.run->twin, *scene_.selection)) {
            outline(*twin, QPen(palette().selection, 2, Qt::DotLine));
        }
        outline(*scene_.selection, QPen(palette().selection, 3));
    }

    void outline(const SpanRef& ref, const QPen& pen) {
        const QRect rect = rect_of(scene_, ref);
        if (!rect.isEmpty()) {
            QPen sharp = pen;
            sharp.setJoinStyle(Qt::MiterJoin);
            painter_.setPen(sharp);
            painter_.setBrush(Qt::NoBrush);
            painter_.drawRect(rect.adjusted(0, 0, -1, -1));
        }
    }

    void paint_labels() {
        painter_.save();
        const QRect area(
            0, scene_.ruler_height, scene_.label_width, scene_.size.height() - scene_.ruler_height);
        painter_.setClipRect(area);
        painter_.fillRect(area, palette().window);
        for (const Row& row : scene_.layout.rows) {
            paint_row_label(row);
        }
        painter_.fillRect(area.right(), area.y(), 1, area.height(), palette().grid);
        painter_.restore();
    }

    void paint_row_label(const Row& row) {
        QRect rect = row_rect(row);
        rect.setLeft(padding);
        rect.setWidth(label_text_width());
        if (!in_sight(rect)) {
            return;
        }
        const Row* const upper = scene_.layout.row_of(Side::Predicted, row.rank);
        if (upper == nullptr || upper == &row) {
            paint_rank_label(row, rect);
        }
        const auto& side = *scene_.run->side(row.side);
        const auto rank = static_cast<std::size_t>(row.rank);
        const int name_x = padding + rank_column(painter_.font());
        painter_.setPen(palette().faint_text);
        painter_.drawText(rect.adjusted(name_x - padding, 0, 0, 0),
                          Qt::AlignLeft | Qt::AlignVCenter,
                          qt(side_name(*scene_.run, row.side)));
        painter_.setPen(palette().text);
        painter_.drawText(rect,
                          Qt::AlignRight | Qt::AlignVCenter,
                          utilisation_text(side.ranks[rank].utilisation));
    }

    /// Beside all rows of the rank.
    void paint_rank_label(const Row& first, const QRect& first_rect) {
        QRect rect = first_rect;
        const Row* const lower = scene_.layout.row_of(Side::Measured, first.rank);
        if (lower != nullptr) {
            rect.setBottom(row_rect(*lower).bottom());
        }
        painter_.save();
        painter_.setFont(bold(painter_.font()));
        painter_.setPen(palette().text);
        painter_.drawText(rect, Qt::AlignLeft | Qt::AlignVCenter, rank_text(first.rank));
        painter_.restore();
    }

    void paint_ruler() {
        const QRect area(0, 0, scene_.size.width(), scene_.ruler_height);
        painter_.fillRect(area, palette().window);
        painter_.fillRect(0, area.bottom(), area.width(), 1, palette().grid);
        painter_.setPen(palette().faint_text);
        painter_.drawText(QRect(padding, 0, label_text_width(), ruler_text_height()),
                          Qt::AlignRight | Qt::AlignVCenter,
                          QStringLiteral("utilisation"));
        painter_.fillRect(scene_.label_width - 1, 0, 1, area.height(), palette().grid);
        painter_.save();
        painter_.setClipRect(area.adjusted(scene_.label_width, 0, 0, 0));
        for (const Tick& tick : axis_.ticks) {
            paint_tick(tick);
        }
        paint_cursor_time();
        painter_.restore();
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
            painter_.drawText(left, 0, width, ruler_text_height(), Qt::AlignCenter, text);
        }
    }

    /// A chip with the time at the mouse, kept inside the ruler.
    void paint_cursor_time() {
        if (!scene_.cursor_x) {
            return;
        }
        const Duration time = scene_.view.time_at(*scene_.cursor_x);
        if (time < Duration{0}) {
            return;
        }
        const QString text = qt(format_duration(time));
        const int width = painter_.fontMetrics().horizontalAdvance(text) + 12;
        const int x = std::clamp(scene_.label_width + *scene_.cursor_x - width / 2,
                                 scene_.label_width,
                                 std::max(scene_.label_width, scene_.size.width() - width));
        const QRect chip(x, 2, width, ruler_text_height() - 2);
        painter_.fillRect(chip, palette().text);
        painter_.setPen(palette().background);
        painter_.drawText(chip, Qt::AlignCenter, text);
    }

    static int rank_column(const QFont& font) {
        return QFontMetrics(bold(font)).horizontalAdvance(rank_text(0)) + 2 * padding;
    }

    QPainter& painter_;
    const TimelineScene& scene_;
    Axis axis_;
};

}  // namespace

void paint_timeline(QPainter& painter, const TimelineScene& scene) {
    ScenePainter(painter, scene).paint();
}

QRect rect_of(const TimelineScene& scene, const SpanRef& ref) {
    const Row* const row = scene.layout.row_of(ref.side, ref.rank);
    const Span* const span = scene.run == nullptr ? nullptr : scene.run->twin.span(ref);
    if (row == nullptr || span == nullptr) {
        return {};
    }
    const auto pixel = [&](Duration time) {
        const double x = std::clamp(scene.view.x_of(time), -8.0, scene.time_width() + 8.0);
        return scene.label_width + static_cast<int>(std::lround(x));
    };
    const int left = pixel(span->begin);
    return {left,
            scene.ruler_height + static_cast<int>(std::lround(row->y)) - scene.scroll,
            std::max(1, pixel(span->end) - left),
            static_cast<int>(std::lround(row->height))};
}

int label_width_for(const RunData& run, const QFont& font) {
    const QFontMetrics metrics(font);
    const int rank = QFontMetrics(bold(font)).horizontalAdvance(rank_text(run.twin.rank_count()));
    int name = 0;
    for (const Side side : {Side::Predicted, Side::Measured}) {
        name = std::max(name, metrics.horizontalAdvance(qt(side_name(run, side))));
    }
    return rank + name + metrics.horizontalAdvance(utilisation_text(1)) + 5 * padding;
}

void paint_sample(QPainter& painter, const QRect& rect, const OpStyle& style) {
    painter.fillRect(rect, style.fill);
    if (style.pattern != Qt::NoBrush) {
        painter.setBrushOrigin(rect.topLeft());
        painter.fillRect(rect, QBrush(style.hatch, style.pattern));
    }
}

void paint_wait(QPainter& painter, const QRect& rect, const Palette& palette) {
    painter.fillRect(rect, palette.wait_fill);
    painter.setBrushOrigin(0, rect.y());
    painter.fillRect(rect, QBrush(palette.wait_hatch, Qt::FDiagPattern));
}

}  // namespace pipetwin::gui
