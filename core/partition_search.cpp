#include "core/partition_search.h"

#include <limits>

#include <fmt/format.h>

#include "core/error.h"

namespace pipetwin {

std::vector<std::int64_t> prefix_sums(std::span<const Duration> layer_costs) {
    std::vector<std::int64_t> prefix{0};
    prefix.reserve(layer_costs.size() + 1);
    for (const Duration cost : layer_costs) {
        PIPETWIN_EXPECT(cost >= Duration::zero(), "the cost of a layer is negative");
        if (cost.count() > std::numeric_limits<std::int64_t>::max() - prefix.back()) {
            throw Error(ErrorKind::BadInput,
                        "partition",
                        "the costs of all layers add up to more than 292 years",
                        "check the unit of the costs");
        }
        prefix.push_back(prefix.back() + cost.count());
    }
    return prefix;
}

void check_stage_count(int stages, int layers) {
    if (stages < 1 || stages > layers) {
        throw Error(ErrorKind::Infeasible,
                    "partition",
                    fmt::format("{} layers cannot fill {} stages", layers, stages),
                    fmt::format("set stages between 1 and {}", layers));
    }
}

}  // namespace pipetwin
