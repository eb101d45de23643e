#pragma once

#include <cstdint>

#include "core/scenario.h"

namespace pipetwin::exec {

struct StageOptions {
    Precision precision = Precision::Fp32;
    std::uint64_t seed = 1;
    int micro_batches = 1;
    int largest_micro_batch = 1;   ///< samples; sizes the workspace
    OptimizerKind optimizer = OptimizerKind::AdamW;  ///< whose state is allocated
    bool input_gradient = false;
};

}  // namespace pipetwin::exec
