#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gui/view/analysis/step_analysis.h"

/// What the longest chain of a step is made of.
namespace pipetwin::gui {

/// What would be made faster: its times would be multiplied by this.
constexpr double faster_factor = 0.9;

struct PathShare {
    std::string name;  ///< "forward", "stage 2", "link 1 - 2": boundaries between stages
    Duration time{};   ///< on the chain
    double share = 0;  ///< of the step
    /// By how much shorter the step would be if all of it, on the chain or not, took
    /// `faster_factor` of its time: no more, as it is exact. None where that was not tried.
    std::optional<Duration> gain{};
};

/// Pieces of each list do not overlap; those by kind, and what is unexplained, sum to the step.
struct PathShares {
    std::vector<PathShare> kinds;
    std::vector<PathShare> stages;  ///< of compute actions
    std::vector<PathShare> links;   ///< of messages
    Duration unexplained{};         ///< the step without the chain
};

/// Empty without a chain. Of a measured step the gain is that of its replay. O(actions) for each
/// share, at most some tenths of a second for all: of a large plan the smallest are not tried.
PathShares path_shares(const StepAnalysis& analysis);

}  // namespace pipetwin::gui
