// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/costs/profile.h"
#include "gui/view/run/run_data.h"

/// Runs that say what they were planned from, so that what-ifs can begin with them.
namespace pipetwin::gui {

/// Layers "layer0" and so on. F of a sample takes 1 ms times the layer's weight, I and W as long
/// each; samples for micro-batches of 1, 2, 4 and 8. Every boundary is 1 MB a sample.
Profile weighted_profile(const std::vector<int>& weights);

/// A run of that model as `pipetwin simulate` plans it; links are free unless `keys` say otherwise.
/// `keys` are lines of TOML such as "pipeline.stages = 2". Measured steps are as given by
/// `measured_steps`: the planned step with durations that are longer by chance.
std::shared_ptr<const RunData> run_of(const Profile& profile,
                                      const std::vector<std::string>& keys,
                                      int measured_steps = 0);

}  // namespace pipetwin::gui
