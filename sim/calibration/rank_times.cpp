// SPDX-License-Identifier: Apache-2.0
#include "sim/calibration/rank_times.h"

#include <algorithm>
#include <optional>

#include "core/timeline/timeline.h"

namespace pipetwin::sim {

namespace {

RankTimes times_of_row(const std::vector<Span>& row, Duration start) {
    RankTimes times;
    std::optional<Duration> summed;
    for (const Span& span : row) {
        const double seconds = to_seconds(span.end - span.begin);
        switch (span.action.op) {
            case Op::Forward:
                times.forward += seconds;
                break;
            case Op::Backward:
            case Op::BackwardInput:
            case Op::BackwardWeight:
            case Op::Recompute:
                times.backward += seconds;
                break;
            case Op::GradientNorm:
            case Op::Optimizer:
                times.update += seconds;
                summed = summed.value_or(span.ready);
                break;
            default:
                break;
        }
    }
    if (!row.empty()) {
        times.pipeline = to_seconds(summed.value_or(row.back().end) - start);
    }
    return times;
}

}  // namespace

std::vector<RankTimes> rank_times(const Timeline& timeline) {
    Duration start = Duration::max();
    for (const std::vector<Span>& row : timeline.ranks) {
        if (!row.empty()) {
            start = std::min(start, row.front().begin);
        }
    }
    std::vector<RankTimes> ranks;
    for (const std::vector<Span>& row : timeline.ranks) {
        ranks.push_back(times_of_row(row, start));
    }
    return ranks;
}

RankTimes longest_times(const Timeline& timeline) {
    RankTimes longest;
    for (const RankTimes& rank : rank_times(timeline)) {
        for (const auto time : {&RankTimes::forward,
                                &RankTimes::backward,
                                &RankTimes::pipeline,
                                &RankTimes::update}) {
            longest.*time = std::max(longest.*time, rank.*time);
        }
    }
    return longest;
}

}  // namespace pipetwin::sim
