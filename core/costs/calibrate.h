// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/costs/profile.h"

namespace pipetwin {

/// A measured layer: all that is needed to correct the estimates of its kind.
struct CalibrationPoint {
    std::string kind{};
    int micro_batch_size = 1;
    Duration forward{};
    Duration backward{};

    bool operator==(const CalibrationPoint&) const = default;
};

/// Factors by which `calibrate` multiplied the times of a kind of layer.
struct CalibrationFactor {
    std::string kind{};
    double forward = 1;
    double backward = 1;
};

/// Multiplies the times of every layer of a point's kind, so that their mean at the point's
/// micro-batch size becomes the measured one; one point per kind. Where a profile has the halves of
/// blocks alone, kind "block" corrects both halves by one factor. Throws Error(BadInput) at `place`
/// for a kind that no layer has, for "block" beside a half, for a size that no sample is near, for
/// a time of 0, and if a layer without backward shall have one.
std::vector<CalibrationFactor> calibrate(Profile& profile,
                                         const std::vector<CalibrationPoint>& points,
                                         std::string_view place);

/// One point per kind of a measured profile: the mean over the layers of that kind at a micro-batch
/// size. Throws as `cost_at`.
std::vector<CalibrationPoint> points_of(const Profile& measured, int micro_batch_size);

}  // namespace pipetwin
