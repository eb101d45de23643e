// SPDX-License-Identifier: Apache-2.0
#include "core/partition/partition_search.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"

namespace pipetwin {

namespace {

/// False if the next sum is more than an integer can hold.
bool append(std::vector<std::int64_t>& sums, std::int64_t next) {
    PIPETWIN_EXPECT(next >= 0, "the cost of a layer is negative");
    if (next > std::numeric_limits<std::int64_t>::max() - sums.back()) {
        return false;
    }
    sums.push_back(sums.back() + next);
    return true;
}

}  // namespace

std::vector<std::int64_t> prefix_sums(std::span<const Duration> layer_costs) {
    std::vector<std::int64_t> prefix{0};
    prefix.reserve(layer_costs.size() + 1);
    for (const Duration cost : layer_costs) {
        if (!append(prefix, cost.count())) {
            throw Error(ErrorKind::BadInput,
                        "partition",
                        "the costs of all layers add up to more than 292 years",
                        "check the unit of the costs");
        }
    }
    return prefix;
}

std::vector<std::int64_t> prefix_sums(std::span<const Bytes> layer_bytes) {
    std::vector<std::int64_t> prefix{0};
    prefix.reserve(layer_bytes.size() + 1);
    for (const Bytes bytes : layer_bytes) {
        if (!append(prefix, bytes.count)) {
            throw Error(ErrorKind::BadInput,
                        "partition",
                        "the bytes of all layers add up to more than 8 EiB",
                        "check the unit of the bytes");
        }
    }
    return prefix;
}

double split_count(int layers, int stages) {
    double count = layers < stages ? 0 : 1;
    for (int i = 1; i < stages; ++i) {
        count *= static_cast<double>(layers - i) / i;
    }
    return count;
}

void check_stage_count(int stages, int layers, int chunks) {
    if (stages >= 1 && stages <= layers) {
        return;
    }
    const int most = layers / chunks;
    const KeyValue ranks{"pipeline.stages", fmt::to_string(most)};
    const KeyValue one{"pipeline.chunks", "1"};
    const std::string fewer =
        most == 1 ? "stages = 1" : fmt::format("stages to a number from 1 to {}", most);
    Hint hint;
    if (chunks > 1) {
        hint.form = fmt::format("each rank has {} of them: ", chunks);
        hint.settings.push_back(one);
    }
    hint.form += "set ";
    if (most > 0) {
        hint.form += fewer + (chunks > 1 ? ", or " : "");
        hint.settings.push_back(ranks);
    }
    hint.form += fmt::format("{}; 'pipetwin model' lists the units", chunks > 1 ? "{}" : "");
    throw Error(ErrorKind::Infeasible,
                "partition",
                fmt::format("{} cannot fill {}", counted(layers, "unit"), counted(stages, "stage")),
                std::move(hint))
        .about("pipeline.stages");
}

}  // namespace pipetwin
