// SPDX-License-Identifier: Apache-2.0
#include "gui/what_if/heat_map_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <QAccessible>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>

#include "core/base/as_index.h"
#include "core/base/short_number.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/what_if/left_out.h"

namespace pipetwin::gui {

namespace {

constexpr int legend_width = 14;
constexpr int gap = 6;
constexpr int label_padding = 3;  ///< between a number and the edge of its cell
const QString star = QStringLiteral("\u2605");

QString ranks_text(int ranks) {
    return ranks == 1 ? HeatMapView::tr("1 rank") : HeatMapView::tr("%1 ranks").arg(ranks);
}

QString micro_batches_text(int micro_batches) {
    return micro_batches == 1 ? HeatMapView::tr("1 micro-batch")
                              : HeatMapView::tr("%1 micro-batches").arg(micro_batches);
}

}  // namespace

QString per_second(const HeatMap& map) {
    return map.counts_samples ? HeatMapView::tr("samples/s") : HeatMapView::tr("micro-batches/s");
}

QColor cividis(double share) {
    constexpr std::array<QRgb, 9> colors{0xff00204d,
                                         0xff00336f,
                                         0xff39486b,
                                         0xff575d6d,
                                         0xff707173,
                                         0xff8a8779,
                                         0xffa69d75,
                                         0xffc4b56c,
                                         0xffffea46};
    const double place = std::clamp(share, 0.0, 1.0) * static_cast<double>(colors.size() - 1);
    const auto below = std::min(as_index(place), colors.size() - 2);
    return mixed(
        QColor(colors[below]), QColor(colors[below + 1]), place - static_cast<double>(below));
}

HeatMapView::HeatMapView(QWidget* parent) : QWidget(parent), palette_(palette_of(Theme::Light)) {
    setFocusPolicy(Qt::StrongFocus);
    setAccessibleName(tr("Heat map of ranks and micro-batches"));
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Expanding);
}

void HeatMapView::set_colors(const Palette& palette) {
    palette_ = palette;
    update();
}

QColor text_on(const QColor& ground) {
    return contrast_ratio(Qt::black, ground) >= contrast_ratio(Qt::white, ground) ? Qt::black
                                                                                  : Qt::white;
}

void HeatMapView::show_map(HeatMap map) {
    whole_ = std::move(map);
    fit_map();
}

void HeatMapView::show_value(HeatValue value) {
    value_ = value;
    fit_map();
}

void HeatMapView::show_marks(const std::optional<Numbers>& current,
                             const std::optional<Numbers>& measured,
                             const QString& measured_name) {
    current_numbers_ = current;
    measured_numbers_ = measured;
    measured_name_ = measured_name;
    fit_map();
    if (current_) {
        focused_ = *current_;
    }
}

/// Width of the widest number of a cell, with the star of the best one.
int HeatMapView::widest_label() const {
    int widest = 0;
    for (const HeatCell& cell : whole_.cells) {
        if (cell.fits()) {
            widest =
                std::max(widest, fontMetrics().horizontalAdvance(number_of(cell.value(value_))));
        }
    }
    return widest + fontMetrics().horizontalAdvance(star);
}

/// Shows as many rows and columns as there is room for, among them those with marks.
void HeatMapView::fit_map() {
    range_ = whole_.range(value_);
    const std::optional<Cell> best = whole_.best(value_);
    std::vector<Cell> kept;
    const auto keep = [&](const std::optional<Numbers>& numbers) {
        const auto cell = numbers ? whole_.place_of(numbers->first, numbers->second) : std::nullopt;
        if (cell) {
            kept.push_back(*cell);
        }
    };
    keep(current_numbers_);
    if (best) {
        kept.push_back(*best);
    }
    keep(measured_numbers_);
    const int row_height = fontMetrics().height() + label_padding;
    const int column_width = widest_label() + 2 * label_padding;
    const auto fit = [&] {
        map_ = thinned(whole_,
                       as_index(std::max(2, area().height() / row_height)),
                       as_index(std::max(2, area().width() / column_width)),
                       kept);
    };
    has_line_below_ = false;
    fit();
    if (!left_out().isEmpty()) {
        has_line_below_ = true;
        fit();
    }
    const auto place_of = [&](const std::optional<Numbers>& numbers) {
        return numbers ? cell_of(numbers->first, numbers->second) : std::nullopt;
    };
    current_ = place_of(current_numbers_);
    measured_ = place_of(measured_numbers_);
    best_ = map_.best(value_);
    if (!map_.empty()) {
        focused_ = {std::min(focused_.row, map_.stages.size() - 1),
                    std::min(focused_.column, map_.micro_batches.size() - 1)};
    }
    update();
}

