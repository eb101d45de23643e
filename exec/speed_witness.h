#pragma once

#include <vector>

#include "core/units.h"

namespace pipetwin::exec {

/// Whether cores are as fast as they can be. On a shared machine the other hardware thread of a
/// core may be somebody else's: while it computes, everything here takes up to twice as long, and
/// neither the clock of a thread nor that of the system calls it stolen. A chain of multiply-adds
/// in registers shows it: it always takes the same time, unless it has to share the core.
class SpeedWitness {
  public:
    /// Of the cores that a measured step runs on; at least one.
    explicit SpeedWitness(std::vector<int> cores);

    /// The share of its speed that the slowest of the cores lacks now, 0 to 1, against the speed
    /// that this program lately saw in every tenth look. Takes below a millisecond; other threads
    /// on the cores, if any, wait that long.
    double missing();

    /// Looks again and again until no more than `most_missing` is missing, or for so long; returns
    /// what is missing in the end.
    double wait(Duration longest);

  private:
    std::vector<int> cores_;
};

/// What is no slowness, but how exactly a chain is timed.
constexpr double most_missing = 0.03;

/// The share of a step that was lost: what was stolen from it as the system knows, or more where
/// the cores were slow before or behind it.
double lost_share(double stolen, double missing_before, double missing_behind);

}  // namespace pipetwin::exec
