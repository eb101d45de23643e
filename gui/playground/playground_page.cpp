// SPDX-License-Identifier: Apache-2.0
#include "gui/playground/playground_page.h"

#include <utility>

#include <QEvent>
#include <QGridLayout>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QPushButton>
#include <QScrollArea>
#include <QScrollBar>
#include <QSplitter>
#include <QStyledItemDelegate>
#include <QTableView>
#include <QVBoxLayout>
#include <QtConcurrentRun>

#include "core/base/as_index.h"
#include "core/base/short_number.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/base/sentence.h"
#include "gui/base/text_table.h"
#include "gui/base/workers.h"
#include "gui/playground/playground_controls.h"
#include "gui/timeline/legend.h"
#include "gui/timeline/selection.h"
#include "gui/timeline/timeline_view.h"
#include "gui/view/analysis/wait_words.h"

namespace pipetwin::gui {

namespace {

constexpr int milliseconds_to_wait = 40;
constexpr int page_gap = 12;
constexpr int why_column = 1;  ///< of the table of ranks

QLabel* wrapped_label(QWidget* parent) {
    QLabel* const label = plain_label(parent);
    label->setWordWrap(true);
    label->setTextInteractionFlags(Qt::TextSelectableByMouse);
    return label;
}

/// A scrolled area as wide as what it holds, which grows with the font.
class SettingsArea : public QScrollArea {
  public:
    explicit SettingsArea(QWidget* settings, QWidget* parent) : QScrollArea(parent) {
        setWidget(settings);
        setWidgetResizable(true);
        setFrameShape(QFrame::NoFrame);
        setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
        setSizePolicy(QSizePolicy::Fixed, QSizePolicy::Expanding);
    }

    QSize sizeHint() const override { return {whole_width(), QScrollArea::sizeHint().height()}; }

    QSize minimumSizeHint() const override {
        return {whole_width(), QScrollArea::minimumSizeHint().height()};
    }

  protected:
    bool event(QEvent* event) override {
        if (event->type() == QEvent::LayoutRequest) {
            updateGeometry();
        }
        return QScrollArea::event(event);
    }

  private:
    int whole_width() const {
        return widget()->minimumSizeHint().width() + verticalScrollBar()->sizeHint().width();
    }
};

/// A cell of several lines. A text that fills its column to the last pixel is painted in more lines
/// than the height of the row is computed for, so that counts with a narrower column.
class WrappedCells : public QStyledItemDelegate {
  public:
    using QStyledItemDelegate::QStyledItemDelegate;

