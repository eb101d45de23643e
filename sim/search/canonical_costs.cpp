// SPDX-License-Identifier: Apache-2.0
#include "sim/search/canonical_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/as_index.h"
#include "core/model/model.h"
#include "core/partition/rank_even.h"
#include "core/scenario/planner.h"
#include "core/scenario/settled_scenario.h"
#include "core/timeline/metrics.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

/// How many times as long as all else the ranks compute.
constexpr std::array ratios{64.0, 8.0, 1.0, 0.125};
constexpr double between_ratios = 2.83;  ///< the square root of their distance
constexpr double parts_of_mean = 1024;   ///< times are multiples of such a part of the mean layer
constexpr double mean_alone = 1 << 20;   ///< nanoseconds, where nothing else takes time
constexpr double most_mean = 1e11;       ///< nanoseconds
constexpr double least_update = 1.0 / 256;

/// Factors of times, and what they are multiples of then.
struct TimeFactors {
    double compute = 1;
    double update = 1;
    double part = 1;  ///< nanoseconds
};

Profile with_times(const Profile& profile, const TimeFactors& factors) {
    Profile result = profile;
    const auto change = [&](Duration& time, double factor) {
        const double parts = static_cast<double>(time.count()) * factor / factors.part;
        time = Duration(std::llround(std::round(parts) * factors.part));
    };
    for (LayerCost& layer : result.layers) {
        change(layer.optimizer, factors.update);
        change(layer.weight_cast, factors.update);
        layer.change_samples([&](LayerSample& sample) {
            for (const auto time : times_of_sample) {
                change(sample.*time, factors.compute);
            }
        });
    }
    return result;
}

/// Nanoseconds of a forward and a backward through all layers.
double time_of(const LayerCosts& costs) {
    double sum = 0;
    for (const LayerSample& sample : costs.samples.front().front()) {
        sum += static_cast<double>((sample.forward + sample.backward()).count());
    }
    return sum;
}

/// Nanoseconds of a forward and a backward through all layers as the profile has them first: in
/// proportion to a factor of all times, unlike what a device takes, which also launches kernels.
double written_time(const Profile& profile) {
    double sum = 0;
    for (const LayerCost& layer : profile.layers) {
        if (!layer.samples.empty()) {
            const LayerSample& sample = layer.samples.front();
            sum += static_cast<double>((sample.forward + sample.backward()).count());
        }
    }
    return sum;
}

/// The update's share of the computing of a step, to the nearest power of 4.
double share_of_update(double update, double compute) {
    const double share = update / compute;
    return share < least_update ? 0 : std::pow(4.0, std::round(std::log2(share) / 2));
}

}  // namespace

std::vector<Profile> canonical_profiles(const SettledScenario& scenario,
                                        const Model& model,
                                        const Profile& profile,
                                        const Plan& plan,
                                        bool only_first) {
    const double written = written_time(profile);
    if (written < 1) {
        return {profile};
    }
    const auto layers = static_cast<double>(profile.layers.size());
    const auto time_with = [&](const Profile& of) {
        return time_of(layer_costs(plan, scenario, model, of));
    };
    const Profile timeless = with_times(profile, {.compute = 0, .update = 0});
    const double all_else = time_with(timeless);
    // What the layers take on the devices of the plan, beside what they do when each takes so long.
    double unit = mean_alone * layers / written;
    const auto computing = [&] {
        return time_with(with_times(profile, {.compute = unit, .update = 0})) - all_else;
    };
    double compute = computing();
    if (compute < all_else) {  // gathers of weights hide layers that are that short
        unit = ratios.front() * all_else / written;
        compute = computing();
    }
    const double of_step = compute * plan.micro_batches();
    double update = 0;
    for (const LayerCost& layer : profile.layers) {
        update += unit * static_cast<double>((layer.optimizer + layer.weight_cast).count());
    }
    const double share = share_of_update(update, of_step);
    if (compute < 1) {
        return {profile};
    }
    const auto with_mean = [&](double mean) {
        const double factor = mean * layers / compute;
        return with_times(profile,
                          {.compute = factor * unit,
                           .update = update > 0 ? share * of_step * factor * unit / update : 0,
                           .part = std::max(1.0, std::round(mean / parts_of_mean))});
    };
    double idle_step = 0;
    if (!only_first) {
        SettledScenario even = scenario;
        even.pipeline.partition = equal_counts(model.layer_count(), plan->partition->stage_count());
        const Plan idle = with_settled_capacity(
            Planner(even, model, timeless).plan_with_rows_of(plan, *even.pipeline.partition));
        idle_step = static_cast<double>(step_time(simulate(idle)).count());
    }
    std::vector<Profile> profiles;
    const double of_rank =
        (time_with(profile) - all_else) * plan.micro_batches() / plan.rank_count();
    for (const double ratio : ratios) {
        const double mean = ratio * idle_step * plan.rank_count() / plan.micro_batches() / layers;
        if (profiles.empty()) {
            profiles.push_back(
                with_mean(mean < parts_of_mean ? mean_alone : std::min(mean, most_mean)));
        } else if (mean >= parts_of_mean && ratio * between_ratios * idle_step >= of_rank) {
            profiles.push_back(with_mean(std::min(mean, most_mean)));
        }
    }
    return profiles;
}

}  // namespace pipetwin::sim
