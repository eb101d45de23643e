// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gui/view/analysis/step_analysis.h"

/// Composition of the longest chain of a step.
namespace pipetwin::gui {

/// Factor of the times of a part that is made faster.
constexpr double faster_factor = 0.9;

/// A part of the longest chain: one kind of work, one stage or one link. Work has no dispatch in
/// it: that is a kind of its own.
struct PathShare {
    std::string name;  ///< "forward", "stage 2", "link 1 - 2": boundaries between stages
    Duration time{};   ///< on the chain
    double share = 0;  ///< of the chain
    /// Time by which the step would be shorter if all work of this part, on the chain or not, took
    /// `faster_factor` of its time; exact. None where that was not tried.
    std::optional<Duration> gain{};
};

/// The longest chain by kind, stage and link. Parts of a list do not overlap; those by kind sum to
/// the chain, which is as long as the step or, of a measured step, as its replay.
struct PathShares {
    std::vector<PathShare> kinds;
    std::vector<PathShare> stages;  ///< of compute actions, without dispatch
    std::vector<PathShare> links;   ///< of messages
    Duration unexplained{};         ///< the step without the chain; below 0 where that is longer
    /// Messages in the chain of a measured step take the times that the run's plan predicts.
    bool predicted_messages = false;
};

/// The composition of a step's longest chain; empty without a chain. Gains of a measured step are
/// those of its replay. O(actions) for each share, at most some tenths of a second for all: of a
/// large plan the smallest are not tried.
PathShares path_shares(const StepAnalysis& analysis);

}  // namespace pipetwin::gui
