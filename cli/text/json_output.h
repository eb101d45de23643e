// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/costs/estimate_error.h"
#include "core/schedule/validate.h"
#include "core/timeline/compare.h"
#include "exec/gpu/cuda_module.h"
#include "exec/training/trainer.h"

namespace pipetwin::sim {

struct Explanation;
struct Prediction;

}  // namespace pipetwin::sim

/// Results as JSON. The keys are a contract (docs/cli.md): they may be added to, and a key whose
/// value has no meaning is null, never left out.
namespace pipetwin::cli {

/// JSON whose keys keep their order.
using Json = nlohmann::ordered_json;

/// {"schema_version": 1, "tool_version": "0.2.0"}: how every result begins.
Json json_head();

/// Peak memory: `total` and every kind; all null where they are not known, as for plain numbers.
Json peak_json(const MemoryUse& peak, bool known);

/// A prediction as `simulate` prints it.
Json prediction_json(const sim::Prediction& prediction);
/// A prediction with its explanation.
Json explained_json(const sim::Prediction& prediction, const sim::Explanation& explanation);
/// Between what times a measured step is to be expected, and the runs that say so; null for none.
Json interval_json(const std::optional<ErrorRange>& error, Duration predicted_step);
/// Where a step's time went, in milliseconds.
Json breakdown_json(const Breakdown& breakdown);
/// A measured step, as in metrics.jsonl.
Json step_json(const exec::StepReport& step);
/// A comparison as `compare` prints it. `expected`: where the measured step was to be expected;
/// none where the costs were measured, or nothing is known of them.
Json comparison_json(const Comparison& comparison, const std::optional<ErrorRange>& expected = {});

/// Results of `check` at `capacity` (none: unbounded).
struct CheckResult {
    std::optional<int> capacity;
    std::vector<Violation>
        violations;  ///< broken rules; a schedule with any is not tried for deadlock
    std::optional<DeadlockReport> deadlock;
    std::optional<int> smallest_capacity;  ///< none: invalid, or no capacity is enough
    /// Whether it runs without any room in its channels if all receives are posted up front; none:
    /// invalid.
    std::optional<bool> runs_with_preposted_receives;
    std::vector<int> peak_live_activations;  ///< per rank; of a valid schedule
};
/// The results of `check`.
Json check_json(const CheckResult& result);

/// JSON as text for stdout or a file: indented by two, with a newline at the end.
std::string json_text(const Json& json);

}  // namespace pipetwin::cli