void HeatMapView::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    const std::optional<std::pair<int, int>> focused =
        map_.empty() ? std::nullopt
                     : std::optional(std::pair(map_.stages[focused_.row],
                                               map_.micro_batches[focused_.column]));
    fit_map();
    if (const auto there = focused ? cell_of(focused->first, focused->second) : std::nullopt) {
        focused_ = *there;
    }
}

void HeatMapView::changeEvent(QEvent* event) {
    if (event->type() == QEvent::FontChange) {
        fit_map();
    }
    QWidget::changeEvent(event);
}

QSize HeatMapView::sizeHint() const {
    return {700, 15 * fontMetrics().height()};
}

/// The height of four rows with the numbers of the columns, their title, and what is left out.
int HeatMapView::height_with_title() const {
    constexpr int rows = 4;
    constexpr int lines = rows + 3;
    return lines * fontMetrics().height() + rows * label_padding + 3 * gap;
}

QSize HeatMapView::minimumSizeHint() const {
    constexpr int least_height = 140;  // with large letters the title gives way to the timeline
    const int without_title = height_with_title() - fontMetrics().height();
    return {300, std::min(height_with_title(), std::max(without_title, least_height))};
}

/// False in a view so low that the title would take the room of the fourth row.
bool HeatMapView::has_title() const {
    return height() >= height_with_title();
}

QRect HeatMapView::area() const {
    const int left =
        fontMetrics().horizontalAdvance(QStringLiteral("8888")) + 2 * gap + fontMetrics().height();
    const int right =
        legend_width + 4 * gap + fontMetrics().horizontalAdvance(QStringLiteral("8888.8 MiB"));
    const int lines = 1 + (has_title() ? 1 : 0) + (has_line_below_ ? 1 : 0);
    const int below = lines * fontMetrics().height() + gap;
    return rect().adjusted(left, gap, -right, -below);
}

QRect HeatMapView::place_of(const Cell& cell) const {
    const QRect all = area();
    const auto rows = static_cast<int>(map_.stages.size());
    const auto columns = static_cast<int>(map_.micro_batches.size());
    const auto row = static_cast<int>(cell.row);
    const auto column = static_cast<int>(cell.column);
    const int x = all.left() + column * all.width() / columns;
    const int y = all.top() + row * all.height() / rows;
    return {QPoint(x, y),
            QPoint(all.left() + (column + 1) * all.width() / columns - 1,
                   all.top() + (row + 1) * all.height() / rows - 1)};
}

std::optional<HeatMapView::Cell> HeatMapView::cell_at(QPoint position) const {
    for (std::size_t row = 0; row < map_.stages.size(); ++row) {
        for (std::size_t column = 0; column < map_.micro_batches.size(); ++column) {
            if (place_of({row, column}).contains(position)) {
                return Cell{row, column};
            }
        }
    }
    return std::nullopt;
}

QString HeatMapView::number_of(double value) const {
    switch (value_) {
        case HeatValue::Throughput:
            return text_of(short_number(value));
        case HeatValue::Bubble:
            return text_of(short_percent(value));
        case HeatValue::PeakMemory:
            break;
    }
    return text_of(format_bytes(Bytes{std::llround(value)}));
}

QString HeatMapView::label_of(const Cell& at) const {
    const HeatCell& cell = map_.at(at.row, at.column);
    if (!cell.fits()) {
        return {};
    }
    const QString number = number_of(cell.value(value_));
    return at == best_ ? star + number : number;
}

