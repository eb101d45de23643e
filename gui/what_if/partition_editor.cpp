// SPDX-License-Identifier: Apache-2.0
#include "gui/what_if/partition_editor.h"

#include <algorithm>
#include <cmath>
#include <numeric>
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

namespace pipetwin::gui {

namespace {

constexpr int handle = 5;  ///< pixels to either side of a cut
constexpr int edge = 6;

/// One of the unit in which the times of all pieces are written.
Duration label_unit(Duration longest) {
    return longest >= std::chrono::seconds(1)        ? Duration(std::chrono::seconds(1))
           : longest >= std::chrono::milliseconds(1) ? Duration(std::chrono::milliseconds(1))
                                                     : Duration(std::chrono::microseconds(1));
}

}  // namespace

PartitionEditor::PartitionEditor(QWidget* parent)
    : QWidget(parent), palette_(palette_of(Theme::Light)) {
    setFocusPolicy(Qt::StrongFocus);
    setMouseTracking(true);
    setAccessibleName(tr("Partition"));
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
}

void PartitionEditor::set_colors(const Palette& palette) {
    palette_ = palette;
    update();
}

void PartitionEditor::show_partition(std::vector<LayerTime> layers, std::vector<int> pieces) {
    layers_ = std::move(layers);
    pieces_ = std::move(pieces);
    sums_.assign(1, Duration{});
    for (const LayerTime& layer : layers_) {
        sums_.push_back(sums_.back() + layer.time);
    }
    if (std::accumulate(pieces_.begin(), pieces_.end(), 0) != static_cast<int>(layers_.size())) {
        pieces_.clear();
    }
    cut_ = std::clamp(cut_, 0, std::max(0, cut_count() - 1));
    describe();
    update();
}

QSize PartitionEditor::sizeHint() const {
    return {200, 3 * fontMetrics().height()};
}

Duration PartitionEditor::time_before(int layer) const {
    return sums_.at(as_index(layer));
}

Duration PartitionEditor::time_of_piece(std::size_t piece) const {
    const int first =
        std::accumulate(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(piece), 0);
    return time_before(first + pieces_[piece]) - time_before(first);
}

/// Layers without a time are as wide as others would be if all were alike.
int PartitionEditor::x_of_layer(int layer) const {
    const double all = to_seconds(sums_.back());
    const double share = all > 0 ? to_seconds(time_before(layer)) / all
                                 : static_cast<double>(layer) / static_cast<double>(layers_.size());
    return edge + static_cast<int>(std::lround(share * (width() - 2 * edge)));
}

int PartitionEditor::layer_before_cut(int cut) const {
    return std::accumulate(pieces_.begin(), pieces_.begin() + cut + 1, 0);
}

int PartitionEditor::place_of_cut(int cut) const {
    return x_of_layer(layer_before_cut(cut));
}

int PartitionEditor::cut_at(int x) const {
    int nearest = -1;
    for (int cut = 0; cut < cut_count(); ++cut) {
        const int distance = std::abs(place_of_cut(cut) - x);
        if (distance <= handle && (nearest < 0 || distance < std::abs(place_of_cut(nearest) - x))) {
            nearest = cut;
        }
    }
    return nearest;
}

QString PartitionEditor::summary() const {
    if (pieces_.empty()) {
        return {};
    }
    Duration longest{};
    std::size_t slowest = 0;
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
        if (time_of_piece(piece) > longest) {
            longest = time_of_piece(piece);
            slowest = piece;
        }
    }
    const double mean = to_seconds(sums_.back()) / static_cast<double>(pieces_.size());
    const double above = mean > 0 ? to_seconds(longest) / mean - 1 : 0;
    return tr("Longest: stage %1 with %2, %3 above the mean")
        .arg(slowest)
        .arg(time_text(longest), text_of(short_percent(above)));
}

void PartitionEditor::describe() {
    QStringList lines;
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
        lines += tr("stage %1: %2 layers, %3")
                     .arg(piece)
                     .arg(pieces_[piece])
                     .arg(time_text(time_of_piece(piece)));
    }
    if (cut_count() > 0) {
        lines += tr("cut %1 is selected").arg(cut_ + 1);
    }
    setAccessibleDescription(lines.join(QStringLiteral("; ")));
    QAccessibleEvent changed(this, QAccessible::DescriptionChanged);
    QAccessible::updateAccessibility(&changed);
}

void PartitionEditor::select(int cut) {
    if (cut_count() > 0) {
        cut_ = std::clamp(cut, 0, cut_count() - 1);
        describe();
        update();
    }
}

/// No piece may be empty.
void PartitionEditor::move_to(int cut, int layer, bool dragging) {
    const int first = cut == 0 ? 0 : layer_before_cut(cut - 1);
    const std::size_t piece = as_index(cut);
    const int last = layer_before_cut(cut) + pieces_[piece + 1];
    const int target = std::clamp(layer, first + 1, last - 1);
    if (target == layer_before_cut(cut)) {
        return;
    }
    pieces_[piece] = target - first;
    pieces_[piece + 1] = last - target;
    describe();
    update();
    emit cuts_moved(pieces_, dragging);
}

void PartitionEditor::mousePressEvent(QMouseEvent* event) {
    const int cut = cut_at(static_cast<int>(event->position().x()));
    if (event->button() == Qt::LeftButton && cut >= 0) {
        select(cut);
        dragging_ = true;
        emit drag_begun();
    }
}

