// SPDX-License-Identifier: Apache-2.0
#include "gui/run/run_list.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <QEvent>
#include <QFile>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QPushButton>
#include <QTableView>
#include <QVBoxLayout>

#include "core/base/as_index.h"
#include "core/base/short_number.h"
#include "gui/base/plain_text.h"
#include "gui/view/analysis/action_details.h"

namespace pipetwin::gui {

namespace {

const QString no_difference = QStringLiteral("\u2013");  ///< where models differ
constexpr int letters_of_name = 20;  ///< that a run's name has room for at least

QString qt(const std::string& text) {
    return QString::fromStdString(text);
}

QString duration_text(const std::optional<Duration>& duration) {
    return duration ? qt(short_time(*duration)) : QString();
}

QString share_text(const std::optional<double>& share) {
    return share ? qt(short_percent(*share)) : QString();
}

/// The step time by which runs are compared: the measured one, or the predicted one where none was
/// measured.
std::optional<Duration> step_of(const RunHeadline& run) {
    return run.measured_step ? run.measured_step : run.predicted_step;
}

}  // namespace

QString name_of(const std::vector<std::filesystem::path>& paths) {
    QStringList names;
    for (const std::filesystem::path& path : paths) {
        const std::filesystem::path last =
            path.has_filename() ? path.filename() : path.parent_path().filename();
        names += QFile::decodeName(QByteArray::fromStdString(last.string()));
    }
    return names.join(QStringLiteral(" + "));
}

QString name_of_shown(const RunData& run) {
    return run.title.empty() ? name_of(paths_of(run)) : qt(run.title);
}

QString whole_paths(const std::vector<std::filesystem::path>& paths) {
    QStringList lines;
    for (const std::filesystem::path& path : paths) {
        lines += QFile::decodeName(QByteArray::fromStdString(path.string()));
    }
    return lines.join('\n');
}

RunHeadline headline_of(const RunData& run) {
    RunHeadline headline{.paths = paths_of(run), .title = run.title, .plan = plan_line(run)};
    headline.planned = run.planned;
    if (run.predicted) {
        headline.predicted_step = run.predicted->step;
        headline.predicted_bubble = bubble_of(run, Side::Predicted);
    }
    if (run.measured) {
        headline.measured_step = run.measured->step;
        headline.is_emulated = run.measured->origin == Origin::Emulated;
        headline.measured_bubble = bubble_of(run, Side::Measured);
    }
    headline.says_nothing = says_nothing(run);
    headline.throughput = throughput_of(run, run.measured ? Side::Measured : Side::Predicted);
    headline.peak = peak_of(run);
    return headline;
}

std::vector<std::filesystem::path> paths_of(const RunData& run) {
    std::vector<std::filesystem::path> paths = run.over;
    paths.insert(paths.begin(), run.path);
    return paths;
}

int RunListModel::row_of(const RunData& run) const {
    const auto same = std::ranges::find_if(runs_, [&run](const RunHeadline& one) {
        return one.paths == paths_of(run) && one.title == run.title;
    });
    return same == runs_.end() ? -1 : static_cast<int>(same - runs_.begin());
}

void RunListModel::add(const RunData& run) {
    if (const int row = row_of(run); row >= 0) {
        runs_[as_index(row)] = headline_of(run);
        emit dataChanged(index(0, 0), index(rowCount() - 1, column_count - 1));
        return;
    }
    beginInsertRows({}, rowCount(), rowCount());
    runs_.push_back(headline_of(run));
    endInsertRows();
}

void RunListModel::remove(int row) {
    if (row < 0 || row >= rowCount()) {
        return;
    }
    beginRemoveRows({}, row, row);
    runs_.erase(runs_.begin() + row);
    baseline_ = row < baseline_ ? baseline_ - 1 : row == baseline_ ? 0 : baseline_;
    endRemoveRows();
    if (rowCount() > 0) {
        emit dataChanged(index(0, 0), index(rowCount() - 1, column_count - 1));
    }
}

void RunListModel::set_baseline(int row) {
    if (row >= 0 && row < rowCount()) {
        baseline_ = row;
        emit dataChanged(index(0, 0), index(rowCount() - 1, column_count - 1));
    }
}

int RunListModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(runs_.size());
}

int RunListModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : column_count;
}

bool RunListModel::has_model_of_baseline(const RunHeadline& run) const {
    return have_same_model(run.planned.get(), runs_[as_index(baseline_)].planned.get());
}