QString HeatMapView::sentence_of(const Cell& at) const {
    const HeatCell& cell = map_.at(at.row, at.column);
    const QString where = ranks_text(map_.stages[at.row]) + QStringLiteral(", ") +
                          micro_batches_text(map_.micro_batches[at.column]);
    QString text = cell.fits() ? tr("%1: %2 %3, bubble %4")
                                     .arg(where,
                                          text_of(short_number(cell.per_second)),
                                          per_second(map_),
                                          text_of(short_percent(cell.bubble)))
                   : cell.lacks_costs ? tr("%1: no costs: %2").arg(where, text_of(cell.reason))
                                      : tr("%1: infeasible: %2").arg(where, text_of(cell.reason));
    if (cell.fits() && map_.knows_memory) {
        text += tr(", peak %1").arg(QString::fromStdString(format_bytes(cell.peak)));
    }
    if (!map_.is_on_machine(at.row)) {
        text += tr(" (the machine has devices for %1)").arg(ranks_text(map_.machine_stages));
    }
    if (at == best_) {
        text += tr(" (best)");
    }
    if (at == current_) {
        text += tr(" (current settings)");
    }
    if (at == measured_) {
        text += tr(" (%1)").arg(measured_name_);
    }
    return text;
}

QString HeatMapView::summary() const {
    if (!range_) {
        const auto cell = std::ranges::find(whole_.cells, false, &HeatCell::lacks_costs);
        if (cell == whole_.cells.end()) {
            return whole_.empty() ? QString()
                                  : tr("No combination has costs: %1.")
                                        .arg(text_of(whole_.cells.front().reason));
        }
        return tr("Every combination is infeasible: %1.").arg(text_of(cell->reason));
    }
    QString text;
    const bool has_uncolored_rows = !map_.is_on_machine(map_.stages.size() - 1);
    if (best_) {
        const HeatCell& cell = map_.at(best_->row, best_->column);
        const QString number = number_of(cell.value(value_));
        const bool leaves_out_one =
            value_ == HeatValue::Bubble && map_.stages.front() == 1 && map_.stages[best_->row] > 1;
        const QString machine = ranks_text(map_.machine_stages);
        const QString of_ranks = !has_uncolored_rows
                                     ? leaves_out_one ? tr(" for 2 ranks or more") : QString()
                                 : leaves_out_one ? tr(" for 2 to %1").arg(machine)
                                                  : tr(" for up to %1").arg(machine);
        text = tr("%1 in a double frame: %2%3, %4 with %5 and %6")
                   .arg(star,
                        value_ == HeatValue::Throughput ? tr("highest") : tr("lowest"),
                        of_ranks,
                        value_ == HeatValue::Throughput ? number + ' ' + per_second(map_) : number,
                        ranks_text(map_.stages[best_->row]),
                        micro_batches_text(map_.micro_batches[best_->column]));
    } else {
        text = tr("No combination is feasible");
    }
    if (has_uncolored_rows && best_) {
        text += tr("; rows without colours need more devices");
    } else if (has_uncolored_rows) {
        text += tr(" with devices for %1").arg(ranks_text(map_.machine_stages));
    }
    const QString dot = measured_ ? tr("; dot: %1 run").arg(measured_name_) : QString();
    const bool any_without = std::ranges::any_of(map_.cells, &HeatCell::lacks_costs);
    const QString dotted = any_without ? tr("; dotted: no costs") : QString();
    return text + tr(". Thick frame: current settings%1; hatched: infeasible%2.").arg(dot, dotted);
}

bool HeatMapView::has_scale() const {
    return range_ && range_->first != range_->second;
}

QString HeatMapView::left_out() const {
    return LeftOut(whole_, map_).line(fontMetrics(), place_of_left_out().width());
}

QRect HeatMapView::place_of_left_out() const {
    const int left = area().left();
    const int top = has_title() ? title_of_columns().bottom() + 1 : title_of_columns().top();
    return {left, top, width() - left - gap, fontMetrics().height()};
}

QString HeatMapView::tip_of_left_out() const {
    return LeftOut(whole_, map_).tip();
}

double HeatMapView::share_of(const HeatCell& cell) const {
    if (!has_scale()) {
        return 1;
    }
    return (cell.value(value_) - range_->first) / (range_->second - range_->first);
}

void HeatMapView::paint_cell(QPainter& painter, const Cell& at) const {
    const HeatCell& cell = map_.at(at.row, at.column);
    const QRect place = place_of(at).adjusted(0, 0, -1, -1);
    if (!cell.fits()) {
        painter.fillRect(place, palette_.row);
        painter.fillRect(
            place,
            QBrush(palette_.faint_text, cell.lacks_costs ? Qt::Dense6Pattern : Qt::BDiagPattern));
        return;
    }
    const QColor ground = has_color(at) ? cividis(share_of(cell)) : palette_.background;
    painter.fillRect(place, ground);
}

