// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/artifacts/model_flops.h"
#include "core/base/units.h"
#include "core/text/override.h"

namespace pipetwin {

/// What timers of a run measured of one step, in seconds, of the rank that has most; none: not
/// stated. Names are those of Megatron's timers (docs/formats.md).
struct MeasuredTimers {
    std::optional<double> forward{};   ///< "forward-compute"
    std::optional<double> backward{};  ///< "backward-compute", with what is computed again
    /// "forward-backward": from the first forward until all gradients are summed.
    std::optional<double> pipeline{};

    bool operator==(const MeasuredTimers&) const = default;
};

/// A training run that was measured or published: how it was set up, and what was measured.
struct MeasuredRun {
    std::string name{};            ///< empty: the row has none
    std::string place{};           ///< "runs.json: row 2 (DP 10)", for errors
    std::vector<Override> keys{};  ///< keys of the scenario in which it differs
    std::optional<double> step_seconds{};
    std::optional<double> tokens_per_second_per_device{};
    std::optional<double> samples_per_second_per_device{};
    std::optional<double> tflops_per_device{};
    FlopsCount flops_count = FlopsCount::Palm;  ///< of `tflops_per_device`
    bool names_flops_count = false;             ///< else the row does not say
    std::optional<int> tokens_per_sample{};
    std::string model{};   ///< a name or a config.json, where it is not the scenario's; else empty
    std::string device{};  ///< the same, as are the next two
    std::string stack{};   ///< of training software
    std::string precision{};      ///< of products
    std::optional<Bytes> peak{};  ///< of the device that holds most
    MeasuredTimers timers{};
};

/// Reads measured runs: one object, a list of objects, {"rows": [...]}, or an object on each line.
/// "timer_seconds" is an object with the names of `MeasuredTimers`.
/// A key of a row that is no measurement and none of "model", "device", "stack", "precision" and
/// "sequence" is a scenario's, "pipeline.stages" or nested objects.
/// Throws Error(BadInput) with `place`, the number of the row and the key: for unknown keys with
/// the nearest known one, for a row without a time, and for more than 64 rows.
std::vector<MeasuredRun> parse_measured_runs(std::string_view text, std::string_view place);

}  // namespace pipetwin
