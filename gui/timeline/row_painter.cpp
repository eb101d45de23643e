// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/row_painter.h"

#include <algorithm>
#include <cmath>

#include <QFontMetrics>

#include "core/base/as_index.h"
#include "core/plan/plan.h"
#include "gui/view/timeline/link_load.h"

namespace pipetwin::gui {

namespace {

constexpr double full_error = 0.1;  // the error at which a bar of the strip has its full height
constexpr int narrowest_hatching = 6;
constexpr int narrowest_ghost = 3;

constexpr int label_margin = 4;

constexpr double parting_darkness = 0.4;

/// Strength of the line between two actions, 0 to 1, by the width of the first.
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

/// Whole pixels of an action without its wait. Its box may have one more, as boxes are rounded to
/// the pixels between their neighbours: what is equally long would have different labels.
int room_in(const RowIndex& row, int cell, const ViewTransform& view) {
    const Duration begin =
        is_receive(row.op(cell)) || is_send(row.op(cell)) ? row.ready(cell) : row.begin(cell);
    const auto length = static_cast<double>((row.end(cell) - begin).count());
    return static_cast<int>(std::min(length / view.ns_per_pixel, 1e6));
}

}  // namespace

RowPainter::RowPainter(QPainter& painter, const TimelineScene& scene, std::vector<QRgb> ground)
    : painter_(painter), scene_(scene), ground_(std::move(ground)) {
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

RowPainter::WideBox RowPainter::wide_box(const Box& box,
                                         const RowIndex& spans,
                                         const ViewTransform& view) {
    if (box.kind != BoxKind::Action) {
        return {.box = box, .action = {}, .room = 0};
    }
    return {.box = box, .action = spans.action(box.cell), .room = room_in(spans, box.cell, view)};
}

void RowPainter::paint_row(const Row& row) {
    const QRect rect = scene_.rect_at(row.y, row.height);
    const TimelineScene::Steps steps = scene_.steps_in_sight();
    PixelCanvas canvas(painter_, rect, ground_);
    wide_.clear();
    for (int step = steps.first; step <= steps.last; ++step) {
        const RowIndex* const spans = scene_.run->twin.row(row.side, step, row.rank);
        if (spans == nullptr) {
            continue;
        }
        paint_ground(row, step, canvas);
        const ViewTransform view = view_of(row.side, step);
        boxes_of(*spans, view, scene_.time_width(), boxes_);
        for (const Box& box : boxes_) {
            fill_box(box, rect.x(), canvas);
            if (box.width >= narrowest_hatching) {
                wide_.push_back(wide_box(box, *spans, view));
            }
        }
    }
    for (const WideBox& wide : wide_) {
        hatch_box(wide.box, rect.x(), canvas);
    }
    for (const WideBox& wide : wide_) {
        paint_parting(wide.box, rect.x(), canvas);
    }
    canvas.finish();
    if (rect.height() >= painter_.fontMetrics().ascent()) {
        for (const auto& [box, action, room] : wide_) {
            if (box.kind == BoxKind::Action) {
                const QRect whole(rect.x() + box.x, rect.y(), box.width, rect.height());
                names_.push_back({.action = action, .seen = whole.intersected(rect), .room = room});
            }
        }
    }
    if (scene_.overlay.skips.empty()) {
        paint_names();
    }
    for (int step = steps.first; step <= steps.last; ++step) {
        if (scene_.mode == Mode::Ghost && row.side == Side::Measured) {
            paint_ghosts(row, step);
        }
    }
}

void RowPainter::paint_names() {
    for (const Name& name : names_) {
        paint_label(name.action, name.seen, name.room);
    }
    names_.clear();
}

/// The ground of idle time, to which actions that share pixels fade.
const QColor& RowPainter::ground() const {
    return scene_.overlay.bubbles ? palette().highlight_fill : palette().idle_fill;
}

const QColor& RowPainter::ground_hatch() const {
    return scene_.overlay.bubbles ? palette().highlight_hatch : palette().idle_hatch;
}

/// The colour of many actions at once: the paler, the less of the time is compute.
QRgb RowPainter::faded(Op op, double compute) {
    std::vector<QRgb>& known = faded_[as_index(op)];
    if (known.empty()) {
        for (int shade = 0; shade <= shades; ++shade) {
            known.push_back(
                mixed(ground(), style(op).fill, static_cast<double>(shade) / shades).rgb());
        }
    }
    return known[as_index(compute * shades + 0.5)];
}

QRgb RowPainter::fill_of(const Box& box) {
    switch (box.kind) {
        case BoxKind::Coalesced:
            return faded(box.op, box.compute);
        case BoxKind::Wait:
            return ground().rgb();
        case BoxKind::Action:
            break;
    }
    return style(box.op).fill.rgb();
}

/// The row's ground, which is idle time, reaches from the start of the step to the end of this
/// side's step, so that the two sides' lengths can be compared at their right ends.
void RowPainter::paint_ground(const Row& row, int step, PixelCanvas& canvas) {
    const StepPlace& place = scene_.places.of(row.side, step);
    const Duration length = scene_.run->twin.step(row.side, step)->length;
    const int left = scene_.x_of(place.on_axis(Duration{0}));
    const int width = scene_.x_of(place.on_axis(length)) - left;
    if (width <= 0) {
        return;
    }
    canvas.fill_columns(left, width, ground().rgb());
    canvas.hatch_columns(left, width, ground_hatch().rgb(), Qt::FDiagPattern, 0);
}

void RowPainter::fill_box(const Box& box, int left, PixelCanvas& canvas) {
    const QRgb color = fill_of(box);
    canvas.fill_columns(left + box.x, box.width, color);
    if (box.kind == BoxKind::Action && box.width < narrowest_hatching) {
        paint_parting(box, left, canvas);
    }
}

void RowPainter::hatch_box(const Box& box, int left, PixelCanvas& canvas) {
    const int x = left + box.x;
    const OpStyle& style = this->style(box.op);
    switch (box.kind) {
        case BoxKind::Coalesced:
            canvas.hatch_columns(
                x, box.width, mixed(ground(), style.hatch, box.compute).rgb(), style.pattern, x);
            return;
        case BoxKind::Wait:
            canvas.hatch_columns(x, box.width, ground_hatch().rgb(), Qt::FDiagPattern, 0);
            return;
        case BoxKind::Action:
            canvas.hatch_columns(x, box.width, style.hatch.rgb(), style.pattern, x);
            return;
    }
}

/// A line that parts an action from the next. It fades with the width: at a few pixels per action
/// rounding would make some lines appear and others not, in a pattern that means nothing.
void RowPainter::paint_parting(const Box& box, int left, PixelCanvas& canvas) {
    const double share = parting_share(box.width);
    if (share > 0 && box.kind == BoxKind::Action) {
        const QColor color = mixed(style(box.op).fill, Qt::black, parting_darkness * share);
        canvas.fill_columns(left + box.x + box.width - 1, 1, color.rgb());
    }
}

/// The longest of "F12", "F" that fits; empty if none does. Measuring a text takes longer than all
/// else about an action, so widths are added up: digits are equally wide.
QString RowPainter::label_for(const Action& action, const OpStyle& style, int width) const {
    const int letter = letter_widths_[as_index(action.op)];
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

void RowPainter::paint_label(const Action& action, const QRect& seen, int room) {
    const OpStyle& style = this->style(action.op);
    const QString text = label_for(action, style, std::min(seen.width(), room));
    if (text.isEmpty()) {
        return;
    }
    if (style.pattern != Qt::NoBrush) {  // no line of the hatching crosses a letter
        const int digits = static_cast<int>(text.size()) - 1;
        QRect plain(0,
                    0,
                    letter_widths_[as_index(action.op)] + digits * digit_width_ + label_margin / 2,
                    painter_.fontMetrics().height());
        plain.moveCenter(seen.center());
        painter_.fillRect(plain & seen, style.fill);
    }
    painter_.setPen(style.text);
    painter_.drawText(seen, Qt::AlignCenter, text);
}

/// Paints the predicted actions as outlines.
void RowPainter::paint_ghosts(const Row& row, int step) {
    const QRect rect = scene_.rect_at(row.y, row.height);
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
    PixelCanvas canvas(painter_, rect, ground_);
    canvas.fill(QRect(rect.x(), middle, rect.width(), 1), palette().grid);
    const std::size_t width = as_index(rect.width());
    std::vector<int> tops(width, middle);     // of the faster ones
    std::vector<int> bottoms(width, middle);  // of the slower ones
    std::vector<ErrorBar> bars;
    const SideDispatch dispatch{.predicted = compared_dispatch(*scene_.run, Side::Predicted),
                                .measured = compared_dispatch(*scene_.run, Side::Measured)};
    const TimelineScene::Steps steps = scene_.steps_in_sight();
    for (int step = steps.first; step <= steps.last; ++step) {
        const RowIndex* const predicted = scene_.run->twin.row(Side::Predicted, step, strip.rank);
        const RowIndex* const measured = scene_.run->twin.row(Side::Measured, step, strip.rank);
        if (predicted == nullptr || measured == nullptr) {
            continue;
        }
        const Twin::RowPair* const pair = scene_.run->twin.pair(step, strip.rank);
        error_bars_of(*predicted,
                      *measured,
                      view_of(Side::Measured, step),
                      scene_.time_width(),
                      pair == nullptr ? std::span<const int>() : pair->of_measured,
                      dispatch,
                      bars);
        for (const ErrorBar& bar : bars) {
            const double share = std::min(1.0, std::abs(bar.error) / full_error);
            const int length = static_cast<int>(std::ceil(share * (rect.height() / 2 - 1)));
            const int gap = bar.width >= 4 ? 1 : 0;
            const int left = std::max(0, bar.x);
            const int right = std::min(rect.width(), bar.x + bar.width - gap);
            for (int x = left; x < right; ++x) {
                const std::size_t column = as_index(x);
                tops[column] = bar.error > 0 ? middle - length : middle;
                bottoms[column] = bar.error > 0 ? middle : middle + length;
            }
        }
    }
    const std::vector<int> border(width, middle);
    canvas.bars(rect.x(), tops, border, palette().faster.rgb());
    canvas.bars(rect.x(), border, bottoms, palette().slower.rgb());
    canvas.finish();
}

std::optional<Bytes> RowPainter::limit_of(int rank) const {
    return scene_.run->plan() != nullptr ? scene_.run->plan()->memory_limit(rank) : std::nullopt;
}

/// The upper end of the scale of memory, which all ranks have in common: the highest peak, or a
/// limit that is less than twice that.
Bytes RowPainter::memory_top() const {
    Bytes peak;
    for (const Side side : {Side::Predicted, Side::Measured}) {
        if (const auto& data = scene_.run->side(side)) {
            for (const MemoryRow& row : data->memory) {
                peak = std::max(peak, row.peak());
            }
        }
    }
    Bytes top = peak;
    for (int rank = 0; rank < scene_.run->twin.rank_count(); ++rank) {
        if (const auto limit = limit_of(rank); limit && limit->count < 2 * peak.count) {
            top = std::max(top, *limit);
        }
    }
    return top;
}

/// Paints the memory: an area as it was measured, a line as it was predicted, from 0 to the top of
/// the scale, and the limit where it is on it.
void RowPainter::paint_memory(const Band& band) {
    const QRect rect = scene_.rect_at(band.y, band.height);
    const Bytes top = memory_top_ ? *memory_top_ : memory_top_.emplace(memory_top());
    if (top.count <= 0) {
        return;
    }
    const std::optional<Bytes> limit = limit_of(band.rank);
    constexpr double head_room = 1.08;
    const double pixels_per_byte = rect.height() / (head_room * static_cast<double>(top.count));
    PixelCanvas canvas(painter_, rect, ground_);
    for (const Side side : {Side::Measured, Side::Predicted}) {
        paint_curve(band, side, pixels_per_byte, canvas);
    }
    canvas.fill(QRect(rect.x(), rect.bottom(), rect.width(), 1), palette().grid);
    canvas.finish();
    if (limit && *limit <= top) {
        const int y =
            rect.bottom() -
            static_cast<int>(std::lround(static_cast<double>(limit->count) * pixels_per_byte));
        painter_.setPen(QPen(palette().slower, 1, Qt::DashLine));
        painter_.drawLine(rect.left(), y, rect.right(), y);
    }
}

void RowPainter::paint_curve(const Band& band,
                             Side side,
                             double pixels_per_byte,
                             PixelCanvas& canvas) {
    const auto& data = scene_.run->side(side);
    const std::size_t rank = as_index(band.rank);
    if (!data || rank >= data->memory.size() || data->memory[rank].empty()) {
        return;
    }
    const QRect rect = scene_.rect_at(band.y, band.height);
    const auto y_of = [&](Bytes bytes) {
        return rect.bottom() -
               static_cast<int>(static_cast<double>(bytes.count) * pixels_per_byte + 0.5);
    };
    const std::size_t width = as_index(rect.width());
    std::vector<int> tops(width, rect.bottom());
    std::vector<int> bottoms(width, rect.bottom());
    const TimelineScene::Steps steps = scene_.steps_in_sight();
    for (int step = steps.first; step <= steps.last; ++step) {
        const RowIndex* const row = scene_.run->twin.row(side, step, band.rank);
        if (row == nullptr) {
            continue;
        }
        const StepPlace& place = scene_.places.of(side, step);
        const Duration length = scene_.run->twin.step(side, step)->length;
        const int left = std::max(rect.left(), scene_.x_of(place.on_axis(Duration{0})));
        const int right = std::min(rect.right(), scene_.x_of(place.on_axis(length)));
        const std::vector<ByteRange> columns = data->memory[rank].columns(
            *row, view_of(side, step), left - rect.left(), std::max(0, right - left + 1));
        int last = 0;
        for (std::size_t i = 0; i < columns.size(); ++i) {
            const std::size_t x = as_index(left - rect.left()) + i;
            const int high = y_of(columns[i].most);
            const int low = y_of(columns[i].least);
            // The area ends at the bottom; the line joins what it was in the column before.
            tops[x] = side == Side::Measured || i == 0 ? high : std::min(high, last);
            bottoms[x] = side == Side::Measured ? rect.bottom() : std::max(tops[x], low) + 1;
            last = low;
        }
    }
    const QColor& color = side == Side::Measured ? palette().memory_fill : palette().memory_line;
    canvas.bars(rect.left(), tops, bottoms, color.rgb());
}

/// Above the line what leaves for the next stages, below it for the ones before; as high as the
/// share of the time in which messages pass.
void RowPainter::paint_links(const Band& band) {
    const std::optional<Side> side = linked_side(scene_.run->twin);
    if (!side) {
        return;
    }
    const QRect rect = scene_.rect_at(band.y, band.height);
    const int middle = rect.y() + rect.height() / 2;
    const std::size_t width = as_index(rect.width());
    std::vector<int> tops(width, middle);
    std::vector<int> bottoms(width, middle);
    const auto height_of = [&rect](double share) {
        return static_cast<int>(std::ceil(share * (rect.height() / 2 - 1)));
    };
    const TimelineScene::Steps steps = scene_.steps_in_sight();
    for (int step = steps.first; step <= steps.last; ++step) {
        const StepRows* const rows = scene_.run->twin.step(*side, step);
        if (rows == nullptr) {
            continue;
        }
        const LinkLoad load =
            link_load(*rows, band.rank, view_of(*side, step), scene_.time_width());
        for (std::size_t x = 0; x < std::min(width, load.forward.size()); ++x) {
            tops[x] = std::min(tops[x], middle - height_of(load.forward[x]));
            bottoms[x] = std::max(bottoms[x], middle + height_of(load.backward[x]));
        }
    }
    PixelCanvas canvas(painter_, rect, ground_);
    canvas.fill(QRect(rect.x(), middle, rect.width(), 1), palette().grid);
    canvas.bars(rect.x(), tops, bottoms, style(Op::SendForward).fill.rgb());
    canvas.finish();
}

void paint_sample(QPainter& painter, const QRect& rect, const OpStyle& style) {
    painter.fillRect(rect, style.fill);
    if (style.pattern != Qt::NoBrush) {
        painter.setBrushOrigin(rect.topLeft());
        painter.fillRect(rect, QBrush(style.hatch, style.pattern));
    }
}

void paint_idle(QPainter& painter, const QRect& rect, const Palette& palette) {
    painter.fillRect(rect, palette.idle_fill);
    painter.setBrushOrigin(0, rect.y());
    painter.fillRect(rect, QBrush(palette.idle_hatch, Qt::FDiagPattern));
}

}  // namespace pipetwin::gui
