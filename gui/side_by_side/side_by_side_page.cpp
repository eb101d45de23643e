// SPDX-License-Identifier: Apache-2.0
#include "gui/side_by_side/side_by_side_page.h"

#include <algorithm>
#include <utility>

#include <QEvent>
#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QPushButton>
#include <QScrollArea>
#include <QVBoxLayout>
#include <QtConcurrentRun>

#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/base/short_number.h"
#include "core/schedule/generators/generate.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/base/workers.h"
#include "gui/run/run_list.h"
#include "gui/start/examples.h"
#include "gui/timeline/legend.h"
#include "gui/view/analysis/difference.h"
#include "gui/view/analysis/step_analysis.h"
#include "gui/view/run/planned_run.h"

namespace pipetwin::gui {

namespace {

constexpr int head_margin = 10;
constexpr int tile_gap = 4;
constexpr int highest_row = 40;
constexpr Duration shortest_part{1000};

}  // namespace

SideBySidePage::SideBySidePage(QWidget* parent)
    : QWidget(parent),
      how_many_(plain_label(this)),
      legend_(new Legend(this)),
      area_(new QScrollArea(this)),
      table_(new CompareRunsPanel(this)) {
    setAccessibleName(tr("Comparison"));
    auto* const list = new QWidget(area_);
    column_ = new QVBoxLayout(list);
    column_->setContentsMargins(head_margin, 0, head_margin, head_margin);
    column_->setSpacing(tile_gap);
    column_->addStretch(1);
    area_->setWidget(list);
    area_->setWidgetResizable(true);
    area_->setFrameShape(QFrame::NoFrame);
    area_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    area_->viewport()->installEventFilter(this);
    auto* const whole = new QVBoxLayout(this);
    whole->setContentsMargins(0, 0, 0, 0);
    whole->setSpacing(0);
    whole->addWidget(build_head());
    whole->addWidget(area_, 1);
    whole->addWidget(table_);
    table_->hide();
    connect(table_, &CompareRunsPanel::baseline_wanted, this, [this](const RunHeadline& run) {
        if (const RunTile* const tile = tile_of(run)) {
            make_first(*tile->run());
        }
    });
    connect(table_, &CompareRunsPanel::open_wanted, this, [this](const RunHeadline& run) {
        if (const RunTile* const tile = tile_of(run)) {
            emit chosen(tile->run());
        }
    });
    connect(table_, &CompareRunsPanel::remove_wanted, this, [this](const RunHeadline& run) {
        if (RunTile* const tile = tile_of(run)) {
            remove(tile);
        }
    });
    connect(&explaining_,
            &QFutureWatcher<Sentences>::finished,
            this,
            &SideBySidePage::finish_explaining);
    connect(&reading_, &QFutureWatcher<RunPointer>::finished, this, [this] {
        if (reads_) {
            add(reading_.result());
        }
        read_next();
    });
    say_how_many();
}

SideBySidePage::~SideBySidePage() {
    reading_.disconnect(this);
    explaining_.disconnect(this);
    reading_.waitForFinished();
    explaining_.waitForFinished();
}

QWidget* SideBySidePage::build_head() {
    auto* const head = new QWidget(this);
    auto* const column = new QVBoxLayout(head);
    column->setContentsMargins(head_margin, head_margin / 2, head_margin, head_margin / 2);
    auto* const row = new QHBoxLayout;
    const auto add_button = [&](const QString& text, auto act) {
        auto* const button = new QPushButton(text, head);
        connect(button, &QPushButton::clicked, this, act);
        row->addWidget(button);
    };
    add_button(tr("Add..."), &SideBySidePage::open_wanted);
    auto* const add_schedule = new QPushButton(tr("Add schedule"), head);
    set_tip(*add_schedule, tr("Add a schedule of the pipeline that the playground has"));
    auto* const schedules = new QMenu(add_schedule);
    for (const ScheduleName& known : known_schedules()) {
        const QString name = text_of(std::string(known.name));
        connect(schedules->addAction(name), &QAction::triggered, this, [this, name] {
            emit schedule_wanted(name);
        });
    }
    add_schedule->setMenu(schedules);
    row->addWidget(add_schedule);
    auto* const add_example = new QPushButton(tr("Add example"), head);
    auto* const menu = new QMenu(add_example);
    for (const Example& example : examples()) {
        connect(menu->addAction(example.name), &QAction::triggered, this, [this, example] {
            emit example_wanted(example.file);
        });
    }
    add_example->setMenu(menu);
    add_example->setEnabled(!menu->isEmpty());
    row->addWidget(add_example);
    add_button(tr("Whole step"), &SideBySidePage::show_all_of_it);
    table_button_ = new QPushButton(tr("Table"), head);
    table_button_->setCheckable(true);
    set_tip(*table_button_, tr("Step, bubble, memory and throughput of each run beside the first"));
    connect(table_button_, &QPushButton::toggled, this, &SideBySidePage::show_table);
    row->addWidget(table_button_);
    add_button(tr("Remove all"), &SideBySidePage::clear);
    row->addStretch(1);
    row->addWidget(legend_);
    how_many_->setWordWrap(true);
    column->addLayout(row);
    column->addWidget(how_many_);
    return head;
}

void SideBySidePage::open(std::vector<std::filesystem::path> paths, int replica) {
    for (std::filesystem::path& path : paths) {
        unread_.push_back({.path = std::move(path), .replica = replica});
    }
    if (!reading_.isRunning()) {
        read_next();
    }
}

void SideBySidePage::read_next() {
    if (unread_.empty()) {
        emit settled();
        return;
    }
    const Unread next = unread_.front();
    unread_.erase(unread_.begin());
    reads_ = true;
    reading_.setFuture(QtConcurrent::run(workers(), [next]() -> RunPointer {
        return std::make_shared<const RunData>(load_run(next.path, next.replica));
    }));
}

RunTile* SideBySidePage::make_tile(RunPointer run) {
    auto* const tile = new RunTile(std::move(run), this);
    tile->set_colors(palette_);
    connect(tile, &RunTile::chosen, this, [this, tile] {
        if (!tile->run()->empty()) {
            emit chosen(tile->run());
        }
    });
    connect(tile, &RunTile::remove_wanted, this, [this, tile] { remove(tile); });
    if (RunPicture* const picture = tile->picture()) {
        connect(picture, &RunPicture::zoom_wanted, this, &SideBySidePage::zoom);
        connect(picture, &RunPicture::pan_wanted, this, &SideBySidePage::pan);
    }
    return tile;
}

void SideBySidePage::add(RunPointer run) {
    RunTile* const tile = make_tile(std::move(run));
    const auto same = std::ranges::find(tiles_, tile_of(*tile->run()));
    if (same == tiles_.end()) {
        column_->insertWidget(static_cast<int>(tiles_.size()), tile);
        tiles_.push_back(tile);
    } else {
        RunTile* const old = std::exchange(*same, tile);
        delete column_->replaceWidget(old, tile);
        old->hide();
        old->deleteLater();
    }
    if (!tile->run()->empty()) {
        table_->add(*tile->run());
    }
    show_all_of_it();
    explain();
}

/// The tile of the run of these files and this title; null where there is none.
RunTile* SideBySidePage::tile_of(const RunData& run) const {
    const auto found = std::ranges::find_if(tiles_, [&run](const RunTile* tile) {
        return paths_of(*tile->run()) == paths_of(run) && tile->run()->title == run.title;
    });
    return found == tiles_.end() ? nullptr : *found;
}

RunTile* SideBySidePage::tile_of(const RunHeadline& run) const {
    const auto found = std::ranges::find_if(tiles_, [&run](const RunTile* tile) {
        return paths_of(*tile->run()) == run.paths && tile->run()->title == run.title;
    });
    return found == tiles_.end() ? nullptr : *found;
}

void SideBySidePage::make_first(const RunData& run) {
    const auto found = std::ranges::find(tiles_, tile_of(run));
    if (found == tiles_.end()) {
        return;
    }
    std::rotate(tiles_.begin(), found, std::next(found));
    column_->removeWidget(tiles_.front());
    column_->insertWidget(0, tiles_.front());
    table_->make_baseline(run);
    show_part();
    explain();
}

QWidget& SideBySidePage::pictures() {
    return *area_->widget();
}

void SideBySidePage::show_table(bool shown) {
    table_button_->setChecked(shown);
    table_->setVisible(shown);
}

/// Compares every step with that of the first, on a worker.
void SideBySidePage::explain() {
    if (explaining_.isRunning()) {
        explains_again_ = true;
        return;
    }
    std::vector<RunPointer> runs;
    for (const RunTile* const tile : tiles_) {
        if (tile->picture() != nullptr) {
            runs.push_back(tile->run());
        }
    }
    if (runs.empty()) {
        return;
    }
    explaining_.setFuture(QtConcurrent::run(workers(), [runs = std::move(runs)]() {
        Sentences sentences;
        const auto step_of = [](const RunPointer& run) {
            return analysis_of(run, shown_side(*run), run->main_step());
        };
        const auto first = step_of(runs.front());
        const std::string name = name_of_shown(*runs.front()).toStdString();
        for (const RunPointer& run : runs) {
            sentences.emplace_back(run,
                                   run == runs.front()
                                       ? QString()
                                       : text_of(difference_sentence(*step_of(run), *first, name)));
        }
        return sentences;
    }));
}

/// A run that has gone or changed since is not spoken of.
void SideBySidePage::finish_explaining() {
    if (std::exchange(explains_again_, false)) {
        explain();
        return;
    }
    constexpr std::size_t most_with_room = 4;
    for (const auto& [run, sentence] : explaining_.result()) {
        for (RunTile* const tile : tiles_) {
            if (tile->run() == run) {
                tile->explain(sentence, tiles_.size() <= most_with_room);
            }
        }
    }
    show_part();
    emit explained();
}

void SideBySidePage::remove(RunTile* tile) {
    std::erase(tiles_, tile);
    table_->remove(*tile->run());
    if (!tiles_.empty()) {
        table_->make_baseline(*tiles_.front()->run());
    }
    tile->hide();
    tile->deleteLater();
    show_all_of_it();
    explain();
}

void SideBySidePage::clear() {
    unread_.clear();
    reads_ = false;
    while (!tiles_.empty()) {
        remove(tiles_.back());
    }
}

Duration SideBySidePage::longest() const {
    Duration longest{};
    for (const RunTile* const tile : tiles_) {
        longest = std::max(longest, tile->step());
    }
    return longest;
}

void SideBySidePage::show_all_of_it() {
    part_ = {.begin = Duration{}, .end = std::max(longest(), shortest_part)};
    show_part();
}

void SideBySidePage::zoom(double factor, double share) {
    const Duration length = part_.end - part_.begin;
    const auto of = [&](double part) {
        return Duration{static_cast<std::int64_t>(part * static_cast<double>(length.count()))};
    };
    const Duration fixed = part_.begin + of(share);
    const Duration all = std::max(longest(), shortest_part);
    const Duration zoomed = std::clamp(of(1 / factor), shortest_part, all);
    const Duration before{static_cast<std::int64_t>(share * static_cast<double>(zoomed.count()))};
    part_.begin = std::clamp(fixed - before, Duration{}, all - zoomed);
    part_.end = part_.begin + zoomed;
    show_part();
}

void SideBySidePage::pan(double share) {
    const Duration length = part_.end - part_.begin;
    const Duration moved{static_cast<std::int64_t>(share * static_cast<double>(length.count()))};
    const Duration last = std::max(Duration{}, longest() - length);
    part_.begin = std::clamp(part_.begin + moved, Duration{}, last);
    part_.end = part_.begin + length;
    show_part();
}

/// The rows follow the height of the list.
bool SideBySidePage::eventFilter(QObject* watched, QEvent* event) {
    if (event->type() == QEvent::Resize) {
        show_part();
    }
    return QWidget::eventFilter(watched, event);
}

/// Height of every row in pixels: the pictures fill the window as far as rows stay between the
/// least and the largest height.
int SideBySidePage::row_height() const {
    int least = 1;
    int rows = 0;
    const int width = area_->viewport()->width() - 2 * head_margin;
    int room = area_->viewport()->height() - column_->contentsMargins().bottom();
    for (const RunTile* const tile : tiles_) {
        room -= tile->head_height(width) + tile_gap;
        if (const RunPicture* const picture = tile->picture()) {
            room -= picture_gap + (rows == 0 ? picture->ruler_height() : 0);
            rows += tile->run()->twin.rank_count();
            least = std::max(least, picture->least_row_height());
        }
    }
    return rows == 0 ? least : std::clamp(room / rows - picture_gap, least, highest_row);
}

/// The times stand above the first rows.
void SideBySidePage::show_part() {
    int label_width = 0;
    for (const RunTile* const tile : tiles_) {
        if (tile->picture() != nullptr) {
            label_width = std::max(label_width, tile->picture()->needed_label_width());
        }
    }
    const int height = row_height();
    bool is_first = true;
    const RunTile* first = nullptr;
    for (RunTile* const tile : tiles_) {
        if (tile->picture() != nullptr) {
            tile->picture()->show_as({.part = part_,
                                      .label_width = label_width,
                                      .has_ruler = is_first,
                                      .row_height = height});
            first = is_first ? tile : first;
            is_first = false;
        }
        tile->compare_with(first);
    }
    std::vector<const RunData*> runs;
    for (const RunTile* const tile : tiles_) {
        runs.push_back(tile->run().get());
    }
    legend_->show_runs(runs);
    say_how_many();
}

void SideBySidePage::say_how_many() {
    const bool is_estimated = std::ranges::any_of(tiles_, [](const RunTile* tile) {
        const RunData& run = *tile->run();
        return !run.scenario.empty() && run.planned && !run.planned->knows_bytes;
    });
    how_many_->setText(
        tiles_.empty()
            ? tr("Nothing to compare yet. Add runs, scenarios or schedules; each becomes a row of "
                 "one picture.")
            : tr("%1 on one time axis of %2. Click one to see it with all panels; Ctrl+wheel "
                 "zooms.%3")
                  .arg(text_of(counted(tiles_.size(), "run")),
                       text_of(short_time(longest())),
                       is_estimated ? tr(" 'pipetwin profile SCENARIO' replaces estimated costs by "
                                         "those of this machine.")
                                    : QString()));
}

void SideBySidePage::set_colors(const Palette& palette) {
    palette_ = palette;
    legend_->set_colors(palette);
    for (RunTile* const tile : tiles_) {
        tile->set_colors(palette);
    }
}

}  // namespace pipetwin::gui
