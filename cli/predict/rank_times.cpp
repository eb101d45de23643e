// SPDX-License-Identifier: Apache-2.0
#include "cli/predict/rank_times.h"

#include <algorithm>
#include <array>
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

using Text = std::optional<std::string>;

/// A time of ranks and the same time of stages.
struct TimePair {
    std::string_view of_rank;
    std::string_view of_stage;
    Text PlainOptions::*rank;
    Text PlainOptions::*stage;
};

constexpr std::array time_pairs{TimePair{"--rank-forward-ms",
                                         "--forward-ms",
                                         &PlainOptions::rank_forward_ms,
                                         &PlainOptions::forward_ms},
                                TimePair{"--rank-backward-ms",
                                         "--backward-ms",
                                         &PlainOptions::rank_backward_ms,
                                         &PlainOptions::backward_ms},
                                TimePair{"--rank-backward-input-ms",
                                         "--backward-input-ms",
                                         &PlainOptions::rank_backward_input_ms,
                                         &PlainOptions::backward_input_ms},
                                TimePair{"--rank-backward-weight-ms",
                                         "--backward-weight-ms",
                                         &PlainOptions::rank_backward_weight_ms,
                                         &PlainOptions::backward_weight_ms},
                                TimePair{"--rank-recompute-ms",
                                         "--recompute-ms",
                                         &PlainOptions::rank_recompute_ms,
                                         &PlainOptions::recompute_ms}};

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

/// Throws Error(Usage) where times of stages stand beside those of ranks.
void refuse_mixed_times(const PlainOptions& options) {
    std::string_view of_rank;
    for (const TimePair& pair : time_pairs) {
        of_rank = of_rank.empty() && options.*pair.rank ? pair.of_rank : of_rank;
    }
    for (const TimePair& pair : time_pairs) {
        if (!of_rank.empty() && options.*pair.stage) {
            throw Error(
                ErrorKind::Usage,
                std::string(pair.of_stage),
                fmt::format("a time of one stage cannot be used together with {}, which is one of "
                            "all stages of a rank",
                            of_rank),
                fmt::format("write {} {}", pair.of_rank, *(options.*pair.stage)));
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
    return std::ranges::any_of(
        time_pairs, [&options](const TimePair& pair) { return (options.*pair.rank).has_value(); });
}

bool add_unit_times(const SweepOptions& lists, PlainOptions& options) {
    const bool has_shape = (options.stages || !lists.stages.empty()) &&
                           (options.micro_batches || !lists.micro_batches.empty());
    const bool are_files =
        !options.schedule_file.empty() ||
        (!lists.schedules.empty() && std::ranges::all_of(lists.schedules, is_schedule_file));
    const bool are_given = std::ranges::any_of(time_pairs, [&options](const TimePair& pair) {
        return options.*pair.rank || options.*pair.stage;
    });
    if (are_given || !(has_shape || are_files)) {
        return false;
    }
    options.forward_ms = "1";
    options.backward_ms = "2";
    return true;
}

PlainOptions with_stage_times(PlainOptions options, const PlainCosts& costs) {
    if (!has_rank_times(options)) {
        return options;
    }
    refuse_mixed_times(options);
    const bool are_alike = std::ranges::all_of(time_pairs, [&options](const TimePair& pair) {
        const Text& text = options.*pair.rank;
        return !text || text->find(',') == std::string::npos;
    });
    const std::vector<int> ranks = ranks_of_stages(costs, are_alike);
    for (const TimePair& pair : time_pairs) {
        if (Text& text = options.*pair.rank) {
            options.*pair.stage = shared_out(*text, pair.of_rank, costs, ranks);
            text.reset();
        }
    }
    return options;
}

}  // namespace pipetwin::cli