/// The number of a cell, above the frames.
void HeatMapView::paint_number(QPainter& painter, const Cell& at) const {
    const bool colored = has_color(at);
    painter.setPen(colored ? text_on(cividis(share_of(map_.at(at.row, at.column))))
                           : palette_.faint_text);
    painter.drawText(place_of(at).adjusted(0, 0, -1, -1), Qt::AlignCenter, label_of(at));
}

/// Cells that the machine has no devices for have a number and no colour.
bool HeatMapView::has_color(const Cell& at) const {
    return map_.is_on_machine(at.row) || !best_;
}

/// A double frame of the best cell, and a thick one of the current settings, which are seen on
/// every colour: each is black beside white.
void HeatMapView::paint_frames(QPainter& painter) const {
    const auto frame = [&](const Cell& cell, int inset, int width, const QColor& color) {
        painter.setPen(QPen(color, width));
        painter.drawRect(place_of(cell).adjusted(inset, inset, -2 - inset, -2 - inset));
    };
    if (best_) {
        frame(*best_, 0, 1, Qt::black);
        frame(*best_, 1, 1, Qt::white);
        frame(*best_, 2, 1, Qt::black);
    }
    if (current_) {
        frame(*current_, 0, 5, Qt::black);
        frame(*current_, 0, 3, Qt::white);
    }
}

/// Seen in the smallest cell, and above the frames.
void HeatMapView::paint_dot(QPainter& painter, const Cell& at) const {
    const QRect place = place_of(at).adjusted(0, 0, -1, -1);
    constexpr int radius = 3;
    painter.setPen(QPen(Qt::black, 1));
    painter.setBrush(Qt::white);
    painter.drawEllipse(place.topRight() + QPoint(-radius - 3, radius + 3), radius, radius);
    painter.setBrush(Qt::NoBrush);
}

/// Numbers where there is room for them; the first and the last always.
void HeatMapView::paint_axes(QPainter& painter) const {
    const QRect all = area();
    const int height = fontMetrics().height();
    int last_bottom = -height;
    for (std::size_t row = 0; row < map_.stages.size(); ++row) {
        const QRect place = place_of({row, 0});
        const int top = place.center().y() - height / 2;
        if (top >= last_bottom) {
            const bool too_many = !map_.is_on_machine(row);
            painter.setPen(too_many ? palette_.faint_text : palette_.text);
            painter.drawText(QRect(height, top, all.left() - gap - height, height),
                             Qt::AlignRight | Qt::AlignVCenter,
                             QString::number(map_.stages[row]));
            last_bottom = top + height;
        }
    }
    painter.setPen(palette_.text);
    int last_right = 0;
    for (std::size_t column = 0; column < map_.micro_batches.size(); ++column) {
        const QRect place = place_of({0, column});
        const QString number = QString::number(map_.micro_batches[column]);
        const int width = fontMetrics().horizontalAdvance(number);
        const int left = place.center().x() - width / 2;
        if (left >= last_right + gap) {
            painter.drawText(
                QRect(left, all.bottom() + 2, width + 2, height), Qt::AlignCenter, number);
            last_right = left + width;
        }
    }
    painter.setPen(palette_.faint_text);
    if (has_title()) {
        painter.drawText(title_of_columns(), Qt::AlignCenter, columns_title());
    } else {
        painter.drawText(QRect(0, all.bottom() + 2, all.left() - gap, height),
                         Qt::AlignRight | Qt::AlignVCenter,
                         tr("M"));
    }
    painter.save();
    painter.translate(height, all.bottom());
    painter.rotate(-90);
    const QString ranks = tr("ranks (K)");
    const bool has_room = fontMetrics().horizontalAdvance(ranks) <= all.height();
    painter.drawText(
        QRect(0, -height, all.height(), height), Qt::AlignCenter, has_room ? ranks : tr("K"));
    painter.restore();
}

QString HeatMapView::columns_title() {
    return tr("micro-batches (M)");
}

QRect HeatMapView::title_of_columns() const {
    const QRect all = area();
    const int height = fontMetrics().height();
    return {all.left(), all.bottom() + 2 + height, all.width(), height};
}

