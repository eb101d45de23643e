// SPDX-License-Identifier: Apache-2.0
#include "gui/what_if/heat_map_panel.h"

#include <array>
#include <utility>

#include <QComboBox>
#include <QHBoxLayout>
#include <QLabel>
#include <QVBoxLayout>
#include <QtConcurrentRun>

#include "core/base/as_index.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/base/workers.h"
#include "gui/view/what_if/what_if.h"

namespace pipetwin::gui {

namespace {

/// A map shows every number of stages and micro-batches, so it is the same for all of them, unless
/// something is said of the pieces of one.
bool have_one_map(WhatIf a, const WhatIf& b) {
    const bool of_pieces = a.partition || !a.cost_scale.empty() || !a.recompute.everywhere();
    if (!of_pieces) {
        a.stages = b.stages;
    }
    a.micro_batches = b.micro_batches;
    return a == b;
}

}  // namespace

HeatMapPanel::HeatMapPanel(Selection*, QWidget* parent)
    : QWidget(parent),
      value_(new QComboBox(this)),
      text_(plain_label(this)),
      view_(new HeatMapView(this)) {
    setAccessibleName(tr("Heat map"));
    value_->addItems({tr("Throughput"), tr("Bubble"), tr("Peak memory")});
    value_->setSizeAdjustPolicy(QComboBox::AdjustToContents);
    value_->setAccessibleName(tr("Quantity of the heat map"));
    text_->setWordWrap(true);
    auto* const row = new QHBoxLayout;
    row->addWidget(value_);
    row->addWidget(text_, 1);
    auto* const column = new QVBoxLayout(this);
    column->setContentsMargins(panel_margin, panel_margin, panel_margin, panel_margin);
    column->addLayout(row);
    column->addWidget(view_, 1);
    connect(value_, &QComboBox::currentIndexChanged, this, [this](int index) {
        constexpr std::array values{
            HeatValue::Throughput, HeatValue::Bubble, HeatValue::PeakMemory};
        view_->show_value(values.at(as_index(index)));
        if (is_current()) {
            say(view_->summary());
        }
    });
    connect(view_, &HeatMapView::chosen, this, &HeatMapPanel::chosen);
    connect(&worker_, &QFutureWatcher<HeatMap>::finished, this, [this] {
        working_ = false;
        HeatMap map = worker_.result();
        if (!is_current() || map.empty()) {
            mapped_source_.reset();
            want();
            return;
        }
        value_->setItemText(0, tr("Throughput (%1)").arg(per_second(map)));
        view_->show_map(std::move(map));
        show_marks();
        say(view_->summary());
        want();  // marks it, or begins again where the settings have left its axes
    });
    say(tr("No run is open."));
}

HeatMapPanel::~HeatMapPanel() {
    stop();
}

void HeatMapPanel::set_colors(const Palette& palette) {
    setPalette(widget_palette(palette));
    view_->set_colors(palette);
}

void HeatMapPanel::say(const QString& text) {
    text_->setText(text);
}

void HeatMapPanel::stop() {
    if (stopped_ != nullptr) {
        *stopped_ = true;
    }
}

bool HeatMapPanel::is_current() const {
    return mapped_source_ != nullptr && mapped_source_ == source_ &&
           have_one_map(mapped_, settings_);
}

void HeatMapPanel::show_what_if(std::shared_ptr<const WhatIfSource> source,
                                const WhatIf& settings) {
    source_ = std::move(source);
    settings_ = settings;
    if (source_ == nullptr || !source_->why_not().empty()) {
        stop();
        mapped_source_.reset();
        view_->show_map({});
        value_->hide();
        say(source_ == nullptr ? tr("No run is open.")
                               : QString::fromStdString(source_->why_not()));
        return;
    }
    value_->show();
    want();
}

void HeatMapPanel::showEvent(QShowEvent* event) {
    QWidget::showEvent(event);
    want();
}

void HeatMapPanel::want() {
    if (source_ == nullptr || !source_->why_not().empty() || !isVisible()) {
        return;
    }
    const bool on_axes =
        mapped_ == settings_ ||
        view_->whole_map().place_of(settings_.stages, settings_.micro_batches).has_value();
    if (working_ && !is_current()) {
        stop();  // the next one begins when this one has ended
        return;
    }
    if (!working_ && is_current() && on_axes) {
        show_marks();
        emit settled();
        return;
    }
    if (working_) {
        return;
    }
    say(tr("Simulating every number of ranks and micro-batches ..."));
    working_ = true;
    mapped_source_ = source_;
    mapped_ = settings_;
    stopped_ = std::make_shared<std::atomic<bool>>(false);
    worker_.setFuture(
        QtConcurrent::run(workers(), [source = source_, settings = settings_, stopped = stopped_] {
            return heat_map(*source, settings, stopped.get());
        }));
}

void HeatMapPanel::show_marks() {
    const WhatIf& own = source_->settings();
    const bool measured = source_->run().measured.has_value();
    view_->show_marks(
        std::pair(settings_.stages, settings_.micro_batches),
        measured ? std::optional(std::pair(own.stages, own.micro_batches)) : std::nullopt,
        text_of(side_name(source_->run(), Side::Measured)));
}

}  // namespace pipetwin::gui
