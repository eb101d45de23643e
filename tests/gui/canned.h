// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gui/view/run/run_data.h"

/// Runs made by hand, so that a test of the window depends on no engine.
namespace pipetwin::gui {

struct CannedShape {
    int ranks = 2;
    int micro_batches = 3;
    /// How much the durations of the measured side differ from the predicted ones.
    double jitter = 0;
    int steps = 1;  ///< measured ones, each a little longer than the one before
};

/// A GPipe step without link time: F takes 1 ms, B 2 ms, OPT 0.5 ms. Rows hold receives and sends,
/// too.
///
///     rank 0  F0 F1 F2 -- -- -- -- B2 B1 B0 OPT
///     rank 1  -- F0 F1 F2 B2 B1 B0 OPT
Timeline canned_timeline(Origin origin, const CannedShape& shape, int step = 0);

/// Both sides of it, compared, as load_run would give them.
RunData canned_run(const CannedShape& shape = {});

/// The reference to an action such as "1F2" of the canned run.
SpanRef find(const RunData& run, Side side, const Action& action);

}  // namespace pipetwin::gui
