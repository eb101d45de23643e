#include <numeric>
#include <string>

#include "exec/cuda/check.h"
#include "exec/cuda/green_context.h"

namespace pipetwin::cuda {

std::vector<int> shares(int units, int parts, std::span<const int> wanted) {
    std::vector<int> result(wanted.begin(), wanted.end());
    if (result.empty()) {
        result.assign(static_cast<std::size_t>(parts), units / parts);
    }
    const int sum = std::accumulate(result.begin(), result.end(), 0);
    for (const int share : result) {
        if (share < 1 || sum > units) {
            throw CudaFailure("the GPU has " + std::to_string(units) + " units of " +
                              std::to_string(multiprocessors_of_a_unit) +
                              " multiprocessors, too few for " + std::to_string(parts) +
                              " stages with their own");
        }
    }
    return result;
}

}  // namespace pipetwin::cuda
