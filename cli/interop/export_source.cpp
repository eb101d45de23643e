// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/export_source.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/memory_left.h"
#include "cli/base/schedule_file.h"
#include "cli/run_folder/run_folder.h"
#include "core/artifacts/plan_json.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/number_type.h"
#include "core/costs/devices/stack.h"
#include "core/interop/hf_trainable.h"
#include "core/interop/torchtitan.h"
#include "core/model/model.h"
#include "core/plan/plain_plan.h"
#include "core/plan/plan.h"
#include "core/scenario/cluster.h"
#include "core/scenario/layer_costs.h"
#include "core/scenario/planner.h"
#include "core/scenario/rank_device.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/rows_hash.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"
#include "sim/questions/prediction.h"
#include "sim/questions/schedule_rows.h"
#include "sim/questions/unit_costs.h"
#include "sim/search/partition_choice.h"

namespace pipetwin::cli {

namespace {

ExportSource::Kind kind_of(const std::filesystem::path& path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
        return ExportSource::Kind::Run;
    }
    if (path.extension() == ".toml") {
        return ExportSource::Kind::Scenario;
    }
    return path.extension() == ".json" ? ExportSource::Kind::Trace : ExportSource::Kind::File;
}

/// The partition without the layers that predict further tokens, which stand in front of the head.
/// Throws Error(Infeasible) where they are not all on the last stage.
Partition without_further_layers(const Partition& partition,
                                 int further,
                                 const std::filesystem::path& scenario) {
    if (further == 0) {
        return partition;
    }
    std::vector<int> sizes = partition.layers_per_stage();
    if (sizes.back() <= further) {
        throw Error(ErrorKind::Infeasible,
                    scenario.string(),
                    fmt::format("the last stage has {}, but the {} further tokens {} to stand "
                                "there with the head",
                                counted(sizes.back(), "layer"),
                                further == 1 ? "layer that predicts" : "layers that predict",
                                further == 1 ? "has" : "have"),
                    "write pipeline.partition in whole blocks, which leaves them there")
            .about("pipeline.partition");
    }
    sizes.back() -= further;
    return {std::move(sizes), partition.layer_count() - further};
}

/// Adds which devices the rows of a picture stand for.
ExportSource::Predicted with_devices(ExportSource::Predicted found,
                                     const SettledScenario::PipelinePart& pipeline) {
    found.replicas = pipeline.data_parallel;
    found.devices_per_rank = pipeline.tensor_parallel;
    return found;
}

ExportSource::Predicted with_unit_costs(PlainCosts costs) {
    return {.trace = sim::predicted_trace(sim::predict(sim::unit_plan(std::move(costs)))),
            .costs = "unit"};
}

}  // namespace

ExportSource::ExportSource(std::filesystem::path path,
                           std::vector<Override> overrides,
                           std::filesystem::path profile)
    : path_(std::move(path)),
      overrides_(std::move(overrides)),
      profile_(std::move(profile)),
      kind_(kind_of(path_)) {
    if (kind_ != Kind::Scenario && (!overrides_.empty() || !profile_.empty())) {
        const bool has_profile = overrides_.empty();
        throw Error(
            ErrorKind::Usage,
            has_profile ? "--profile" : "--set " + overrides_.front().key,
            fmt::format("'{}' is not a scenario, so it has no {}",
                        path_.string(),
                        has_profile ? "layers that take the costs of a profile" : "keys to set"),
            fmt::format("leave {} out, or export a scenario", has_profile ? "--profile" : "--set"));
    }
    std::error_code ignored;
    if (!std::filesystem::exists(path_, ignored)) {
        throw Error(ErrorKind::Io,
                    path_.string(),
                    "there is no such file or folder, expected a run folder, a scenario, a "
                    "schedule file or, for svg, a trace",
                    "pipetwin plan SCENARIO --out FOLDER writes one");
    }
}

Scenario ExportSource::scenario() const {
    return read_scenario(kind_ == Kind::Run ? path_ / run_file::scenario : path_, overrides_);
}

std::filesystem::path ExportSource::folder() const {
    return kind_ == Kind::Run ? path_ : std::filesystem::path();
}

std::optional<sim::FoundProfile> ExportSource::profile_of(const SettledScenario& scenario) const {
    return sim::profile_for_rows(scenario, profile_, folder());
}

std::filesystem::path ExportSource::schedule_file() const {
    return kind_ == Kind::Run ? path_ / run_file::schedule : path_;
}

