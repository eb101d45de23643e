// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/fit_interference.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/base/median.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::accuracy {

namespace {

double error_percent(const FitCase::Step& step, double interference) {
    sim::Conditions conditions = sim::planned_conditions(step.plan);
    const auto ranks = static_cast<std::size_t>(step.plan.rank_count());
    conditions.contention.interference.clear();
    for (const std::vector<Action>& row : step.plan->schedule.ranks) {
        std::vector<Duration>& durations = conditions.durations.emplace_back();
        for (const Action& action : row) {
            durations.push_back(scaled(step.plan.duration(action), 1 / (1 + interference)));
        }
    }
    if (interference > 0) {
        conditions.contention.interference.assign(ranks, std::vector<double>(ranks, interference));
    }
    const double predicted = to_seconds(sim::replayed_step(step.plan, conditions));
    return 100 * (predicted / to_seconds(step.measured) - 1);
}

double error_percent(const FitCase& one, double interference) {
    std::vector<double> errors;
    for (const FitCase::Step& step : one.steps) {
        errors.push_back(error_percent(step, interference));
    }
    return median(std::move(errors));
}

constexpr std::size_t nobody = static_cast<std::size_t>(-1);

double mean_error(const std::vector<FitCase>& cases, std::size_t without, double interference) {
    double sum = 0;
    std::size_t count = 0;
    for (std::size_t index = 0; index < cases.size(); ++index) {
        if (index != without) {
            sum += error_percent(cases[index], interference);
            ++count;
        }
    }
    return sum / static_cast<double>(count);
}

/// Finds the interference of all cases but `without` by bisection: the predicted time falls when it
/// grows.
double fit(const std::vector<FitCase>& cases, std::size_t without) {
    double low = 0;
    double high = 1;
    if (mean_error(cases, without, low) <= 0) {
        return low;
    }
    constexpr int halvings = 24;
    for (int halving = 0; halving < halvings; ++halving) {
        const double middle = (low + high) / 2;
        (mean_error(cases, without, middle) > 0 ? low : high) = middle;
    }
    return (low + high) / 2;
}

}  // namespace

InterferenceFit fit_interference(const std::vector<FitCase>& cases) {
    PIPETWIN_EXPECT(
        !cases.empty() &&
            std::ranges::none_of(cases, &std::vector<FitCase::Step>::empty, &FitCase::steps),
        "a run to fit to has a step");
    InterferenceFit result;
    result.interference = fit(cases, nobody);
    for (std::size_t index = 0; index < cases.size(); ++index) {
        result.error_percent.push_back(error_percent(cases[index], result.interference));
        if (cases.size() > 1) {
            result.leave_one_out_percent.push_back(error_percent(cases[index], fit(cases, index)));
        }
    }
    return result;
}

}  // namespace pipetwin::accuracy
