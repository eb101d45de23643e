// SPDX-License-Identifier: Apache-2.0
#include "gui/start/task_button.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include <QPainter>
#include <QStyleOptionButton>
#include <QStylePainter>

#include "gui/base/thumbnail.h"
#include "gui/view/playground/playground.h"

namespace pipetwin::gui {

namespace {

constexpr int padding = 12;
constexpr int picture_height = 92;
constexpr int least_width = 200;
constexpr int line_gap = 4;

/// A step of the playground, simulated once.
std::shared_ptr<const RunData> step_of(const PlaygroundSettings& settings) {
    return play(settings).run;
}

}  // namespace

TaskButton::TaskButton(const QString& name, const QString& about, Picture picture, QWidget* parent)
    : QPushButton(name, parent), about_(about), picture_(std::move(picture)) {
    setObjectName(QStringLiteral("Begin"));  // its colours: those of the start page
    setAccessibleName(name);
    setAccessibleDescription(about);
    setCursor(Qt::PointingHandCursor);
    QSizePolicy policy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    policy.setHeightForWidth(false);
    setSizePolicy(policy);
}

void TaskButton::set_colors(const Palette& palette) {
    palette_ = palette;
    update();
}

QFont TaskButton::name_font() const {
    QFont bold = font();
    bold.setBold(true);
    bold.setPointSizeF(bold.pointSizeF() * 1.1);
    return bold;
}

int TaskButton::lines_height(int width) const {
    const QRect about = fontMetrics().boundingRect(
        QRect(0, 0, std::max(1, width - 2 * padding), 1000), Qt::TextWordWrap, about_);
    return QFontMetrics(name_font()).lineSpacing() + line_gap + about.height();
}

QSize TaskButton::sizeHint() const {
    constexpr int usual_width = 300;
    return {
        usual_width,
        picture_height + 3 * padding + lines_height(width() > least_width ? width() : usual_width)};
}

QSize TaskButton::minimumSizeHint() const {
    return {least_width, sizeHint().height()};
}

void TaskButton::paintEvent(QPaintEvent* /*event*/) {
    QStylePainter painter(this);
    QStyleOptionButton option;
    initStyleOption(&option);
    option.text.clear();
    painter.drawControl(QStyle::CE_PushButton, option);
    const QRect inside = rect().adjusted(padding, padding, -padding, -padding);
    picture_(painter, QRect(inside.topLeft(), QSize(inside.width(), picture_height)), palette_);
    painter.setPen(palette().color(QPalette::ButtonText));
    const QRect lines = inside.adjusted(0, picture_height + padding, 0, 0);
    painter.drawText(lines.adjusted(0, QFontMetrics(name_font()).lineSpacing() + line_gap, 0, 0),
                     Qt::TextWordWrap | Qt::AlignTop,
                     about_);
    painter.setFont(name_font());
    painter.drawText(lines, Qt::AlignLeft | Qt::AlignTop, text());
}

void paint_plans(QPainter& painter, const QRect& area, const Palette& palette) {
    struct Plan {
        double speed = 0;
        double memory = 0;
    };
    constexpr std::array<Plan, 9> front_first{{{.speed = 0.94, .memory = 0.86},
                                               {.speed = 0.86, .memory = 0.55},
                                               {.speed = 0.66, .memory = 0.33},
                                               {.speed = 0.34, .memory = 0.2},
                                               {.speed = 0.72, .memory = 0.82},
                                               {.speed = 0.55, .memory = 0.64},
                                               {.speed = 0.4, .memory = 0.78},
                                               {.speed = 0.26, .memory = 0.5},
                                               {.speed = 0.14, .memory = 0.7}}};
    constexpr std::size_t of_front = 4;
    painter.fillRect(area, palette.background);
    painter.save();
    painter.setRenderHint(QPainter::Antialiasing);
    const auto place = [&area](const Plan& plan) {
        return QPointF(area.left() + plan.speed * area.width(),
                       area.bottom() - plan.memory * area.height());
    };
    std::vector<QPointF> front;
    for (std::size_t i = 0; i < of_front; ++i) {
        front.push_back(place(front_first.at(i)));
    }
    const QColor first = palette.style(Op::Forward).fill;
    const QColor other = palette.style(Op::BackwardWeight).fill;
    painter.setPen(QPen(palette.faint_text, 1.5));
    painter.drawPolyline(front.data(), static_cast<int>(front.size()));
    painter.setPen(QPen(palette.text, 1));
    for (std::size_t i = 0; i < front_first.size(); ++i) {
        painter.setBrush(i < of_front ? first : other);
        const double radius = i == 0 ? 7 : 5;
        painter.drawEllipse(place(front_first.at(i)), radius, radius);
    }
    painter.restore();
}

void paint_schedules(QPainter& painter, const QRect& area, const Palette& palette) {
    static const std::vector<std::shared_ptr<const RunData>> steps = [] {
        std::vector<std::shared_ptr<const RunData>> all;
        for (const std::string_view name : compared_schedules) {
            all.push_back(step_of(with_schedule({.factors = {}}, std::string(name))));
        }
        return all;
    }();
    Duration longest{1};
    for (const auto& step : steps) {
        longest = std::max(longest, step->twin.length(0));
    }
    constexpr int gap = 8;
    const int count = static_cast<int>(steps.size());
    const int height = (area.height() - (count - 1) * gap) / count;
    for (int i = 0; i < count; ++i) {
        const RunData& run = *steps[static_cast<std::size_t>(i)];
        const double share = to_seconds(run.twin.length(0)) / to_seconds(longest);
        const QRect rows(area.left(),
                         area.top() + i * (height + gap),
                         static_cast<int>(share * area.width()),
                         height);
        paint_rows(painter, rows, run, palette);
    }
}

void paint_run(QPainter& painter, const QRect& area, const Palette& palette) {
    static const std::shared_ptr<const RunData> step =
        step_of(fitted({.micro_batches = 6, .factors = {1, 1, 1.6, 1}}));
    paint_rows(painter, area, *step, palette);
}

}  // namespace pipetwin::gui