Schedule ExportSource::schedule() const {
    if (kind_ == Kind::Scenario) {
        const SettledScenario read = settle(scenario());
        const std::optional<sim::FoundProfile> found = profile_of(read);
        return sim::runnable(sim::scenario_rows(read, found ? &found->profile : nullptr),
                             read.pipeline.recompute_timing,
                             path_.string());
    }
    const std::filesystem::path file = schedule_file();
    return sim::runnable(read_schedule_file(file), sim::timing_of_files(), file.string());
}

Schedule ExportSource::order() const {
    Schedule order;
    std::filesystem::path place = path_;
    if (kind_ == Kind::Scenario) {
        const SettledScenario read = settle(scenario());
        const std::optional<sim::FoundProfile> found = profile_of(read);
        order = sim::scenario_order(read, found ? &found->profile : nullptr);
    } else {
        place = schedule_file();
        order = read_schedule_file(place);
    }
    static_cast<void>(sim::runnable(order, sim::timing_of_files(), place.string()));
    return kind_ == Kind::Run ? compute_only(std::move(order)) : order;
}

std::optional<SettledScenario> ExportSource::settled() const {
    std::error_code ignored;
    const bool has_scenario =
        kind_ == Kind::Scenario ||
        (kind_ == Kind::Run && std::filesystem::exists(path_ / run_file::scenario, ignored));
    return has_scenario ? std::optional(settle(scenario())) : std::nullopt;
}

ExportSource::Predicted ExportSource::predicted() const {
    switch (kind_) {
        case Kind::Scenario:
            return predicted_scenario();
        case Kind::File:
            return predicted_file();
        case Kind::Trace:
            return {.trace = read_chrome_trace(path_), .costs = path_.string()};
        case Kind::Run:
            break;
    }
    const std::filesystem::path file = path_ / run_file::predicted;
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) {
        const bool has_measured = std::filesystem::exists(path_ / run_file::measured, ignored);
        throw Error(ErrorKind::Io,
                    path_.string(),
                    fmt::format("there is no {} in this folder, expected one that simulate, plan, "
                                "train or run wrote",
                                run_file::predicted),
                    has_measured ? fmt::format("export svg {} draws the measurement alone",
                                               (path_ / run_file::measured).string())
                                 : "name the folder of one plan or run");
    }
    Predicted found{.trace = read_chrome_trace(file), .costs = file.string()};
    return std::filesystem::exists(path_ / run_file::scenario, ignored)
               ? with_devices(std::move(found), settle(scenario()).pipeline)
               : found;
}

std::optional<Trace> ExportSource::measured() const {
    const std::filesystem::path file = path_ / run_file::measured;
    std::error_code ignored;
    if (kind_ != Kind::Run || !std::filesystem::exists(file, ignored)) {
        return std::nullopt;
    }
    return read_chrome_trace(file);
}

ExportSource::Predicted ExportSource::predicted_scenario() const {
    const SettledScenario read = settle(scenario());
    if (const std::optional<sim::FoundProfile> found =
            sim::known_profile(read, profile_, folder())) {
        const Model model = scenario_model(read, &found->profile);
        return with_devices({.trace = sim::predicted_trace(sim::predict(
                                 sim::settled_plan(read, model, found->profile, memory_left()))),
                             .costs = found->file.string()},
                            read.pipeline);
    }
    const SettledScenario::PipelinePart& pipeline = read.pipeline;
    PlainCosts costs;
    static_cast<PipelineSettings&>(costs) = pipeline;
    costs.receives = Receives::Blocking;  // those of the order are where they are needed
    costs.schedule = ScheduleKind::FromFile;
    costs.schedule_name = pipeline.schedule;
    costs.schedule_from_file = sim::scenario_order(read);
    costs.recompute = pipeline.recompute;
    costs.recompute_timing = pipeline.recompute_timing;
    return with_devices(with_unit_costs(std::move(costs)), pipeline);
}

ExportSource::Predicted ExportSource::predicted_file() const {
    PlainCosts costs;
    costs.schedule = ScheduleKind::FromFile;
    costs.schedule_name = path_.filename().string();
    costs.schedule_from_file = read_schedule_file(path_);
    costs.receives = Receives::Posted;
    static_cast<void>(
        sim::runnable(*costs.schedule_from_file, sim::timing_of_files(), path_.string()));
    return with_unit_costs(std::move(costs));
}

void ExportSource::require_model(std::string_view what) const {
    if (kind_ == Kind::File) {
        throw Error(ErrorKind::Infeasible,
                    path_.string(),
                    fmt::format("a schedule file does not say {}", what),
                    "export the scenario or the run folder that it belongs to");
    }
}

