#pragma once

#include <vector>

#include "core/compare.h"
#include "exec/executor.h"

namespace pipetwin::exec {

/// Decides which steps of a run are fit to be compared with a prediction. It drops
/// - the first `warm_up_steps`: caches, memory and clock rates settle;
/// - steps in which other programs took more than 1 % of the compute time (wall time against the
/// threads' CPU time);
/// - of the rest, steps whose time is more than 10 % off the median: something else disturbed them.
/// Of what passes it keeps the 32 with the least stolen time. Where nothing passes, it keeps the
/// one step nearest the median of all and says so: noise.steps is 0. Fewer than 11 steps are a poor
/// basis; the caller can see their number.
class NoiseGate {
  public:
    static constexpr int warm_up_steps = 2;
    static constexpr int most_kept = 32;
    static constexpr double most_stolen = 0.01;
    static constexpr double most_off_median = 0.10;

    void add(const StepResult& step);
    /// At least one step must have been added.
    TimelineSet result() const;

  private:
    struct Candidate {
        int index = 0;
        Duration time{};
        double stolen = 0;
        Timeline timeline;
    };
    std::vector<Candidate> near_median() const;
    const Candidate& nearest_median() const;

    int steps_ = 0;
    std::vector<Candidate>
        candidates_;  ///< a bounded number of steps after the warm-up, the calmest
    Candidate last_warm_up_;
    std::vector<Bytes> peak_;
};

}  // namespace pipetwin::exec
