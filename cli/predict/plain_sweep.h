#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/base/options.h"
#include "cli/predict/prediction.h"

/// Several plans by plain numbers, side by side.
namespace pipetwin::cli {

/// One of the plans that are compared.
struct SweepCell {
    std::string schedule;
    int stages = 1;  ///< ranks
    int chunks = 1;  ///< pieces on each of them
    int micro_batches = 1;
    std::optional<Prediction> prediction{};
    std::string why_not{};  ///< where there is no such plan
};

/// Every combination of the lists, schedules outermost. The times are those of a rank's share of
/// the model: where a rank has V pieces, each takes a V-th of them, so that all plans do the same
/// work. Schedules of two chunks have two; those of several as --chunks says, or two. Throws
/// Error(Usage) for what no plan could have, and where none of them is one.
std::vector<SweepCell> sweep(const SimulateOptions& options);

}  // namespace pipetwin::cli