void HeatMapView::paint_legend(QPainter& painter) const {
    if (!has_scale()) {
        return;
    }
    const QRect all = area();
    const QRect bar(all.right() + 2 * gap, all.top(), legend_width, all.height());
    for (int y = 0; y < bar.height(); ++y) {
        const double share = 1 - static_cast<double>(y) / std::max(1, bar.height() - 1);
        painter.setPen(cividis(share));
        painter.drawLine(bar.left(), bar.top() + y, bar.right(), bar.top() + y);
    }
    const int height = fontMetrics().height();
    const int left = bar.right() + gap;
    painter.setPen(palette_.text);
    for (const double share : {1.0, 0.5, 0.0}) {
        const int y = bar.top() + static_cast<int>((1 - share) * (bar.height() - height));
        painter.drawText(QRect(left, y, width() - left, height),
                         Qt::AlignLeft | Qt::AlignVCenter,
                         number_of(range_->first + share * (range_->second - range_->first)));
    }
}

void HeatMapView::paint_left_out(QPainter& painter) const {
    const QRect place = place_of_left_out();
    painter.setPen(palette_.faint_text);
    painter.drawText(place,
                     Qt::AlignLeft | Qt::AlignVCenter,
                     fontMetrics().elidedText(left_out(), Qt::ElideRight, place.width()));
}

void HeatMapView::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.fillRect(rect(), palette_.window);
    if (map_.empty()) {
        return;
    }
    const auto for_each_cell = [&](auto paint) {
        for (std::size_t row = 0; row < map_.stages.size(); ++row) {
            for (std::size_t column = 0; column < map_.micro_batches.size(); ++column) {
                paint(Cell{row, column});
            }
        }
    };
    for_each_cell([&](const Cell& cell) { paint_cell(painter, cell); });
    painter.setRenderHint(QPainter::Antialiasing, false);
    paint_frames(painter);
    for_each_cell([&](const Cell& cell) { paint_number(painter, cell); });
    if (measured_) {
        paint_dot(painter, *measured_);
    }
    if (hasFocus()) {
        painter.setPen(QPen(palette_.critical, 2, Qt::DotLine));
        painter.drawRect(place_of(focused_).adjusted(-1, -1, 0, 0));
    }
    paint_axes(painter);
    paint_legend(painter);
    paint_left_out(painter);
}

void HeatMapView::focus(const Cell& cell) {
    focused_ = cell;
    setAccessibleDescription(sentence_of(cell));
    QAccessibleEvent changed(this, QAccessible::DescriptionChanged);
    QAccessible::updateAccessibility(&changed);
    update();
}

/// Chooses a cell, even one that cannot be planned: the panel says why it cannot.
void HeatMapView::choose(const Cell& cell) {
    emit chosen(map_.stages[cell.row], map_.micro_batches[cell.column]);
}

bool HeatMapView::event(QEvent* event) {
    if (event->type() == QEvent::ToolTip) {
        const auto* const help = static_cast<QHelpEvent*>(event);  // NOLINT: Qt says so by type()
        const std::optional<Cell> cell = cell_at(help->pos());
        show_tip(help->globalPos(), cell ? sentence_of(*cell) : tip_of_left_out(), this);
        return true;
    }
    return QWidget::event(event);
}

void HeatMapView::mousePressEvent(QMouseEvent* event) {
    const std::optional<Cell> cell = cell_at(event->position().toPoint());
    if (event->button() == Qt::LeftButton && cell) {
        focus(*cell);
        choose(*cell);
    }
}

void HeatMapView::keyPressEvent(QKeyEvent* event) {
    if (map_.empty() || event->modifiers() != Qt::NoModifier) {
        QWidget::keyPressEvent(event);
        return;
    }
    Cell next = focused_;
    switch (event->key()) {
        case Qt::Key_Up:
            next.row -= next.row > 0 ? 1U : 0U;
            break;
        case Qt::Key_Down:
            next.row += next.row + 1 < map_.stages.size() ? 1U : 0U;
            break;
        case Qt::Key_Left:
            next.column -= next.column > 0 ? 1U : 0U;
            break;
        case Qt::Key_Right:
            next.column += next.column + 1 < map_.micro_batches.size() ? 1U : 0U;
            break;
        case Qt::Key_Return:
        case Qt::Key_Enter:
            choose(focused_);
            return;
        default:
            QWidget::keyPressEvent(event);
            return;
    }
    focus(next);
}

}  // namespace pipetwin::gui
