// SPDX-License-Identifier: Apache-2.0
#include "core/plan/cost_notes.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/number_text.h"
#include "core/partition/partition.h"
#include "core/plan/plan.h"
#include "core/schedule/lower.h"

namespace pipetwin {

std::vector<std::string> size_notes(const Profile& profile, const std::vector<int>& sizes) {
    std::vector<std::string> notes;
    for (const int size : sizes) {
        std::vector<std::string_view> names;
        const LayerCost* first = nullptr;
        for (const LayerCost& layer : profile.layers) {
            if (is_outside_samples(layer, size)) {
                first = first == nullptr ? &layer : first;
                names.push_back(layer.name);
            }
        }
        if (first == nullptr) {
            continue;
        }
        constexpr std::size_t most_named = 3;
        const std::size_t count = names.size();
        names.resize(std::min(count, most_named));
        const LayerSample& nearest = size > first->samples.back().micro_batch_size
                                         ? first->samples.back()
                                         : first->samples.front();
        notes.push_back(
            fmt::format("estimated: no costs at micro-batch size {}; those of {} "
                        "({}{}) are scaled in proportion, '{}' from size {}",
                        size,
                        counted(count, "layer"),
                        fmt::join(names, ", "),
                        count > most_named ? ", ..." : "",
                        first->name,
                        nearest.micro_batch_size));
    }
    return notes;
}

std::vector<std::string> spread_notes(const Profile& profile) {
    constexpr double restless = 1;  // nine of ten differ by the whole of the median
    const LayerCost* worst = nullptr;
    double spread = restless;
    std::size_t count = 0;
    for (const LayerCost& layer : profile.layers) {
        double widest = 0;
        for (const LayerSample& sample : layer.samples) {
            widest = std::max(widest, sample.spread);
        }
        count += widest > restless ? 1 : 0;
        if (widest > spread) {
            worst = &layer;
            spread = widest;
        }
    }
    if (worst == nullptr) {
        return {};
    }
    return {
        fmt::format("the measured times of {} vary by more than their median ({}'{}' by {:.0f} %): "
                    "measure again on a quieter machine",
                    counted(count, "layer"),
                    count > 1 ? "most: " : "",
                    worst->name,
                    100 * spread)};
}

std::vector<std::string> share_notes(const Profile& profile, int devices) {
    const bool knows_some = !profile.layers.front().shared.empty();
    if (devices == 1 || !knows_some || knows_shares(profile, devices)) {
        return {};
    }
    return {fmt::format(
        "the profile does not know the costs of one of {} devices that share a layer: each "
        "has an equal part of all but the sums, which is less than it takes",
        devices)};
}

std::vector<std::string> gpu_notes(const Profile& profile,
                                   const Schedule& rows,
                                   std::string_view schedule,
                                   bool sets_interference) {
    std::vector<std::string> notes;
    if (profile.halves_over_whole && splits_backward(rows)) {
        notes.push_back(
            fmt::format("{} divides backwards in two: the halves take {:.1f} % longer "
                        "than the whole, as measured",
                        schedule,
                        100 * (*profile.halves_over_whole - 1)));
    } else if (profile.whole_backwards && splits_backward(rows)) {
        notes.push_back(fmt::format(
            "the costs were measured in a schedule with whole backwards; {} divides them in two, "
            "which took 4 to 7 % longer on an H100: measure the costs with this schedule",
            schedule));
    }
    std::set<int> devices;
    for (const RankInterference& rank : profile.ranks) {
        devices.insert(rank.device);
    }
    if (devices.size() == profile.ranks.size()) {
        return notes;  // each rank had a device of its own
    }
    if (std::ssize(profile.ranks) != rows.rank_count()) {
        notes.push_back(fmt::format(
            "the costs are those of {} ranks that shared {}; {} would have other parts of it, and "
            "take other times: measure the costs with this number of stages",
            profile.ranks.size(),
            devices.size() == 1 ? "a GPU" : counted(std::ssize(devices), "GPU"),
            counted(rows.rank_count(), "rank")));
    } else if (!sets_interference) {
        const auto [least, most] =
            std::ranges::minmax(profile.ranks, {}, &RankInterference::interference);
        notes.push_back(
            fmt::format("ranks share a GPU: each takes {:.0f} to {:.0f} % longer for each other "
                        "rank that computes at the same time, as measured",
                        100 * least.interference,
                        100 * most.interference));
    }
    return notes;
}

std::string tied_note(const std::string& precision, const WeightRules& rules) {
    Profile copy{.precision = precision};
    copy.layers.push_back({.name = "copy", .parameter_bytes = rules.tied});
    const StageState held = stage_states(copy,
                                         {},
                                         Partition({1}, 1),
                                         {.optimizer = rules.optimizer,
                                          .devices = rules.devices,
                                          .fp32_gradients = rules.fp32_gradients,
                                          .shards = rules.shards})
                                .front();
    return fmt::format(
        "the first and the last layer share {} of weights: the last stage holds them again, {} "
        "with "
        "gradients and optimizer state, and the gradients of both are summed once a step",
        format_bytes(held.weights),
        format_bytes(held.weights + held.gradients + held.optimizer_state));
}

}  // namespace pipetwin
