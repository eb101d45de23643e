// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/base/as_index.h"
#include "gui/view/run/twin.h"
#include "gui/view/timeline/timeline_layout.h"

/// Places of the steps of a run on its time axis.
namespace pipetwin::gui {

/// Alignment of both sides of a step on the axis.
enum class Alignment {
    Start,     ///< both sides of a step begin at the same time
    Selected,  ///< both sides of one action do
    Stretched  ///< as Start, with the predicted step drawn as long as the measured one
};

/// Start, Selected, Stretched, Start, ...
Alignment next(Alignment alignment);

/// The place of a step of one side on the axis.
struct StepPlace {
    Duration begin{};    ///< of the step's own time 0 on the axis of the run
    double stretch = 1;  ///< how many times as long it is drawn

    /// The time of the axis at a time of the step.
    Duration on_axis(Duration in_step) const;
    /// The time of the step at a time of the axis.
    Duration in_step(Duration on_axis) const;

    /// The view of the axis as one of the step's own time.
    ViewTransform inside(const ViewTransform& view) const;

    bool operator==(const StepPlace&) const = default;
};

/// Places of all steps: step after step, each after the longer side of the one before. Nothing
/// stands before time 0.
class StepPlaces {
  public:
    StepPlaces() = default;

    /// Places the steps of a run. `selected` is the action by which Alignment::Selected moves the
    /// predicted side, in every step; without it, or where it has no twin, the same as Start.
    StepPlaces(const Twin& twin,
               Alignment alignment,
               const std::optional<SpanRef>& selected = std::nullopt);

    int step_count() const { return static_cast<int>(borders_.size()) - 1; }
    /// The place of a step of a side.
    const StepPlace& of(Side side, int step) const;

    /// Time of the axis at which a step begins.
    Duration begin(int step) const { return borders_[as_index(step)]; }
    /// Time of the axis at which the next step begins.
    Duration end(int step) const { return borders_[as_index(step) + 1]; }

    /// Length of all steps on the axis.
    Duration length() const { return borders_.back(); }

    /// The step that a time of the axis lies in, or the nearest one. There has to be a step.
    int step_at(Duration time) const;

  private:
    std::vector<StepPlace> predicted_;
    std::vector<StepPlace> measured_;
    std::vector<Duration> borders_{Duration{0}};
};

/// The span under (x, y) of the layout; none where a rank is idle.
std::optional<SpanRef> hit(const Twin& twin,
                           const StepPlaces& places,
                           const RowLayout& layout,
                           const ViewTransform& view,
                           double x,
                           double y);

/// The idle time of a rank under (x, y) of the layout, named by the action that it ends at: the
/// next one that is no message, or the cell after the last one where the rank has nothing left to
/// do. None beside the rows, outside of the side's steps, and where the rank is at work.
std::optional<SpanRef> idle_at(const Twin& twin,
                               const StepPlaces& places,
                               const RowLayout& layout,
                               const ViewTransform& view,
                               double x,
                               double y);

}  // namespace pipetwin::gui
