#include "gui/row_painter.h"

#include <algorithm>
#include <cmath>

#include <QFontMetrics>

namespace pipetwin::gui {

namespace {

constexpr double full_error = 0.1;  // the error at which a bar of the strip has its full height
constexpr int narrowest_hatching = 6;
constexpr int narrowest_ghost = 3;

constexpr int label_margin = 4;

constexpr double parting_darkness = 0.4;

/// How much of the line between two actions is seen, by the width of the first.
double parting_share(double width) {
    constexpr double invisible_below = 3;
    constexpr double full_from = 14;
    return std::clamp((width - invisible_below) / (full_from - invisible_below), 0.0, 1.0);
}

int digits_of(int number) {
    int digits = 1;
    for (; number >= 10; number /= 10) {
        ++digits;
    }
    return digits;
}

}  // namespace

RowPainter::RowPainter(QPainter& painter, const TimelineScene& scene)
    : painter_(painter), scene_(scene) {
    for (std::size_t op = 0; op < styles_.size(); ++op) {
        styles_[op] = scene.palette.style(static_cast<Op>(op));
    }
    const QFontMetrics metrics = painter.fontMetrics();
    digit_width_ = metrics.horizontalAdvance('0');
    for (std::size_t op = 0; op < letter_widths_.size(); ++op) {
        letter_widths_[op] = metrics.horizontalAdvance(styles_[op].letter);
    }
}

ViewTransform RowPainter::view_of(Side side, int step) const {
    return scene_.places.of(side, step).inside(scene_.view);
}

void RowPainter::paint_row(const Row& row) {
    const QRect rect = scene_.rect_at(row.y, row.height);
    const TimelineScene::Steps steps = scene_.steps_in_sight();
    PixelCanvas crowd(painter_, rect);
    std::vector<std::pair<int, std::vector<Box>>> boxes_of_step;
    for (int step = steps.first; step <= steps.last; ++step) {
        const RowIndex* const spans = scene_.run->twin.row(row.side, step, row.rank);
        if (spans == nullptr) {
            continue;
        }
        paint_ground(row, rect, step, crowd);
        auto boxes = boxes_of(*spans, view_of(row.side, step), scene_.time_width());
        for (const Box& box : boxes) {
            paint_plain(box, rect, crowd);
        }
        std::erase_if(boxes, [](const Box& box) { return box.width < narrowest_hatching; });
        boxes_of_step.emplace_back(step, std::move(boxes));
    }
    crowd.finish();
    for (const auto& [step, boxes] : boxes_of_step) {
        const RowIndex& spans = *scene_.run->twin.row(row.side, step, row.rank);
        const ViewTransform view = view_of(row.side, step);
        for (const Box& box : boxes) {
            paint_box(
                box, spans, view, QRect(rect.x() + box.x, rect.y(), box.width, rect.height()));
        }
        if (scene_.mode == Mode::Ghost && row.side == Side::Measured) {
            paint_ghosts(row, rect, step);
        }
    }
}

/// The colour of a box, without what needs room: hatching and letters.
void RowPainter::paint_plain(const Box& box, const QRect& row, PixelCanvas& canvas) {
    const int x = row.x() + box.x;
    const bool idle = box.kind == BoxKind::Wait && scene_.overlay.bubbles;
    const QColor color = idle                        ? palette().bubble_fill
                         : box.kind == BoxKind::Wait ? palette().wait_fill
                         : box.kind == BoxKind::Coalesced
                             ? mixed(ground(), style(box.op).fill, box.compute)
                             : style(box.op).fill;
    canvas.fill(x, row.y(), box.width, row.height(), color);
    const double parting = box.kind == BoxKind::Action ? parting_share(box.width) : 0;
    if (parting > 0 && box.width < narrowest_hatching) {
        canvas.fill(x + box.width - 1,
                    row.y(),
                    1,
                    row.height(),
                    mixed(color, Qt::black, parting_darkness * parting));
    }
}

/// On which actions that share pixels fade.
const QColor& RowPainter::ground() const {
    return scene_.overlay.bubbles ? palette().bubble_fill : palette().row;
}

/// The row's ground reaches from the start of the step to the end of this side's step, so that the
/// two sides' lengths can be compared at their right ends.
void RowPainter::paint_ground(const Row& row, const QRect& rect, int step, PixelCanvas& canvas) {
    const StepPlace& place = scene_.places.of(row.side, step);
    const Duration length = scene_.run->twin.step(row.side, step)->length;
    const int left = scene_.x_of(place.on_axis(Duration{0}));
    const int right = scene_.x_of(place.on_axis(length));
    if (right <= left) {
        return;
    }
    if (scene_.overlay.bubbles) {
        paint_idle(QRect(left, rect.y(), right - left, rect.height()));
    } else {
        canvas.fill(left, rect.y(), right - left, rect.height(), palette().row);
    }
}

void RowPainter::paint_idle(const QRect& rect) {
    painter_.fillRect(rect, palette().bubble_fill);
    painter_.setBrushOrigin(0, rect.y());
    painter_.fillRect(rect, QBrush(palette().bubble_hatch, Qt::FDiagPattern));
}

void RowPainter::paint_box(const Box& box,
                           const RowIndex& row,
                           const ViewTransform& view,
                           const QRect& at) {
    const OpStyle& style = this->style(box.op);
    switch (box.kind) {
        case BoxKind::Coalesced:
            hatch_coalesced(at, style, box.compute);
            return;
        case BoxKind::Wait:
            if (scene_.overlay.bubbles) {
                paint_idle(at);
            } else {
                paint_wait(painter_, at, palette());
            }
            return;
        case BoxKind::Action:
            break;
    }
    paint_sample(painter_, at, style);
    paint_parting(view.x_of(row.end(box.cell)) - view.x_of(row.ready(box.cell)), style, at);
    paint_label(row.action(box.cell), style, at);
}

/// Many actions at once: the paler, the less of the time is compute. Their colour is there already.
void RowPainter::hatch_coalesced(const QRect& rect, const OpStyle& style, double compute) {
    OpStyle paler = style;
    paler.fill = mixed(ground(), style.fill, compute);
    paler.hatch = mixed(ground(), style.hatch, compute);
    paint_sample(painter_, rect, paler);
}

/// A line that parts an action from the next. It fades with the width: at a few pixels per action
/// rounding would make some lines appear and others not, in a pattern that means nothing.
void RowPainter::paint_parting(double width, const OpStyle& style, const QRect& rect) {
    const double share = parting_share(width);
    if (share > 0) {
        QColor color = mixed(style.fill, Qt::black, parting_darkness);
        color.setAlphaF(static_cast<float>(share));
        painter_.fillRect(rect.right(), rect.y(), 1, rect.height(), color);
    }
}

/// The longest of "F12", "F" that fits; empty if none does. Measuring a text takes longer than all
/// else about an action, so widths are added up: digits are equally wide.
QString RowPainter::label_for(const Action& action, const OpStyle& style, int width) const {
    const int letter = letter_widths_[static_cast<std::size_t>(action.op)];
    if (letter + label_margin > width) {
        return {};
    }
    if (is_compute(action.op)) {
        const int whole = letter + digits_of(action.micro_batch) * digit_width_;
        return whole + label_margin <= width ? style.letter + QString::number(action.micro_batch)
                                             : style.letter;
    }
    if (has_micro_batch(action.op)) {
        const QString whole = QString::fromStdString(to_string(action));
        const bool may_fit = whole.size() * digit_width_ / 2 < width;
        if (may_fit && painter_.fontMetrics().horizontalAdvance(whole) + label_margin <= width) {
            return whole;
        }
    }
    return style.letter;
}

void RowPainter::paint_label(const Action& action, const OpStyle& style, const QRect& rect) {
    if (rect.height() < painter_.fontMetrics().ascent()) {
        return;
    }
    const QRect seen =
        rect.intersected(QRect(scene_.label_width, rect.y(), scene_.time_width(), rect.height()));
    const QString text = label_for(action, style, seen.width());
    if (!text.isEmpty()) {
        painter_.setPen(style.text);
        painter_.drawText(seen, Qt::AlignCenter, text);
    }
}

/// What was predicted, as outlines.
void RowPainter::paint_ghosts(const Row& row, const QRect& rect, int step) {
    const RowIndex* const spans = scene_.run->twin.row(Side::Predicted, step, row.rank);
    if (spans == nullptr) {
        return;
    }
    const ViewTransform view = view_of(Side::Predicted, step);
    painter_.setPen(QPen(palette().text, 1));
    painter_.setBrush(Qt::NoBrush);
    for (const Box& box : boxes_of(*spans, view, scene_.time_width())) {
        if (box.kind == BoxKind::Action && box.width >= narrowest_ghost && is_compute(box.op)) {
            painter_.drawRect(rect.x() + box.x, rect.y() + 1, box.width - 1, rect.height() - 3);
        }
    }
}

/// Up is faster than predicted, down is slower; full height from 10 % on.
void RowPainter::paint_errors(const Band& strip) {
    const QRect rect = scene_.rect_at(strip.y, strip.height);
    const int middle = rect.y() + rect.height() / 2;
    PixelCanvas canvas(painter_, rect);
    canvas.fill(rect.x(), middle, rect.width(), 1, palette().grid);
    const TimelineScene::Steps steps = scene_.steps_in_sight();
    for (int step = steps.first; step <= steps.last; ++step) {
        const RowIndex* const predicted = scene_.run->twin.row(Side::Predicted, step, strip.rank);
        const RowIndex* const measured = scene_.run->twin.row(Side::Measured, step, strip.rank);
        if (predicted == nullptr || measured == nullptr) {
            continue;
        }
        const auto bars = error_bars_of(
            *predicted, *measured, view_of(Side::Measured, step), scene_.time_width());
        for (const ErrorBar& bar : bars) {
            const double share = std::min(1.0, std::abs(bar.error) / full_error);
            const int length = static_cast<int>(std::ceil(share * (rect.height() / 2 - 1)));
            const bool faster = bar.error > 0;
            const int gap = bar.width >= 4 ? 1 : 0;
            canvas.fill(rect.x() + bar.x,
                        faster ? middle - length : middle,
                        bar.width - gap,
                        length,
                        faster ? palette().faster : palette().slower);
        }
    }
    canvas.finish();
}

Bytes RowPainter::highest(int rank) const {
    Bytes most;
    for (const Side side : {Side::Predicted, Side::Measured}) {
        const auto& data = scene_.run->side(side);
        if (data && static_cast<std::size_t>(rank) < data->memory.size()) {
            most = std::max(most, data->memory[static_cast<std::size_t>(rank)].peak());
        }
    }
    return most;
}

/// What is held: an area as it was measured, a line as it was predicted, from 0 to the highest
/// peak, and the limit where it is nearer than twice that.
void RowPainter::paint_memory(const Band& band) {
    const QRect rect = scene_.rect_at(band.y, band.height);
    Bytes top = highest(band.rank);
    if (top.count <= 0) {
        return;
    }
    const std::optional<Bytes> limit =
        scene_.run->planned ? scene_.run->planned->plan.memory_limit(band.rank) : std::nullopt;
    if (limit && limit->count < 2 * top.count) {
        top = std::max(top, *limit);
    }
    constexpr double head_room = 1.08;
    const double pixels_per_byte = rect.height() / (head_room * static_cast<double>(top.count));
    const TimelineScene::Steps steps = scene_.steps_in_sight();
    PixelCanvas canvas(painter_, rect);
    for (const Side side : {Side::Measured, Side::Predicted}) {
        for (int step = steps.first; step <= steps.last; ++step) {
            paint_curve(band, side, step, pixels_per_byte, canvas);
        }
    }
    canvas.fill(rect.x(), rect.bottom(), rect.width(), 1, palette().grid);
    canvas.finish();
    if (limit && *limit <= top) {
        const int y =
            rect.bottom() -
            static_cast<int>(std::lround(static_cast<double>(limit->count) * pixels_per_byte));
        painter_.setPen(QPen(palette().slower, 1, Qt::DashLine));
        painter_.drawLine(rect.left(), y, rect.right(), y);
    }
}

void RowPainter::paint_curve(
    const Band& band, Side side, int step, double pixels_per_byte, PixelCanvas& canvas) {
    const auto& data = scene_.run->side(side);
    const RowIndex* const row = scene_.run->twin.row(side, step, band.rank);
    const auto rank = static_cast<std::size_t>(band.rank);
    if (!data || row == nullptr || rank >= data->memory.size() || data->memory[rank].empty()) {
        return;
    }
    const QRect rect = scene_.rect_at(band.y, band.height);
    const StepPlace& place = scene_.places.of(side, step);
    const int left = std::max(rect.left(), scene_.x_of(place.on_axis(Duration{0})));
    const int right = std::min(
        rect.right(), scene_.x_of(place.on_axis(scene_.run->twin.step(side, step)->length)));
    const std::vector<ByteRange> columns = data->memory[rank].columns(
        *row, view_of(side, step), left - scene_.label_width, std::max(0, right - left + 1));
    const auto y_of = [&](Bytes bytes) {
        return rect.bottom() -
               static_cast<int>(std::lround(static_cast<double>(bytes.count) * pixels_per_byte));
    };
    // Neighbours that look alike are one rectangle.
    const QColor& color = side == Side::Measured ? palette().memory_fill : palette().memory_line;
    QRect run;
    int last = 0;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        const int high = y_of(columns[i].most);
        const int low = y_of(columns[i].least);
        const bool area = side == Side::Measured;
        const int from = area || i == 0 ? high : std::min(high, last);
        const int height = area ? rect.bottom() - high : std::max(1, low - from + 1);
        last = low;
        if (i > 0 && run.y() == from && run.height() == height) {
            run.setWidth(run.width() + 1);
            continue;
        }
        canvas.fill(run.x(), run.y(), run.width(), run.height(), color);
        run = QRect(left + static_cast<int>(i), from, 1, height);
    }
    canvas.fill(run.x(), run.y(), run.width(), run.height(), color);
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
