// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/costs/profile.h"

/// How far predictions from estimated costs are off: learned from published runs.
namespace pipetwin {

/// What a run has that decides how far an estimate of its step may be off.
struct RunKind {
    bool shards_weights = false;  ///< each replica has a part of the weights
    int tensor_parallel = 1;
    bool calibrated = false;  ///< the costs were corrected by a measured run of the same cluster
};

/// Nine of ten measured steps lie between `low` and `high` times the predicted one.
struct ErrorRange {
    double low = 1;
    double high = 1;
    std::string_view of;          ///< the runs that it was learned from: "published runs that ..."
    std::string unseen_device{};  ///< of the set-up, where none of them was on it

    bool operator==(const ErrorRange&) const = default;
};

/// "; none of them was on rtx-4090", for the end of a sentence about the runs of a range; empty:
/// some were on the devices of the set-up.
std::string unseen_text(const ErrorRange& range);

/// The devices that the published runs of a kind were on: what `estimate_error` without a
/// calibration was learned from.
std::span<const std::string_view> devices_of_runs(const RunKind& run);

/// The range of runs that are predicted by costs which another run of their model has corrected.
ErrorRange corrected_error();

/// The range for a set-up: that of the published runs of its kind, where every source weighs the
/// same; for calibrated costs `corrected_error`, if it is narrower. Source: `bench/published
/// --ranges`, over scenarios/published; a test holds them to that.
ErrorRange estimate_error(const RunKind& run);

/// Two plans of one model on one cluster whose predicted steps differ by less than this share may
/// be in the wrong order. With estimated costs: of pairs of published runs that are predicted to be
/// so far apart, nine of ten are in the right order; pairs that are closer are right less often.
double order_error(CostSource source);

}  // namespace pipetwin
