// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/why_panel.h"

#include <algorithm>
#include <utility>

#include <QHeaderView>
#include <QLabel>
#include <QPushButton>
#include <QTreeView>
#include <QVBoxLayout>

#include "core/base/as_index.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/base/sentence.h"
#include "gui/base/text_table.h"
#include "gui/view/analysis/wait_words.h"

namespace pipetwin::gui {

namespace {

constexpr std::size_t most_rows = 500;

/// The piece that filled most of a wait.
std::string mostly(const StepAnalysis& analysis, const SpanRef& ref) {
    const WaitPiece* longest = nullptr;
    const std::vector<WaitPiece> pieces = analysis.pieces_of(ref);
    for (const WaitPiece& piece : pieces) {
        if (longest == nullptr || piece.end - piece.begin > longest->end - longest->begin) {
            longest = &piece;
        }
    }
    const Duration unexplained = analysis.split_of(ref)[WaitPart::Unexplained];
    if (longest == nullptr || unexplained > longest->end - longest->begin) {
        return std::string(words(WaitPart::Unexplained));
    }
    const std::string reason = how(analysis, *longest);
    return longest->on_rank() ? to_string(longest->action) + " on rank " +
                                    std::to_string(longest->ref.rank) + " (" + reason + ")"
                              : reason;
}

/// From each action of the chain to the next one on another rank.
std::vector<Arrow> arrows_along(const std::vector<SpanRef>& chain, const SpanRef& to) {
    std::vector<Arrow> arrows;
    for (std::size_t i = 0; i < chain.size(); ++i) {
        const SpanRef& next = i + 1 < chain.size() ? chain[i + 1] : to;
        if (chain[i].rank != next.rank) {
            arrows.push_back({.from = chain[i], .to = next});
        }
    }
    return arrows;
}

/// The actions that filled the wait, or the one before where there was none, the earliest first.
std::vector<SpanRef> outlined(const StepAnalysis& analysis, const SpanRef& ref) {
    std::vector<SpanRef> chain;
    for (const WaitPiece& piece : analysis.pieces_of(ref)) {
        if (piece.on_rank() && (chain.empty() || chain.back() != piece.ref)) {
            chain.push_back(piece.ref);
        }
    }
    if (chain.empty()) {
        if (const auto blocker = analysis.blocker_of(ref)) {
            chain.push_back(*blocker);
        }
    }
    return chain;
}

}  // namespace

void WaitModel::clear() {
    beginResetModel();
    analysis_.reset();
    chain_.clear();
    longest_.clear();
    endResetModel();
}

void WaitModel::show_chain(const std::shared_ptr<const StepAnalysis>& analysis, const SpanRef& of) {
    beginResetModel();
    analysis_ = analysis;
    is_chain_ = true;
    longest_.clear();
    chain_ = analysis->chain_of(of);
    std::ranges::reverse(chain_);
    chain_.resize(std::min(chain_.size(), most_rows));
    in_wait_.clear();
    for (const WaitPiece& piece : analysis->pieces_of(of)) {
        in_wait_.insert(in_wait_.begin(), piece.end - piece.begin);
    }
    endResetModel();
}

namespace {

/// Whether the wait before an action, or after the last one of a rank, touches the range.
bool touches(const RangeFilter& range, const StepAnalysis& analysis, const IdleTime& idle) {
    const RowIndex* const row = analysis.run().twin.row(idle.ref);
    if (row == nullptr) {
        return false;
    }
    const Duration end =
        idle.ref.cell < row->size() ? row->ready(idle.ref.cell) : analysis.length();
    return range.touches(idle.ref, end - idle.wait, end);
}

}  // namespace

void WaitModel::show_longest(const std::shared_ptr<const StepAnalysis>& analysis,
                             int step,
                             const RangeFilter* range) {
    beginResetModel();
    analysis_ = analysis;
    is_chain_ = false;
    chain_.clear();
    longest_.clear();
    for (IdleTime idle : analysis->idle_times()) {
        idle.ref.step = step;
        if (longest_.size() == most_rows) {
            break;
        }
        if (range == nullptr || touches(*range, *analysis, idle)) {
            longest_.push_back(idle);
        }
    }
    endResetModel();
}

std::optional<SpanRef> WaitModel::target(int row) const {
    if (row < 0 || row >= rowCount()) {
        return std::nullopt;
    }
    const std::size_t place = as_index(row);
    SpanRef ref = is_chain_ ? chain_[place].ref : longest_[place].ref;
    const RowIndex* const spans = analysis_->run().twin.row(ref);
    if (spans != nullptr && ref.cell == spans->size()) {
        --ref.cell;
    }
    return spans == nullptr || ref.cell < 0 ? std::nullopt : std::optional(ref);
}

std::optional<SpanRef> WaitModel::end_of_step(int row) const {
    if (is_chain_ || row < 0 || row >= rowCount()) {
        return std::nullopt;
    }
    const SpanRef& ref = longest_[as_index(row)].ref;
    const RowIndex* const spans = analysis_->run().twin.row(ref);
    return spans != nullptr && ref.cell == spans->size() ? std::optional(ref) : std::nullopt;
}

int WaitModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(is_chain_ ? chain_.size() : longest_.size());
}

int WaitModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : column_count;
}

QVariant WaitModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid()) {
        return {};
    }
    switch (role) {
        case Qt::DisplayRole:
            return text(index);
        case Qt::TextAlignmentRole:
            return QVariant::fromValue(
                Qt::AlignVCenter |
                (index.column() == ActionColumn || index.column() == WhyColumn ? Qt::AlignLeft
                                                                               : Qt::AlignRight));
        default:
            return {};
    }
}

QString WaitModel::text(const QModelIndex& index) const {
    const std::size_t row = as_index(index.row());
    if (!is_chain_) {
        return idle_text(longest_[row], index.column());
    }
    const QString text = chain_text(row, index.column());
    return index.column() == WhyColumn && row >= in_wait_.size()
               ? tr("%1, before the wait").arg(text)
               : text;
}

QString WaitModel::chain_text(std::size_t row, int column) const {
    const WaitPiece& piece = chain_[row];
    switch (column) {
        case ActionColumn:
            return text_of(to_string(piece.action));
        case RankColumn:
            return QString::number(piece.ref.rank);
        case WhyColumn:
            return text_of(how(*analysis_, piece));
        case TimeColumn:
            return time_text(piece.end - piece.begin);
        case OfWaitColumn:
            return row < in_wait_.size() ? time_text(in_wait_[row]) : QString();
        default:
            return text_of(time_within(piece.begin, analysis_->length()));
    }
}

QString WaitModel::idle_text(const IdleTime& idle, int column) const {
    switch (column) {
        case ActionColumn:
            return text_of(who(*analysis_, idle.ref));
        case RankColumn:
            return QString::number(idle.ref.rank);
        case WhyColumn:
            return analysis_->has_causes() ? text_of(mostly(*analysis_, idle.ref)) : QString();
        case TimeColumn:
            return time_text(idle.wait);
        case OfWaitColumn:
            return {};
        default: {
            const RowIndex* const row = analysis_->run().twin.row(idle.ref);
            const Duration end = row == nullptr || idle.ref.cell >= row->size()
                                     ? analysis_->length()
                                     : row->ready(idle.ref.cell);
            return text_of(time_within(end - idle.wait, analysis_->length()));
        }
    }
}

QString WaitModel::heading(int column) const {
    switch (column) {
        case ActionColumn:
            return is_chain_ ? tr("Waited for") : tr("Action");
        case RankColumn:
            return tr("Rank");
        case WhyColumn:
            if (analysis_ != nullptr && !analysis_->has_causes()) {
                return {};  // nothing stands below it
            }
            return is_chain_ ? tr("Cause") : tr("Main cause");
        case TimeColumn:
            return is_chain_ ? tr("Duration") : tr("Wait");
        case OfWaitColumn:
            return is_chain_ ? tr("Of this wait") : QString();
        default:
            return tr("Start");
    }
}

