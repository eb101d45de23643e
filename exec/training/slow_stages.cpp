// SPDX-License-Identifier: Apache-2.0
#include "exec/training/slow_stages.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/plan/plan.h"
#include "exec/base/noise.h"

namespace pipetwin::exec {
namespace {

/// Median factor of the other stages, at least 1: a stage that is faster than planned makes no
/// other one slow.
double yardstick(const std::vector<double>& factors, std::size_t but) {
    std::vector<double> others;
    for (std::size_t stage = 0; stage < factors.size(); ++stage) {
        if (stage != but && factors[stage] > 0) {
            others.push_back(factors[stage]);
        }
    }
    if (others.empty()) {
        return 0;  // nothing to compare with
    }
    const auto middle = others.begin() + (std::ssize(others) - 1) / 2;
    std::ranges::nth_element(others, middle);
    return std::max(*middle, 1.0);
}

}  // namespace

SlowStages::SlowStages(const Plan& plan)
    : rank_of_stage_(plan->schedule.rank_of_stage), stages_(rank_of_stage_.size()) {
    for (const std::vector<Action>& row : plan->schedule.ranks) {
        for (const Action& action : row) {
            if (is_compute(action.op)) {
                stages_[as_index(action.stage)].planned += plan.duration(action);
            }
        }
    }
    for (Stage& stage : stages_) {
        stage.taken.reserve(steps_looked_at);
    }
}

std::vector<std::string> SlowStages::add(const Timeline& step) {
    for (Stage& stage : stages_) {
        stage.taken.emplace_back();
    }
    for (const std::vector<Span>& row : step.ranks) {
        for (const Span& span : row) {
            if (is_compute(span.action.op)) {
                stages_[as_index(span.action.stage)].taken.back() += span.end - span.ready;
            }
        }
    }
    if (stages_.front().taken.size() < steps_looked_at) {
        return {};
    }
    const std::vector<double> all = factors();
    std::vector<std::string> sentences;
    for (std::size_t index = 0; index < stages_.size(); ++index) {
        Stage& stage = stages_[index];
        const double others = yardstick(all, index);
        if (others > 0 && all[index] >= slow * others && !stage.is_told) {
            stage.is_told = true;
            sentences.push_back(fmt::format(
                "stage {} (rank {}) is slow: in the median of {} steps it computes for {}, {:.1f} "
                "times as long as planned; the other stages take {:.1f} times as long as planned",
                index,
                rank_of_stage_[index],
                steps_looked_at,
                format_duration(quantile(stage.taken, 0.5)),
                all[index],
                others));
        }
        stage.taken.clear();
    }
    return sentences;
}

/// [stage]: taken over planned, in the median; 0 where nothing is planned.
std::vector<double> SlowStages::factors() const {
    std::vector<double> all;
    for (const Stage& stage : stages_) {
        all.push_back(stage.planned > Duration{}
                          ? to_seconds(quantile(stage.taken, 0.5)) / to_seconds(stage.planned)
                          : 0);
    }
    return all;
}

}  // namespace pipetwin::exec