void PartitionEditor::mouseMoveEvent(QMouseEvent* event) {
    const int x = static_cast<int>(event->position().x());
    if (!dragging_) {
        setCursor(cut_at(x) >= 0 ? Qt::SplitHCursor : Qt::ArrowCursor);
        return;
    }
    int nearest = 0;
    for (int layer = 0; layer <= static_cast<int>(layers_.size()); ++layer) {
        if (std::abs(x_of_layer(layer) - x) < std::abs(x_of_layer(nearest) - x)) {
            nearest = layer;
        }
    }
    move_to(cut_, nearest, true);
}

void PartitionEditor::mouseReleaseEvent(QMouseEvent*) {
    dragging_ = false;
}

void PartitionEditor::keyPressEvent(QKeyEvent* event) {
    const int key = event->key();
    if (cut_count() == 0 || event->modifiers() != Qt::NoModifier) {
        QWidget::keyPressEvent(event);
    } else if (key == Qt::Key_Left || key == Qt::Key_Right) {
        move_to(cut_, layer_before_cut(cut_) + (key == Qt::Key_Left ? -1 : 1), false);
    } else if (key == Qt::Key_Up || key == Qt::Key_Down) {
        select(cut_ + (key == Qt::Key_Up ? -1 : 1));
    } else {
        QWidget::keyPressEvent(event);
    }
}

bool PartitionEditor::event(QEvent* event) {
    if (event->type() == QEvent::ToolTip && !pieces_.empty()) {
        const auto* const help = static_cast<QHelpEvent*>(event);  // NOLINT: Qt says so by type()
        int layer = 0;
        while (layer + 1 < static_cast<int>(layers_.size()) &&
               x_of_layer(layer + 1) <= help->pos().x()) {
            ++layer;
        }
        const LayerTime& under = layers_[as_index(layer)];
        std::size_t piece = 0;
        for (int behind = pieces_[0]; behind <= layer; behind += pieces_[piece]) {
            ++piece;
        }
        show_tip(help->globalPos(),
                 tr("%1: %2, in stage %3 (%4 layers, %5)")
                     .arg(QString::fromStdString(under.name), time_text(under.time))
                     .arg(piece)
                     .arg(pieces_[piece])
                     .arg(time_text(time_of_piece(piece))),
                 this);
        return true;
    }
    return QWidget::event(event);
}

Duration PartitionEditor::longest_piece() const {
    Duration longest{};
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
        longest = std::max(longest, time_of_piece(piece));
    }
    return longest;
}

QString PartitionEditor::unit() const {
    return unit_of(label_unit(longest_piece()));
}

std::vector<QString> PartitionEditor::time_labels() const {
    const Duration longest = longest_piece();
    const auto unit = static_cast<double>(label_unit(longest).count());
    const double highest = static_cast<double>(longest.count()) / unit;
    const int most_decimals = highest >= 100 ? 0 : highest >= 10 ? 1 : 2;
    std::vector<QString> best;
    std::ptrdiff_t most_fit = -1;
    for (int decimals = most_decimals; decimals >= 0; --decimals) {
        std::vector<QString> labels;
        int layer = 0;
        for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
            const double time = static_cast<double>(time_of_piece(piece).count()) / unit;
            const QString label = QString::number(time, 'f', decimals);
            const int left = x_of_layer(layer);
            layer += pieces_[piece];
            const int room = x_of_layer(layer) - left - 4;
            labels.push_back(fontMetrics().horizontalAdvance(label) <= room ? label : QString());
        }
        const auto fit = std::ranges::count_if(labels, &QString::size);
        if (fit > most_fit) {
            most_fit = fit;
            best = std::move(labels);
        }
    }
    return best;
}

void PartitionEditor::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.fillRect(rect(), palette_.window);
    if (pieces_.empty()) {
        return;
    }
    const int text_height = fontMetrics().height();
    const QRect bar(0, 3, width(), height() - text_height - 6);
    const std::vector<QString> times = time_labels();
    int layer = 0;
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
        const int begin = x_of_layer(layer);
        const QColor fill =
            mixed(palette_.background, palette_.faster, piece % 2 == 0 ? 0.35 : 0.18);
        const int end = x_of_layer(layer + pieces_[piece]);
        const QRect place(begin, bar.top(), end - begin, bar.height());
        painter.fillRect(place, fill);
        painter.setPen(palette_.grid);
        for (int inner = layer + 1; inner < layer + pieces_[piece]; ++inner) {
            painter.drawLine(x_of_layer(inner), bar.top() + 4, x_of_layer(inner), bar.bottom() - 4);
        }
        painter.setPen(palette_.text);
        const QString number = QString::number(piece);
        if (painter.fontMetrics().horizontalAdvance(number) + 4 <= place.width()) {
            painter.drawText(place, Qt::AlignCenter, number);
        }
        painter.setPen(palette_.faint_text);
        painter.drawText(QRect(begin, bar.bottom() + 3, place.width(), text_height),
                         Qt::AlignCenter,
                         times[piece]);
        layer += pieces_[piece];
    }
    for (int cut = 0; cut < cut_count(); ++cut) {
        const bool chosen = cut == cut_ && hasFocus();
        painter.setPen(QPen(chosen ? palette_.critical : palette_.text, chosen ? 3 : 2));
        painter.drawLine(place_of_cut(cut), bar.top() - 2, place_of_cut(cut), bar.bottom() + 2);
    }
    if (hasFocus()) {
        painter.setPen(QPen(palette_.selection, 1, Qt::DotLine));
        painter.drawRect(rect().adjusted(0, 0, -1, -1));
    }
}

}  // namespace pipetwin::gui