QVariant WaitModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation != Qt::Horizontal) {
        return {};
    }
    return role == Qt::TextAlignmentRole ? data(createIndex(0, section), role)
                                         : heading_data(heading(section), role);
}

WhyPanel::WhyPanel(Selection* selection, QWidget* parent)
    : QWidget(parent),
      selection_(selection),
      sentence_(plain_label(this)),
      note_(plain_label(this)),
      all_(new QPushButton(tr("All &waits of the step"), this)),
      model_(new WaitModel(this)),
      view_(table_view(model_, tr("Causes of the wait"), this)) {
    setAccessibleName(tr("Why waiting"));
    for (QLabel* const label : {sentence_, note_}) {
        label->setWordWrap(true);
        label->setAlignment(Qt::AlignTop | Qt::AlignLeft);
        label->setTextInteractionFlags(Qt::TextSelectableByMouse);
    }
    note_->setForegroundRole(QPalette::PlaceholderText);
    view_->header()->setStretchLastSection(true);
    const QFontMetrics metrics(view_->font());
    view_->setColumnWidth(WaitModel::ActionColumn, metrics.horizontalAdvance("888SEND_F888888"));
    view_->setColumnWidth(WaitModel::RankColumn, metrics.horizontalAdvance("Rank 8888"));
    view_->setColumnWidth(WaitModel::TimeColumn, metrics.horizontalAdvance("888888.888 ms"));
    view_->setColumnWidth(WaitModel::OfWaitColumn, metrics.horizontalAdvance("Of this wait 88"));
    view_->setColumnWidth(WaitModel::BeginColumn, metrics.horizontalAdvance("888888.888 ms"));
    auto* const column = new QVBoxLayout(this);
    column->setContentsMargins(0, panel_margin, 0, 0);
    column->setSpacing(panel_margin / 2);
    auto* const texts = new QVBoxLayout;
    texts->setContentsMargins(panel_margin, 0, panel_margin, 0);
    texts->setSpacing(panel_margin / 2);
    texts->addWidget(sentence_);
    texts->addWidget(note_);
    auto* const head = new QHBoxLayout;
    head->setContentsMargins(0, 0, panel_margin, 0);
    head->addLayout(texts, 1);
    head->addWidget(all_, 0, Qt::AlignTop);
    column->addLayout(head);
    column->addWidget(view_, 1);

    connect(selection_, &Selection::span_changed, this, [this] {
        end_.reset();
        want();
    });
    connect(&loader_, &AnalysisLoader::ready, this, &WhyPanel::show_analysis);
    set_tip(*all_, tr("Shows the longest waits again (Esc)"));
    all_->hide();
    connect(all_, &QPushButton::clicked, this, &WhyPanel::show_all);
    connect(view_, &QTreeView::activated, this, [this](const QModelIndex& index) {
        open_row(index.row());
    });
    connect(view_, &QTreeView::clicked, this, [this](const QModelIndex& index) {
        if (!model_->is_chain()) {
            open_row(index.row());
        }
    });
    want();
}

void WhyPanel::show_run(std::shared_ptr<const RunData> run) {
    run_ = std::move(run);
    end_.reset();
    model_->clear();
    want();
}

void WhyPanel::explain_end(const SpanRef& end) {
    end_ = end;
    want();
}

/// What the panel explains: the selected action, else the end of a rank's row.
std::optional<SpanRef> WhyPanel::explained() const {
    return selection_->span() ? selection_->span() : end_;
}

void WhyPanel::set_range(RangeFilterPointer range) {
    range_ = std::move(range);
    if (run_ != nullptr && !run_->empty() && !explained() && !loader_.is_working() &&
        loader_.get() != nullptr) {
        show_step();
    }
}

void WhyPanel::set_colors(const Palette& palette) {
    setPalette(widget_palette(palette));
}

