// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/timeline/linked_place.h"
#include "gui/view/run/run_data.h"

/// Places that links lead to, in a run.
namespace pipetwin::gui {

/// The step of the run that a place names; none where the run has no such step.
std::optional<int> step_of(const RunData& run, const LinkedPlace& place);

/// The action at a place: the one that goes on then, else the next one of the rank. Of the measured
/// side, where there is one. None where there is none.
std::optional<SpanRef> action_at(const RunData& run, const LinkedPlace& place);

/// The place at which an action begins.
LinkedPlace place_of(const RunData& run, const SpanRef& action);

}  // namespace pipetwin::gui
