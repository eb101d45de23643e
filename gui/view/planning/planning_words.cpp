// SPDX-License-Identifier: Apache-2.0
#include "gui/view/planning/planning_words.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/number_text.h"
#include "core/base/short_number.h"
#include "core/costs/devices/device_profile.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/estimate_error.h"
#include "core/model/decoder_model.h"
#include "core/scenario/scenario_over.h"
#include "core/text/json_text.h"
#include "sim/questions/estimated_model.h"

namespace pipetwin::gui {

namespace {

std::string whole_number(double number) {
    return with_separators(std::llround(number));
}

bool divides_sequence(const sim::FoundPlan& plan) {
    return plan.candidate.shape.tensor_parallel > 1 &&
           plan.candidate.choice.costs.sequence_parallel;
}

std::string devices_text(const PlanRow& row) {
    const sim::Shape& shape = row.plan.candidate.shape;
    return fmt::format("{} x {} x {}{}",
                       shape.stages,
                       shape.data_parallel,
                       shape.tensor_parallel,
                       divides_sequence(row.plan) ? "s" : "");
}

std::string schedule_text(const PlanRow& row) {
    const sim::ScheduleChoice& choice = row.plan.candidate.choice;
    return choice.schedule + (choice.chunks > 1 ? fmt::format(" x{}", choice.chunks) : "");
}

std::string recompute_text(const PlanRow& row) {
    const RecomputeRules& rules = row.plan.recompute;
    const LayerRecompute of_layers = row.plan.candidate.choice.costs.layer_recompute;
    if (of_layers != LayerRecompute::None) {
        return std::string(to_string(of_layers));
    }
    if (!row.plan.modules.empty()) {
        return "by module";
    }
    if (const auto everywhere = rules.everywhere()) {
        return std::string(to_string(*everywhere));
    }
    const auto kept = std::ranges::count(rules.modes(), Recompute::None);
    return fmt::format(
        "{} of {} stages", std::ssize(rules.modes()) - kept, std::ssize(rules.modes()));
}

std::string shard_text(const PlanRow& row) {
    const sim::Candidate& candidate = row.plan.candidate;
    return std::string(
        to_string(candidate.shape.has_replicas() ? candidate.choice.costs.shard : Shard::None));
}

/// A column of whole numbers, where a plan has another than 1.
void add_degree(const PlanningAnswer& answer,
                const std::string& head,
                const std::string& tip,
                int sim::Shape::*degree,
                std::vector<PlanColumn>& columns) {
    const auto degree_of = [degree](const PlanRow& row) {
        return row.plan.candidate.shape.*degree;
    };
    if (std::ranges::any_of(answer.rows, [&](const PlanRow& row) { return degree_of(row) > 1; })) {
        columns.push_back(
            {head,
             tip,
             [degree_of](const PlanRow& row) { return fmt::to_string(degree_of(row)); },
             [degree_of](const PlanRow& row) { return double{1} * degree_of(row); }});
    }
}

/// Columns of the whole training, where its tokens were asked for.
void add_bill(const PlanningAnswer& answer, std::vector<PlanColumn>& columns) {
    if (answer.question.tokens) {
        columns.push_back(
            {"Days",
             "Of the whole training, without failures",
             [](const PlanRow& row) { return short_number(row.answer.days.value_or(0)); },
             [](const PlanRow& row) { return row.answer.days.value_or(0); }});
        columns.push_back(
            {"Device hours",
             "Of the whole training, without failures",
             [](const PlanRow& row) { return whole_number(row.answer.device_hours.value_or(0)); },
             [](const PlanRow& row) { return row.answer.device_hours.value_or(0); }});
    }
    if (answer.question.tokens && answer.question.price) {
        columns.push_back(
            {"Cost",
             "Device hours times the price of one",
             [](const PlanRow& row) { return whole_number(row.answer.cost.value_or(0)); },
             [](const PlanRow& row) { return row.answer.cost.value_or(0); }});
    }
}

void add_memory(std::vector<PlanColumn>& columns) {
    columns.push_back(
        {"Peak memory",
         "Of the fullest device",
         [](const PlanRow& row) {
             return row.plan.peak.count > 0 ? format_bytes(row.plan.peak) : std::string();
         },
         [](const PlanRow& row) { return static_cast<double>(row.plan.peak.count); }});
    columns.push_back({"Memory left",
                       "On the fullest device; with less than 5 %, fragmentation may take it",
                       [](const PlanRow& row) {
                           const std::optional<double> left = row.answer.headroom();
                           return left ? rounded_percent(*left) : std::string();
                       },
                       [](const PlanRow& row) { return row.answer.headroom().value_or(0); }});
}

}  // namespace

std::vector<PlanColumn> plan_columns(const PlanningAnswer& answer) {
    std::vector<PlanColumn> columns{
        {"Devices",
         "Stages (ranks of the pipeline) x replicas x devices that share a layer; s: these divide "
         "the sequence, too",
         devices_text,
         [](const PlanRow& row) { return double{1} * row.plan.candidate.shape.stages; }},
        {"Schedule", "x2: 2 stages on each rank", schedule_text}};
    add_degree(answer, "CP", "Parts of a sample", &sim::Shape::context_parallel, columns);
    add_degree(answer, "EP", "Parts of a layer's experts", &sim::Shape::expert_parallel, columns);
    columns.push_back(
        {"Micro-batches",
         "Of one replica, in a step",
         [](const PlanRow& row) { return fmt::to_string(row.plan.candidate.shape.micro_batches); },
         [](const PlanRow& row) { return double{1} * row.plan.candidate.shape.micro_batches; }});
    columns.push_back({"Recompute", "What is computed again in the backward", recompute_text});
    if (std::ranges::any_of(answer.rows,
                            [](const PlanRow& row) { return shard_text(row) != "none"; })) {
        columns.push_back({"Shard", "What replicas share out", shard_text});
    }
    columns.push_back({"Step",
                       "Predicted time of one optimizer step",
                       [](const PlanRow& row) { return short_time(row.plan.step); },
                       [](const PlanRow& row) { return to_seconds(row.plan.step); }});
    columns.push_back(
        {"Slower",
         "Than the fastest plan",
         [best = answer.rows.empty() ? Duration{}
                                     : answer.rows.front().plan.step](const PlanRow& row) {
             return row.plan.step == best
                        ? std::string()
                        : fmt::format("{:.2f} %",
                                      100 * (to_seconds(row.plan.step) / to_seconds(best) - 1));
         },
         [](const PlanRow& row) { return to_seconds(row.plan.step); }});
    if (answer.profile.tokens_per_sample > 0) {
        columns.push_back(
            {"Tokens/s",
             "Of all devices together",
             [](const PlanRow& row) { return whole_number(row.answer.tokens_per_second); },
             [](const PlanRow& row) { return row.answer.tokens_per_second; }});
    }
    add_bill(answer, columns);
    columns.push_back({"Bubble",
                       "",
                       [](const PlanRow& row) { return rounded_percent(row.plan.bubble); },
                       [](const PlanRow& row) { return row.plan.bubble; }});
    add_memory(columns);
    return columns;
}

std::string question_sentence(const PlanningAnswer& answer) {
    std::string text = answer.name;
    if (answer.sizes.parameters) {
        text += fmt::format(": {} billion parameters",
                            short_number(static_cast<double>(*answer.sizes.parameters) / 1e9));
    }
    const std::int64_t tokens =
        std::int64_t{answer.scenario.training.batch} * answer.profile.tokens_per_sample;
    text += fmt::format("{} {} x {}, a step of {}",
                        answer.sizes.parameters ? "," : ":",
                        answer.scenario.cluster.count,
                        answer.scenario.cluster.device,
                        counted(answer.scenario.training.batch, "sample"));
    if (tokens > 0) {
        text += fmt::format(" of {} tokens", with_separators(answer.profile.tokens_per_sample));
    }
    return text;
}

std::string plan_sentence(const PlanningAnswer& answer, const PlanRow& row) {
    const sim::Shape& shape = row.plan.candidate.shape;
    std::string text = counted(shape.stages, "stage");
    if (shape.data_parallel > 1) {
        text += fmt::format(" x {}", counted(shape.data_parallel, "replica"));
    }
    if (shape.tensor_parallel > 1) {
        text += fmt::format(" x {} per layer", counted(shape.tensor_parallel, "device"));
    }
    text += fmt::format(", {}, {}: a step of {}",
                        schedule_text(row),
                        counted(shape.micro_batches, "micro-batch"),
                        short_time(row.plan.step));
    if (answer.profile.tokens_per_sample > 0) {
        text += fmt::format(", {} tokens/s, {} per device",
                            whole_number(row.answer.tokens_per_second),
                            whole_number(row.answer.tokens_per_second / row.answer.devices));
    }
    if (row.answer.days) {
        text += fmt::format(", {} days", short_number(*row.answer.days));
    }
    if (row.answer.cost) {
        text += fmt::format(", cost {}", whole_number(*row.answer.cost));
    }
    return text;
}

std::string range_sentence(const PlanRow& row, const sim::Outlook& outlook) {
    if (outlook.error) {
        return fmt::format(
            "A measured step is likely to take {} to {}: 90 % of the {} were this close to their "
            "estimates{}.",
            short_time(scaled(row.plan.step, outlook.error->low)),
            short_time(scaled(row.plan.step, outlook.error->high)),
            outlook.error->of,
            unseen_text(*outlook.error));
    }
    return outlook.lacks_runs ? "No range: no published run of a model with experts was compared."
                              : "No range: the costs were measured, not estimated.";
}

std::string nearest_sentence(const sim::Outlook& outlook) {
    if (outlook.nearest.empty()) {
        return "";
    }
    const NearRun& near = outlook.nearest.front();
    const PublishedRun& run = near.run;
    return fmt::format(
        "Nearest published run: {} on {} {} ({}, {}): {} tokens/s per device measured, {} "
        "predicted{}.",
        run.model,
        run.devices,
        run.device,
        run.stack,
        run.year,
        whole_number(run.measured),
        whole_number(run.predicted),
        near.differs.empty() ? "" : fmt::format("; another {}", fmt::join(near.differs, " and ")));
}

TextRows evidence_rows(const sim::Outlook& outlook) {
    TextRows table{.headers = {"Published run",
                               "Layout",
                               "Software",
                               "Source",
                               "Differs in",
                               "Year",
                               "Devices",
                               "Measured tokens/s",
                               "Predicted tokens/s",
                               "Error"}};
    for (const NearRun& near : outlook.nearest) {
        const PublishedRun& run = near.run;
        table.rows.push_back(
            {run.model,
             run.layout,
             run.stack,
             run.source,
             near.differs.empty() ? "size only" : fmt::format("{}", fmt::join(near.differs, ", ")),
             fmt::to_string(run.year),
             fmt::format("{} {}", run.devices, run.device),
             whole_number(run.measured),
             whole_number(run.predicted),
             fmt::format("{:+.1f} %", 100 * (run.measured / run.predicted - 1))});
    }
    return table;
}

TextRows known_models() {
    TextRows table{.headers = {"Model", "Parameters", "Experts"}};
    for (const std::string& name : model_names()) {
        std::string parameters;
        std::string experts;
        try {
            const std::filesystem::path file = find_model(name);
            const sim::ModelConfig config =
                sim::model_config(read_file(file, JsonLimits{}.max_bytes), file.string());
            parameters =
                short_number(static_cast<double>(parameter_count(config.model)) / 1e9) + " billion";
            if (config.model.experts.count > 0) {
                experts = fmt::to_string(config.model.experts.count);
            }
        } catch (const std::exception&) {
            parameters = "not readable";
        }
        table.rows.push_back({name, parameters, experts});
    }
    return table;
}

TextRows known_clusters() {
    TextRows table{.headers = {"Node", "Devices", "Memory of a device"}};
    for (const std::string& name : cluster_names()) {
        std::string devices;
        std::string memory;
        try {
            Scenario begun;
            begun.file = name;
            begun.model.kind = ModelKind::Profile;
            begun.model.profile = std::filesystem::absolute("costs.profile.json");
            begun.training.batch = 1;
            begun.pipeline.each_searched(begun.pipeline,
                                         [](const auto&, auto& member) { member.open(); });
            const Scenario node = scenario_over(std::move(begun), name, {});
            const int count = std::max({1, node.cluster.count, node.cluster.per_node});
            devices = fmt::format("{} x {}", count, node.cluster.device);
            memory = format_bytes(find_device(node.cluster.device).memory.value);
        } catch (const std::exception&) {
            devices = "not readable";
        }
        table.rows.push_back({name, devices, memory});
    }
    return table;
}

}  // namespace pipetwin::gui
