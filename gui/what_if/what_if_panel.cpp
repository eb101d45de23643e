// SPDX-License-Identifier: Apache-2.0
#include "gui/what_if/what_if_panel.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <QComboBox>
#include <QDoubleSpinBox>
#include <QFrame>
#include <QGridLayout>
#include <QLabel>
#include <QPushButton>
#include <QScrollArea>
#include <QScrollBar>
#include <QSignalBlocker>
#include <QSlider>
#include <QSpinBox>
#include <QUndoStack>
#include <QVBoxLayout>

#include "core/base/as_index.h"
#include "core/base/short_number.h"
#include "core/scenario/scenario_words.h"
#include "gui/base/number_box.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/view/analysis/action_details.h"
#include "gui/view/run/planned_run.h"
#include "gui/view/run/scenario_run.h"
#include "gui/view/what_if/what_if.h"
#include "gui/what_if/partition_editor.h"
#include "sim/calibration/step_range.h"

namespace pipetwin::gui {

namespace {

constexpr int what_if_margin = 12;
constexpr int line_spacing = 2;  ///< between lines: many of them are seen in a low window
constexpr int log_steps = 1000;
constexpr int label_column = 0;
constexpr int slider_column = 1;
constexpr int number_column = 2;
constexpr double least_scale = 0.01;  ///< of the costs of a stage
constexpr double most_scale = 100;

/// 1..log_steps over the range; 0 stands for no value.
int to_step(double value, double least, double most) {
    const double share = std::log(value / least) / std::log(most / least);
    return std::clamp(static_cast<int>(std::lround(share * (log_steps - 1))) + 1, 1, log_steps);
}

double to_value(int step, double least, double most) {
    return least * std::pow(most / least, static_cast<double>(step - 1) / (log_steps - 1));
}

/// "-1.2 %", "+3.4 %".
QString change_text(double now, double before) {
    return text_of(percent_text(before > 0 ? 100 * (now / before - 1) : 0));
}

QLabel* line_of_text(QWidget* parent) {
    QLabel* const label = plain_label(parent);
    label->setWordWrap(true);
    label->setTextInteractionFlags(Qt::TextSelectableByMouse);
    return label;
}

/// Asks for room for all that it shows, and can be as low as one control; a QScrollArea never asks
/// for more than 24 lines.
class WholeArea : public QScrollArea {
  public:
    using QScrollArea::QScrollArea;

    QSize sizeHint() const override { return widget()->sizeHint(); }
    QSize minimumSizeHint() const override {
        return {QScrollArea::minimumSizeHint().width(), 2 * fontMetrics().height()};
    }
};

}  // namespace

/// One change of the settings. Those with one serial number are one.
class WhatIfCommand : public QUndoCommand {
  public:
    WhatIfCommand(WhatIfPanel* panel, const QString& what, WhatIf after, int serial)
        : QUndoCommand(what),
          panel_(panel),
          before_(panel->settings()),
          after_(std::move(after)),
          serial_(serial) {}

    void undo() override { panel_->take_settings(before_); }
    void redo() override { panel_->take_settings(after_); }
    int id() const override { return 1; }

    bool mergeWith(const QUndoCommand* other) override {
        const auto* const next = dynamic_cast<const WhatIfCommand*>(other);
        if (next == nullptr || next->serial_ != serial_) {
            return false;
        }
        after_ = next->after_;
        return true;
    }

