// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/legend.h"

#include <algorithm>
#include <array>
#include <functional>

#include <QPainter>

#include "gui/base/plain_text.h"
#include "gui/timeline/row_painter.h"
#include "gui/view/timeline/skip_arcs.h"

namespace pipetwin::gui {

namespace {

constexpr int swatch_gap = 6;

QString words(Op op) {
    const std::string_view text = is_send(op) ? "message" : op_words(op);
    return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
}

/// The entry under which the legend explains an op: all messages share one.
Op entry_of(Op op) {
    return is_message(op) ? Op::SendForward : op;
}

void for_each_span(const RunData& run, const std::function<void(const Span&)>& visit) {
    for (const Side side : {Side::Predicted, Side::Measured}) {
        if (const StepRows* const step = run.twin.step(side, run.main_step())) {
            for (const RowIndex& row : step->ranks) {
                for (int cell = 0; cell < row.size(); ++cell) {
                    visit(row[cell]);
                }
            }
        }
    }
}

/// Up is faster than predicted, as in the strip between the rows.
void paint_error_sample(QPainter& painter, const QRect& rect, const Palette& palette) {
    const int half = rect.height() / 2;
    const int bar = rect.width() / 2;
    painter.fillRect(rect.x(), rect.y() + 1, bar, half - 1, palette.faster);
    painter.fillRect(rect.x() + bar, rect.y() + half, bar, half - 1, palette.slower);
}

/// An output goes down, its gradient comes back up, dashed as over the rows.
void paint_skip_sample(QPainter& painter, const QRect& rect, const Palette& palette) {
    const int middle = rect.center().x();
    painter.setPen(QPen(palette.skip, 2));
    painter.drawLine(rect.left() + 2, rect.top() + 1, middle - 1, rect.bottom() - 1);
    painter.setPen(QPen(palette.skip_gradient, 2, Qt::DashLine));
    painter.drawLine(middle + 2, rect.bottom() - 1, rect.right() - 2, rect.top() + 1);
}

}  // namespace

/// Without their names the letters are left, and the tip.
struct Legend::Density {
    int swatch = 0;
    int between = 0;
    bool whole_sentence = true;
    bool names = true;

    /// The roomiest first.
    static const std::array<Density, 4>& all() {
        static constexpr std::array<Density, 4> densities{
            {{.swatch = 34, .between = 18},
             {.swatch = 34, .between = 12, .whole_sentence = false},
             {.swatch = 26, .between = 8, .whole_sentence = false},
             {.swatch = 34, .between = 6, .whole_sentence = false, .names = false}}};
        return densities;
    }
};

Legend::Legend(QWidget* parent) : QWidget(parent), palette_(palette_of(Theme::Light)) {
    setAccessibleName(tr("Legend"));
    setSizePolicy(QSizePolicy::Maximum, QSizePolicy::Fixed);
}

void Legend::set_colors(const Palette& palette) {
    palette_ = palette;
    update();
}

void Legend::show_run(const RunData& run) {
    show_runs({&run});
    has_errors_ = run.predicted && run.measured;
    updateGeometry();
}

void Legend::show_runs(const std::vector<const RunData*>& runs) {
    std::vector<Op> seen;
    has_errors_ = false;
    has_skips_ = false;
    for (const RunData* const run : runs) {
        for_each_span(*run, [&](const Span& span) {
            if (span.end > span.ready) {
                seen.push_back(entry_of(span.action.op));
            }
        });
        has_skips_ = has_skips_ || has_skip_messages(run->twin);
    }
    ops_ = legend_ops();
    std::erase_if(ops_,
                  [&](Op op) { return std::find(seen.begin(), seen.end(), op) == seen.end(); });
    QStringList meanings;
    for (const Op op : ops_) {
        meanings += QStringLiteral("%1: %2").arg(palette_.style(op).letter, words(op));
    }
    if (has_skips_) {
        meanings +=
            tr("curve: skip message between stages that are not neighbours; dashed: its gradient");
    }
    set_tip(*this, meanings.join('\n'));
    setAccessibleDescription(meanings.join(QStringLiteral("; ")));
    updateGeometry();
    update();
}

QSize Legend::sizeHint() const {
    return {layout_entries(nullptr, Density::all().front()), QFontMetrics(font()).height() + 8};
}

QSize Legend::minimumSizeHint() const {
    return {0, sizeHint().height()};
}

/// The roomiest that fits.
void Legend::paintEvent(QPaintEvent* /*event*/) {
    QPainter painter(this);
    const std::array<Density, 4>& all = Density::all();
    const auto fits = std::ranges::find_if(all, [this](const Density& density) {
        return layout_entries(nullptr, density) <= width();
    });
    layout_entries(&painter, fits == all.end() ? all.back() : *fits);
}

int Legend::layout_entries(QPainter* painter, const Density& density) const {
    const QFontMetrics metrics(font());
    // A large font needs larger samples for their letters.
    int swatch_width = density.swatch;
    for (const Op op : ops_) {
        const int letter = metrics.horizontalAdvance(palette_.style(op).letter);
        swatch_width = std::max(swatch_width, letter + 4);
    }
    int x = 0;
    const auto add = [&](const QString& text, const std::function<void(const QRect&)>& swatch) {
        const int text_x = x + swatch_width + swatch_gap;
        const int text_width = metrics.horizontalAdvance(text) + 1;
        if (painter != nullptr) {
            swatch(QRect(x, (height() - metrics.height()) / 2, swatch_width, metrics.height()));
            painter->setPen(palette_.text);
            painter->drawText(QRect(text_x, 0, text_width, height()), Qt::AlignVCenter, text);
        }
        x = text_x + text_width + density.between;
    };
    for (const Op op : ops_) {
        add(density.names ? words(op) : QString(), [&](const QRect& rect) {
            const OpStyle style = palette_.style(op);
            paint_sample(*painter, rect, style);
            QRect plain(0, 0, metrics.horizontalAdvance(style.letter) + 4, rect.height());
            plain.moveCenter(rect.center());
            painter->fillRect(plain & rect,
                              style.fill);  // no line of the hatching crosses the letter
            painter->setPen(style.text);
            painter->drawText(rect, Qt::AlignCenter, style.letter);
        });
    }
    if (ops_.empty()) {
        return 0;  // there is no run
    }
    if (has_skips_) {
        add(tr("skip message"),
            [&](const QRect& rect) { paint_skip_sample(*painter, rect, palette_); });
    }
    add(tr("idle"), [&](const QRect& rect) { paint_idle(*painter, rect, palette_); });
    if (has_errors_) {
        add(density.whole_sentence ? tr("faster / slower than predicted") : tr("faster / slower"),
            [&](const QRect& rect) { paint_error_sample(*painter, rect, palette_); });
    }
    return std::max(0, x - density.between);
}

}  // namespace pipetwin::gui
