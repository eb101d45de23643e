#include "core/costs/estimate_error.h"

namespace pipetwin {

ErrorRange estimate_error(const RunKind& run) {
    if (run.calibrated) {
        return {.low = 0.82, .high = 1.22, .of = "pairs of published runs of one cluster"};
    }
    if (run.shards_weights) {
        return {.low = 0.89, .high = 1.32, .of = "published runs with sharded weights"};
    }
    if (run.tensor_parallel > 1) {
        return {.low = 0.82, .high = 1.38, .of = "published runs with tensor parallelism"};
    }
    return {.low = 0.94, .high = 1.15, .of = "published runs without tensor parallelism"};
}

double order_error(CostSource source) {
    switch (source) {
        case CostSource::Estimated:
        case CostSource::Datasheet:
            return 0.13;
        case CostSource::Imported:
            return 0.03;
        case CostSource::Measured:
            return 0.02;
    }
    return 0.13;
}

}  // namespace pipetwin
