// SPDX-License-Identifier: Apache-2.0
#include "cli/text/scale_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/number_text.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_toml.h"

namespace pipetwin::cli {

namespace {

/// "lost 5.6 %", or "gained 0.8 %".
std::string loss_words(double loss) {
    return loss < 0 ? fmt::format("gained {}", rounded_percent(-loss))
                    : fmt::format("lost {}", rounded_percent(loss));
}

/// "GPT-3 175B in fp8 on 128 to 2,048 h100-sxm (nemo-2024)".
std::string series_words(const ScaleSeries& series) {
    return fmt::format("{} in {} on {} to {} {} ({}, {})",
                       series.most.model,
                       series.most.precision,
                       with_separators(series.least.devices),
                       with_separators(series.most.devices),
                       series.most.device,
                       series.most.stack,
                       series.most.year);
}

/// The text of each source of a stack's number, as its file has it.
std::vector<std::string> texts_of_sources(const std::string& stack, const std::string& keys) {
    const StackFile file = read_stack_file(stack);
    return source_texts(file.text, file.file.string(), keys);
}

}  // namespace

std::vector<std::string> scale_lines(const sim::Outlook& outlook) {
    constexpr int few = 64;
    if (!outlook.scale || outlook.scale->devices < few) {
        return {};
    }
    const sim::ScaleAssumption& scale = *outlook.scale;
    std::vector<std::string> lines{fmt::format(
        "loss by scale: assumed is {}, by which the slowest of {} devices holds up computation (1 "
        "+ {:g} sqrt(2 ln N)), beside messages",
        rounded_percent(1 - 1 / scale.slowest),
        with_separators(scale.devices),
        scale.deviation)};
    if (scale.nearest) {
        lines.front() += fmt::format(
            "; {} {}, predicted {}",
            series_words(*scale.nearest),
            loss_words(scale.nearest->measured_loss()),
            scale.nearest->predicted_loss() < 0
                ? fmt::format("to gain {}", rounded_percent(-scale.nearest->predicted_loss()))
                : rounded_percent(scale.nearest->predicted_loss()));
    }
    if (scale.unexplained_loss) {
        lines.front() += fmt::format("; beyond the prediction {} published series {} in the median",
                                     scale.series,
                                     loss_words(*scale.unexplained_loss));
    }
    return lines;
}

std::vector<std::string> outlook_sources(const sim::Outlook& outlook) {
    std::vector<std::string> lines;
    if (outlook.error) {
        lines.push_back(fmt::format(
            "range: 90 % of the {} were between {:+.1f} % and {:+.1f} % of their estimates, each "
            "estimated without the runs of its own source (profiles/stacks/evidence.json){}",
            outlook.error->of,
            100 * (outlook.error->low - 1),
            100 * (outlook.error->high - 1),
            unseen_text(*outlook.error)));
    }
    if (!outlook.stack.empty()) {
        lines.push_back(fmt::format("rates of devices and kernels: {}, each with its source",
                                    is_stack_file(outlook.stack)
                                        ? outlook.stack
                                        : fmt::format("profiles/stacks/{}.toml", outlook.stack)));
    }
    for (const NearRun& near : outlook.nearest) {
        lines.push_back(fmt::format("published: {} on {} {}: {}",
                                    near.run.model,
                                    near.run.devices,
                                    near.run.device,
                                    near.run.source));
    }
    if (const std::optional<sim::ScaleAssumption>& scale = outlook.scale) {
        if (!scale->source.empty()) {
            for (const std::string& text : texts_of_sources(outlook.stack, scale->source)) {
                lines.push_back(fmt::format("loss by scale: {}", text));
            }
        } else if (scale->deviation > 0) {
            lines.emplace_back("loss by scale: cluster.device_spread of the scenario");
        }
        if (scale->nearest) {
            lines.push_back(
                fmt::format("loss by scale, published: {}", scale->nearest->most.source));
        }
    }
    return lines;
}

Json scale_json(const sim::Outlook& outlook) {
    if (!outlook.scale) {
        return nullptr;
    }
    const sim::ScaleAssumption& scale = *outlook.scale;
    Json json{{"devices", scale.devices},
              {"slowest_device", scale.slowest},
              {"deviation", scale.deviation},
              {"nearest", nullptr},
              {"unexplained_loss",
               scale.unexplained_loss ? Json(*scale.unexplained_loss) : Json(nullptr)},
              {"series", scale.series}};
    if (scale.nearest) {
        const ScaleSeries& series = *scale.nearest;
        json["nearest"] = {{"model", series.most.model},
                           {"device", series.most.device},
                           {"precision", series.most.precision},
                           {"stack", series.most.stack},
                           {"year", series.most.year},
                           {"from_devices", series.least.devices},
                           {"to_devices", series.most.devices},
                           {"measured_loss", series.measured_loss()},
                           {"predicted_loss", series.predicted_loss()},
                           {"source", series.most.source}};
    }
    return json;
}

}  // namespace pipetwin::cli
