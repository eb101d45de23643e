// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/base/units.h"

namespace pipetwin::sim {

/// What stops a training run, and what is done against it. A failure of any device stops all of
/// them: what was done since the last checkpoint is lost, and after `restart` the run goes on from
/// there. Failures come at random, independent of each other and of the time that has passed.
struct Failures {
    double mtbf_hours = 0;  ///< mean time between failures of one device
    int devices = 1;
    Duration step{};
    Duration checkpoint{};  ///< time in which no step is made
    Duration restart{};     ///< to find, replace and load; it may be hit by a failure, too
};

inline constexpr double longest_mtbf_hours = 1e9;

/// Throws Error(BadInput), naming the number, if the mean time is not in (0, longest_mtbf_hours],
/// there is no device, the step takes no time, or a duration is negative.
void check_failures(const Failures& failures);

struct Goodput {
    int checkpoint_every = 1;  ///< steps
    double share = 0;          ///< of the time that goes into steps which are kept
    Duration time_per_step{};  ///< step / share: how long a run takes, for each step of it
};

/// The mean over a long run with a checkpoint after every so many steps:
///
///     time between two checkpoints = exp(restart / M) (exp((work + checkpoint) / M) - 1) M
///
/// with M the mean time between failures of all devices together. Throws as check_failures, and if
/// `checkpoint_every` is below 1. Source: J. Daly, "A higher order estimate of the optimum
/// checkpoint interval for restart dumps", 2006, equation 20.
Goodput expected_goodput(const Failures& failures, int checkpoint_every);

/// The number of steps between checkpoints with the largest share, of several the smallest.
Goodput best_goodput(const Failures& failures);

}  // namespace pipetwin::sim
