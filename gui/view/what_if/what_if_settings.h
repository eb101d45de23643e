// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/recompute.h"

/// What is asked of a what-if.
namespace pipetwin::gui {

class WhatIfSource;
struct WhatIfStep;

/// Settings of a what-if. The words are those of a scenario.
struct WhatIf {
    int stages = 1;  ///< K: ranks of one pipeline
    int micro_batches = 1;
    std::string schedule{default_schedule};  ///< our name, or the path of the run's own file
    int chunks = 1;
    RecomputeRules recompute;
    std::optional<std::vector<int>> partition;     ///< layers of each piece; none: balanced
    std::optional<double> gigabytes_per_second{};  ///< of the links; none: as the run has it
    std::optional<double> latency_us{};            ///< of the links; none: as the run has it
    /// [model stage]: factor of the known times of its forward, recompute and backward; empty: 1.
    std::vector<double> cost_scale{};

    bool operator==(const WhatIf&) const = default;
};

/// The settings with another number of stages or chunks. What is said of single model stages goes:
/// the partition is balanced, costs are as known, recompute is that of the first one.
WhatIf with_pieces(WhatIf settings, int stages, int chunks);

/// Values that can be chosen; what a schedule refuses beyond that, it says itself.
struct WhatIfRanges {
    int least_stages = 1;
    int most_stages = 1;
    int least_micro_batches = 1;
    int most_micro_batches = 1;
    int batch = 0;  ///< samples of a step, which are cut into the micro-batches; 0: not known
    /// Least and largest number of micro-batches whose sizes the profile has costs for. All numbers
    /// can be chosen where no costs restrict them.
    int least_with_costs = 1;
    int most_with_costs = 1;
    std::vector<int> chunks;  ///< that the schedule knows and there are layers for
    bool has_partition = false;
    bool has_bandwidth = false;  ///< the sizes of the messages are known
};

/// One layer as the partition editor draws it.
struct LayerTime {
    std::string name;
    Duration time{};  ///< forward, recompute where there is one, and backward of a micro-batch
};

/// A step, or one sentence on why there is none.
struct WhatIfOutcome {
    std::shared_ptr<const WhatIfStep> step;
    std::string reason;
};

/// What a schedule is, in a line or several: how many chunks a rank has, what becomes of a
/// backward, what is special. "" for an order from a file.
std::string schedule_words(const std::string& name);

/// The error in one line, without its place.
std::string sentence_of(const std::exception& error);

}  // namespace pipetwin::gui
