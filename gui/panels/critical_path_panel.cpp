// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/critical_path_panel.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <QLabel>
#include <QSplitter>
#include <QTreeView>
#include <QVBoxLayout>
#include <QtConcurrentRun>

#include "core/base/as_index.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/base/sentence.h"
#include "gui/base/workers.h"

namespace pipetwin::gui {

namespace {

constexpr std::array<Side, 2> both_sides{Side::Predicted, Side::Measured};

std::size_t place(Side side) {
    return side == Side::Predicted ? 0 : 1;
}

/// "Predicted", "Measured", "Emulated".
QString heading_of(const RunData& run, Side side) {
    QString name = text_of(side_name(run, side));
    name[0] = name[0].toUpper();
    return name;
}

/// Head of a side's list: "Predicted", or "Measured, simulated", as the list of a measured step
/// comes from a simulation with its durations.
QString heading_of_chain(const RunData& run, Side side) {
    const QString name = heading_of(run, side);
    return side == Side::Predicted ? name : CriticalPathPanel::tr("%1, simulated").arg(name);
}

/// Digits of `time_within` with which times of `whole` that are `apart` differ.
int digits_for(Duration whole, Duration apart) {
    constexpr int least = 4;
    const double shown = std::max(1.0, static_cast<double>(whole.count())) /
                         std::max(1.0, static_cast<double>(apart.count()));
    return std::max(least, 2 + static_cast<int>(std::ceil(std::log10(shown))));
}

/// A line of the table of shares: a heading, or a part on both sides.
struct Line {
    QString name;
    bool heading = false;
    std::array<std::optional<PathShare>, 2> sides{};
};

using List = std::vector<PathShare> PathShares::*;

/// Each part once, the largest of either side first.
void add_lines(std::vector<Line>& lines,
               const QString& heading,
               const std::array<const PathShares*, 2>& sides,
               List list) {
    std::vector<Line> found;
    for (std::size_t side = 0; side < sides.size(); ++side) {
        for (const PathShare& share : sides[side]->*list) {
            const QString name = text_of(share.name);
            auto line = std::ranges::find(found, name, &Line::name);
            if (line == found.end()) {
                line = found.insert(line, Line{.name = name});
            }
            line->sides[side] = share;
        }
    }
    if (!found.empty()) {
        lines.push_back({.name = heading, .heading = true});
        std::ranges::move(found, std::back_inserter(lines));
    }
}

QString share_text(const PathShare& share, int column) {
    switch (column) {
        case 0:
            return time_text(share.time);
        case 1:
            return text_of(short_percent(share.share));
        default:
            return share.gain ? time_text(*share.gain) : QString();
    }
}

/// What the simulation of a measured step says: "The simulation with the measured durations takes
/// 9.69 s, in 28 parts."
QString simulation_sentence(const StepAnalysis& analysis, const PathShares& shares) {
    const QString origin = text_of(side_name(analysis.run(), Side::Measured));
    QString text =
        shares.predicted_messages
            ? CriticalPathPanel::tr(
                  "The simulation with the %1 durations and the "
                  "predicted message times takes %2, in %3 parts")
            : CriticalPathPanel::tr("The simulation with the %1 durations takes %2, in %3 parts");
    text = text.arg(origin, time_text(analysis.replayed_length()))
               .arg(analysis.critical_path().size());
    if (shares.unexplained > Duration{}) {
        text += CriticalPathPanel::tr("; %1 of the %2 step are unexplained")
                    .arg(time_text(shares.unexplained), origin);
    }
    return text + '.';
}

constexpr int columns_of_side = 3;

}  // namespace

CriticalPathPanel::CriticalPathPanel(Selection* selection, QWidget* parent)
    : QWidget(parent),
      selection_(selection),
      sentence_(plain_label(this)),
      splitter_(splitter_of_lists(this)),
      shares_(new TextTable(this)),
      shares_view_(table_view(shares_, tr("Shares of the critical path"), this)) {
    setAccessibleName(tr("Critical path"));
    sentence_->setWordWrap(true);
    sentence_->setAlignment(Qt::AlignTop | Qt::AlignLeft);
    sentence_->setTextInteractionFlags(Qt::TextSelectableByMouse);
    sentence_->setContentsMargins(panel_margin, 0, panel_margin, 0);
    shares_view_->setSelectionMode(QAbstractItemView::SingleSelection);
    splitter_->addWidget(shares_view_);
    for (const Side side : both_sides) {
        auto* const model = new TextTable(this);
        QTreeView* const view = table_view(
            model,
            side == Side::Predicted ? tr("Predicted critical path") : tr("Measured critical path"),
            splitter_);
        actions_[place(side)] = model;
        actions_views_[place(side)] = view;
        splitter_->addWidget(view);
        const auto go = [this, model](const QModelIndex& index) {
            if (const auto ref = model->target(index.row())) {
                selection_->set_span(ref);
                emit go_to(*ref);
            }
        };
        connect(view, &QTreeView::clicked, this, go);
        connect(view, &QTreeView::activated, this, go);
    }
    auto* const column = new QVBoxLayout(this);
    column->setContentsMargins(0, panel_margin, 0, 0);
    column->setSpacing(panel_margin / 2);
    column->addWidget(sentence_);
    column->addWidget(splitter_, 1);
    connect(selection_, &Selection::span_changed, this, &CriticalPathPanel::want);
    connect(&working_, &QFutureWatcher<Both>::finished, this, [this] {
        if (run_ != nullptr && step_ >= 0) {
            paths_ = working_.result();
            show_paths();
        }
    });
    show_run(nullptr);
}

void CriticalPathPanel::show_run(std::shared_ptr<const RunData> run) {
    run_ = std::move(run);
    step_ = -1;
    want();
}

void CriticalPathPanel::set_colors(const Palette& palette) {
    setPalette(widget_palette(palette));
}

void CriticalPathPanel::set_range(RangeFilterPointer range) {
    range_ = std::move(range);
    if (run_ != nullptr && step_ >= 0 && !working_.isRunning()) {
        show_paths();
    }
}

CriticalPathPanel::Both CriticalPathPanel::both_of(const std::shared_ptr<const RunData>& run,
                                                   int step) {
    Both paths;
    for (const Side side : both_sides) {
        PathOfSide& path = paths[place(side)];
        path.analysis = analysis_of(run, side, step);
        if (path.analysis != nullptr) {
            path.shares = path_shares(*path.analysis);
        }
    }
    return paths;
}

void CriticalPathPanel::want() {
    if (run_ == nullptr || run_->empty()) {
        paths_ = {};
        show_paths();
        return;
    }
    const int step = selection_->span() ? selection_->span()->step : run_->main_step();
    if (step == step_) {
        return;
    }
    step_ = step;
    sentence_->setText(tr("Computing the critical path ..."));
    working_.setFuture(
        QtConcurrent::run(workers(), [run = run_, step] { return both_of(run, step); }));
}

QString CriticalPathPanel::sentence() const {
    if (run_ == nullptr || run_->empty()) {
        return tr("No run is open.");
    }
    QStringList sentences{tr("Critical path of the step.")};
    for (const Side side : both_sides) {
        const auto& [analysis, shares] = paths_[place(side)];
        if (analysis == nullptr) {
            continue;
        }
        if (!analysis->has_causes()) {
            return text_of(analysis->note());
        }
        const QString step =
            tr("%1: %2").arg(heading_of(*run_, side), time_text(analysis->length()));
        sentences += side == Side::Predicted
                         ? tr("%1, in %2 parts.").arg(step).arg(analysis->critical_path().size())
                         : step + QStringLiteral(". ") + simulation_sentence(*analysis, shares);
    }
    if (range_ != nullptr) {
        sentences += tr("The lists of actions show the selected range alone.");
    }
    sentences +=
        tr("The column \"10 % less\" shows how much time the step saves if a part takes "
           "10 % less time.");
    return sentences.join(' ');
}

void CriticalPathPanel::show_paths() {
    const QString text = sentence();
    sentence_->setText(unbroken(text));
    sentence_->setAccessibleName(text);
    show_shares();
    std::vector<SpanRef> critical;
    for (const Side side : both_sides) {
        show_actions(side);
        if (const auto& analysis = paths_[place(side)].analysis) {
            for (const PathPiece& piece : analysis->critical_path()) {
                critical.push_back(piece.ref);
                critical.back().step = step_;
            }
        }
    }
    share_room(splitter_,
               {fit_columns(shares_view_),
                fit_columns(actions_views_[0]),
                fit_columns(actions_views_[1])});
    emit critical_changed(critical);
    emit settled();
}

void CriticalPathPanel::show_shares() {
    std::vector<Line> lines;
    const std::array<const PathShares*, 2> sides{&paths_[0].shares, &paths_[1].shares};
    add_lines(lines, tr("By kind"), sides, &PathShares::kinds);
    add_lines(lines, tr("By stage"), sides, &PathShares::stages);
    add_lines(lines, tr("By link"), sides, &PathShares::links);
    QStringList headers{tr("Part")};
    std::vector<std::size_t> shown;
    for (const Side side : both_sides) {
        if (paths_[place(side)].analysis != nullptr) {
            shown.push_back(place(side));
            headers << heading_of_chain(*run_, side) << tr("Share") << tr("10 % less");
        }
    }
    const int rows = static_cast<int>(lines.size());
    auto content = std::make_shared<const std::vector<Line>>(std::move(lines));
    const auto line = [content](int row) -> const Line& { return (*content)[as_index(row)]; };
    shares_->show({.headers = headers,
                   .rows = rows,
                   .text =
                       [line, shown](int row, int column) {
                           if (column == 0) {
                               return line(row).name;
                           }
                           const int number = (column - 1) / columns_of_side;
                           const auto& share = line(row).sides[shown[as_index(number)]];
                           return share ? share_text(*share, (column - 1) % columns_of_side)
                                        : QString();
                       },
                   .is_heading = [line](int row) { return line(row).heading; }});
    shares_view_->setVisible(rows > 0);
}

void CriticalPathPanel::show_actions(Side side) {
    const auto analysis = paths_[place(side)].analysis;
    std::vector<PathPiece> pieces;
    if (analysis != nullptr) {
        std::ranges::copy_if(
            analysis->critical_path(), std::back_inserter(pieces), [&](const PathPiece& at) {
                SpanRef ref = at.ref;
                ref.step = step_;
                return range_ == nullptr || range_->touches(ref, at.begin, at.end);
            });
    }
    const int rows = static_cast<int>(pieces.size());
    const auto content = std::make_shared<const std::vector<PathPiece>>(std::move(pieces));
    const auto piece = [content](int row) -> const PathPiece& { return (*content)[as_index(row)]; };
    const QString name = analysis == nullptr ? QString() : heading_of_chain(*run_, side);
    const int digits = rows == 0 ? 0 : digits_for(analysis->length(), analysis->length() / rows);
    actions_[place(side)]->show(
        {.headers = {name, tr("Rank"), tr("Begin"), tr("Time")},
         .rows = rows,
         .text =
             [piece, analysis, digits](int row, int column) {
                 const PathPiece& at = piece(row);
                 switch (column) {
                     case 0:
                         return text_of(to_string(at.action));
                     case 1:
                         return QString::number(at.ref.rank);
                     case 2:
                         return text_of(time_within(at.begin, analysis->length(), digits));
                     default:
                         return time_text(at.end - at.begin);
                 }
             },
         .target = [piece, step = step_](int row) -> std::optional<SpanRef> {
             SpanRef ref = piece(row).ref;
             ref.step = step;
             return ref;
         }});
    actions_views_[place(side)]->setVisible(rows > 0);
}

}  // namespace pipetwin::gui