    QSize sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const override {
        constexpr int spare = 8;
        QStyleOptionViewItem narrower = option;
        narrower.rect.setWidth(option.rect.width() - spare);
        return QStyledItemDelegate::sizeHint(narrower, index);
    }
};

QFont bold(const QWidget& of) {
    QFont font = of.font();
    font.setBold(true);
    return font;
}

}  // namespace

PlaygroundPage::PlaygroundPage(QWidget* parent)
    : QWidget(parent),
      controls_(new PlaygroundControls(this)),
      selection_(new Selection(this)),
      timeline_(new TimelineView(selection_, this)),
      legend_(new Legend(this)),
      headline_(wrapped_label(this)),
      measured_(plain_label(this)),
      formula_(wrapped_label(this)),
      where_(wrapped_label(this)),
      why_(wrapped_label(this)),
      ranks_(new TextTable(this)),
      rank_view_(new QTableView(this)) {
    setAccessibleName(tr("Playground"));
    timeline_->set_memory(false);
    timeline_->setAccessibleName(tr("Timeline of the playground"));
    auto* const across = new QHBoxLayout(this);
    across->setContentsMargins(0, 0, 0, 0);
    across->addWidget(new SettingsArea(controls_, this));
    across->addWidget(build_picture(), 1);
    wait_.setSingleShot(true);
    wait_.setInterval(milliseconds_to_wait);
    connect(&wait_, &QTimer::timeout, this, &PlaygroundPage::start);
    connect(controls_, &PlaygroundControls::changed, &wait_, qOverload<>(&QTimer::start));
    connect(&worker_, &QFutureWatcher<StepPointer>::finished, this, &PlaygroundPage::finish);
    connect(selection_, &Selection::span_changed, this, &PlaygroundPage::say_why);
    connect(timeline_, &TimelineView::end_of_step_clicked, this, [this](const SpanRef& end) {
        if (step_ != nullptr && step_->run != nullptr) {
            why_->setText(unbroken(
                text_of(wait_sentence(*analysis_of(step_->run, end.side, end.step), end))));
        }
    });
}

/// The sentence on idle time, the bubble, the timeline, and a line on every rank.
QWidget* PlaygroundPage::build_picture() {
    auto* const picture = new QWidget(this);
    headline_->setFont(bold(*headline_));
    headline_->setAccessibleName(tr("Largest cause of idle time"));
    why_->setForegroundRole(QPalette::PlaceholderText);
    rank_view_->setModel(ranks_);
    rank_view_->setAccessibleName(tr("Ranks"));
    rank_view_->setShowGrid(false);
    rank_view_->setFrameShape(QFrame::NoFrame);
    rank_view_->setWordWrap(true);
    rank_view_->setItemDelegate(new WrappedCells(rank_view_));
    rank_view_->setAlternatingRowColors(true);
    rank_view_->setSelectionMode(QAbstractItemView::NoSelection);
    rank_view_->setFocusPolicy(Qt::TabFocus);
    rank_view_->verticalHeader()->hide();
    rank_view_->verticalHeader()->setSectionResizeMode(QHeaderView::ResizeToContents);
    rank_view_->horizontalHeader()->setHighlightSections(false);
    auto* const down = new QSplitter(Qt::Vertical, picture);
    auto* const top = new QWidget(down);
    auto* const top_column = new QVBoxLayout(top);
    top_column->setContentsMargins(0, 0, 0, page_gap / 2);  // above the handle
    top_column->setSpacing(4);
    top_column->addWidget(timeline_, 1);
    top_column->addWidget(why_);
    down->addWidget(top);
    down->addWidget(rank_view_);
    down->setStretchFactor(0, 3);
    down->setStretchFactor(1, 2);
    down->setCollapsible(0, false);
    auto* const column = new QVBoxLayout(picture);
    column->setContentsMargins(page_gap, page_gap, 0, 0);
    column->addWidget(headline_);
    column->addWidget(build_bubble());
    column->addWidget(down, 1);
    return picture;
}

QWidget* PlaygroundPage::build_bubble() {
    auto* const box = new QWidget(this);
    measured_->setAccessibleName(tr("Bubble as simulated"));
    formula_->setAccessibleName(tr("Bubble by the formula"));
    where_->setForegroundRole(QPalette::PlaceholderText);
    auto* const show = new QPushButton(tr("Show all panels"), box);
    set_tip(*show, tr("Show the step with every panel: why waiting, what if, critical path"));
    connect(show, &QPushButton::clicked, this, [this] {
        if (step_ != nullptr && step_->run != nullptr) {
            emit run_wanted(step_->run);
        }
    });
    auto* const add = new QPushButton(tr("Add to comparison"), box);
    set_tip(*add, tr("Show the step beside others, with what differs and why"));
    connect(add, &QPushButton::clicked, this, &PlaygroundPage::comparison_wanted);
    auto* const buttons = new QHBoxLayout;
    buttons->addWidget(add);
    buttons->addWidget(show);
    auto* const grid = new QGridLayout(box);
    grid->setContentsMargins(0, 0, page_gap, 0);
    grid->setColumnStretch(1, 1);
    for (const auto& [row, name] :
         {std::pair(0, tr("Bubble, simulated")), std::pair(1, tr("Bubble, formula"))}) {
        QLabel* const label = plain_label(box, name);
        set_tip(*label, meaning_tip(QStringLiteral("bubble")));
        grid->addWidget(label, row, 0);
    }
    grid->addWidget(measured_, 0, 1);
    grid->addWidget(formula_, 1, 1);
    grid->addWidget(where_, 2, 1, 1, 2);
    grid->addLayout(buttons, 0, 2, Qt::AlignRight);
    grid->addWidget(legend_, 1, 2, Qt::AlignRight);
    return box;
}

void PlaygroundPage::set_colors(const Palette& palette) {
    palette_ = palette;
    timeline_->set_colors(palette);
    legend_->set_colors(palette);
}

void PlaygroundPage::showEvent(QShowEvent* event) {
    if (step_ == nullptr) {
        play_now();
    }
    QWidget::showEvent(event);
}

void PlaygroundPage::play_now() {
    wait_.stop();
    show_step(std::make_shared<const PlaygroundStep>(play(controls_->settings())));
}

void PlaygroundPage::start() {
    if (worker_.isRunning()) {
        again_ = true;
        return;
    }
    worker_.setFuture(
        QtConcurrent::run(workers(), [settings = controls_->settings()]() -> StepPointer {
            return std::make_shared<const PlaygroundStep>(play(settings));
        }));
}

void PlaygroundPage::finish() {
    if (std::exchange(again_, false)) {
        start();
    } else if (!wait_.isActive()) {
        show_step(worker_.result());
    }
}

void PlaygroundPage::show_step(StepPointer step) {
    const bool was_empty = step_ == nullptr || step_->run == nullptr;
    step_ = std::move(step);
    if (step_->run == nullptr) {
        timeline_->show_run(nullptr);
        headline_->setText(text_of(step_->problem));
    } else {
        if (was_empty) {
            timeline_->show_run(step_->run);
        } else {
            timeline_->update_run(step_->run);
        }
        legend_->show_run(*step_->run);
        headline_->setText(unbroken(text_of(step_->headline)));
    }
    explain_cause();
    show_bubble();
    show_ranks();
    say_why();
    emit settled();
}

/// The tooltip of the headline is the meaning of the cause that it names.
void PlaygroundPage::explain_cause() {
    set_tip(*headline_, step_->cause.empty() ? QString() : meaning_tip(text_of(step_->cause)));
}

void PlaygroundPage::show_bubble() {
    if (step_->run == nullptr) {
        measured_->clear();
        formula_->clear();
        where_->clear();
        return;
    }
    measured_->setText(
        tr("%1 of a step of %2")
            .arg(text_of(short_percent(step_->bubble)), text_of(short_time(step_->step))));
    const ClosedForm& form = step_->form;
    formula_->setText(form.known() ? tr("%1 = %2 = %3")
                                         .arg(text_of(form.symbols),
                                              text_of(form.numbers),
                                              unbroken(text_of(short_percent(form.bubble()))))
                                   : text_of(form.why_not));
    where_->setText(form.where.empty() ? QString() : tr("where %1").arg(text_of(form.where)));
    where_->setVisible(!form.where.empty());
}

void PlaygroundPage::show_ranks() {
    const StepPointer step = step_;
    ranks_->show(
        {.headers = {tr("Rank"), tr("Why it waits"), tr("Busy"), tr("Idle"), tr("Stashed")},
         .rows = static_cast<int>(step->ranks.size()),
         .left_columns = 2,
         .text = [step](int row, int column) -> QString {
             const PlaygroundRank& rank = step->ranks[as_index(row)];
             switch (column) {
                 case 0:
                     return QString::number(row);
                 case why_column:
                     return unbroken(text_of(rank.why));
                 case 2:
                     return text_of(short_time(rank.busy));
                 case 3:
                     return text_of(short_time(rank.idle));
                 default:
                     return tr("%1 of %2")
                         .arg(rank.stashed)
                         .arg(step->settings.micro_batches * step->settings.chunks);
             }
         }});
    QHeaderView* const header = rank_view_->horizontalHeader();
    for (int column = 0; column < header->count(); ++column) {
        header->setSectionResizeMode(
            column, column == why_column ? QHeaderView::Stretch : QHeaderView::ResizeToContents);
    }
}

/// Why the selected action waited, in the words of the panel on waits.
void PlaygroundPage::say_why() {
    const std::optional<SpanRef>& selected = selection_->span();
    if (step_ == nullptr || step_->run == nullptr || !selected) {
        why_->setText(
            tr("Select an action, by a click or with the arrow keys, or click idle time, to see "
               "its causes."));
        return;
    }
    const auto analysis = analysis_of(step_->run, selected->side, selected->step);
    why_->setText(unbroken(text_of(wait_sentence(*analysis, analysis->whose_wait(*selected)))));
}

}  // namespace pipetwin::gui