void WhyPanel::want() {
    pending_ = Step::None;
    if (run_ == nullptr || run_->empty()) {
        say(tr("No run is open."), {});
        view_->hide();
        emit settled();
        return;
    }
    const auto ref = explained();
    const Side side = ref ? ref->side : (run_->measured ? Side::Measured : Side::Predicted);
    const int step = ref ? ref->step : run_->main_step();
    loader_.want(run_, side, step);
    if (loader_.is_working()) {
        say(tr("Computing the causes of the waits ..."), {});
    }
}

void WhyPanel::show_analysis() {
    const auto ref = explained();
    if (loader_.get() == nullptr) {
        say(tr("The run has no such step."), {});
        view_->hide();
    } else if (ref) {
        show_selected(*ref);
    } else {
        show_step();
    }
    walk(std::exchange(pending_, Step::None));
    emit settled();
}

/// An action becomes the selection. The time after the last one of a rank is none: it is explained
/// as it is.
void WhyPanel::open_row(int row) {
    const auto end = model_->end_of_step(row);
    const auto last = model_->target(row);
    if (!end) {
        go(last);
        return;
    }
    end_ = end;
    show_selected(*end);
    if (last) {
        emit look_at(*last);
    }
}

void WhyPanel::show_all() {
    end_.reset();
    if (selection_->span()) {
        selection_->set_span(std::nullopt);
    } else if (loader_.get() != nullptr) {
        show_step();
    }
}

/// The wait of a message is shown as that of the action which it keeps, as the list of the longest
/// waits has it.
void WhyPanel::show_selected(const SpanRef& selected) {
    all_->show();
    const StepAnalysis& analysis = *loader_.get();
    const SpanRef ref = analysis.whose_wait(selected);
    const bool replayed = analysis.has_causes() && analysis.side() == Side::Measured;
    say(text_of(wait_sentence(analysis, ref)),
        replayed ? tr("The list comes from a simulation with the measured durations.")
                 : text_of(analysis.note()));
    model_->show_chain(loader_.share(), ref);
    view_->setColumnHidden(WaitModel::OfWaitColumn, false);
    view_->setVisible(analysis.has_causes());
    const std::vector<SpanRef> chain = outlined(analysis, ref);
    emit chain_changed(chain, arrows_along(chain, selected));
    const bool is_action = analysis.run().twin.span(selected).has_value();
    emit end_changed(is_action ? std::nullopt : std::optional(selected));
}

void WhyPanel::show_step() {
    all_->hide();
    const StepAnalysis& analysis = *loader_.get();
    const bool lists_waits = analysis.note().empty() && analysis.idle().wait > Duration{};
    say(text_of(idle_sentence(analysis)),
        lists_waits && range_ != nullptr
            ? tr("The list shows the waits in the selected range, or of the shown ranks, alone.")
        : lists_waits ? tr("The list shows the longest waits. Select an action or idle time to see "
                           "its causes.")
                      : text_of(analysis.note()));
    model_->show_longest(loader_.share(), run_->main_step(), range_.get());
    view_->setColumnHidden(WaitModel::OfWaitColumn, true);
    view_->show();
    emit chain_changed({}, {});
    emit end_changed(std::nullopt);
}

void WhyPanel::go_to_blocker() {
    walk(Step::Blocker);
}

void WhyPanel::go_to_unblocked() {
    walk(Step::Unblocked);
}

void WhyPanel::walk(Step step) {
    const auto ref = selection_->span();
    if (step == Step::None || !ref) {
        return;
    }
    if (loader_.is_working()) {
        pending_ = step;
    } else if (const StepAnalysis* const analysis = loader_.get()) {
        go(step == Step::Blocker ? analysis->blocker_of(*ref) : analysis->unblocked_by(*ref));
    }
}

void WhyPanel::go(const std::optional<SpanRef>& ref) {
    if (ref) {
        const SpanRef there = *ref;  // the model may change below
        selection_->set_span(there);
        emit go_to(there);
    }
}

void WhyPanel::say(const QString& sentence, const QString& note) {
    sentence_->setText(unbroken(sentence));
    sentence_->setAccessibleName(sentence);
    note_->setText(unbroken(note));
    note_->setVisible(!note.isEmpty());
}

}  // namespace pipetwin::gui
