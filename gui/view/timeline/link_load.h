// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gui/view/timeline/timeline_layout.h"

/// Load of the links that lead away from a rank.
namespace pipetwin::gui {

/// [stage]: the rank whose row has its actions; -1 where it has none. Empty for rows that exchange
/// no messages over links.
std::vector<int> ranks_of_stages(const StepRows& rows);

/// The share of each pixel's time, from x = 0, in which messages pass over the links that lead from
/// a rank to the next stages, or to the ones before. 1 where several are busy at once.
struct LinkLoad {
    std::vector<double> forward;
    std::vector<double> backward;
};
/// Computes the load of a rank's links in `width` pixels.
LinkLoad link_load(const StepRows& rows, int rank, const ViewTransform& view, int width);

}  // namespace pipetwin::gui
