// SPDX-License-Identifier: Apache-2.0
#include "cli/predict/rank_times.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/predict/plain_numbers.h"
#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule_csv.h"

namespace pipetwin::cli {

namespace {

/// The ranks of the stages; of two pipelines, those of the first one.
std::vector<int> first_pipeline(const Schedule& schedule) {
    std::vector<int> ranks = schedule.rank_of_stage;
    ranks.resize(std::min(ranks.size(), as_index(model_stage_count(schedule))));
    return ranks;
}

/// The rank of each stage, in model order. Where all ranks take the same time, a loop is as good as
/// any other placement, and rows need not be generated.
std::vector<int> ranks_of_stages(const PlainCosts& costs, bool are_alike) {
    if (costs.schedule_from_file) {
        return first_pipeline(*costs.schedule_from_file);
    }
    const ScheduleTraits& row = schedule_traits(costs.schedule);
    const bool is_twice = row.placement == StagePlacement::BothWays;
    if (!are_alike && is_twice) {
        throw Error(
            ErrorKind::Infeasible,
            "",
            "each stage is on two ranks, so a time for each rank does not say what it takes",
            "give one number for all ranks");
    }
    if (!are_alike && !row.order_from_costs) {
        return first_pipeline(generate(costs.schedule, costs.shape));
    }
    std::vector<int> ranks;
    for (int stage = 0; stage < costs.shape.ranks * (is_twice ? 1 : costs.shape.chunks); ++stage) {
        ranks.push_back(stage % costs.shape.ranks);
    }
    return ranks;
}

/// The times of ranks that are given.
std::vector<CostOption> given_rank_times(const PlainOptions& options) {
    std::vector<CostOption> times;
    std::ranges::copy_if(cost_options(), std::back_inserter(times), [&](const CostOption& cost) {
        return !cost.of_stages().empty() && options.has(cost.name);
    });
    return times;
}

/// Throws Error(Usage) where times of stages stand beside those of ranks.
void refuse_mixed_times(const PlainOptions& options, std::string_view of_rank) {
    for (const CostOption& cost : cost_options()) {
        if (const auto time = options.value(cost.of_stages())) {
            throw Error(
                ErrorKind::Usage,
                cost.of_stages(),
                fmt::format("a time of one stage cannot be used together with {}, which is one of "
                            "all stages of a rank",
                            of_rank),
                fmt::format("write {} {}", cost.name, *time));
        }
    }
}

std::string shared_out(const std::string& text,
                       std::string_view option,
                       const PlainCosts& costs,
                       const std::vector<int>& rank_of_stage) {
    const std::vector<double> times = numbers(text, option);
    if (times.size() != 1 && std::cmp_not_equal(times.size(), costs.shape.ranks)) {
        throw Error(ErrorKind::Usage,
                    std::string(option),
                    fmt::format("{} for {} of {}",
                                counted(times.size(), "number"),
                                counted(costs.shape.ranks, "rank"),
                                costs.schedule_name),
                    "give one number for all ranks, or one for each: the time of the rank's share "
                    "of the model");
    }
    std::string stages;
    for (const int rank : rank_of_stage) {
        stages += fmt::format("{}{}",
                              stages.empty() ? "" : ",",
                              times[times.size() == 1 ? 0 : as_index(rank)] /
                                  static_cast<double>(std::ranges::count(rank_of_stage, rank)));
    }
    return stages;
}

}  // namespace

int default_chunks(const ScheduleTraits& schedule) {
    return schedule.chunks == ChunkCounts::One ? 1 : 2;
}

bool has_rank_times(const PlainOptions& options) {
    return !given_rank_times(options).empty();
}

bool add_unit_times(PlainOptions& options) {
    const std::vector<std::string> schedules = options.values("--schedule");
    const bool has_shape = options.has("--stages") && options.has("--micro-batches");
    const bool are_files = options.has("--schedule-file") ||
                           (!schedules.empty() && std::ranges::all_of(schedules, is_schedule_file));
    const bool are_given = std::ranges::any_of(cost_options(), [&](const CostOption& cost) {
        return cost.is_time() && options.has(cost.name);
    });
    if (are_given || !(has_shape || are_files)) {
        return false;
    }
    options.set("--forward-ms", "1");
    options.set("--backward-ms", "2");
    return true;
}

PlainOptions with_stage_times(PlainOptions options, const PlainCosts& costs) {
    const std::vector<CostOption> times = given_rank_times(options);
    if (times.empty()) {
        return options;
    }
    refuse_mixed_times(options, times.front().name);
    const bool are_alike = std::ranges::all_of(times, [&options](const CostOption& time) {
        return options.value(time.name)->find(',') == std::string::npos;
    });
    const std::vector<int> ranks = ranks_of_stages(costs, are_alike);
    for (const CostOption& time : times) {
        options.set(time.of_stages(),
                    shared_out(*options.value(time.name), time.name, costs, ranks));
        options.erase(time.name);
    }
    return options;
}

}  // namespace pipetwin::cli
