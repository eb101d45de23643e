// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/costs/devices/measured_layout.h"
#include "core/costs/profile.h"

/// How far predictions from estimated costs are off: learned from published runs.
namespace pipetwin {

struct Evidence;

/// What a run has that decides how far an estimate of its step may be off.
struct RunKind {
    bool shards_weights = false;  ///< each replica has a part of the weights
    int tensor_parallel = 1;
    bool calibrated = false;  ///< the costs were corrected by a measured run of the same cluster
    std::string stack{};      ///< that the costs were estimated with; empty: none
    std::string device{};     ///< of the run; read where there is a stack, as is the next
    int devices = 1;
    bool experts = false;  ///< the model routes tokens to experts
};

/// Nine of ten measured steps lie between `low` and `high` times the predicted one.
struct ErrorRange {
    double low = 1;
    double high = 1;
    std::string of{};             ///< the runs that it was learned from: "published runs that ..."
    std::string unseen_device{};  ///< of the set-up, where none of them was on it
    /// Devices of the largest of them, where the set-up has more; else 0.
    int largest_measured = 0;

    bool operator==(const ErrorRange&) const = default;
};

/// "; none of them was on rtx-4090; largest measured: 128 devices", for the end of a sentence about
/// the runs of a range; empty: some were on the devices of the set-up, and on so many.
std::string unseen_text(const ErrorRange& range);

/// The devices that the published runs of a kind were on: what `estimate_error` without a
/// calibration was learned from.
std::span<const std::string_view> devices_of_runs(const RunKind& run);

/// The range of runs that are predicted by costs which another run of their model has corrected.
ErrorRange corrected_error();

/// The range for a set-up: that of the published runs of its kind, where every source weighs the
/// same, and `range_of_stack` where it has one; for calibrated costs `corrected_error`, if it is
/// narrower. Source: `bench/published --ranges`, and the evidence that comes with the program, over
/// scenarios/published; a test holds them to that.
ErrorRange estimate_error(const RunKind& run);

/// The range for costs that a stack estimated on a device: that of the published runs with it,
/// which are predicted with numbers fitted without their sources. Without runs on the device that
/// of the stack to the power of 1.5, without runs with the stack that of all squared. 2 % wider for
/// each doubling of the devices beyond the largest run. Models with routed experts and others have
/// runs of their own.
ErrorRange range_of_stack(const Evidence& evidence,
                          std::string_view stack,
                          std::string_view device,
                          int devices,
                          bool experts = false);

/// The share by which nine of ten published steps are off at most, either way, that are predicted
/// by costs which another run of so much in common corrected.
double published_spread(Nearness nearness);

/// Whether no measured run has the stages, chunks, recompute and devices to a layer of the layout
/// that is asked for, with its model: of published predictions across such a change one in three is
/// more than 10 % off.
bool is_far_from_measured(std::span<const MeasuredLayout> runs, const MeasuredLayout& asked);

/// The range for costs that factors of measured runs, at least one, corrected: that of published
/// runs which correct others of so much in common as the nearest of these has, weighed as four runs
/// beside the `left_out` of those that have no more in common with each other. 2 % wider for each
/// doubling of the devices beyond the largest run.
ErrorRange range_of_measured(std::span<const MeasuredLayout> runs, const MeasuredLayout& asked);

/// Two plans of one model on one cluster whose predicted steps differ by less than this share may
/// be in the wrong order. With estimated costs: of pairs of published runs that are predicted to be
/// so far apart, nine of ten are in the right order; pairs that are closer are right less often.
/// Costs that a stack estimated have that of its runs, where these are enough.
double order_error(CostSource source, std::string_view stack = {});

}  // namespace pipetwin
