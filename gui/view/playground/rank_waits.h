#pragma once

#include <string>
#include <vector>

#include "gui/view/analysis/step_analysis.h"

/// Why each rank of a step waits, summed up by what it waits for.
namespace pipetwin::gui {

/// What a rank waits for, by the place of the wait in its row.
enum class WaitFor {
    FirstInput,  ///< before its first compute: the pipeline fills
    Input,       ///< later on: the output of an earlier stage, before a forward
    Gradient,    ///< the gradient of a later stage, before a backward
    Other,       ///< a reduction, an update
    End          ///< after its last action: the pipeline drains
};

/// A share of the time that a rank waits.
struct RankWait {
    WaitFor what{};
    Duration wait{};
    Duration on_links{};       ///< of it: messages were on their way, or waited for a link
    std::vector<int> ranks{};  ///< that computed meanwhile, most first; none where links filled it
};

/// All that a rank waits for in a step.
struct RankWaits {
    int rank = 0;
    Duration wait{};
    std::vector<RankWait> parts{};  ///< that take time, the longest first
};

/// Sums the waits of every rank, [rank]. The causes are those of the analysis, as the window's
/// panel on waits shows them; an analysis without causes gives no ranks that computed meanwhile.
std::vector<RankWaits> rank_waits(const StepAnalysis& analysis);

/// One sentence on why a rank waits, the largest cause first: "Rank 0 waits 9 ms of 33 ms (27 %):
/// 9 ms for gradients from later stages, while ranks 1 to 3 compute."
std::string rank_sentence(const RankWaits& waits, Duration step);

}  // namespace pipetwin::gui