  private:
    WhatIfPanel* panel_;
    WhatIf before_;
    WhatIf after_;
    int serial_;
};

WhatIfPanel::WhatIfPanel(Selection*, QWidget* parent)
    : QWidget(parent), controller_(new SimulationController(this)), undo_(new QUndoStack(this)) {
    setAccessibleName(tr("What if"));
    build_area();
    results_ = build_results();
    sentence_ = line_of_text(this);
    sentence_->setAccessibleName(tr("What-if"));
    // What a turn comes to is seen without scrolling, and does not move what is being turned.
    auto* const column = new QVBoxLayout(this);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(0);
    column->addWidget(area_);
    auto* const line = new QFrame(this);  // below it nothing is scrolled
    line->setFrameShape(QFrame::HLine);
    line->setFrameShadow(QFrame::Plain);
    line->setForegroundRole(QPalette::Mid);
    column->addWidget(line);
    for (QWidget* const widget : std::initializer_list<QWidget*>{sentence_, results_}) {
        widget->setContentsMargins(
            what_if_margin, what_if_margin / 2, what_if_margin, what_if_margin / 2);
        column->addWidget(widget);
    }
    column->addStretch(1);
    connect(controller_, &SimulationController::source_changed, this, &WhatIfPanel::take_source);
    connect(controller_, &SimulationController::simulated, this, &WhatIfPanel::show_result);
    show_run(nullptr);
}

/// Builds the area of the controls, as high as they are where there is room; else it scrolls.
void WhatIfPanel::build_area() {
    area_ = new WholeArea(this);
    area_->setWidgetResizable(true);
    area_->setFrameShape(QFrame::NoFrame);
    area_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    area_->setSizePolicy(QSizePolicy::Preferred, QSizePolicy::Maximum);
    controls_ = build_controls();
    // Nothing of the controls may lie beyond the edge.
    controls_->setMinimumWidth(controls_->minimumSizeHint().width());
    area_->setMinimumWidth(controls_->minimumWidth() +
                           area_->verticalScrollBar()->sizeHint().width());
    area_->setWidget(controls_);
}

QWidget* WhatIfPanel::build_controls() {
    auto* const controls = new QWidget(this);
    auto* const grid = new QGridLayout(controls);
    grid->setContentsMargins(
        what_if_margin, what_if_margin / 2, what_if_margin, what_if_margin / 2);
    grid->setVerticalSpacing(line_spacing);
    grid->setColumnStretch(slider_column, 1);
    stages_ = add_turn(grid, tr("Ran&ks (K)"), &WhatIf::stages);
    micro_batches_ = add_turn(grid, tr("&Micro-batches (M)"), &WhatIf::micro_batches);
    build_choices(grid);
    bandwidth_ = add_log_turn(
        grid, tr("Link &bandwidth"), tr(" GB/s"), bandwidths, &WhatIf::gigabytes_per_second);
    latency_ = add_log_turn(grid,
                            tr("Link &latency"),
                            " " + unit_of(std::chrono::microseconds(1)),
                            latencies,
                            &WhatIf::latency_us);
    build_scale(grid);
    build_partition(grid);
    note_ = line_of_text(controls);
    note_->setForegroundRole(QPalette::PlaceholderText);
    grid->addWidget(note_, grid->rowCount(), label_column, 1, 3);
    return controls;
}

WhatIfPanel::Turn WhatIfPanel::add_turn(QGridLayout* grid,
                                        const QString& name,
                                        int WhatIf::*value) {
    Turn turn{.slider = new QSlider(Qt::Horizontal), .number = new NumberBox};
    QLabel* const label = plain_label(nullptr, name);
    label->setBuddy(turn.number);
    const QString plain = QString(name).remove(QLatin1Char('&'));
    turn.slider->setAccessibleName(plain);
    turn.number->setAccessibleName(plain);
    turn.number->setKeyboardTracking(false);
    const int row = grid->rowCount();
    grid->addWidget(label, row, label_column);
    grid->addWidget(turn.slider, row, slider_column);
    grid->addWidget(turn.number, row, number_column);
    const auto turned = [this, plain, value](int to, bool continues) {
        WhatIf settings = settings_;
        settings.*value = to;
        if (settings.stages != settings_.stages) {
            settings = with_pieces(settings_, to, settings_.chunks);
        }
        change(plain, std::move(settings), continues);
    };
    connect(turn.slider, &QSlider::sliderPressed, this, [this] { ++serial_; });
    connect(turn.slider, &QSlider::valueChanged, this, [turned, slider = turn.slider](int to) {
        turned(to, slider->isSliderDown());
    });
    connect(turn.number, &QSpinBox::valueChanged, this, [turned](int to) { turned(to, false); });
    return turn;
}

WhatIfPanel::LogTurn WhatIfPanel::add_log_turn(QGridLayout* grid,
                                               const QString& name,
                                               const QString& unit,
                                               Range range,
                                               std::optional<double> WhatIf::*value) {
    LogTurn turn{.slider = new QSlider(Qt::Horizontal), .number = new DecimalBox};
    QLabel* const label = plain_label(nullptr, name);
    label->setBuddy(turn.number);
    const QString plain = QString(name).remove(QLatin1Char('&'));
    turn.slider->setAccessibleName(plain);
    turn.slider->setRange(0, log_steps);
    turn.slider->setPageStep(log_steps / 20);
    turn.number->setAccessibleName(plain);
    turn.number->setRange(0, range.most);
    turn.number->setDecimals(2);
    turn.number->setStepType(QAbstractSpinBox::AdaptiveDecimalStepType);
    turn.number->setSpecialValueText(tr("unchanged"));
    turn.number->setSuffix(unit);
    turn.number->setKeyboardTracking(false);
    set_tip(*turn.number, tr("up to %1%2; 0: unchanged").arg(range.most).arg(unit));
    const int row = grid->rowCount();
    grid->addWidget(label, row, label_column);
    grid->addWidget(turn.slider, row, slider_column);
    grid->addWidget(turn.number, row, number_column);
    const auto turned = [this, plain, value](std::optional<double> to, bool continues) {
        WhatIf settings = settings_;
        settings.*value = to;
        change(plain, std::move(settings), continues);
    };
    connect(turn.slider, &QSlider::sliderPressed, this, [this] { ++serial_; });
    connect(
        turn.slider, &QSlider::valueChanged, this, [turned, range, slider = turn.slider](int step) {
            turned(
                step == 0 ? std::nullopt : std::optional(to_value(step, range.least, range.most)),
                slider->isSliderDown());
        });
    connect(turn.number, &QDoubleSpinBox::valueChanged, this, [turned](double to) {
        turned(to == 0 ? std::nullopt : std::optional(to), false);
    });
    return turn;
}

QComboBox* WhatIfPanel::add_choice(QGridLayout* grid, const QString& name) {
    auto* const choice = new QComboBox;
    QLabel* const label = plain_label(nullptr, name);
    label->setBuddy(choice);
    choice->setAccessibleName(QString(name).remove(QLatin1Char('&')));
    const int row = grid->rowCount();
    grid->addWidget(label, row, label_column);
    grid->addWidget(choice, row, slider_column, 1, 2);
    return choice;
}

void WhatIfPanel::build_choices(QGridLayout* grid) {
    schedule_ = add_choice(grid, tr("S&chedule"));
    connect(schedule_, &QComboBox::currentIndexChanged, this, [this] {
        WhatIf settings = settings_;
        settings.schedule = schedule_->currentText().toStdString();
        const std::vector<int> chunks =
            source() == nullptr ? std::vector<int>{} : source()->ranges(settings).chunks;
        // A schedule of another kind comes with as many chunks as it takes.
        if (!chunks.empty() && std::ranges::find(chunks, settings.chunks) == chunks.end()) {
            settings = with_pieces(settings, settings.stages, chunks.front());
        }
        change(tr("Schedule"), std::move(settings));
    });
    chunks_ = add_choice(grid, tr("Ch&unks per rank (v)"));
    connect(chunks_, &QComboBox::currentIndexChanged, this, [this] {
        change(tr("Chunks per rank"),
               with_pieces(settings_, settings_.stages, chunks_->currentData().toInt()));
    });
    recompute_ = add_choice(grid, tr("Recompu&te"));
    for (const std::string_view word : words::recomputes) {
        recompute_->addItem(text_of(std::string(word)));
    }
    connect(recompute_, &QComboBox::currentIndexChanged, this, [this](int index) {
        if (index >= 0 && index < static_cast<int>(words::recomputes.size())) {
            WhatIf settings = settings_;
            settings.recompute = static_cast<Recompute>(index);
            change(tr("Recompute"), std::move(settings));
        }
    });
}

void WhatIfPanel::build_scale(QGridLayout* grid) {
    scaled_stage_ = new NumberBox;
    scaled_stage_->setPrefix(tr("stage "));
    scaled_stage_->setAccessibleName(tr("Stage whose costs are scaled"));
    scale_ = new DecimalBox;
    scale_->setRange(least_scale, most_scale);
    scale_->setSingleStep(0.05);
    scale_->setPrefix(QStringLiteral("\u00d7 "));
    scale_->setKeyboardTracking(false);
    scale_->setAccessibleName(tr("Scale of the stage's costs"));
    set_tip(*scale_, tr("%1 to %2").arg(least_scale).arg(most_scale));
    QLabel* const label = plain_label(nullptr, tr("C&osts"));
    label->setBuddy(scaled_stage_);
    const int row = grid->rowCount();
    grid->addWidget(label, row, label_column);
    grid->addWidget(scaled_stage_, row, slider_column);
    grid->addWidget(scale_, row, number_column);
    connect(scaled_stage_, &QSpinBox::valueChanged, this, [this] { show_scale(); });
    connect(scale_, &QDoubleSpinBox::valueChanged, this, [this](double to) {
        WhatIf settings = settings_;
        const std::size_t stage = as_index(scaled_stage_->value());
        settings.cost_scale.resize(as_index(scaled_stage_->maximum()) + 1, 1);
        settings.cost_scale.at(stage) = to;
        if (std::ranges::all_of(settings.cost_scale, [](double scale) { return scale == 1; })) {
            settings.cost_scale.clear();
        }
        change(tr("Costs"), std::move(settings));
    });
}

void WhatIfPanel::build_partition(QGridLayout* grid) {
    partition_ = new PartitionEditor;
    partition_text_ = line_of_text(nullptr);
    balance_ = new QPushButton(tr("Bala&nce"));
    reset_ = new QPushButton(tr("Re&set"));
    partition_label_ = plain_label(nullptr, tr("&Partition"));
    partition_label_->setBuddy(partition_);
    int row = grid->rowCount();
    grid->addWidget(partition_label_, row, label_column, 1, 3);
    grid->addWidget(partition_, ++row, label_column, 1, 3);
    grid->addWidget(partition_text_, ++row, label_column, 1, 3);
    auto* const buttons = new QHBoxLayout;
    buttons->addWidget(balance_);
    buttons->addStretch(1);
    buttons->addWidget(reset_);
    grid->addLayout(buttons, ++row, label_column, 1, 3);
    connect(partition_,
            &PartitionEditor::cuts_moved,
            this,
            [this](const std::vector<int>& pieces, bool dragging) {
                WhatIf settings = settings_;
                settings.partition = pieces;
                change(tr("Partition"), std::move(settings), dragging);
            });
    connect(partition_, &PartitionEditor::drag_begun, this, [this] { ++serial_; });
    connect(balance_, &QPushButton::clicked, this, [this] {
        WhatIf settings = settings_;
        settings.partition.reset();
        change(tr("Balance"), std::move(settings));
    });
    connect(reset_, &QPushButton::clicked, this, &WhatIfPanel::reset);
}

WhatIfPanel::ResultLine WhatIfPanel::add_result(QGridLayout* grid, const QString& name) {
    ResultLine line{.value = plain_label(nullptr), .change = plain_label(nullptr)};
    const int row = grid->rowCount();
    QLabel* const label = plain_label(nullptr, name);
    set_tip(*label, meaning_tip(name));
    grid->addWidget(label, row, 0, Qt::AlignTop);
    grid->addWidget(line.value, row, 1, Qt::AlignRight | Qt::AlignTop);
    grid->addWidget(line.change, row, 2, Qt::AlignRight | Qt::AlignTop);
    for (QLabel* const text : {line.value, line.change}) {
        text->setTextInteractionFlags(Qt::TextSelectableByMouse);
    }
    line.value->setAccessibleName(name);
    line.change->setAccessibleName(tr("%1, change from the run").arg(name));
    line.change->setForegroundRole(QPalette::PlaceholderText);
    return line;
}

QWidget* WhatIfPanel::build_results() {
    auto* const results = new QWidget(this);
    auto* const grid = new QGridLayout(results);
    grid->setContentsMargins(0, 0, 0, 0);
    grid->setColumnStretch(2, 1);
    grid->setHorizontalSpacing(what_if_margin);
    grid->setVerticalSpacing(line_spacing);
    step_ = add_result(grid, tr("Step"));
    pipeline_ = add_result(grid, tr("Pipeline"));
    bubble_ = add_result(grid, tr("Bubble"));
    throughput_ = add_result(grid, tr("Throughput"));
    memory_ = add_result(grid, tr("Peak memory"));
    return results;
}

void WhatIfPanel::show_run(std::shared_ptr<const RunData> run) {
    undo_->clear();
    own_.reset();
    shown_.reset();
    drawn_ = run;
    say(run == nullptr ? tr("No run is open.") : tr("Reading the scenario of the run ..."));
    controller_->show_run(std::move(run));
}

void WhatIfPanel::set_colors(const Palette& palette) {
    setPalette(widget_palette(palette));
    partition_->set_colors(palette);
}

void WhatIfPanel::show_links(bool shown) {
    controller_->keep_link_rows(shown);
    const bool draws = source() != nullptr && source()->why_not().empty();
    if (shown && draws && settings_ != source()->settings()) {
        controller_->want(settings_);
    }
}

void WhatIfPanel::take_source() {
    const bool usable = source() != nullptr && source()->why_not().empty();
    controls_->setEnabled(usable);
    area_->setVisible(usable);
    note_->setText(usable ? text_of(source()->note()) : QString());
    if (!usable) {
        say(source() == nullptr ? tr("No run is open.") : text_of(source()->why_not()));
        emit settings_changed();
        emit settled();
        return;
    }
    {
        const QSignalBlocker quiet(schedule_);
        schedule_->clear();
        for (const std::string& name : schedule_choices(*source())) {
            schedule_->addItem(text_of(name));
            set_item_tip(*schedule_, schedule_->count() - 1, text_of(schedule_words(name)));
        }
    }
    take_settings(source()->settings());
}

void WhatIfPanel::choose(int stages, int micro_batches) {
    WhatIf settings = with_pieces(settings_, stages, settings_.chunks);
    settings.micro_batches = micro_batches;
    change(tr("Ranks and micro-batches"), std::move(settings));
}

void WhatIfPanel::reset() {
    if (source() != nullptr) {
        change(tr("Reset"), source()->settings());
    }
}

void WhatIfPanel::change(const QString& what, WhatIf settings, bool continues) {
    if (filling_ || source() == nullptr || settings == settings_) {
        return;
    }
    if (!continues) {
        ++serial_;
    }
    undo_->push(new WhatIfCommand(this, what, std::move(settings), serial_));
}

void WhatIfPanel::take_settings(const WhatIf& settings) {
    settings_ = settings;
    filling_ = true;
    show_settings();
    filling_ = false;
    emit settings_changed();
    controller_->want(settings_);
}

void WhatIfPanel::show_turn(const Turn& turn, int least, int most, int value) {
    turn.slider->setRange(least, most);
    turn.slider->setValue(value);
    turn.number->setRange(least, most);
    const QString range = tr("%1 to %2").arg(least).arg(most);
    for (QWidget* const widget : std::initializer_list<QWidget*>{turn.slider, turn.number}) {
        set_tip(*widget, range);
        widget->setAccessibleDescription(range);
    }
    turn.number->setValue(value);
    turn.slider->setEnabled(least < most);
    turn.number->setEnabled(least < most);
}

void WhatIfPanel::show_log_turn(const LogTurn& turn,
                                Range range,
                                const std::optional<double>& value) {
    // A slider between two of its steps must not turn the value that was typed.
    const int step = value ? to_step(*value, range.least, range.most) : 0;
    turn.slider->setValue(step);
    turn.number->setValue(value.value_or(0));
}

void WhatIfPanel::show_choices(const WhatIfRanges& ranges) {
    schedule_->setCurrentText(text_of(settings_.schedule));
    set_tip(*schedule_, text_of(schedule_words(settings_.schedule)));
    chunks_->clear();
    std::vector<int> chunks = ranges.chunks;
    if (std::ranges::find(chunks, settings_.chunks) == chunks.end()) {
        chunks.insert(chunks.begin(), settings_.chunks);
    }
    for (const int count : chunks) {
        chunks_->addItem(QString::number(count), count);
    }
    chunks_->setCurrentText(QString::number(settings_.chunks));
    chunks_->setEnabled(chunks.size() > 1);
    const std::optional<Recompute> everywhere = settings_.recompute.everywhere();
    const int modes = static_cast<int>(words::recomputes.size());
    if (!everywhere && recompute_->count() == modes) {
        recompute_->addItem(tr("unchanged"));
        set_item_tip(*recompute_, modes, text_of(to_string(settings_.recompute)));
    }
    recompute_->setCurrentIndex(everywhere ? static_cast<int>(*everywhere) : modes);
}

void WhatIfPanel::show_scale() {
    const bool was_filling = std::exchange(filling_, true);
    const std::size_t stage = as_index(scaled_stage_->value());
    scale_->setValue(stage < settings_.cost_scale.size() ? settings_.cost_scale[stage] : 1);
    filling_ = was_filling;
}

void WhatIfPanel::show_settings() {
    const WhatIfRanges ranges = source()->ranges(settings_);
    show_turn(stages_, ranges.least_stages, ranges.most_stages, settings_.stages);
    show_turn(micro_batches_,
              ranges.least_micro_batches,
              ranges.most_micro_batches,
              settings_.micro_batches);
    show_choices(ranges);
    show_log_turn(bandwidth_, bandwidths, settings_.gigabytes_per_second);
    show_log_turn(latency_, latencies, settings_.latency_us);
    bandwidth_.slider->setEnabled(ranges.has_bandwidth);
    bandwidth_.number->setEnabled(ranges.has_bandwidth);
    scaled_stage_->setRange(0, std::max(1, settings_.stages * settings_.chunks) - 1);
    set_tip(*scaled_stage_, tr("%1 to %2").arg(0).arg(scaled_stage_->maximum()));
    show_scale();
    balance_->setEnabled(settings_.partition.has_value());
    set_tip(*balance_, settings_.partition ? QString() : tr("The partition is already balanced"));
    reset_->setEnabled(!(settings_ == source()->settings()));
    for (QWidget* const widget :
         std::initializer_list<QWidget*>{partition_label_, partition_, partition_text_, balance_}) {
        widget->setVisible(ranges.has_partition);
    }
}

/// Shows the partition; the stages of a balanced one are known when it has been planned.
void WhatIfPanel::show_partition() {
    if (shown_ == nullptr || !shown_->plan->partition) {
        return;
    }
    const std::vector<int>& pieces = shown_->plan->partition->layers_per_stage();
    if (!partition_->is_dragging()) {
        partition_->show_partition(source()->layer_times(settings_), pieces);
    }
    partition_label_->setText(
        tr("&Partition (times in %1, without dispatch)").arg(partition_->unit()));
    partition_text_->setText(partition_->summary());
    controls_->layout()->activate();
    area_->updateGeometry();
}

void WhatIfPanel::say(const QString& text) {
    sentence_->setText(text);
    sentence_->setVisible(true);
    results_->setVisible(false);
    note_->clear();
}

void WhatIfPanel::show_result(const WhatIfResult& result) {
    if (!(result.settings == settings_)) {
        return;
    }
    if (settings_ == source()->settings()) {
        own_ = result.outcome.step;
    }
    if (result.outcome.step == nullptr) {
        say(tr("Infeasible: %1.").arg(text_of(result.outcome.reason)) +
            (drawn_ == nullptr ? QString() : tr(" The timeline shows the last feasible what-if.")));
        emit settled();
        return;
    }
    shown_ = result.outcome.step;
    show_step(*shown_);
    show_partition();
    const QString took = tr("Simulated in %1.").arg(text_of(short_time(result.took)));
    QStringList notes{took};
    for (const std::string& note : sentences_of_notes(shown_->plan)) {
        notes += text_of(note);
    }
    notes += text_of(source()->note());
    note_->setText(notes.join(QLatin1Char('\n')).trimmed());
    controls_->layout()->activate();
    area_->updateGeometry();
    if (result.run != drawn_) {
        drawn_ = result.run;
        emit run_changed(drawn_);
    }
    emit settled();
}

/// " (likely 110 to 150 ms)", where a measured step is to be expected; "" where the costs were
/// measured.
std::string WhatIfPanel::expected_range_of(const WhatIfStep& step) const {
    if (!source()->knows_bytes()) {
        return "";
    }
    const PlannedRun& planned = *source()->run().planned;
    const std::optional<ErrorRange> range =
        sim::step_range(step.plan, planned.scenario, planned.profile, step.metrics.step);
    return range ? " (likely " + sim::range_text(step.metrics.step, *range) + ")" : "";
}

void WhatIfPanel::show_step(const WhatIfStep& step) {
    sentence_->setText(step.over_limit.empty()
                           ? QString()
                           : tr("Does not fit: %1.").arg(text_of(step.over_limit)));
    sentence_->setVisible(!sentence_->text().isEmpty());
    results_->setVisible(true);
    const TimeMetrics& now = step.metrics;
    const TimeMetrics& before = own_ == nullptr ? now : own_->metrics;
    step_.value->setText(text_of(short_time(now.step) + expected_range_of(step)));
    step_.change->setText(change_text(to_seconds(now.step), to_seconds(before.step)));
    pipeline_.value->setText(text_of(short_time(now.makespan)));
    pipeline_.change->setText(change_text(to_seconds(now.makespan), to_seconds(before.makespan)));
    bubble_.value->setText(text_of(short_percent(now.bubble.total)));
    bubble_.change->setText(text_of(points_text(100 * (now.bubble.total - before.bubble.total))));
    const Throughput throughput = throughput_of(step.plan, now.step);
    const Throughput own = own_ == nullptr ? throughput : throughput_of(own_->plan, before.step);
    throughput_.value->setText(tr("%1 %2").arg(text_of(short_number(throughput.per_second)),
                                               text_of(std::string(throughput.unit()))));
    throughput_.change->setText(change_text(throughput.per_second, own.per_second));
    show_peaks(step);
}

/// Shows the peak of the rank that needs most; the tooltip lists all of them.
void WhatIfPanel::show_peaks(const WhatIfStep& step) {
    constexpr std::size_t most_ranks = 32;
    QStringList all;
    for (std::size_t rank = 0; rank < step.peaks.size() && rank < most_ranks; ++rank) {
        const std::optional<Bytes> limit = step.plan.memory_limit(static_cast<int>(rank));
        all += tr("rank %1: %2").arg(rank).arg(text_of(format_bytes(step.peaks[rank]))) +
               (limit ? tr(" of %1").arg(text_of(format_bytes(*limit))) : QString());
    }
    if (step.peaks.size() > most_ranks) {
        all += QStringLiteral("...");
    }
    set_tip(*memory_.value, all.join(QLatin1Char('\n')));
    if (step.peaks.empty()) {
        memory_.value->setText(tr("not known"));
        memory_.change->clear();
        return;
    }
    const auto most = std::ranges::max_element(step.peaks);
    memory_.value->setText(
        tr("%1, rank %2").arg(text_of(format_bytes(*most))).arg(most - step.peaks.begin()));
    const bool can_compare = own_ != nullptr && !own_->peaks.empty();
    const Bytes before = can_compare ? std::ranges::max(own_->peaks) : *most;
    memory_.change->setText(
        change_text(static_cast<double>(most->count), static_cast<double>(before.count)));
}

}  // namespace pipetwin::gui
