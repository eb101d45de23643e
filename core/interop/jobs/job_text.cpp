// SPDX-License-Identifier: Apache-2.0
#include "core/interop/jobs/job_text.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

#include "core/base/number_text.h"
#include "core/base/word_list.h"
#include "core/interop/jobs/lacks.h"

namespace pipetwin {

std::string real_text(double value) {
    std::string text = fmt::format("{}", value);
    const bool is_real = text.find_first_of(".einf") != std::string::npos;
    if (const std::size_t exponent = text.find('e');
        exponent != std::string::npos && text.find('.') == std::string::npos) {
        text.insert(exponent, ".0");  // YAML 1.1 reads 1e-05 as a text
    }
    return is_real ? text : text + ".0";
}

AdamNumbers adam_numbers(const PlacedPlan& plan) {
    const auto& training = plan.scenario.training;
    const OptimizerTraits& optimizer = traits(training.optimizer);
    constexpr double beta1 = 0.9;
    constexpr double beta2 = 0.999;
    const bool has_betas = training.betas.size() == 2;
    return {.beta1 = has_betas ? training.betas[0] : beta1,
            .beta2 = has_betas ? training.betas[1] : beta2,
            .epsilon = training.epsilon.value_or(optimizer.epsilon),
            .weight_decay = training.weight_decay.value_or(optimizer.weight_decay)};
}

std::string plan_in_words(const PlacedPlan& plan) {
    const SettledScenario& scenario = plan.scenario;
    const std::string schedule =
        has_schedule_file(scenario)
            ? std::filesystem::path(scenario.pipeline.schedule).filename().string()
            : scenario.pipeline.schedule;
    return fmt::format("{}, {}, {}, {}",
                       counted(plan.schedule.stage_count(), "stage"),
                       schedule,
                       counted(scenario.pipeline.micro_batches, "micro-batch"),
                       counted(plan.devices(), "GPU"));
}

std::string comment_lines(const std::vector<std::string>& sentences) {
    constexpr std::size_t width = 96;
    std::string text;
    for (const std::string& sentence : sentences) {
        std::string line = "#";
        for (const std::string_view word : words_in(sentence)) {
            if (line.size() + 1 + word.size() > width && line.size() > 1) {
                text += line + '\n';
                line = "#  ";
            }
            line += fmt::format(" {}", word);
        }
        text += line + '\n';
    }
    return text;
}

JobNodes job_nodes(const PlacedPlan& plan) {
    const int devices = plan.devices();
    const int per_node = std::min(devices, std::max(1, plan.scenario.cluster.per_node));
    if (devices % per_node != 0) {
        refuse_lack(
            {.key = "cluster.per_node",
             .subject = fmt::format("cluster.per_node = {}", per_node),
             .why = fmt::format("{} do not fill nodes of {}, and torchrun starts equally many "
                                "processes on each",
                                counted(devices, "device"),
                                per_node),
             .hint = fmt::format("set it to {}", std::gcd(devices, per_node))});
    }
    return {.nodes = devices / per_node, .per_node = per_node};
}

}  // namespace pipetwin
