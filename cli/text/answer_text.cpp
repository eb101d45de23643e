// SPDX-License-Identifier: Apache-2.0
#include "cli/text/answer_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/text/evidence_text.h"
#include "cli/text/plan_text.h"
#include "cli/text/ranked_table.h"
#include "cli/text/scale_text.h"
#include "cli/text/sentences.h"
#include "cli/text/text_output.h"
#include "core/base/number_text.h"
#include "core/costs/estimate_error.h"
#include "core/partition/model_blocks.h"
#include "core/scenario/cluster.h"
#include "core/scenario/cluster/network_notes.h"
#include "sim/questions/prediction.h"

namespace pipetwin::cli {

namespace {

constexpr double least_headroom = 0.05;

double ratio(Bytes part, Bytes whole) {
    return static_cast<double>(part.count) / static_cast<double>(whole.count);
}

/// "64 x h100-sxm (8 nodes of 8x-h100-sxm)"; "8 of 16 x ..." where the plan leaves some unused.
std::string devices_text(const AnswerParts& parts, const sim::Answer& answer) {
    const int all = parts.scenario.cluster.count;
    return fmt::format("{}{} x {} ({} of {})",
                       answer.devices,
                       answer.devices < all ? fmt::format(" of {}", all) : "",
                       answer.device,
                       counted(parts.nodes, "node"),
                       parts.cluster);
}

std::vector<std::string> warned(std::vector<std::string> sentences) {
    for (std::string& sentence : sentences) {
        sentence.insert(0, "warning: ");
    }
    return sentences;
}

/// Warns where plans with experts on devices of their own are not among those that are compared.
std::vector<std::string> expert_warnings(const AnswerParts& parts) {
    const OrAuto<int>& degree = parts.scenario.pipeline.expert_parallel;
    const bool is_open = degree.is_auto() && degree.choices().empty();
    if (!has_routed_experts(parts.profile) || is_open || degree.value_or(1) > 1) {
        return {};
    }
    return {
        "expert parallelism is not searched: each rank has all experts of its layers; "
        "with expert parallelism a cluster can be much faster and need less memory"};
}

std::vector<std::string> throughput_lines(const AnswerParts& parts, const sim::Answer& answer) {
    std::vector<std::string> lines;
    std::string step = format_duration(parts.plan.step);
    if (const auto& error = parts.best.outlook.error) {
        step += fmt::format(
            ", probably between {} and {}: 90 % of the {} were this close to "
            "their estimates{}",
            format_duration(scaled(parts.plan.step, error->low)),
            format_duration(scaled(parts.plan.step, error->high)),
            error->of,
            unseen_text(*error));
    } else if (parts.best.outlook.lacks_runs) {
        step += fmt::format("; no range, as {}", no_runs_with_experts);
    }
    lines.push_back("step " + step);
    std::ranges::move(evidence_lines(parts.best.outlook.nearest), std::back_inserter(lines));
    std::ranges::move(scale_lines(parts.best.outlook), std::back_inserter(lines));
    lines.push_back(fmt::format("{} tokens/s, {} per device",
                                bill_number(answer.tokens_per_second),
                                bill_number(answer.tokens_per_second / answer.devices)));
    if (answer.utilisation) {
        const UtilisationWords words = utilisation_words(parts.best.outlook.flops_count);
        lines.push_back(
            fmt::format("{} {}: FLOPs of the model's matrix products ({}) as a share of the "
                        "devices' dense {} peak",
                        rounded_percent(*answer.utilisation),
                        words.name,
                        words.counted,
                        parts.profile.precision));
    } else if (const auto& why = parts.best.outlook.no_utilisation) {
        lines.push_back(
            fmt::format("MFU is not known, as {}: use --mfu {}", why->reason, why->known));
    }
    return lines;
}

/// Says what of the step is communication that no computation hides, where it is 5 % or more.
std::vector<std::string> communication_lines(const sim::Prediction& best) {
    constexpr double least = 0.05;
    const Duration step = best.metrics.step;
    const Duration shards = best.messages.shards;
    const Duration tensor = best.messages.tensor;
    const double part = share(shards + tensor, step);
    if (part < least) {
        return {};
    }
    const std::string kinds = tensor == Duration{} ? ", for shards of weights and gradients"
                              : shards == Duration{}
                                  ? ", for tensor parallelism"
                                  : fmt::format(", {} of it for shards", format_duration(shards));
    return {fmt::format("communication that nothing hides: {} of the step ({}){}",
                        format_duration(shards + tensor),
                        rounded_percent(part),
                        kinds)};
}

/// "2 x 8 x 4", as the head of the table says; "2 x 8 x 4 CP 2" with parts of samples.
std::string shape_text(const sim::Shape& shape) {
    const std::string text =
        fmt::format("{}x{}x{}", shape.stages, shape.data_parallel, shape.tensor_parallel);
    return shape.context_parallel > 1 ? fmt::format("{} CP {}", text, shape.context_parallel)
                                      : text;
}

/// The fastest of the listed plans that leaves enough memory: "1x8x4s is 0.66 % slower and leaves
/// 11.4 %".
std::string roomier_text(const AnswerParts& parts, Bytes memory) {
    // Where no plan has all devices, there is none of a shape.
    const std::vector<sim::FoundPlan>& plans =
        parts.shapes.plans.empty() ? parts.search.ranked : parts.shapes.plans;
    const auto leaves = [memory](const sim::FoundPlan& plan) {
        return 1 - ratio(plan.peak, memory);
    };
    const auto found = std::ranges::find_if(
        plans, [&](const sim::FoundPlan& plan) { return leaves(plan) >= least_headroom; });
    if (found == plans.end()) {
        return "none of the plans below leaves that much";
    }
    return fmt::format("{} is {:.2f} % slower and leaves {}",
                       plan_name(*found),
                       100 * (to_seconds(found->step) / to_seconds(parts.plan.step) - 1),
                       rounded_percent(leaves(*found)));
}

/// Which groups of the best plan leave what NVLink joins.
std::vector<std::string> network_lines(const AnswerParts& parts) {
    const SettledScenario settled = sim::with_plan(parts.scenario, parts.plan);
    return network_notes(Cluster(settled, parts.profile, settled.pipeline.stages));
}

std::vector<std::string> memory_lines(const sim::Answer& answer) {
    const std::optional<double> headroom = answer.headroom();
    if (!headroom) {
        return {fmt::format("memory {} on the fullest device", format_bytes(answer.peak))};
    }
    return {fmt::format("memory {} of {} on the fullest device: {} is left",
                        format_bytes(answer.peak),
                        format_bytes(*answer.memory),
                        rounded_percent(*headroom))};
}

/// Warns where little memory is left.
std::vector<std::string> memory_warnings(const AnswerParts& parts, const sim::Answer& answer) {
    if (answer.headroom().value_or(1) >= least_headroom) {
        return {};
    }
    return {fmt::format("less than {:.0f} % is left{}; {}",
                        100 * least_headroom,
                        parts.best.plan->allocator_reserve > 0
                            ? ""
                            : ", and fragmentation of the allocator alone may take that",
                        roomier_text(parts, *answer.memory))};
}

std::vector<std::string> bill_lines(const AnswerParts& parts, const sim::Answer& answer) {
    if (!answer.days) {
        return {"--tokens N, such as 15T, adds days, device hours and, with --price, the cost"};
    }
    std::string line = fmt::format("{} tokens: {} days, {} device hours",
                                   bill_number(*parts.tokens),
                                   bill_number(*answer.days),
                                   bill_number(*answer.device_hours));
    if (answer.cost) {
        line += fmt::format(", cost {} at {:g} per hour", bill_number(*answer.cost), *parts.price);
    }
    const int all = parts.scenario.cluster.count;
    if (answer.devices < all) {
        const double more = double{1} * all / answer.devices;
        line += answer.cost ? fmt::format(", for the {} used; all {} cost {}",
                                          answer.devices,
                                          all,
                                          bill_number(more * *answer.cost))
                            : fmt::format(" of the {} used, {} of all {}",
                                          answer.devices,
                                          bill_number(more * *answer.device_hours),
                                          all);
    }
    return {line};
}

/// Warns where the best plan leaves devices unused.
std::vector<std::string> unused_warnings(const AnswerParts& parts, const sim::Answer& answer) {
    const int all = parts.scenario.cluster.count;
    if (answer.devices >= all) {
        return {};
    }
    const Scenario::ClusterPart& cluster = parts.scenario.cluster;
    const bool has_no_network = parts.nodes > 1 && cluster.node_link.empty() &&
                                cluster.node_link_gbps == 0 &&
                                answer.devices <= cluster.domain_devices();
    return {fmt::format(
        "{} of the {} devices are used{}",
        answer.devices,
        all,
        has_no_network ? ": the cluster names no network between its nodes; add one, as in --set "
                         "cluster.node_link=ethernet-25"
                       : "")};
}

/// What the layers of the tables are: "82 layers: the model's 40 blocks in two halves each, ...".
std::optional<std::string> layers_text(const Profile& profile) {
    std::vector<std::string> names;
    std::ranges::transform(profile.layers, std::back_inserter(names), &LayerCost::name);
    const std::optional<ModelBlocks> blocks = model_blocks(names);
    if (!blocks) {
        return std::nullopt;
    }
    const bool has_halves = std::ranges::count(blocks->layers, 2) == std::ssize(blocks->layers);
    return fmt::format("Stages are cut from {} layers: {}{}, {} before and {} after the blocks",
                       names.size(),
                       counted(blocks->count(), "block"),
                       has_halves ? " in two halves each (--whole-blocks keeps them whole)" : "",
                       counted(blocks->before, "layer"),
                       blocks->after);
}

std::string shapes_text(const AnswerParts& parts, const Console& console) {
    const sim::EveryShape& shapes = parts.shapes;
    if (shapes.plans.empty()) {
        return "";
    }
    std::string text = "The best plan of every shape\n" +
                       ranked_table(parts.scenario, shapes.plans, console.width());
    if (shapes.plans.size() > most_ranked) {
        text += fmt::format("  not shown: {}; --json lists all\n",
                            counted(shapes.plans.size() - most_ranked, "more shape"));
    }
    if (const auto layers = layers_text(parts.profile)) {
        text += fmt::format("  {}\n", *layers);
    }
    Paragraph below{.heading = "Memory against time", .lines = {}};
    std::vector<std::string> front;
    for (const std::size_t index : sim::time_memory_front(shapes.plans)) {
        const sim::FoundPlan& plan = shapes.plans[index];
        front.push_back(fmt::format(
            "{} ({}, {})", plan_name(plan), format_duration(plan.step), format_bytes(plan.peak)));
    }
    below.lines.push_back(
        fmt::format("No shape is both faster and smaller than these: {}", fmt::join(front, ", ")));
    if (!shapes.without_plan.empty()) {
        std::vector<std::string> names;
        std::ranges::transform(shapes.without_plan, std::back_inserter(names), shape_text);
        below.lines.push_back(
            fmt::format("No plan of these shapes fits: {}", fmt::join(names, ", ")));
    }
    return text + '\n' + paragraph_text(below, console.width());
}

Json number_json(const std::optional<double>& number) {
    return number ? Json(*number) : Json(nullptr);
}

}  // namespace

std::string bill_number(double number) {
    if (number >= 1e12) {
        return fmt::format("{:.3g} trillion", number / 1e12);
    }
    if (number >= 1e9) {
        return fmt::format("{:.3g} billion", number / 1e9);
    }
    if (number >= 1e6) {
        return fmt::format("{:.3g} million", number / 1e6);
    }
    const double unit = number >= 1e4 ? 100 : number >= 100 ? 1 : 0.01;
    const double whole = std::round(number / unit) * unit;
    return number < 100 ? fmt::format("{:.3g}", number) : with_separators(std::llround(whole));
}

std::string plan_name(const sim::FoundPlan& plan) {
    return shape_text(plan.candidate.shape) + (divides_sequence(plan) ? "s" : "");
}

std::string sizes_text(const sim::ModelSizes& sizes) {
    std::string text = sizes.parameters ? large_count(*sizes.parameters) + " parameters"
                                        : format_bytes(sizes.weights) + " of weights";
    text += ", " + counted(sizes.layers, "block");
    if (sizes.heads > 0) {
        text += ", " + counted(sizes.heads, "head");
    }
    if (sizes.key_value_heads != sizes.heads) {
        text += ", " + counted(sizes.key_value_heads, "key/value head");
    }
    return text;
}

sim::Answer answer_of(const AnswerParts& parts) {
    sim::Answer answer =
        sim::answer_of(parts.scenario,
                       parts.profile,
                       parts.plan,
                       {.sequence = parts.sequence, .tokens = parts.tokens, .price = parts.price});
    answer.utilisation = parts.best.outlook.utilisation();
    return answer;
}

std::string answer_text(const AnswerParts& parts, const Console& console) {
    const sim::Answer answer = answer_of(parts);
    std::string text = fmt::format("{} on {}, {} tokens per step ({} of {})\n{}\n",
                                   parts.model,
                                   devices_text(parts, answer),
                                   with_separators(std::llround(answer.tokens_per_step)),
                                   counted(parts.scenario.training.batch, "sample"),
                                   with_separators(parts.sequence),
                                   sizes_text(parts.sizes));
    Paragraph head{
        .heading = "The answer",
        .lines = {candidate_text(
            parts.scenario, parts.plan.candidate, parts.plan.recompute, parts.plan.modules)}};
    for (const auto& lines : {warned(expert_warnings(parts)),
                              warned(unused_warnings(parts, answer)),
                              throughput_lines(parts, answer),
                              communication_lines(parts.best),
                              network_lines(parts),
                              memory_lines(answer),
                              warned(memory_warnings(parts, answer)),
                              bill_lines(parts, answer)}) {
        head.lines.insert(head.lines.end(), lines.begin(), lines.end());
    }
    head.lines.push_back(not_tried_text(parts.scenario, parts.search));
    return text + '\n' + paragraph_text(head, console.width()) + '\n' + shapes_text(parts, console);
}

Json answer_json(const AnswerParts& parts) {
    const sim::Answer answer = answer_of(parts);
    Json warnings = Json::array();
    for (const auto& sentences :
         {expert_warnings(parts), unused_warnings(parts, answer), memory_warnings(parts, answer)}) {
        std::ranges::copy(sentences, std::back_inserter(warnings));
    }
    Json shapes = Json::array();
    for (const sim::FoundPlan& plan : parts.shapes.plans) {
        shapes.push_back(found_plan_json(plan));
    }
    const std::optional<std::int64_t>& parameters = parts.sizes.parameters;
    return {{"parameters", parameters ? Json(*parameters) : Json(nullptr)},
            {"devices", answer.devices},
            {"devices_of_cluster", parts.scenario.cluster.count},
            {"device", answer.device},
            {"tokens_per_step", answer.tokens_per_step},
            {"tokens_per_second", answer.tokens_per_second},
            {"tokens_per_second_per_device", answer.tokens_per_second / answer.devices},
            {"model_flops_utilisation", number_json(answer.utilisation)},
            {"mfu_definition", std::string(to_string(parts.best.outlook.flops_count))},
            {"headroom", number_json(answer.headroom())},
            {"days", number_json(answer.days)},
            {"device_hours", number_json(answer.device_hours)},
            {"cost", number_json(answer.cost)},
            {"loss_by_scale", scale_json(parts.best.outlook)},
            {"warnings", std::move(warnings)},
            {"shapes", std::move(shapes)},
            {"front", sim::time_memory_front(parts.shapes.plans)}};
}

}  // namespace pipetwin::cli