/// Text of the difference from the baseline's step time; below 0 is faster. Steps of another model
/// do other work.
QString RunListModel::step_difference(const RunHeadline& run) const {
    const RunHeadline& base = runs_[as_index(baseline_)];
    if (&run == &base) {
        return tr("baseline");
    }
    if (!has_model_of_baseline(run)) {
        return no_difference;
    }
    const auto here = step_of(run);
    const auto there = step_of(base);
    if (!here || !there || *there <= Duration{0}) {
        return {};
    }
    return qt(percent_text(100 * (to_seconds(*here) / to_seconds(*there) - 1)));
}

/// Text of the difference from the baseline's throughput, where both count the same: that compares
/// runs of different mini-batches, too.
QString RunListModel::throughput_difference(const RunHeadline& run) const {
    const RunHeadline& base = runs_[as_index(baseline_)];
    if (&run == &base) {
        return tr("baseline");
    }
    if (!has_model_of_baseline(run)) {
        return no_difference;
    }
    const bool same = run.throughput && base.throughput &&
                      run.throughput->counts_samples == base.throughput->counts_samples;
    return same && base.throughput->per_second > 0
               ? qt(percent_text(100 *
                                 (run.throughput->per_second / base.throughput->per_second - 1)))
               : QString();
}

QString RunListModel::text(const RunHeadline& run, int column) const {
    switch (column) {
        case Name:
            return run.title.empty() ? name_of(run.paths) : qt(run.title);
        case Plan:
            return qt(run.plan);
        case PredictedStep:
            return duration_text(run.predicted_step);
        case MeasuredStep:
            return duration_text(run.measured_step) +
                   (run.is_emulated ? tr(" (emulated)") : QString());
        case Error:
            return run.predicted_step && run.measured_step
                       ? qt(percent_text(
                             Pair{*run.predicted_step, *run.measured_step}.error_percent())) +
                             (run.says_nothing.empty() ? QString() : tr(" (unreliable)"))
                       : QString();
        case MeasuredBubble:
            return share_text(run.measured_bubble ? run.measured_bubble : run.predicted_bubble);
        case Peak:
            return run.peak ? qt(format_bytes(*run.peak)) : QString();
        case PerSecond:
            return run.throughput ? qt(short_number(run.throughput->per_second) + " " +
                                       std::string(run.throughput->unit()))
                                  : QString();
        case ToBaseline:
            return step_difference(run);
        default:
            return throughput_difference(run);
    }
}

QString RunListModel::tip(const RunHeadline& run, int column) const {
    if (column == Error && !run.says_nothing.empty()) {
        return qt(run.says_nothing);
    }
    const bool is_difference = column == ToBaseline || column == PerSecondToBaseline;
    return is_difference && !has_model_of_baseline(run) ? tr("Another model than the baseline's")
                                                        : whole_paths(run.paths);
}

QVariant RunListModel::alignment(int column) {
    return QVariant::fromValue(Qt::AlignVCenter |
                               (column <= Plan ? Qt::AlignLeft : Qt::AlignRight));
}

QVariant RunListModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid() || index.row() >= rowCount()) {
        return {};
    }
    const RunHeadline& run = runs_[as_index(index.row())];
    switch (role) {
        case Qt::DisplayRole:
            return text(run, index.column());
        case Qt::ToolTipRole:
            return plain_tip(tip(run, index.column()));
        case Qt::TextAlignmentRole:
            return alignment(index.column());
        default:
            return {};
    }
}

QVariant RunListModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation != Qt::Horizontal || section < 0 || section >= column_count) {
        return {};
    }
    if (role == Qt::TextAlignmentRole) {
        return alignment(section);
    }
    const std::array<QString, column_count> names{tr("Run"),
                                                  tr("Plan"),
                                                  tr("Predicted step"),
                                                  tr("Measured step"),
                                                  tr("Error"),
                                                  tr("Bubble"),
                                                  tr("Peak memory"),
                                                  tr("Throughput"),
                                                  tr("Step vs baseline"),
                                                  tr("Throughput vs baseline")};
    return heading_data(names[as_index(section)], role);
}

