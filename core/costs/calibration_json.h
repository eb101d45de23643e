// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/costs/calibrate.h"

namespace pipetwin {

/// Measured points that correct an estimate: {"schema_version": 1, "points": [{"kind": "attention",
/// "micro_batch_size": 1, "forward_ns": 1, "backward_ns": 2}]}, each kind once; or a profile, which
/// gives the mean of each kind at `micro_batch_size`. Throws Error(BadInput) with `place` and the
/// JSON pointer.
std::vector<CalibrationPoint> parse_calibration(std::string_view text,
                                                std::string_view place,
                                                int micro_batch_size);

/// The points as a text that `parse_calibration` reads.
std::string print_calibration(const std::vector<CalibrationPoint>& points);

}  // namespace pipetwin
