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
/// Of what passes it keeps at most 33 timelines, from all over the run - a machine drifts, and its
/// calmest or fastest minute is not the run - and of all speeds, so that their median is the run's.
/// Where nothing passes, it keeps the one step
/// nearest the median of all and says so: noise.steps is 0. Fewer than 11 steps are a poor basis;
/// the caller can see their number.
class NoiseGate {
  public:
    static constexpr int warm_up_steps = 2;
    static constexpr int most_kept = 33;         ///< odd: the median is one of them
    static constexpr int most_remembered = 512;  ///< of a long run, evenly spread
    static constexpr double most_stolen = 0.01;
    static constexpr double most_off_median = 0.10;

    void add(const StepResult& step);
    /// At least one step must have been added.
    TimelineSet result() const;

  private:
    struct Candidate {
        Duration time{};
        double stolen = 0;
        Timeline timeline;
    };
    /// Every n-th of the steps that were added, where n doubles whenever there would be too many.
    struct EvenlySpread {
        void add(Candidate candidate);
        std::vector<Candidate> candidates;
        int stride = 1;
        int added = 0;
    };
    const Candidate& nearest_median() const;

    int steps_ = 0;
    EvenlySpread calm_;
    EvenlySpread disturbed_;
    std::vector<Duration> calm_times_;  ///< of all calm steps
    Candidate last_warm_up_;
    std::vector<Bytes> peak_;
};

}  // namespace pipetwin::exec
