// SPDX-License-Identifier: Apache-2.0
#include "gui/window/main_window.h"

#include <algorithm>
#include <array>
#include <utility>

#include <QApplication>
#include <QFrame>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QSettings>
#include <QSplitter>
#include <QStackedWidget>
#include <QStatusBar>
#include <QTabBar>
#include <QTabWidget>
#include <QThreadPool>
#include <QToolButton>
#include <QVBoxLayout>

#include "core/base/as_index.h"
#include "core/base/short_number.h"
#include "gui/base/finder.h"
#include "gui/base/plain_text.h"
#include "gui/base/text_table.h"
#include "gui/base/thumbnail.h"
#include "gui/base/workers.h"
#include "gui/panels/critical_path_panel.h"
#include "gui/panels/details_panel.h"
#include "gui/panels/error_panel.h"
#include "gui/panels/groups_panel.h"
#include "gui/panels/op_table.h"
#include "gui/panels/translations_panel.h"
#include "gui/panels/why_panel.h"
#include "gui/planning/planning_page.h"
#include "gui/playground/playground_page.h"
#include "gui/run/run_list.h"
#include "gui/run/run_panel.h"
#include "gui/side_by_side/side_by_side_page.h"
#include "gui/start/recent_files.h"
#include "gui/start/start_page.h"
#include "gui/timeline/legend.h"
#include "gui/timeline/minimap_view.h"
#include "gui/timeline/selection.h"
#include "gui/timeline/timeline_view.h"
#include "gui/timeline/track_panel.h"
#include "gui/view/analysis/action_details.h"
#include "gui/view/timeline/overview.h"
#include "gui/view/timeline/place_in_run.h"
#include "gui/view/timeline/range_filter.h"
#include "gui/view/timeline/search.h"
#include "gui/view/timeline/skip_arcs.h"
#include "gui/what_if/heat_map_panel.h"
#include "gui/what_if/what_if_panel.h"

