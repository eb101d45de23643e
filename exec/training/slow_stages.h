// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/timeline/timeline.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::exec {

/// Looks for a stage that computes more slowly than its plan says, and by more than the others: a
/// machine that is slower everywhere is not its fault. Something else runs on its core, its device
/// is throttled, or its costs were measured badly. That is worth a warning, and never a reason to
/// stop.
class SlowStages {
  public:
    static constexpr int steps_looked_at = 20;
    static constexpr double slow = 1.5;  ///< times as long as planned, relative to the others

    explicit SlowStages(const Plan& plan);

    /// After every `steps_looked_at` steps, a sentence for each stage that was slow in the median
    /// of them; each stage is named once.
    std::vector<std::string> add(const Timeline& step);

  private:
    struct Stage {
        Duration planned{};             ///< the compute actions of one step
        std::vector<Duration> taken{};  ///< [step] since the last look
        bool is_told = false;
    };
    std::vector<double> factors() const;

    std::vector<int> rank_of_stage_;
    std::vector<Stage> stages_;
};

}  // namespace pipetwin::exec