CompareRunsPanel::CompareRunsPanel(QWidget* parent)
    : QWidget(parent), model_(new RunListModel(this)), table_(new QTableView(this)) {
    table_->setModel(model_);
    table_->setAccessibleName(tr("Runs"));
    table_->setSelectionBehavior(QAbstractItemView::SelectRows);
    table_->setSelectionMode(QAbstractItemView::SingleSelection);
    table_->setShowGrid(false);
    table_->setFrameShape(QFrame::NoFrame);
    table_->verticalHeader()->hide();
    table_->verticalHeader()->setDefaultSectionSize(fontMetrics().height() + 4);
    table_->horizontalHeader()->setSectionResizeMode(QHeaderView::ResizeToContents);
    table_->horizontalHeader()->setSectionResizeMode(0, QHeaderView::Fixed);  // by fit_names
    table_->setHorizontalScrollMode(QAbstractItemView::ScrollPerPixel);
    table_->viewport()->installEventFilter(this);
    connect(table_->horizontalHeader(), &QHeaderView::sectionResized, this, [this](int column) {
        if (column != RunListModel::Name) {
            fit_names();
        }
    });
    table_->setTextElideMode(Qt::ElideMiddle);
    table_->setWordWrap(false);
    table_->horizontalHeader()->setHighlightSections(false);
    connect(table_, &QTableView::activated, this, [this] { open_current(); });
    for (const auto changed :
         {&QAbstractItemModel::rowsInserted, &QAbstractItemModel::rowsRemoved}) {
        connect(model_, changed, this, [this] {
            hide_empty_columns();
            enable_buttons();
        });
    }
    connect(model_, &QAbstractItemModel::dataChanged, this, [this] { hide_empty_columns(); });
    connect(table_->selectionModel(),
            &QItemSelectionModel::currentRowChanged,
            this,
            &CompareRunsPanel::enable_buttons);
    auto* const buttons = new QVBoxLayout;
    const auto add = [&](const QString& text, auto act) {
        auto* const button = new QPushButton(text, this);
        connect(button, &QPushButton::clicked, this, act);
        buttons->addWidget(button);
        buttons_.push_back(button);
    };
    add(tr("Make baseline"), [this] {
        if (const RunHeadline* const run = current()) {
            emit baseline_wanted(*run);
        }
    });
    add(tr("Open"), [this] { open_current(); });
    add(tr("Remove"), [this] {
        if (const RunHeadline* const run = current()) {
            emit remove_wanted(*run);
        }
    });
    buttons->addStretch(1);
    auto* const across = new QHBoxLayout(this);
    across->addWidget(table_, 1);
    across->addLayout(buttons);
    enable_buttons();
}

/// What is done with the current run cannot be done without one.
void CompareRunsPanel::enable_buttons() {
    for (QPushButton* const button : buttons_) {
        button->setEnabled(table_->currentIndex().isValid());
        set_tip(*button, button->isEnabled() ? QString() : tr("Click a run of the list first"));
    }
}

bool CompareRunsPanel::eventFilter(QObject* watched, QEvent* event) {
    if (event->type() == QEvent::Resize) {
        fit_names();
    }
    return QWidget::eventFilter(watched, event);
}

/// The names have what room is left, but no less than they need to be told apart: then the list is
/// scrolled.
void CompareRunsPanel::fit_names() {
    QHeaderView* const header = table_->horizontalHeader();
    const int others = header->length() - header->sectionSize(RunListModel::Name);
    const int whole =
        static_cast<QAbstractItemView*>(table_)->sizeHintForColumn(RunListModel::Name);
    const int least = std::min(whole, fontMetrics().averageCharWidth() * letters_of_name);
    header->resizeSection(RunListModel::Name,
                          std::max({least,
                                    header->sectionSizeHint(RunListModel::Name),
                                    table_->viewport()->width() - others}));
}

/// What no run has, or none but the baseline, would take the room of the names.
void CompareRunsPanel::hide_empty_columns() {
    for (const int column : {RunListModel::MeasuredStep, RunListModel::Error, RunListModel::Peak}) {
        bool is_empty = true;
        for (int row = 0; row < model_->rowCount(); ++row) {
            is_empty = is_empty && model_->index(row, column).data().toString().isEmpty();
        }
        table_->setColumnHidden(column, is_empty);
    }
    for (const int column : {RunListModel::ToBaseline, RunListModel::PerSecondToBaseline}) {
        table_->setColumnHidden(column, model_->rowCount() < 2);
    }
    fit_names();
}

void CompareRunsPanel::add(const RunData& run) {
    model_->add(run);
}

void CompareRunsPanel::remove(const RunData& run) {
    model_->remove(model_->row_of(run));
}

void CompareRunsPanel::make_baseline(const RunData& run) {
    model_->set_baseline(model_->row_of(run));
}

/// The run of the current row; null without one.
const RunHeadline* CompareRunsPanel::current() const {
    const int row = table_->currentIndex().row();
    return row >= 0 && row < model_->rowCount() ? &model_->runs()[as_index(row)] : nullptr;
}

void CompareRunsPanel::open_current() {
    if (const RunHeadline* const run = current()) {
        emit open_wanted(*run);
    }
}

}  // namespace pipetwin::gui
