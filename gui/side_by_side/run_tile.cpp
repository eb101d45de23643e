// SPDX-License-Identifier: Apache-2.0
#include "gui/side_by_side/run_tile.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <QHBoxLayout>
#include <QLabel>
#include <QMouseEvent>
#include <QPainter>
#include <QPushButton>
#include <QToolButton>
#include <QVBoxLayout>

#include "core/base/number_text.h"
#include "core/base/short_number.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/base/sentence.h"
#include "gui/run/run_list.h"
#include "gui/timeline/timeline_painter.h"
#include "gui/timeline/timeline_view.h"
#include "gui/view/analysis/action_details.h"
#include "gui/view/run/planned_run.h"

namespace pipetwin::gui {

namespace {

constexpr double small_text = 0.85;
constexpr double share_per_notch = 0.1;

/// Steps of the side that tells how long a run took.
const SideData* side_of(const RunData& run) {
    const std::optional<SideData>& side = run.side(shown_side(run));
    return side ? &*side : nullptr;
}

std::string device_of(const RunData& run) {
    return run.planned ? run.planned->profile.device : "";
}

/// Whether steps of both are times of the same device, as far as the files say it.
bool have_same_costs(const RunData& a, const RunData& b) {
    const bool other_device =
        !device_of(a).empty() && !device_of(b).empty() && device_of(a) != device_of(b);
    return cost_source(a) == cost_source(b) && !other_device;
}

bool has_unit_costs(const RunData& run) {
    return cost_source(run) == "unit costs";
}

/// "1.50 times as fast as the first"; where their steps do not do the same work, the rates are
/// compared.
QString comparison(const RunTile& tile, const RunTile& first) {
    const auto rate_of = [](const RunTile& of) {
        return throughput_of(*of.run(), shown_side(*of.run()));
    };
    const double ratio = to_seconds(tile.step()) / to_seconds(first.step());
    const std::optional<Throughput> mine = rate_of(tile);
    const std::optional<Throughput> its = rate_of(first);
    if (mine && its && mine->counts_samples == its->counts_samples && its->per_second > 0) {
        constexpr double rounding = 1e-6;
        const double rates = mine->per_second / its->per_second;
        if (std::abs(rates * ratio - 1) > rounding) {
            // "1/352 of": a small number is read more easily as a fraction.
            return rates < 0.1
                       ? RunTile::tr("1/%1 of the %2 of the first")
                             .arg(text_of(short_number(1 / rates)),
                                  text_of(std::string(mine->unit())))
                       : RunTile::tr("%1 times the %2 of the first")
                             .arg(text_of(short_number(rates)), text_of(std::string(mine->unit())));
        }
    }
    return ratio < 1
               ? RunTile::tr("%1 times as fast as the first").arg(text_of(short_number(1 / ratio)))
               : RunTile::tr("%1 times as long as the first").arg(text_of(short_number(ratio)));
}

/// The run with the rows and figures of one step alone: the main one of the side that is shown.
std::shared_ptr<const RunData> main_step_alone(std::shared_ptr<const RunData> run) {
    if (run->twin.step_count() < 2) {
        return run;
    }
    auto alone = std::make_shared<RunData>();
    alone->path = run->path;
    alone->over = run->over;
    alone->title = run->title;
    alone->schedule_name = run->schedule_name;
    alone->micro_batches = run->micro_batches;
    alone->planned = run->planned;
    alone->own_plan = run->own_plan;
    alone->twin.measured = {*run->twin.step(Side::Measured, run->main_step())};
    alone->measured = run->measured;
    alone->measured->steps = 1;
    alone->measured->median_step = 0;
    return alone;
}

}  // namespace

Side shown_side(const RunData& run) {
    return run.measured ? Side::Measured : Side::Predicted;
}

RunPicture::RunPicture(std::shared_ptr<const RunData> run, QWidget* parent)
    : QWidget(parent), run_(main_step_alone(std::move(run))) {
    QFont smaller = font();
    smaller.setPointSizeF(small_text * smaller.pointSizeF());
    setFont(smaller);
    scene_.run = run_.get();
    scene_.palette = palette_of(Theme::Light);
    scene_.mode = shown_side(*run_) == Side::Measured ? Mode::Measured : Mode::Predicted;
    scene_.tracks = tracks_of(run_->twin.rank_count());
    scene_.places = StepPlaces(run_->twin, Alignment::Start);
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    setCursor(Qt::PointingHandCursor);
    setAccessibleName(tr("Timeline of %1").arg(name_of_shown(*run_)));
}

void RunPicture::set_colors(const Palette& palette) {
    scene_.palette = palette;
    update();
}

int RunPicture::needed_label_width() const {
    return label_width_for(*run_, font());
}

int RunPicture::least_row_height() const {
    return fontMetrics().height();
}

int RunPicture::ruler_height() const {
    return ruler_height_for(run_.get(), font());
}

void RunPicture::show_as(const Look& look) {
    look_ = look;
    setFixedHeight(run_->twin.rank_count() * (look.row_height + picture_gap) + picture_gap +
                   (look.has_ruler ? ruler_height() : 0));
    lay_out();
}

void RunPicture::lay_out() {
    scene_.size = size();
    scene_.label_width = look_.label_width;
    scene_.ruler_height = look_.has_ruler ? ruler_height() : 0;
    scene_.layout = layout_rows(run_->twin,
                                scene_.mode,
                                scene_.tracks,
                                {.row_height = static_cast<double>(look_.row_height),
                                 .strip_height = 0,
                                 .memory_height = 0,
                                 .link_height = 0,
                                 .gap = picture_gap});
    const auto length = static_cast<double>((look_.part.end - look_.part.begin).count());
    scene_.view = {.origin = look_.part.begin,
                   .ns_per_pixel = std::max(1.0, length / std::max(1, scene_.time_width()))};
    update();
}

void RunPicture::paintEvent(QPaintEvent* /*event*/) {
    QPainter painter(this);
    painter.setFont(font());
    paint_timeline(painter, scene_);
}

void RunPicture::resizeEvent(QResizeEvent* event) {
    lay_out();
    QWidget::resizeEvent(event);
}

void RunPicture::mouseReleaseEvent(QMouseEvent* event) {
    if (event->button() == Qt::LeftButton && rect().contains(event->pos())) {
        emit clicked();
    }
}

/// With Ctrl zooms, with Shift moves; else the page scrolls.
void RunPicture::wheelEvent(QWheelEvent* event) {
    // Qt turns the wheel with Alt into a horizontal one, and some systems do so with Shift.
    const double notches =
        (event->angleDelta().y() != 0 ? event->angleDelta().y() : event->angleDelta().x()) /
        wheel_notch;
    if (event->modifiers().testFlag(Qt::ControlModifier)) {
        const double share =
            (event->position().x() - scene_.label_width) / std::max(1, scene_.time_width());
        emit zoom_wanted(std::pow(zoom_per_notch, notches), std::clamp(share, 0.0, 1.0));
        event->accept();
    } else if (event->modifiers().testFlag(Qt::ShiftModifier)) {
        emit pan_wanted(-share_per_notch * notches);
        event->accept();
    } else {
        event->ignore();
    }
}

RunTile::RunTile(std::shared_ptr<const RunData> run, QWidget* parent)
    : QWidget(parent), run_(std::move(run)) {
    auto* const column = new QVBoxLayout(this);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(0);
    head_ = build_head();
    column->addWidget(head_);
    if (!run_->empty()) {
        picture_ = new RunPicture(run_, this);
        connect(picture_, &RunPicture::clicked, this, &RunTile::chosen);
        column->addWidget(picture_);
    }
    compare_with(nullptr);
}

QWidget* RunTile::build_head() {
    auto* const head = new QWidget(this);
    QString name = name_of_shown(*run_);
    set_tip(*this, whole_paths(paths_of(*run_)));
    name_ = new QPushButton(name.replace('&', QLatin1String("&&")), head);
    name_->setFlat(true);
    name_->setStyleSheet(QStringLiteral("font-weight: bold; padding: 3px 6px;"));
    name_->setEnabled(!run_->empty());
    name_->setAccessibleDescription(tr("Show this run with all panels"));
    connect(name_, &QPushButton::clicked, this, &RunTile::chosen);
    figures_ = plain_label(head);
    figures_->setWordWrap(true);
    figures_->setAlignment(Qt::AlignLeft | Qt::AlignTop);
    figures_->setContentsMargins(0, 4, 0, 0);  // on the line of the name
    auto* const remove = new QToolButton(head);
    remove->setText(QStringLiteral("\u00d7"));
    remove->setAutoRaise(true);
    remove->setAccessibleName(tr("Remove %1").arg(name_of_shown(*run_)));
    connect(remove, &QToolButton::clicked, this, &RunTile::remove_wanted);
    why_ = plain_label(head);
    why_->setWordWrap(true);
    why_->setTextInteractionFlags(Qt::TextSelectableByMouse);
    why_->setContentsMargins(6, 0, 0, 2);  // below the name
    why_->hide();
    auto* const column = new QVBoxLayout(head);
    column->setContentsMargins(4, 2, 4, 0);
    column->setSpacing(0);
    auto* const row = new QHBoxLayout;
    row->addWidget(name_, 0, Qt::AlignTop);
    row->addWidget(figures_, 1);
    row->addWidget(remove, 0, Qt::AlignTop);
    column->addLayout(row);
    column->addWidget(why_);
    return head;
}

void RunTile::set_colors(const Palette& palette) {
    if (picture_ != nullptr) {
        picture_->set_colors(palette);
    }
}

int RunTile::head_height(int width) const {
    return head_->layout()->heightForWidth(width);
}

void RunTile::explain(const QString& why, bool has_room) {
    explained_ = why;
    why_->setText(unbroken(why));
    why_->setVisible(has_room && !why.isEmpty());
    set_tip(*figures_, has_room ? QString() : why);
}

Duration RunTile::step() const {
    const SideData* const side = side_of(*run_);
    return side == nullptr ? Duration{} : side->step;
}

void RunTile::compare_with(const RunTile* first) {
    if (run_->empty()) {
        QStringList problems;
        for (const std::string& problem : run_->problems) {
            problems += text_of(problem);
        }
        figures_->setText(problems.join(' '));
        return;
    }
    const RunHeadline headline = headline_of(*run_);
    const auto& bubble =
        headline.measured_bubble ? headline.measured_bubble : headline.predicted_bubble;
    QStringList parts{
        text_of(headline.plan),
        tr("%1 step %2")
            .arg(text_of(side_name(*run_, shown_side(*run_))), text_of(short_time(step()))),
        tr("bubble %1").arg(text_of(rounded_percent(bubble.value_or(0))))};
    const std::string source = cost_source(*run_);
    if (!source.empty()) {
        parts += text_of(source);
    }
    const Duration other = first == nullptr ? Duration{} : first->step();
    if (other > Duration{} && step() > Duration{} && other != step()) {
        const RunData& its = *first->run();
        parts +=
            has_unit_costs(*run_) != has_unit_costs(its)
                ? tr("not compared with the first, as only one of them has unit costs")
                : comparison(*this, *first) +
                      (have_same_costs(*run_, its) ? QString()
                                                   : tr("; their costs have different sources")) +
                      (have_same_model(run_->planned.get(), its.planned.get())
                           ? QString()
                           : tr("; their models differ"));
    }
    // Lines end between the parts.
    parts.replaceInStrings(QStringLiteral(" "), QString(QChar(QChar::Nbsp)));
    figures_->setText(parts.join(QStringLiteral("     ")));
}

}  // namespace pipetwin::gui
