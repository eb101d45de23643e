// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/costs/devices/evidence.h"

/// What published runs lost of their rate per device where they had more devices, and what
/// estimates say of it.
namespace pipetwin {

/// Runs of one source, model, stack and precision whose layouts differ in replicas alone: those on
/// the fewest and on the most devices.
struct ScaleSeries {
    PublishedRun least;
    PublishedRun most;

    /// Share of the rate per device that is lost from `least` to `most`; below 0 for a gain.
    double measured_loss() const { return 1 - most.measured / least.measured; }
    double predicted_loss() const { return 1 - most.predicted / least.predicted; }
    /// What was lost beyond the prediction.
    double unexplained_loss() const { return measured_loss() - predicted_loss(); }

    bool operator==(const ScaleSeries&) const = default;
};

/// Every series that begins on at least one node of 8 devices and has four times as many at its
/// end. Of several runs on as many devices the fastest counts.
std::vector<ScaleSeries> scale_series(const Evidence& evidence);

/// The series nearest to a plan: by |ln| of the ratio of devices at its end, 0.5 for each of
/// another device, precision and stack, and 1 for another kind of model; none where none is known.
std::optional<ScaleSeries> nearest_series(const std::vector<ScaleSeries>& series,
                                          const RunLike& like);

/// Median of the losses beyond the prediction; none of no series.
std::optional<double> median_unexplained_loss(const std::vector<ScaleSeries>& series);

}  // namespace pipetwin
