// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/timeline/compare.h"
#include "exec/executor/executor.h"

namespace pipetwin::exec {

/// Decides which steps of a run are fit to be compared with a prediction. It drops the first
/// `warm_up_steps`, in which caches, memory and clock rates settle, and every step that something
/// disturbed (exec/base/noise.h). Of what passes it keeps at most 31 timelines, from all over the
/// run and of all speeds, so that their median is that of all that pass. Where nothing passes, it
/// keeps the one step nearest the median of all and says so: noise.steps is 0.
class NoiseGate {
  public:
    static constexpr int warm_up_steps = 2;
    static constexpr int most_kept = 31;         ///< odd: the median is one of them
    static constexpr int most_remembered = 512;  ///< of a long run, evenly spread

    /// Takes the next step of the run, the training's step `number`; the first `warm_up_steps` are
    /// not judged.
    void add(const StepResult& step, int number);
    /// At least one step must have been added.
    TimelineSet result() const;

  private:
    struct Candidate {
        int number = 0;
        Duration time{};
        double stolen = 0;
        Timeline timeline;
    };
    /// Every n-th of the steps that were added, where n doubles whenever there would be too many.
    struct EvenlySpread {
        /// Keeps the candidate if its turn has come.
        void add(Candidate candidate);
        std::vector<Candidate> candidates;
        int stride = 1;
        int added = 0;
    };
    const Candidate& nearest_median() const;

    int steps_ = 0;
    EvenlySpread calm_;                 ///< steps that lost little time to others
    EvenlySpread disturbed_;            ///< steps that lost much
    std::vector<Duration> times_;       ///< of all steps after the warm-up
    std::vector<Duration> calm_times_;  ///< of all calm ones
    Candidate last_warm_up_;
    std::vector<Bytes> peak_;
};

}  // namespace pipetwin::exec
