// SPDX-License-Identifier: Apache-2.0
#include "gui/planning/planning_page.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <QScrollArea>
#include <QSplitter>
#include <QStackedWidget>
#include <QTabWidget>
#include <QTreeView>
#include <QVBoxLayout>
#include <QtConcurrentRun>

#include "core/base/as_index.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/base/sentence.h"
#include "gui/base/text_table.h"
#include "gui/base/workers.h"
#include "gui/planning/plan_table.h"
#include "gui/planning/planning_form.h"
#include "gui/timeline/legend.h"
#include "gui/timeline/selection.h"
#include "gui/timeline/timeline_view.h"
#include "gui/view/planning/planning.h"
#include "gui/view/planning/planning_words.h"

namespace pipetwin::gui {

namespace {

constexpr int gap = 12;
constexpr int milliseconds_per_look = 100;
constexpr int full_bar = 1000;
constexpr int width_of_question = 250;

QLabel* sentence_label(QWidget* parent, const QString& name) {
    QLabel* const label = plain_label(parent);
    label->setWordWrap(true);
    label->setTextInteractionFlags(Qt::TextSelectableByMouse);
    label->setAccessibleName(name);
    return label;
}

/// A table of texts whose first columns are words; it keeps what has them.
TextTable::Content content_of(const std::shared_ptr<const TextRows>& texts, int left_columns) {
    QStringList headers;
    for (const std::string& header : texts->headers) {
        headers.append(text_of(header));
    }
    return {.headers = headers,
            .rows = static_cast<int>(texts->rows.size()),
            .left_columns = left_columns,
            .text = [texts](int row, int column) {
                return text_of(texts->rows[as_index(row)][as_index(column)]);
            }};
}

}  // namespace

struct PlanningPage::Talk {
    std::mutex mutex;
    PlanningProgress now;
    std::atomic<bool> stopped = false;
};

PlanningPage::PlanningPage(QWidget* parent)
    : QWidget(parent),
      form_(new PlanningForm(this)),
      progress_(new QProgressBar(this)),
      stage_(sentence_label(this, tr("Progress"))),
      notes_(sentence_label(this, tr("Notes"))),
      right_(new QStackedWidget(this)),
      known_(build_known()),
      headline_(sentence_label(this, tr("The selected plan"))),
      range_(sentence_label(this, tr("Expected range"))),
      nearest_(sentence_label(this, tr("Nearest published run"))),
      table_(new PlanTable(this)),
      view_(table_view(table_, tr("Plans"), this)),
      selection_(new Selection(this)),
      timeline_(new TimelineView(selection_, this)),
      legend_(new Legend(this)),
      evidence_(new TextTable(this)),
      evidence_view_(table_view(evidence_, tr("Published runs"), this)),
      sends_(new TextTable(this)),
      sends_view_(table_view(sends_, tr("What a step sends"), this)),
      load_(sentence_label(this, tr("Load of the experts"))) {
    setAccessibleName(tr("Plan"));
    timeline_->setAccessibleName(tr("Timeline of the selected plan"));
    results_ = build_answer();
    right_->addWidget(known_);
    right_->addWidget(results_);
    auto* const across = new QHBoxLayout(this);
    across->setContentsMargins(0, 0, 0, 0);
    across->setSpacing(0);
    across->addWidget(build_left());
    across->addWidget(right_, 1);
    ticks_.setInterval(milliseconds_per_look);
    connect(&ticks_, &QTimer::timeout, this, &PlanningPage::show_progress);
    connect(form_, &PlanningForm::asked, this, &PlanningPage::ask);
    connect(form_, &PlanningForm::cancelled, this, &PlanningPage::cancel);
    connect(&worker_, &QFutureWatcher<AnswerPointer>::finished, this, &PlanningPage::finish);
    connect(&row_worker_, &QFutureWatcher<SeenPointer>::finished, this, &PlanningPage::finish_row);
    connect(view_->selectionModel(),
            &QItemSelectionModel::currentRowChanged,
            this,
            &PlanningPage::select_row);
    connect(view_, &QTreeView::activated, open_, &QPushButton::click);
}

PlanningPage::~PlanningPage() {
    cancel();
    worker_.disconnect(this);
    row_worker_.disconnect(this);
    worker_.waitForFinished();
    row_worker_.waitForFinished();
}

/// The question, and below it how far the answer is and what a reader should know of it.
QWidget* PlanningPage::build_left() {
    auto* const inside = new QWidget(this);
    auto* const column = new QVBoxLayout(inside);
    progress_->setRange(0, full_bar);
    progress_->setAccessibleName(tr("Progress"));
    progress_->hide();
    notes_->setForegroundRole(QPalette::PlaceholderText);
    column->setContentsMargins(0, 0, 0, 0);
    column->addWidget(form_);
    for (QWidget* const widget : std::initializer_list<QWidget*>{progress_, stage_, notes_}) {
        auto* const row = new QHBoxLayout;
        row->setContentsMargins(gap, 0, gap, 0);
        row->addWidget(widget);
        column->addLayout(row);
    }
    column->addStretch(1);
    auto* const area = new QScrollArea(this);
    area->setWidget(inside);
    area->setWidgetResizable(true);
    area->setFrameShape(QFrame::NoFrame);
    area->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    area->setFixedWidth(std::max(width_of_question, inside->minimumSizeHint().width() + gap));
    return area;
}

/// Before the first question: what can be asked. A click fills the form in.
QWidget* PlanningPage::build_known() {
    auto* const page = new QWidget(this);
    QLabel* const about = sentence_label(page, tr("About this page"));
    about->setText(
        tr("Which plan trains a model fastest on a cluster? Choose a model and a kind of node, or "
           "a scenario, and click Plan. Costs are estimated; each answer names the published runs "
           "that such estimates were compared with."));
    auto* const lists = splitter_of_lists(page);
    const auto add = [&](const std::shared_ptr<const TextRows>& rows,
                         const QString& name,
                         void (PlanningForm::*fill)(const QString&)) {
        auto* const table = new TextTable(lists);
        table->show(content_of(rows, 1));
        QTreeView* const view = table_view(table, name, lists);
        connect(view, &QTreeView::clicked, this, [this, rows, fill](const QModelIndex& index) {
            (form_->*fill)(text_of(rows->rows[as_index(index.row())].front()));
        });
        lists->addWidget(view);
        fit_columns(view);
    };
    add(std::make_shared<const TextRows>(known_models()),
        tr("Models known by name"),
        &PlanningForm::set_model);
    add(std::make_shared<const TextRows>(known_clusters()),
        tr("Kinds of node known by name"),
        &PlanningForm::set_cluster);
    auto* const column = new QVBoxLayout(page);
    column->setContentsMargins(gap, gap, 0, 0);
    column->addWidget(about);
    column->addWidget(lists, 1);
    return page;
}

QTabWidget* PlanningPage::build_panels() {
    auto* const panels = new QTabWidget(this);
    panels->setDocumentMode(true);
    auto* const picture = new QWidget(panels);
    auto* const picture_column = new QVBoxLayout(picture);
    picture_column->setContentsMargins(0, gap / 2, 0, 0);
    auto* const head = new QHBoxLayout;
    head->setContentsMargins(0, 0, gap, 0);
    head->addStretch(1);
    head->addWidget(legend_);
    picture_column->addLayout(head);
    picture_column->addWidget(timeline_, 1);
    picture->setObjectName(QStringLiteral("timeline"));
    panels->addTab(picture, tr("Timeline and memory"));
    evidence_view_->setObjectName(QStringLiteral("evidence"));
    panels->addTab(evidence_view_, tr("Evidence"));
    auto* const sends = new QWidget(panels);
    auto* const sends_column = new QVBoxLayout(sends);
    sends_column->setContentsMargins(0, gap / 2, 0, 0);
    load_->setContentsMargins(panel_margin, 0, panel_margin, 0);
    sends_column->addWidget(load_);
    sends_column->addWidget(sends_view_, 1);
    sends->setObjectName(QStringLiteral("sends"));
    panels->addTab(sends, tr("What it sends"));
    return panels;
}

QWidget* PlanningPage::build_answer() {
    auto* const page = new QWidget(this);
    QFont bold = headline_->font();
    bold.setBold(true);
    headline_->setFont(bold);
    view_->setSortingEnabled(true);
    view_->header()->setSortIndicator(-1, Qt::AscendingOrder);  // the order of the answer
    open_ = new QPushButton(tr("Open with all panels"), page);
    set_tip(*open_, tr("Show the plan as a run, with What if, Why waiting and Critical path"));
    add_ = new QPushButton(tr("Add to comparison"), page);
    set_tip(*add_, tr("Show the plan beside others, with what differs and why"));
    connect(open_, &QPushButton::clicked, this, [this] {
        if (seen_ != nullptr && seen_->run != nullptr) {
            emit run_wanted(seen_->run);
        }
    });
    connect(add_, &QPushButton::clicked, this, [this] {
        if (seen_ != nullptr && seen_->run != nullptr) {
            emit comparison_wanted(seen_->run);
        }
    });
    auto* const head = new QHBoxLayout;
    auto* const words = new QVBoxLayout;
    words->addWidget(headline_);
    words->addWidget(range_);
    words->addWidget(nearest_);
    auto* const buttons = new QVBoxLayout;
    buttons->addWidget(open_);
    buttons->addWidget(add_);
    buttons->addStretch(1);
    head->addLayout(words, 1);
    head->addLayout(buttons);
    head->setContentsMargins(0, 0, gap, 0);
    panels_ = build_panels();
    auto* const down = new QSplitter(Qt::Vertical, page);
    down->setChildrenCollapsible(false);
    down->addWidget(view_);
    down->addWidget(panels_);
    down->setStretchFactor(0, 2);
    down->setStretchFactor(1, 3);
    auto* const column = new QVBoxLayout(page);
    column->setContentsMargins(gap, gap, 0, 0);
    column->addLayout(head);
    column->addWidget(down, 1);
    return page;
}

void PlanningPage::set_colors(const Palette& palette) {
    timeline_->set_colors(palette);
    legend_->set_colors(palette);
}

QWidget& PlanningPage::answer_widget() {
    return *right_->currentWidget();
}

void PlanningPage::show_panel(const QString& name) {
    for (int tab = 0; tab < panels_->count(); ++tab) {
        if (panels_->widget(tab)->objectName() == name) {
            panels_->setCurrentIndex(tab);
        }
    }
}

std::shared_ptr<const RunData> PlanningPage::run() const {
    return seen_ == nullptr ? nullptr : seen_->run;
}

void PlanningPage::ask() {
    if (worker_.isRunning()) {
        asks_again_ = true;
        cancel();
        return;
    }
    const std::optional<PlanningQuestion> question = form_->question();
    if (!question) {
        return;
    }
    form_->set_busy(true);
    talk_ = std::make_shared<Talk>();
    ticks_.start();
    progress_->show();
    show_progress();
    worker_.setFuture(
        QtConcurrent::run(workers(), [question = *question, talk = talk_]() -> AnswerPointer {
            return std::make_shared<const PlanningAnswer>(
                answer_of(question, [&talk](const PlanningProgress& now) {
                    const std::scoped_lock lock(talk->mutex);
                    talk->now = now;
                    return !talk->stopped;
                }));
        }));
}

void PlanningPage::cancel() {
    if (talk_ != nullptr) {
        talk_->stopped = true;
    }
}

void PlanningPage::show_progress() {
    PlanningProgress now;
    {
        const std::scoped_lock lock(talk_->mutex);
        now = talk_->now;
    }
    progress_->setValue(static_cast<int>(now.share * full_bar));
    const std::string part(now.part);
    stage_->setText(now.part.empty() ? tr("Estimating the costs of the layers")
                    : now.best ? tr("%1: best step %2").arg(text_of(part), time_text(*now.best))
                               : text_of(part));
}

void PlanningPage::finish() {
    ticks_.stop();
    progress_->hide();
    stage_->clear();
    form_->set_busy(false);
    if (std::exchange(asks_again_, false)) {
        ask();
        return;
    }
    show_answer(worker_.result());
}

void PlanningPage::show_answer(AnswerPointer answer) {
    answer_ = std::move(answer);
    seen_.reset();
    right_->setCurrentWidget(results_);
    view_->header()->setSortIndicator(-1, Qt::AscendingOrder);
    table_->show(answer_);
    QStringList notes;
    if (answer_->ended_early && answer_->whole) {
        notes += tr("Cancelled: the best plans that were found by then.");
    }
    for (const std::string& note : answer_->notes) {
        notes += text_of(note);
    }
    notes_->setText(notes.join(QStringLiteral("\n")));
    fit_columns(view_);
    const bool has_plans = table_->rowCount() > 0;
    for (QWidget* const widget : std::initializer_list<QWidget*>{view_, panels_, open_, add_}) {
        widget->setVisible(has_plans);
    }
    if (has_plans) {
        view_->setCurrentIndex(table_->index(0, 0));
    } else {
        show_problem();
    }
    emit settled();
}

void PlanningPage::show_problem() {
    headline_->setText(text_of(answer_->problem));
    range_->setText(text_of(answer_->hint));
    nearest_->clear();
    timeline_->show_run(nullptr);
}

void PlanningPage::select_row() {
    if (answer_ == nullptr || !view_->currentIndex().isValid()) {
        return;
    }
    row_ = table_->plan_at(view_->currentIndex().row());
    if (row_worker_.isRunning()) {
        row_again_ = true;
        return;
    }
    open_->setEnabled(false);
    add_->setEnabled(false);
    row_worker_.setFuture(
        QtConcurrent::run(workers(), [answer = answer_, row = row_]() -> SeenPointer {
            return std::make_shared<const PlanInSight>(plan_in_sight(*answer, row));
        }));
}

void PlanningPage::finish_row() {
    if (std::exchange(row_again_, false)) {
        select_row();
        return;
    }
    if (answer_->rows.empty()) {  // another question has been answered since
        return;
    }
    seen_ = row_worker_.result();
    show_seen();
    emit plan_shown();
}

void PlanningPage::show_seen() {
    const bool is_there = seen_->run != nullptr;
    const PlanRow& row = answer_->rows[row_];
    open_->setEnabled(is_there);
    add_->setEnabled(is_there);
    headline_->setText(unbroken(
        text_of(question_sentence(*answer_) + ".\n" + plan_sentence(*answer_, row) + ".")));
    timeline_->show_run(seen_->run);
    if (!is_there) {
        range_->setText(text_of(seen_->problem));
        nearest_->clear();
        return;
    }
    range_->setText(unbroken(text_of(range_sentence(row, seen_->outlook))));
    nearest_->setText(unbroken(text_of(nearest_sentence(seen_->outlook))));
    nearest_->setVisible(!nearest_->text().isEmpty());
    legend_->show_run(*seen_->run);
    constexpr int words_of_evidence = 5;
    evidence_->show(content_of(std::make_shared<const TextRows>(evidence_rows(seen_->outlook)),
                               words_of_evidence));
    fit_columns(evidence_view_, words_of_evidence);
    constexpr int words_of_groups = 3;
    const GroupTable& groups = seen_->run->groups;
    sends_->show(content_of(std::make_shared<const TextRows>(groups.groups), words_of_groups));
    fit_columns(sends_view_, words_of_groups);
    load_->setText(tr("Messages of a step, of the rank that they take longest on; sent by one of "
                      "its devices. %1")
                       .arg(text_of(groups.load)));
    panels_->setTabVisible(1, evidence_->rowCount() > 0);
    panels_->setTabVisible(2, !groups.empty());
}

}  // namespace pipetwin::gui