namespace pipetwin::gui {

namespace {

namespace fs = std::filesystem;

constexpr int margin = 14;
constexpr int max_title_width = 260;

bool system_is_dark() {
    return QApplication::palette().color(QPalette::Window).lightness() < 128;
}

}  // namespace

MainWindow::MainWindow(QSettings* settings, QWidget* parent)
    : QMainWindow(parent),
      settings_(settings),
      run_(std::make_shared<const RunData>()),
      selection_(new Selection(this)),
      timeline_(new TimelineView(selection_, this)),
      minimap_(new MinimapView(timeline_, this)),
      right_(new QTabWidget(this)),
      below_(new QTabWidget(this)),
      details_(new DetailsPanel(this)),
      what_if_(new WhatIfPanel(selection_, this)),
      heat_map_(new HeatMapPanel(selection_, this)),
      why_(new WhyPanel(selection_, this)),
      actions_(new OpTablePanel(selection_, this)),
      errors_(new ErrorPanel(selection_, this)),
      critical_path_(new CriticalPathPanel(selection_, this)),
      translations_(new TranslationsPanel(this)),
      groups_(new GroupsPanel(this)),
      training_(new RunPanel({}, this)),
      legend_(new Legend(this)),
      step_(plain_label(this)),
      range_(plain_label(this)),
      live_(plain_label(this)) {
    setAcceptDrops(true);
    setWindowTitle(tr("pipetwin"));
    build_panels();
    build_menus();
    build_search();
    build_status_bar();
    connect_panels();
    connect_run();
    const std::optional<Theme> remembered =
        settings_ == nullptr ? std::nullopt
                             : theme_called(settings_->value(QStringLiteral("theme")).toString());
    set_theme(remembered.value_or(system_is_dark() ? Theme::Dark : Theme::Light));
    show_step();
    enable_commands();
    timeline_->setFocus();
}

MainWindow::~MainWindow() = default;

void MainWindow::build_status_bar() {
    statusBar()->addPermanentWidget(step_, 1);
    statusBar()->addPermanentWidget(range_);
    statusBar()->addPermanentWidget(live_);
    statusBar()->setSizeGripEnabled(false);
    step_->setContentsMargins(margin - 4, 2, margin, 4);
    range_->setIndent(margin);  // margins of these two are lost to the style sheet
    live_->setIndent(margin);
    live_->setAlignment(Qt::AlignRight | Qt::AlignVCenter);
}

/// What is selected in one panel is shown in all.
void MainWindow::connect_panels() {
    connect(selection_, &Selection::span_changed, this, [this] {
        details_->show_selection(*run_, selection_->span());
        follow_step();
    });
    connect(timeline_, &TimelineView::view_changed, this, &MainWindow::follow_step);
    connect(selection_, &Selection::range_changed, this, [this] {
        show_range();
        filter_panels();
    });
    connect(timeline_, &TimelineView::tracks_changed, this, &MainWindow::filter_panels);
    connect(what_if_, &WhatIfPanel::run_changed, this, &MainWindow::draw_what_if);
    connect(what_if_, &WhatIfPanel::settings_changed, this, &MainWindow::show_heat_map);
    connect(what_if_, &WhatIfPanel::settled, this, &MainWindow::show_heat_map);
    connect(heat_map_, &HeatMapPanel::chosen, what_if_, &WhatIfPanel::choose);
    connect(why_, &WhyPanel::chain_changed, timeline_, &TimelineView::set_chain);
    connect(why_, &WhyPanel::end_changed, timeline_, &TimelineView::outline_end);
    connect(why_, &WhyPanel::go_to, this, [this](const SpanRef& ref) {
        timeline_->show_action(ref);
        timeline_->setFocus();  // the list is another one now: on with the keys of the timeline
    });
    connect(why_, &WhyPanel::look_at, timeline_, &TimelineView::look_at);
    connect(timeline_, &TimelineView::end_of_step_clicked, why_, &WhyPanel::explain_end);
    connect(actions_, &OpTablePanel::go_to, timeline_, &TimelineView::show_action);
    connect(errors_, &ErrorPanel::go_to, timeline_, &TimelineView::show_action);
    connect(critical_path_, &CriticalPathPanel::go_to, timeline_, &TimelineView::show_action);
    connect(critical_path_,
            &CriticalPathPanel::critical_changed,
            this,
            [this](const std::vector<SpanRef>& critical) {
                critical_ = critical;
                mark_critical();
            });
}

void MainWindow::connect_run() {
    connect(training_, &RunPanel::run_grew, this, &MainWindow::show_live);
    connect(training_, &RunPanel::finished, this, &MainWindow::open);
    connect(training_, &RunPanel::failed, this, &MainWindow::show_banner);
    connect(training_, &RunPanel::report_wanted, this, &MainWindow::open_report);
    connect(training_, &RunPanel::watching_changed, this, &MainWindow::show_watching);
    connect(&reading_, &QFutureWatcher<RunData>::finished, this, [this] {
        show_read(reading_.future().takeResult());
    });
}

/// Timeline below its minimap, panels at its right and below it.
void MainWindow::build_panels() {
    add_panel(right_, details_, "step", tr("Step"));
    add_panel(right_, what_if_, "what-if", tr("What if"));
    add_panel(right_, new TrackPanel(timeline_, this), "ranks", tr("Ranks"));
    add_panel(below_, why_, "why", tr("Why waiting"));
    add_panel(below_, actions_, "actions", tr("Actions"));
    add_panel(below_, errors_, "errors", tr("Errors"));
    add_panel(below_, heat_map_, "heat-map", tr("Heat map"));
    add_panel(below_, critical_path_, "critical-path", tr("Critical path"));
    add_panel(below_, training_, "run", tr("Train"));
    add_panel(below_, translations_, "translations", tr("Translations"));
    add_panel(below_, groups_, "groups", tr("Groups"));
    across_ = splitter_of_lists(this);
    across_->addWidget(timeline_);
    across_->addWidget(right_);
    down_ = splitter_of_lists(this);
    down_->setOrientation(Qt::Vertical);
    down_->addWidget(across_);
    down_->addWidget(below_);
    for (QSplitter* const splitter : {across_, down_}) {
        splitter->setStretchFactor(0, 1);
        splitter->setCollapsible(1, true);
        splitter->installEventFilter(this);
    }
    auto* const run = new QWidget(this);
    auto* const rows = new QVBoxLayout(run);
    rows->setContentsMargins(0, 0, 0, 0);
    rows->setSpacing(0);
    rows->addWidget(build_header());
    rows->addWidget(minimap_);
    rows->addWidget(down_, 1);
    auto* const center = new QWidget(this);
    auto* const column = new QVBoxLayout(center);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(0);
    column->addWidget(build_banner());
    column->addWidget(build_pages(run), 1);
    setCentralWidget(center);
    for (QTabWidget* const tabs : {right_, below_}) {
        tabs->setDocumentMode(true);
        tabs->setUsesScrollButtons(true);
        tabs->setVisible(false);  // until there is a run
    }
    minimap_->hide();
}

/// Leaves the timeline three fifths of the width and two thirds of the height where the panels can
/// be as small, unless the user has moved the border.
void MainWindow::share_room_with(const QTabWidget* panels) {
    QSplitter* const splitter = panels == right_ ? across_ : down_;
    if (panels->isHidden()) {
        return;
    }
    const bool beside = panels == right_;
    const auto length = [beside](QSize size) { return beside ? size.width() : size.height(); };
    const int all = length(splitter->size()) - splitter->handleWidth();
    const int wanted = std::min(length(panels->sizeHint()), beside ? all * 2 / 5 : all / 3);
    const int given = std::max(wanted, length(panels->minimumSizeHint()));
    share_room(splitter, {all - given, given});
}

bool MainWindow::eventFilter(QObject* object, QEvent* event) {
    if (event->type() == QEvent::Resize && (object == across_ || object == down_)) {
        share_room_with(object == across_ ? right_ : below_);
    }
    return QMainWindow::eventFilter(object, event);
}

void MainWindow::add_panel(QTabWidget* tabs,
                           QWidget* panel,
                           const char* name,
                           const QString& title) {
    panel->setObjectName(QString::fromLatin1(name));
    tabs->addTab(panel, title);
}

void MainWindow::show_view(const QString& name) {
    show_page(name == QLatin1String("runs") ? QStringLiteral("side-by-side") : name);
    if (name == QLatin1String("runs")) {
        side_by_side().show_table(true);
        if (side_by_side().tiles().empty() && !run_->empty()) {
            side_by_side().add(run_);  // to begin with
        }
    }
    for (QTabWidget* const tabs : {right_, below_}) {
        for (int i = 0; i < tabs->count(); ++i) {
            if (tabs->widget(i)->objectName() == name) {
                if (!run_->empty()) {
                    show_page(QStringLiteral("timeline"));
                }
                select_panel(tabs, i);
            }
        }
    }
}

/// Brings a panel to the front; the first one where its tab is hidden.
void MainWindow::select_panel(QTabWidget* tabs, int number) {
    tabs->setCurrentIndex(tabs->isTabVisible(number) ? number : 0);
    (tabs == right_ ? right_shown_ : below_shown_)->setChecked(true);
}

void MainWindow::show_panels(QTabWidget* tabs, bool shown) {
    tabs->setVisible(shown && !run_->empty());
    auto* const splitter = qobject_cast<QSplitter*>(tabs->parentWidget());
    QList<int> sizes = splitter == nullptr ? QList<int>() : splitter->sizes();
    if (tabs->isVisible() && sizes.value(1) == 0) {  // its handle was dragged to the edge
        const QSize wanted = tabs->sizeHint();
        splitter->setSizes(
            {sizes[0],
             splitter->orientation() == Qt::Horizontal ? wanted.width() : wanted.height()});
    }
    share_room_with(tabs);
    if (!tabs->isVisible() && focusWidget() == nullptr) {
        timeline_->setFocus();
    }
}

/// Brings a panel to the front, shows it where it was hidden, and gives it the keys.
void MainWindow::open_panel(QTabWidget* tabs, int number) {
    show_page(QStringLiteral("timeline"));
    select_panel(tabs, number);
    show_panels(tabs, true);
    tabs->tabBar()->setFocus();
}

void MainWindow::wait_for_workers() {
    constexpr int rounds = 4;  // what is done may ask for more
    for (int round = 0; round < rounds; ++round) {
        workers()->waitForDone();
        QApplication::processEvents();
    }
}

void MainWindow::tell_problems(const RunData& run) {
    QStringList problems;
    for (const std::string& problem : run.problems) {
        problems += QString::fromStdString(problem);
    }
    for (const std::string& note : run.notes) {
        problems += QString::fromStdString(note);
    }
    show_banner(problems.join('\n'));
}

void MainWindow::show_run(RunData run) {
    tell_problems(run);
    if (!run.empty()) {
        remember(run.path);
        run_ = std::make_shared<const RunData>(std::move(run));
        if (settings_ != nullptr && !run_->path.empty()) {
            constexpr QSize size(64, 24);
            RecentFiles(settings_).set_picture(run_->path,
                                               thumbnail_of(*run_, size, palette_of(theme_)));
        }
        timeline_->show_run(run_);
        take_run(run_);
        what_if_->show_run(run_);
        if (!run_->scenario.empty()) {
            training_->prepare(run_->scenario);
        }
        show_page(QStringLiteral("timeline"));
        show_panels(right_, right_shown_->isChecked());
        minimap_->show();
        show_panels(below_, below_shown_->isChecked());
        search_->hide();
        name_run();
    }
    show_step();
    show_range();
}

/// Another replica of the run takes its place; what is seen of it stays.
void MainWindow::exchange_run(RunData run) {
    tell_problems(run);
    run_ = std::make_shared<const RunData>(std::move(run));
    timeline_->update_run(run_);
    take_run(run_);
    what_if_->show_run(run_);
    name_run();
    show_step();
    show_range();
}

QString MainWindow::name_of_run() const {
    return name_of_shown(*run_);
}

void MainWindow::name_run() {
    const QString name = name_of_run();
    train_->setVisible(!run_->scenario.empty());
    title_->setText(title_->fontMetrics().elidedText(name, Qt::ElideMiddle, max_title_width));
    set_tip(*title_, whole_paths(paths_of(*run_)));
    name_window();
    enable_commands();
    const bool emulated = run_->measured && run_->measured->origin == Origin::Emulated;
    measured_mode_->setText(emulated ? tr("E&mulated") : tr("&Measured"));
    fill_replica_menu();
}

/// Tells every panel but the timeline.
void MainWindow::take_run(std::shared_ptr<const RunData> run) {
    run_ = std::move(run);
    plan_->setText(QString::fromStdString(plan_line(*run_)));
    details_->show_run(*run_);
    step_in_words_ = run_->main_step();
    details_->show_selection(*run_, selection_->span());
    follow_step();
    legend_->show_run(*run_);
    skips_->setEnabled(has_skip_messages(run_->twin));
    why_->show_run(run_);
    actions_->show_run(run_);
    errors_->show_run(run_);
    critical_path_->show_run(run_);
    translations_->show_run(run_);
    show_tab(translations_, !run_->translations.empty());
    groups_->show_run(run_);
    show_tab(groups_, !run_->groups.empty());
    filter_panels();
}

/// Shows the tab of a panel below, or hides it; then another panel is in front.
void MainWindow::show_tab(QWidget* panel, bool is_shown) {
    if (!is_shown && below_->currentWidget() == panel) {
        below_->setCurrentWidget(why_);
    }
    below_->setTabVisible(below_->indexOf(panel), is_shown);
}

/// Shows the step of the selection in numbers, else the one in sight; of many in sight the main
/// one.
void MainWindow::follow_step() {
    if (run_->empty()) {
        return;
    }
    const TimelineScene::Steps seen = timeline_->scene().steps_in_sight();
    constexpr int few = 2;  // one, and the end of another
    const int step = selection_->span()             ? selection_->span()->step
                     : seen.last - seen.first < few ? timeline_->current_step()
                                                    : run_->main_step();
    if (step != step_in_words_) {
        step_in_words_ = step;
        details_->show_step(*run_, step);
    }
}

/// The what-if takes the place of what is drawn; what is seen of it stays.
void MainWindow::draw_what_if(const std::shared_ptr<const RunData>& run) {
    if (run == nullptr || run == run_) {
        return;
    }
    timeline_->update_run(run);
    take_run(run);
    show_step();
    show_range();
}

void MainWindow::show_heat_map() {
    heat_map_->show_what_if(what_if_->source(), what_if_->settings());
}

void MainWindow::mark_critical() {
    timeline_->set_critical(marks_critical_ ? critical_ : std::vector<SpanRef>());
}

void MainWindow::show_live(std::shared_ptr<const RunData> run) {
    const bool goes_on = !run_->empty() && run_->path == run->path;
    if (!goes_on) {
        show_run(RunData(*run));
        return;
    }
    timeline_->update_run(run);
    take_run(run);
    if (follow_->isChecked()) {
        timeline_->show_step(run_->twin.step_count() - 1);
    }
    show_step();
}

void MainWindow::show_watching() {
    live_->setText(training_->is_watching() ? tr("LIVE") : QString());
}

void MainWindow::set_theme(Theme theme) {
    theme_ = theme;
    const auto number = std::ranges::find(themes, theme) - themes.begin();
    theme_entries_.at(as_index(number))->setChecked(true);
    const Palette palette = palette_of(theme);
    QApplication::setPalette(widget_palette(palette));
    setStyleSheet(style_sheet(palette));
    timeline_->set_colors(palette);
    minimap_->set_colors(palette);
    what_if_->set_colors(palette);
    heat_map_->set_colors(palette);
    why_->set_colors(palette);
    actions_->set_colors(palette);
    errors_->set_colors(palette);
    critical_path_->set_colors(palette);
    translations_->set_colors(palette);
    groups_->set_colors(palette);
    training_->set_colors(palette);
    legend_->set_colors(palette);
    start_->set_colors(palette);
    if (playground_ != nullptr) {
        playground_->set_colors(palette);
    }
    if (planning_ != nullptr) {
        planning_->set_colors(palette);
    }
    if (side_by_side_ != nullptr) {
        side_by_side_->set_colors(palette);
    }
}

QWidget* MainWindow::build_header() {
    auto* const header = new QWidget(this);
    title_ = plain_label(header);
    QFont font = title_->font();
    font.setBold(true);
    title_->setFont(font);
    plan_ = plain_label(header);
    plan_->setForegroundRole(QPalette::PlaceholderText);
    auto* const row = new QHBoxLayout(header);
    row->setContentsMargins(margin, 6, margin, 6);
    row->setSpacing(margin);
    train_ = new QPushButton(tr("Train..."), header);
    train_->hide();
    connect(train_, &QPushButton::clicked, this, &MainWindow::show_training);
    row->addWidget(title_);
    row->addWidget(plan_);
    row->addWidget(train_);
    auto* const add = new QPushButton(tr("Add to comparison"), header);
    set_tip(*add, tr("Show this run beside others, with what differs and why"));
    connect(add, &QPushButton::clicked, this, &MainWindow::add_to_comparison);
    row->addWidget(add);
    row->addStretch(1);
    row->addWidget(legend_);
    return header;
}

QFrame* MainWindow::build_banner() {
    banner_ = new QFrame(this);
    banner_->setObjectName(QStringLiteral("Banner"));  // its colours: style_sheet
    banner_text_ = plain_label(banner_);
    banner_text_->setWordWrap(true);
    banner_text_->setTextInteractionFlags(Qt::TextSelectableByMouse);
    auto* const dismiss = new QToolButton(banner_);
    dismiss->setText(QStringLiteral("\u00d7"));
    dismiss->setAutoRaise(true);
    dismiss->setAccessibleName(tr("Close the message"));
    connect(dismiss, &QToolButton::clicked, this, [this] {
        banner_text_->clear();
        banner_->hide();
    });
    auto* const row = new QHBoxLayout(banner_);
    row->setContentsMargins(margin, 8, margin, 8);
    row->addWidget(banner_text_, 1);
    row->addWidget(dismiss, 0, Qt::AlignTop);
    banner_->hide();
    return banner_;
}

void MainWindow::show_banner(const QString& text) {
    banner_text_->setText(text);
    banner_->setAccessibleName(text);
    banner_->setVisible(!text.isEmpty());
}

void MainWindow::show_step() {
    if (run_->empty()) {
        step_->setText(tr("No run is open"));
        return;
    }
    if (!shows_run()) {
        step_->clear();
        return;
    }
    const std::vector<DetailLine> medians = run_lines(*run_);
    const DetailLine line =
        medians.empty() ? step_lines(*run_, run_->main_step()).front() : medians.front();
    QStringList parts{medians.empty() ? tr("step") : tr("step, median")};
    const auto add = [&](const std::string& what, const std::string& value) {
        if (!value.empty()) {
            parts += QString::fromStdString(what + " " + value);
        }
    };
    add(side_name(*run_, Side::Predicted), line.predicted + expected_range(*run_));
    add(side_name(*run_, Side::Measured), line.measured);
    if (run_->comparison) {  // else the sides have other actions
        add("error", line.error + (says_nothing(*run_).empty() ? "" : " (unreliable)"));
    }
    step_->setText(parts.join(QStringLiteral("   ")));
}

/// Shows the use of the time in the selected range, on both sides.
void MainWindow::show_range() {
    if (!selection_->range() || !shows_run()) {
        range_->clear();
        return;
    }
    const TimeRange& range = *selection_->range();
    const StepPlaces& places = timeline_->scene().places;
    QStringList parts{
        tr("selected %1").arg(QString::fromStdString(short_time(range.end - range.begin)))};
    for (const Side side : {Side::Predicted, Side::Measured}) {
        if (run_->twin.has(side)) {
            const RangeUse use = use_of_range(run_->twin, places, side, range.begin, range.end);
            parts += tr("%1: busy %2, bubble %3")
                         .arg(QString::fromStdString(side_name(*run_, side)),
                              QString::fromStdString(short_percent(use.busy_share())),
                              QString::fromStdString(short_percent(use.bubble_share())));
        }
    }
    range_->setText(parts.join(QStringLiteral("   ")));
}

/// The lists of all panels are about the selected range and the shown ranks.
void MainWindow::filter_panels() {
    RangeFilterPointer filter;
    const Tracks& tracks = timeline_->tracks();
    std::vector<bool> is_shown(tracks.size(), true);
    for (const Track& track : tracks) {
        if (std::cmp_less(track.rank, is_shown.size())) {
            is_shown[as_index(track.rank)] = !track.hidden;
        }
    }
    const std::optional<TimeRange>& range = selection_->range();
    if (!run_->empty() && (range || std::ranges::count(is_shown, false) > 0)) {
        filter = std::make_shared<const RangeFilter>(timeline_->scene().places,
                                                     range ? range->begin : Duration{},
                                                     range ? range->end : Duration{},
                                                     std::move(is_shown));
    } else if (!is_filtered_) {
        return;
    }
    is_filtered_ = filter != nullptr;
    why_->set_range(filter);
    actions_->set_range(filter);
    errors_->set_range(filter);
    critical_path_->set_range(filter);
}

void MainWindow::build_search() {
    finder_ = new Finder(centralWidget());
    search_ = new SearchLine(centralWidget());
    auto* const column = static_cast<QVBoxLayout*>(minimap_->parentWidget()->layout());
    column->insertWidget(column->indexOf(minimap_) + 1, search_);
    connect(search_, &SearchLine::typed, this, &MainWindow::search);
    connect(search_, &SearchLine::next_wanted, this, &MainWindow::go_to_found);
    connect(search_, &SearchLine::left, this, [this] {
        found_.clear();
        timeline_->set_found({});
        timeline_->setFocus();
    });
}

void MainWindow::search(const QString& text) {
    const std::optional<SearchQuery> query = parse_query(text.toStdString());
    found_.clear();
    if (query && !run_->empty()) {
        const int step = timeline_->current_step();
        const Mode mode = timeline_->mode();
        const Side side =
            run_->twin.has(main_side(mode)) ? main_side(mode) : other(main_side(mode));
        found_ = find_spans(run_->twin, side, step, *query);
    }
    timeline_->set_found(found_);
    search_->show_count(text.isEmpty()   ? QString()
                        : !query         ? tr("unknown search; try 1F2 or rank 1")
                        : found_.empty() ? tr("none")
                                         : tr("%1 in this step").arg(found_.size()));
}

void MainWindow::go_to_found(int direction) {
    if (const auto next = next_found(run_->twin, found_, selection_->span(), direction)) {
        timeline_->go_to(*next);
    }
}

/// Leaves the search, if there is one, else clears the selection; bound to Esc.
void MainWindow::step_back() {
    if (search_->isVisible()) {
        search_->leave();
    } else {
        timeline_->clear();
        timeline_->setFocus();
    }
}

void MainWindow::ask_for_command() {
    std::vector<Finder::Entry> entries;
    for (QAction* const action : commands()) {
        entries.push_back({.text = words_of(*action),
                           .detail = action->shortcut().toString(QKeySequence::NativeText),
                           .take = [action] { action->trigger(); }});
    }
    finder_->ask(tr("Command"), std::move(entries));
}

void MainWindow::ask_for_rank() {
    std::vector<Finder::Entry> entries;
    for (const Track& track : timeline_->tracks()) {
        entries.push_back({.text = tr("rank %1").arg(track.rank),
                           .detail = {},
                           .take = [this, rank = track.rank] { go_to_rank(rank); }});
    }
    finder_->ask(tr("Rank"), std::move(entries));
}

/// Shows it where it is hidden or folded, and selects its first action.
void MainWindow::go_to_rank(int rank) {
    Tracks tracks = timeline_->tracks();
    for (Track& track : tracks) {
        if (track.rank == rank) {
            track.hidden = track.folded = false;
        }
    }
    timeline_->set_tracks(std::move(tracks));
    for (const Side side : {main_side(timeline_->mode()), other(main_side(timeline_->mode()))}) {
        const SpanRef before{
            .side = side, .step = timeline_->current_step(), .rank = rank, .cell = -1};
        if (const auto first = next_in_row(run_->twin, before, +1)) {
            timeline_->go_to(*first);
            timeline_->setFocus();
            return;
        }
    }
}

}  // namespace pipetwin::gui
