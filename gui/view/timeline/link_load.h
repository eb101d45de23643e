#pragma once

#include <vector>

#include "gui/view/timeline/timeline_layout.h"

/// How busy the links that lead away from a rank are.
namespace pipetwin::gui {

/// [stage] the rank whose row it stands in; -1 where it has no action. Empty for rows that exchange
/// no messages over links.
std::vector<int> ranks_of_stages(const StepRows& rows);

/// The share of each pixel's time, from x = 0, in which messages pass over the links that lead from
/// a rank to the next stages, or to the ones before. 1 where several are busy at once.
struct LinkLoad {
    std::vector<double> forward;
    std::vector<double> backward;
};
LinkLoad link_load(const StepRows& rows, int rank, const ViewTransform& view, int width);

}  // namespace pipetwin::gui
