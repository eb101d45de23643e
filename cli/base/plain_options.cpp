// SPDX-License-Identifier: Apache-2.0
#include "cli/base/plain_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view times = "X[,X...]";
constexpr std::string_view ms = " ms";

constexpr auto all_costs = std::to_array<CostOption>({
    {"--schedule-file", "FILE.csv", "Read the schedule from a CSV file"},
    {"--forward-ms",
     times,
     "Forward time of one stage: one X that every stage takes, or X,X,... for each of the P x V "
     "stages",
     "forward",
     ms},
    {"--backward-ms", times, "Backward time, in the same form as --forward-ms", "backward", ms},
    {"--backward-input-ms",
     times,
     "Time of the input gradient alone; replaces --backward-ms, together with --backward-weight-ms",
     "input gradient",
     ms},
    {"--backward-weight-ms", times, "Time of the weight gradient alone", "weight gradient", ms},
    {"--recompute-ms",
     times,
     "Recompute time, in the same form as --forward-ms (default: the forward time)",
     "recompute",
     ms},
    {"--rank-forward-ms",
     times,
     "Forward time of all stages of a rank together, in place of --forward-ms: one X for every "
     "rank, or X,X,... for each; plans with more stages on a rank then do the same work",
     "forward of a rank",
     ms},
    {"--rank-backward-ms",
     times,
     "Backward time, in the same form as --rank-forward-ms",
     "backward of a rank",
     ms},
    {"--rank-backward-input-ms",
     times,
     "Time of the input gradient alone, in the same form",
     "input gradient of a rank",
     ms},
    {"--rank-backward-weight-ms",
     times,
     "Time of the weight gradient alone, in the same form",
     "weight gradient of a rank",
     ms},
    {"--rank-recompute-ms", times, "Recompute time, in the same form", "recompute of a rank", ms},
    {"--latency-ms", "X", "Latency of a message between two ranks (default 0)", "latency", ms},
    {"--boundary-bytes",
     "N",
     "Bytes that one stage sends to the next (default 0)",
     "messages of",
     " B"},
    {"--bandwidth-gbps",
     "X",
     "Bandwidth between two ranks in Gbit/s (default: unlimited)",
     "at",
     " Gbit/s"},
    {"--skips",
     "A:B[,A:B...]",
     "Skip connections: stage B also reads the output of stage A, as in 0:3,1:2"},
});

}  // namespace

bool CostOption::is_time() const {
    return value == times;
}

std::string CostOption::of_stages() const {
    constexpr std::string_view of_ranks = "--rank-";
    return name.starts_with(of_ranks) ? fmt::format("--{}", name.substr(of_ranks.size())) : "";
}

std::span<const CostOption> cost_options() {
    return all_costs;
}

std::optional<std::string> PlainOptions::value(std::string_view option) const {
    const auto found = std::ranges::find(written, option, &KeyValue::key);
    return found == written.end() ? std::nullopt : std::optional(found->value);
}

std::optional<int> PlainOptions::number(std::string_view option) const {
    const std::optional<std::string> text = value(option);
    return text ? std::optional(std::stoi(*text)) : std::nullopt;
}

std::vector<std::string> PlainOptions::values(std::string_view option) const {
    std::vector<std::string> all;
    for (const KeyValue& one : written) {
        if (one.key == option) {
            all.push_back(one.value);
        }
    }
    return all;
}

void PlainOptions::set(std::string_view option, std::string value) {
    erase(option);
    written.push_back({std::string(option), std::move(value)});
}

void PlainOptions::erase(std::string_view option) {
    std::erase_if(written, [option](const KeyValue& one) { return one.key == option; });
}

bool PlainOptions::several() const {
    return combinations(*this) > 1;
}

std::string option_of_key(std::string_view key) {
    std::string option = fmt::format("--{}", key.substr(key.find('.') + 1));
    std::ranges::replace(option, '_', '-');
    return option;
}

const ScenarioKey& pipeline_key(std::string_view option) {
    std::string key(option.substr(option.find_first_not_of('-')));
    std::ranges::replace(key, '-', '_');
    return key_named(pipeline_keys(), key);
}

std::string as_option(const KeyValue& setting) {
    std::string value = setting.value;
    std::erase(value, '"');
    const std::string option = option_of_key(setting.key);
    return value.empty() ? option : fmt::format("{} {}", option, value);
}

std::vector<PlainOptions> one_for_each(const std::vector<PlainOptions>& plans,
                                       std::string_view option) {
    std::vector<PlainOptions> all;
    for (const PlainOptions& plan : plans) {
        const std::vector<std::string> values = plan.values(option);
        for (const std::string& value : values) {
            all.push_back(plan);
            all.back().set(option, value);
        }
        if (values.empty()) {
            all.push_back(plan);
        }
    }
    return all;
}

std::size_t combinations(const PlainOptions& options) {
    std::size_t all = 1;
    for (const std::string_view list : list_options) {
        all *= std::max<std::size_t>(options.values(list).size(), 1);
    }
    return all;
}

}  // namespace pipetwin::cli
