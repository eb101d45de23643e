// SPDX-License-Identifier: Apache-2.0
#include "cli/text/hybrid_text.h"

#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/text/sentences.h"
#include "cli/text/text_output.h"
#include "core/base/as_index.h"
#include "core/base/number_text.h"

namespace pipetwin::cli {

namespace {

/// "embed", "block.0 to block.7".
std::string layers_text(const Profile& profile, int first, int count) {
    const auto name = [&](int layer) -> const std::string& {
        return profile.layers[as_index(layer)].name;
    };
    return count == 1 ? name(first) : fmt::format("{} to {}", name(first), name(first + count - 1));
}

std::string table_text(const sim::Hybrid& hybrid, const Profile& profile) {
    std::vector<std::vector<std::string>> rows{
        {"stage", "layers", "", "devices", "time on one device", "gradients"}};
    const Partition& partition = hybrid.split.partition;
    for (int stage = 0; stage < partition.stage_count(); ++stage) {
        const std::size_t index = as_index(stage);
        const int layers = partition.layers_in(stage);
        rows.push_back(
            {std::to_string(stage),
             std::to_string(layers),
             layers_text(profile, partition.first_layer(stage), layers),
             std::to_string(hybrid.split.replicas[index]),
             format_duration(hybrid.work[index]),
             hybrid.split.replicas[index] == 1 ? "-" : format_duration(hybrid.all_reduce[index])});
    }
    return text_table(rows);
}

/// Against the best plan, where that says how many samples it takes.
std::string against(const sim::Hybrid& hybrid, const sim::FoundPlan& best) {
    const std::string own = fmt::format("{:.4g} samples per second", hybrid.samples_per_second());
    if (!best.samples_per_second) {
        return own + ".";
    }
    const double ratio = hybrid.samples_per_second() / *best.samples_per_second;
    return fmt::format(
        "{}, {:.2f} times the {:.4g} of the best plan.", own, ratio, *best.samples_per_second);
}

}  // namespace

std::string hybrid_text(const sim::Hybrid& hybrid,
                        const sim::FoundPlan& best,
                        const Profile& profile,
                        const Console& console) {
    Paragraph steady{.heading = "Stages of unequal width (PipeDream's hybrid)", .lines = {}};
    steady.lines.push_back(
        fmt::format("In the steady state one micro-batch of {} ends every {} on {} of {}: {}",
                    counted(hybrid.micro_batch_size, "sample"),
                    format_duration(hybrid.split.largest),
                    hybrid.split.devices_used,
                    counted(hybrid.devices, "device"),
                    against(hybrid, best)));
    if (hybrid.work.size() == 1) {
        steady.lines.emplace_back("All layers in one stage: plain data parallelism.");
    }
    steady.lines.push_back(
        "Memory, fill and drain are counted for the best plan, and not for these stages. Such a "
        "plan "
        "cannot be simulated or trained: all stages of a plan have the same number of devices.");
    return paragraph_text(steady, console.width()) + table_text(hybrid, profile);
}

Json hybrid_json(const sim::Hybrid& hybrid) {
    Json json{{"micro_batch_size", hybrid.micro_batch_size},
              {"micro_batches", hybrid.micro_batches},
              {"micro_batch_ms", to_milliseconds(hybrid.split.largest)},
              {"samples_per_second", hybrid.samples_per_second()},
              {"devices", hybrid.devices},
              {"devices_used", hybrid.split.devices_used},
              {"stages", Json::array()}};
    for (std::size_t stage = 0; stage < hybrid.work.size(); ++stage) {
        json["stages"].push_back(
            {{"layers", hybrid.split.partition.layers_in(static_cast<int>(stage))},
             {"devices", hybrid.split.replicas[stage]},
             {"work_ms", to_milliseconds(hybrid.work[stage])},
             {"all_reduce_ms", to_milliseconds(hybrid.all_reduce[stage])}});
    }
    return json;
}

}  // namespace pipetwin::cli
