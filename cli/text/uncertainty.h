// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/base/options.h"
#include "cli/text/json_output.h"
#include "sim/variation/goodput.h"
#include "sim/variation/jitter.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

/// Results of `simulate` about steps that do not all last the same, and about runs that are
/// interrupted.
namespace pipetwin::cli {

/// Step times under jitter.
struct JitterResult {
    sim::Jitter jitter;
    int samples = 0;
    std::uint64_t seed = 0;
    Duration step{};  ///< without jitter
    Duration mean{};
    int ranks = 1;
    Duration p50{};
    Duration p95{};
};

/// Step time with one slow rank.
struct StragglerResult {
    int rank = 0;
    double factor = 1;
    Duration step{};       ///< without it
    Duration slow_step{};  ///< with it
};

/// Goodput under failures.
struct FailureResult {
    sim::Failures failures;
    sim::Goodput goodput;
    bool chosen = false;  ///< the number of steps between checkpoints is the best one
};

/// All results that were asked for; none for the others.
struct Uncertainty {
    std::optional<JitterResult> jitter;
    std::optional<StragglerResult> straggler;
    std::optional<FailureResult> failures;
};

/// Computes what the options ask for. Throws Error(Usage), naming the option, for what makes no
/// sense or goes with nothing else.
Uncertainty uncertainty(const UncertaintyOptions& options,
                        const Plan& plan,
                        Duration step,
                        std::uint64_t seed);

/// The results as text; empty where nothing was asked.
std::string uncertainty_text(const Uncertainty& uncertainty);

/// Sets the keys `uncertainty`, `straggler` and `goodput`, null where nothing was asked.
void add_uncertainty(const Uncertainty& uncertainty, Json& json);

}  // namespace pipetwin::cli
