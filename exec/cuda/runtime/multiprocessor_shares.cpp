// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "exec/cuda/runtime/green_context.h"

namespace pipetwin::cuda {

std::vector<int> shares(int units, int parts, std::span<const int> wanted) {
    std::vector<int> result(wanted.begin(), wanted.end());
    if (result.empty()) {
        result.assign(as_index(parts), units / parts);
    }
    const int sum = std::accumulate(result.begin(), result.end(), 0);
    if (sum > units || result.front() < 1) {
        throw Error(ErrorKind::Infeasible,
                    KeyValue{"cluster.gpu_shares"},
                    wanted.empty()
                        ? fmt::format("the GPU has {} of {} multiprocessors, too few for {} "
                                      "ranks with their own",
                                      counted(units, "unit"),
                                      multiprocessors_of_a_unit,
                                      parts)
                        : fmt::format("{} of {} multiprocessors in all, but the GPU has {}",
                                      counted(sum, "unit"),
                                      multiprocessors_of_a_unit,
                                      units),
                    wanted.empty()
                        ? "set pipeline.stages lower, or gpu_shares = \"streams\": then ranks take "
                          "what is free, and their timing does not validate the schedule"
                        : "set smaller numbers, or \"own\" for equal shares");
    }
    return result;
}

}  // namespace pipetwin::cuda
