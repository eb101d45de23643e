// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/error_panel.h"

#include <algorithm>
#include <utility>

#include <QLabel>
#include <QPainter>
#include <QSplitter>
#include <QTreeView>
#include <QVBoxLayout>
#include <QtConcurrentRun>

#include "core/base/as_index.h"
#include "core/base/short_number.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/base/sentence.h"
#include "gui/base/workers.h"
#include "gui/view/analysis/action_details.h"

namespace pipetwin::gui {

namespace {

constexpr int least_bars_height = 60;

QString words_of(Op op) {
    return text_of(std::string(op_words(op)));
}

QString unsigned_percent(double percent) {
    return text_of(short_percent(percent / 100));
}

/// "1,270", as the list of actions counts.
QString counted(std::int64_t count) {
    return QStringLiteral("%L1").arg(count);
}

const QString zero_label = QStringLiteral("  0  ");  ///< below the middle of a histogram

/// "50 %", where the bins of a histogram end.
QString end_text(const ErrorHistogram& histogram) {
    const auto bins = static_cast<double>(histogram.counts.size());
    return QString::number(histogram.bin_percent * bins / 2) + QStringLiteral(" %");
}

QString signed_time(Duration time) {
    return (time > Duration{} ? QStringLiteral("+") : QString()) + text_of(short_time(time));
}

QString cost_text(const CostError& cost, int column) {
    switch (column) {
        case 0:
            return words_of(cost.op);
        case 1:
            return QString::number(cost.stage);
        case 2:
            return text_of(short_time(cost.predicted));
        case 3:
            return text_of(short_time(cost.measured));
        case 4:
            return text_of(percent_text(cost.error_percent));
        case 5:
            return unsigned_percent(cost.p95_percent);
        case 6:
            return unsigned_percent(cost.mape);
        case 7:
            return signed_time(cost.per_step);
        default:
            return counted(cost.count);
    }
}

QString worst_text(const RunData& run, const ActionError& error, int column) {
    switch (column) {
        case 0:
            return text_of(to_string(error.action));
        case 1:
            return QString::number(error.ref.rank);
        case 2:
            return QString::number(run.step_number(error.ref.step));
        case 3:
            return signed_time(error.duration.predicted - error.duration.measured);
        default:
            return text_of(percent_text(error.duration.error_percent()));
    }
}

}  // namespace

HistogramView::HistogramView(QWidget* parent)
    : QWidget(parent), palette_(palette_of(Theme::Light)) {
    setAccessibleName(tr("Distribution of errors"));
}

void HistogramView::show_errors(const QString& title, const ErrorHistogram& histogram) {
    title_ = title;
    histogram_ = histogram;
    std::int64_t faster = 0;
    std::int64_t slower = 0;
    const std::size_t middle = histogram.counts.size() / 2;
    for (std::size_t bin = 0; bin < histogram.counts.size(); ++bin) {
        (bin < middle ? slower : faster) += histogram.counts[bin];
    }
    QString text = tr("%1: %2 actions no slower than predicted, %3 slower")
                       .arg(title, counted(faster), counted(slower));
    if (histogram.outside > 0) {
        text += tr("; the last bin contains the errors of +%1 and more: %2")
                    .arg(end_text(histogram), counted(histogram.outside));
    }
    setAccessibleDescription(text);
    set_tip(*this, histogram.outside > 0 ? text : QString());
    update();
}

void HistogramView::set_colors(const Palette& palette) {
    palette_ = palette;
    update();
}

QSize HistogramView::sizeHint() const {
    return {280, least_bars_height + 3 * fontMetrics().height()};
}

QSize HistogramView::minimumSizeHint() const {
    const int axis = 2 * fontMetrics().horizontalAdvance(QStringLiteral("\u2265 +100 %")) +
                     fontMetrics().horizontalAdvance(zero_label);
    return {std::max(150, axis + 2 * panel_margin), least_bars_height + 2 * fontMetrics().height()};
}

void HistogramView::paintEvent(QPaintEvent* /*event*/) {
    QPainter painter(this);
    painter.fillRect(rect(), palette_.background);
    if (histogram_.counts.empty()) {
        return;
    }
    const int line = fontMetrics().height();
    const QRect area = rect().adjusted(panel_margin, line + 6, -panel_margin, -line - 4);
    const auto bins = static_cast<int>(histogram_.counts.size());
    const std::int64_t most = std::max<std::int64_t>(1, std::ranges::max(histogram_.counts));
    const auto x_of = [&](int bin) { return area.left() + area.width() * bin / bins; };
    for (int bin = 0; bin < bins; ++bin) {
        const std::int64_t count = histogram_.counts[as_index(bin)];
        // A bin with anything in it can be seen.
        const int height =
            count == 0 ? 0 : std::max(2, static_cast<int>(area.height() * count / most));
        const QRect bar(
            x_of(bin), area.bottom() - height + 1, x_of(bin + 1) - x_of(bin) - 1, height);
        painter.fillRect(bar, bin < bins / 2 ? palette_.slower : palette_.faster);
    }
    painter.setPen(palette_.grid);
    painter.drawLine(area.left(), area.bottom() + 1, area.right(), area.bottom() + 1);
    painter.setPen(palette_.text);
    painter.drawLine(x_of(bins / 2), area.top(), x_of(bins / 2), area.bottom() + 1);
    painter.drawText(
        rect().adjusted(panel_margin, 3, -panel_margin, 0), Qt::AlignTop | Qt::AlignLeft, title_);
    painter.setPen(palette_.faint_text);
    const QString highest = tr("tallest bar: %1 actions").arg(counted(most));
    if (fontMetrics().horizontalAdvance(title_ + QLatin1String("  ") + highest) <= area.width()) {
        painter.drawText(rect().adjusted(panel_margin, 3, -panel_margin, 0),
                         Qt::AlignTop | Qt::AlignRight,
                         highest);
    }
    const auto [left, right] = end_labels();
    painter.drawText(axis(), Qt::AlignBottom | Qt::AlignLeft, left);
    painter.drawText(axis(), Qt::AlignBottom | Qt::AlignHCenter, zero_label);
    painter.drawText(axis(), Qt::AlignBottom | Qt::AlignRight, right);
}

QRect HistogramView::axis() const {
    return rect().adjusted(panel_margin, 0, -panel_margin, -2);
}

std::pair<QString, QString> HistogramView::end_labels() const {
    const QString end = end_text(histogram_);
    const QString least = '-' + end;
    const QString most =
        (histogram_.outside > 0 ? QStringLiteral("\u2265 +") : QStringLiteral("+")) + end;
    const QString left = tr("%1, slower").arg(least);
    const QString right = tr("faster, %1").arg(most);
    const int longest =
        std::max(fontMetrics().horizontalAdvance(left), fontMetrics().horizontalAdvance(right));
    const bool fit = 2 * longest + fontMetrics().horizontalAdvance(zero_label) <= axis().width();
    return fit ? std::pair(left, right) : std::pair(least, most);
}

ErrorPanel::ErrorPanel(Selection* selection, QWidget* parent)
    : QWidget(parent),
      selection_(selection),
      sentence_(plain_label(this)),
      splitter_(splitter_of_lists(this)),
      costs_(new TextTable(this)),
      costs_view_(table_view(costs_, tr("Errors by kind and stage"), this)),
      histogram_(new HistogramView(this)),
      worst_(new TextTable(this)),
      worst_view_(table_view(worst_, tr("Largest differences"), this)) {
    setAccessibleName(tr("Errors"));
    sentence_->setWordWrap(true);
    sentence_->setAlignment(Qt::AlignTop | Qt::AlignLeft);
    sentence_->setTextInteractionFlags(Qt::TextSelectableByMouse);
    sentence_->setContentsMargins(panel_margin, 0, panel_margin, 0);
    for (QWidget* const widget : {static_cast<QWidget*>(costs_view_),
                                  static_cast<QWidget*>(histogram_),
                                  static_cast<QWidget*>(worst_view_)}) {
        splitter_->addWidget(widget);
    }
    auto* const column = new QVBoxLayout(this);
    column->setContentsMargins(0, panel_margin, 0, 0);
    column->setSpacing(panel_margin / 2);
    column->addWidget(sentence_);
    column->addWidget(splitter_, 1);
    for (const auto& [view, model] :
         {std::pair{costs_view_, costs_}, std::pair{worst_view_, worst_}}) {
        connect(view, &QTreeView::activated, this, [this, model = model](const QModelIndex& index) {
            go(model->target(index.row()));
        });
    }
    connect(worst_view_, &QTreeView::clicked, this, [this](const QModelIndex& index) {
        go(worst_->target(index.row()));
    });
    connect(costs_view_->selectionModel(),
            &QItemSelectionModel::currentRowChanged,
            this,
            [this](const QModelIndex& current) { show_histogram(current.row()); });
    connect(&working_, &QFutureWatcher<Result>::finished, this, [this] {
        if (run_ != nullptr) {
            show_summary(working_.result());
        }
    });
    show_run(nullptr);
}

void ErrorPanel::show_run(std::shared_ptr<const RunData> run) {
    run_ = std::move(run);
    if (run_ == nullptr || run_->empty()) {
        run_.reset();
        show_summary(nullptr);
        return;
    }
    want();
}

void ErrorPanel::set_range(RangeFilterPointer range) {
    range_ = std::move(range);
    if (run_ != nullptr) {
        want();
    }
}

void ErrorPanel::want() {
    sentence_->setText(tr("Computing the errors ..."));
    working_.setFuture(QtConcurrent::run(workers(), [run = run_, range = range_] {
        return std::make_shared<const ErrorSummary>(error_summary(*run, range.get()));
    }));
}

void ErrorPanel::set_colors(const Palette& palette) {
    setPalette(widget_palette(palette));
    histogram_->set_colors(palette);
}

void ErrorPanel::show_summary(const Result& summary) {
    summary_ = summary;
    const QString text = summary == nullptr ? tr("No run is open.")
                         : range_ != nullptr && summary->costs.empty() && run_->comparison
                             ? tr("No action with an error lies in the selected range.")
                             : text_of(sentence_of(*summary));
    sentence_->setText(unbroken(text));
    sentence_->setAccessibleName(text);
    const bool any = summary != nullptr && !summary->costs.empty();
    const bool is_emulated = any && summary->measured != "measured";
    costs_->show(
        {.headers = {tr("Kind"),
                     tr("Stage"),
                     tr("Predicted"),
                     is_emulated ? tr("Emulated") : tr("Measured"),
                     tr("Error"),
                     tr("p95 |error|"),
                     tr("MAPE"),
                     tr("Per step"),
                     tr("Count")},
         .tips = {{},
                  {},
                  {},
                  {},
                  tr("Error of medians: that of the median predicted time, in percent of the other "
                     "median"),
                  tr("95 % of the errors are no further from 0"),
                  {},
                  tr("Difference per step: how much longer these actions should take than they "
                     "took, all together; the mean over the steps"),
                  tr("Number of actions in all steps")},
         .rows = any ? static_cast<int>(summary->costs.size()) : 0,
         .text = [summary](int row,
                           int column) { return cost_text(summary->costs[as_index(row)], column); },
         .target = [summary](int row) -> std::optional<SpanRef> {
             return summary->costs[as_index(row)].worst;
         }});
    worst_->show(
        {.headers =
             {tr("Largest differences"), tr("Rank"), tr("Step"), tr("Difference"), tr("Error")},
         .rows = any ? static_cast<int>(summary->worst.size()) : 0,
         .text =
             [summary, run = run_](int row, int column) {
                 return worst_text(*run, summary->worst[as_index(row)], column);
             },
         .target = [summary](int row) -> std::optional<SpanRef> {
             return summary->worst[as_index(row)].ref;
         }});
    share_room(splitter_,
               {fit_columns(costs_view_),
                histogram_->minimumSizeHint().width(),
                fit_columns(worst_view_)});
    splitter_->setVisible(any);
    show_histogram(-1);
    emit settled();
}

/// Shows the errors of a cost, or of all of them where no row is chosen.
void ErrorPanel::show_histogram(int row) {
    if (summary_ == nullptr || summary_->costs.empty()) {
        histogram_->show_errors({}, {});
    } else if (row < 0) {
        histogram_->show_errors(tr("all actions"), summary_->histogram);
    } else {
        const CostError& cost = summary_->costs[as_index(row)];
        histogram_->show_errors(
            tr("%1 of stage %2").arg(words_of(cost.op), QString::number(cost.stage)),
            cost.histogram);
    }
}

void ErrorPanel::go(const std::optional<SpanRef>& ref) {
    if (ref) {
        selection_->set_span(ref);
        emit go_to(*ref);
    }
}

}  // namespace pipetwin::gui