ExportSource::Placed ExportSource::placed() const {
    require_model("which layers a stage holds");
    const Scenario read = scenario();
    const bool is_profile = read.model.kind == ModelKind::Profile;
    if (read.model.kind != ModelKind::Gpt && read.model.kind != ModelKind::Llama && !is_profile) {
        throw Error(ErrorKind::Infeasible,
                    read.file.string(),
                    fmt::format("model.kind = \"{}\", but the stages of this format are those of a "
                                "decoder-only transformer{}",
                                to_string(read.model.kind),
                                read.model.kind == ModelKind::Moe ? " without experts" : ""),
                    "export a scenario with model.kind = \"gpt\" or \"llama\", or \"profile\" with "
                    "what 'pipetwin import hf' wrote")
            .about("model.kind");
    }
    std::optional<sim::FoundProfile> found;
    if (is_profile) {
        found = sim::find_profile(read, profile_, folder());
    }
    const Model model = scenario_model(read, found ? &found->profile : nullptr);
    std::vector<std::string> names = model.layer_names();
    const auto further = static_cast<int>(
        std::erase_if(names, [](const std::string& name) { return name.starts_with("mtp"); }));
    if (is_profile) {
        try {
            transformer_blocks(names);
        } catch (const Error& error) {
            throw error.at(found->file.string());
        }
        const bool has_adapters = std::ranges::any_of(
            found->profile.layers,
            [](const LayerCost& layer) { return layer.frozen_bytes > Bytes{}; });
        if (has_adapters) {
            throw Error(ErrorKind::Infeasible,
                        found->file.string(),
                        "costs of adapters, which no file of a training system names here",
                        "export a plan that trains the weights themselves");
        }
    }
    std::optional<Partition> partition = scenario_partition(read, model);
    if (!partition && !found) {  // the balancer's, which follows the costs
        found = sim::find_profile(read, profile_, folder());
    }
    SettledScenario settled = settle(read);
    if (found) {
        settled.training.gradients =
            has_fp32_gradients(settled, found->profile) ? GradientType::Fp32 : GradientType::Same;
    }
    if (!partition) {
        partition = sim::make_settled_plan(settled, model, found->profile)->partition;
    }
    if (found && settled.pipeline.stages == 1 && settled.pipeline.offload_blocks.is_auto() &&
        Cluster(settled, found->profile, settled.pipeline.stages).offloads_as_needed()) {
        const Plan plan = sim::make_settled_plan(settled, model, found->profile);
        settled.pipeline.offload_blocks =
            layer_costs(plan, settled, model, found->profile).offloaded_blocks;
    }
    const bool has_own_type = found && (found->profile.precision == "fp16" ||
                                        has_narrow_products(found->profile.precision));
    const std::shared_ptr<const Stack> stack =
        stack_of(settled, found ? found->profile : Profile{});
    return {.scenario = settled,
            .schedule = sim::scenario_rows(settled, found ? &found->profile : nullptr),
            .partition =
                partition_in_halves(without_further_layers(*partition, further, read.file), names),
            .prediction_layers = further,
            .config = is_profile ? config_ : print_hf_config(settled.model, "float32"),
            .config_name = std::string(run_file::config),
            .sequence = static_cast<int>(is_profile ? found->profile.tokens_per_sample
                                                    : settled.model.tokens_per_sample()),
            .precision = has_own_type ? found->profile.precision
                                      : std::string(to_string(settled.training.precision)),
            .hides_tensor =
                settled.pipeline.tensor_overlap.value_or(stack && stack->overlap.tensor.value)};
}

namespace {

/// The content of a run's plan.json, which has to be JSON, and of the plan of these rows.
std::string checked_plan(const std::filesystem::path& file, const Schedule& schedule) {
    std::string text = read_file(file, JsonLimits{}.max_bytes);
    const nlohmann::json plan = parse_json(text, file.string());
    const JsonObject object(plan, file.string(), "");
    if (object.text("hash") != rows_hash(schedule)) {
        object.refuse(
            "hash",
            fmt::format("\"{}\", as the rows of {} have", rows_hash(schedule), run_file::schedule),
            "the folder holds files of two plans: write it anew with simulate or train");
    }
    return text;
}

}  // namespace

std::string ExportSource::plan_json() const {
    require_model("what a plan says besides its rows");
    if (kind_ == Kind::Run) {
        return checked_plan(path_ / run_file::plan, schedule());
    }
    const SettledScenario read = settle(scenario());
    const sim::FoundProfile found = sim::find_profile(read, profile_, folder());
    return print_plan(sim::settled_plan(
        read, scenario_model(read, &found.profile), found.profile, memory_left()));
}

}  // namespace pipetwin::cli
