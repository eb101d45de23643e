// SPDX-License-Identifier: Apache-2.0
#include "core/partition/feasible_splits.h"

#include <limits>

#include "core/base/as_index.h"
#include "core/partition/partition_search.h"

namespace pipetwin {

FeasibleSplits::FeasibleSplits(int layers, int stages)
    : layers_(layers), stages_(stages), words_(as_index(layers) / 64 + 1) {
    check_stage_count(stages, layers);
    counts_.assign(place(stages, layers) + 1, 0);
    ends_.assign(place(stages, 0) * words_, 0);
    counts_.back() = 1;
}

void FeasibleSplits::allow(int stage, int first, int end) {
    const std::size_t bit = as_index(end);
    ends_[place(stage, first) * words_ + bit / 64] |= std::uint64_t{1} << (bit % 64);
    std::uint64_t& count = counts_[place(stage, first)];
    const std::uint64_t more = count_from(stage + 1, end);
    const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - count;
    count += more < room ? more : room;
}

}  // namespace pipetwin
