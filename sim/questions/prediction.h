// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/artifacts/chrome_trace.h"
#include "core/costs/profile.h"
#include "core/plan/plan.h"
#include "core/timeline/footprint.h"
#include "core/timeline/metrics.h"
#include "sim/explain/breakdown.h"
#include "sim/explain/critical_path.h"
#include "sim/questions/outlook.h"

namespace pipetwin {

struct SettledScenario;

}  // namespace pipetwin

namespace pipetwin::sim {

/// Effect of offloading stashes: the bytes that are copied, and the step and the peaks with all
/// stashes on their devices.
struct OffloadEffect {
    std::vector<Bytes> copied;               ///< [rank] out in a step; as much comes back
    std::vector<MemoryUse> peaks_on_device;  ///< [rank]
    Duration step_on_device{};
};

/// All results of the simulator for a plan.
struct Prediction {
    Plan plan;
    Timeline timeline;
    Metrics metrics;
    Breakdown breakdown;
    MessagesInActions messages;
    IdleTime idle;
    std::vector<CriticalStep> critical_path;
    std::optional<OffloadEffect> offload;  ///< none where nothing is offloaded
    Outlook outlook{};                     ///< empty for plain numbers
};

/// Simulates a plan and computes all results but the outlook.
Prediction predict(Plan plan);

/// The plan of a scenario with its channel capacity settled, and all its results. Throws as
/// `settled_plan`.
Prediction predict(const SettledScenario& scenario,
                   const Model& model,
                   const Profile& profile,
                   std::optional<Bytes> memory_left,
                   FlopsCount flops_count = default_flops_count);

/// The plan of a scenario with its channel capacity settled. Throws Error(Infeasible) if it does
/// not fit into the memory of a device, or takes more than `memory_left` of this machine's; without
/// `memory_left` this machine's memory is not checked.
Plan settled_plan(const SettledScenario& scenario,
                  const Model& model,
                  const Profile& profile,
                  std::optional<Bytes> memory_left);

/// The predicted side as a trace.
Trace predicted_trace(const Prediction& prediction);

/// Measured steps of the plan as a trace.
Trace measured_trace(const Plan& plan, TimelineSet measured);

}  // namespace pipetwin::sim
