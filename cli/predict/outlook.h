#pragma once

#include <optional>

#include "core/costs/estimate_error.h"
#include "core/costs/profile.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"
#include "core/timeline/metrics.h"

namespace pipetwin::cli {

/// What follows from a predicted step beside its times.
struct Outlook {
    /// Tokens of the mini-batch over the step and the devices; none where samples are no sequences,
    /// or their length is not known.
    std::optional<double> tokens_per_second_per_device;
    /// The operations of the model's matrix products, forward and backward and without what is
    /// computed again, as a share of what the devices compute in a step at their dense rates. None
    /// where the profile does not know the operations, or a device's rate is not known.
    std::optional<double> model_flops_utilisation;
    /// Between what times a measured step is to be expected; none for measured costs.
    std::optional<ErrorRange> error;
    /// There is none because no published run of a model with experts was compared.
    bool lacks_runs = false;
};

/// The outlook of a scenario's predicted step.
Outlook outlook(const Plan& plan,
                const Metrics& metrics,
                const SettledScenario& scenario,
                const Profile& profile);

}  // namespace pipetwin::cli
