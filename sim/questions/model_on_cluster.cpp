// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/model_on_cluster.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/device_profile.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_choice.h"
#include "core/costs/kernel_rates.h"
#include "core/costs/profile_json.h"
#include "core/costs/whole_blocks.h"
#include "core/scenario/scenario_over.h"
#include "core/text/json_text.h"
#include "sim/questions/estimated_model.h"
#include "sim/search/candidate.h"

namespace pipetwin::sim {

namespace {

constexpr int usual_sequence = 4096;
constexpr double usual_batch_tokens = 4e6;

void expect_no_count(const ModelQuestion& question) {
    const auto count = std::ranges::find(question.overrides, "cluster.count", &Override::key);
    if (count != question.overrides.end()) {
        throw Error(ErrorKind::Usage,
                    "--set cluster.count",
                    fmt::format("{}, but the number of devices is that of {} of '{}'",
                                count->value,
                                counted(question.nodes, "node"),
                                question.cluster),
                    "leave it out, and say how many nodes there are with --nodes N");
    }
}

/// Throws Error(Usage) for a key that an option of the question says: costs would not follow it.
void expect_no_key_of_option(const ModelQuestion& question,
                             std::string_view key,
                             std::string_view option) {
    const auto set = std::ranges::find(question.overrides, key, &Override::key);
    if (set != question.overrides.end()) {
        throw Error(ErrorKind::Usage,
                    fmt::format("--set {}", key),
                    fmt::format("{}, but for a model {} sets it", set->value, option),
                    fmt::format("leave it out, and write {} {}", option, set->value));
    }
}

/// A scenario of the model, not yet on a cluster, that leaves its pipeline open.
Scenario open_scenario(const ModelQuestion& question) {
    Scenario scenario;
    scenario.file = question_name(question.model, question.cluster);  // in the current folder
    scenario.model.kind = ModelKind::Profile;
    scenario.model.profile = std::filesystem::absolute(question.costs_file).lexically_normal();
    scenario.pipeline.each_searched(scenario.pipeline,
                                    [](const auto&, auto& member) { member.open(); });
    scenario.pipeline.recompute_modules = ModuleLists{};
    leave_division_open(scenario);
    return scenario;
}

/// The overrides whose key begins so.
std::vector<Override> overrides_of(const ModelQuestion& question, std::string_view begin) {
    std::vector<Override> overrides = question.overrides;
    std::erase_if(overrides, [begin](const Override& one) { return !one.key.starts_with(begin); });
    return overrides;
}

/// A number of [pipeline] that an override fixes; 1 where none does.
int fixed_number(const ModelQuestion& question,
                 std::string_view key,
                 OrAuto<int> Scenario::PipelinePart::*number) {
    const std::vector<Override> overrides = overrides_of(question, key);
    return (scenario_over(open_scenario(question), "", overrides).pipeline.*number).value_or(1);
}

/// Devices of one node: a file that does not count them has as many as share a node.
int devices_of_node(const Scenario::ClusterPart& node) {
    return std::max(1, node.count > 0 ? node.count : node.per_node);
}

/// Throws Error(Usage) for numbers of --set that the devices of the nodes cannot have.
void expect_enough_nodes(const ModelQuestion& question, const Scenario::ClusterPart& node) {
    const int tensor = fixed_number(
        question, "pipeline.tensor_parallel", &Scenario::PipelinePart::tensor_parallel);
    const int joined = node.domain_devices();
    if (joined % tensor != 0) {
        std::vector<int> divisors;
        for (int devices = 1; devices <= joined; ++devices) {
            if (joined % devices == 0) {
                divisors.push_back(devices);
            }
        }
        throw Error(
            ErrorKind::Usage,
            "--set pipeline.tensor_parallel",
            tensor > joined
                ? fmt::format("{}, but devices that share layers sit on one node, which has {}",
                              tensor,
                              counted(joined, "device"))
                : fmt::format("{}, but the {} of a node cannot be divided into groups of {}",
                              tensor,
                              counted(joined, "device"),
                              tensor),
            fmt::format("use a divisor of that: {}", fmt::join(divisors, ", ")));
    }
    const std::int64_t stages =
        fixed_number(question, "pipeline.stages", &Scenario::PipelinePart::stages);
    const std::int64_t replicas =
        fixed_number(question, "pipeline.data_parallel", &Scenario::PipelinePart::data_parallel);
    const std::int64_t context = fixed_number(
        question, "pipeline.context_parallel", &Scenario::PipelinePart::context_parallel);
    const std::int64_t needed = stages * replicas * tensor * context;
    const std::int64_t of_node = devices_of_node(node);
    if (needed > question.nodes * of_node) {
        std::vector<std::string> factors;
        for (const auto& [number, text] :
             {std::pair(stages, counted(stages, "stage")),
              std::pair(replicas, counted(replicas, "replica")),
              std::pair(std::int64_t{tensor}, fmt::format("{} devices per stage", tensor)),
              std::pair(context, fmt::format("{} parts of a sample", context))}) {
            if (number > 1) {
                factors.push_back(text);
            }
        }
        throw Error(ErrorKind::Usage,
                    stages > 1 ? "--set pipeline.stages" : "--set pipeline.data_parallel",
                    fmt::format("{} need {}, but {} of '{}' {} only {}",
                                fmt::join(factors, " x "),
                                counted(needed, "device"),
                                counted(question.nodes, "node"),
                                question.cluster,
                                question.nodes == 1 ? "has" : "have",
                                question.nodes * of_node),
                    fmt::format("use more nodes: --nodes {}", (needed + of_node - 1) / of_node));
    }
}

/// The keys of the cluster and the overrides over a scenario; --stack is no key of the cluster.
Scenario over_cluster(Scenario begun,
                      const ModelQuestion& question,
                      const std::vector<Override>& overrides) {
    Scenario scenario = scenario_over(std::move(begun), question.cluster, overrides);
    if (question.stack) {
        scenario.cluster.stack = stack_named(*question.stack);
    }
    return scenario;
}

/// The scenario on so many devices.
Scenario scenario_on(const ModelQuestion& question, int samples, Precision precision, int devices) {
    Scenario scenario = open_scenario(question);
    scenario.training.batch = samples;
    scenario.training.precision = precision;
    scenario.cluster.count = devices;
    scenario = over_cluster(std::move(scenario), question, question.overrides);
    return scenario;
}

/// How costs of the model on the device are estimated: in bf16, as models are trained whatever they
/// are published in.
EstimateQuestion estimate_of(const ModelQuestion& question,
                             const Scenario::ClusterPart& cluster,
                             int sequence) {
    constexpr int devices_of_a_node = 8;
    const std::string& device = cluster.device;
    const bool has_bf16 = find_device(device).matrix_rates.contains("bf16");
    EstimateQuestion estimate{.device = device,
                              .precision = question.precision || !has_bf16
                                               ? question.precision
                                               : std::optional<std::string>("bf16"),
                              .whole_blocks = question.whole_blocks};
    estimate.estimate.sequence = sequence;
    estimate.estimate.micro_batch_size = 1;
    estimate.estimate.most_devices = devices_of_a_node;
    estimate.stack = question.stack;
    if (!question.stack && !cluster.stack.empty()) {
        estimate.stack = cluster.stack;
    }
    return estimate;
}

/// Says so where the weights are published in another number type than the plan has.
std::optional<std::string> note_on_published_type(const DecoderModel& model,
                                                  std::string_view planned) {
    if (!model.quantization.empty()) {
        return fmt::format(
            "the quantization of the published weights ({}) is ignored: planned in {}; --precision "
            "changes this",
            model.quantization,
            planned);
    }
    if (model.precision_key.empty() || model.precision == planned) {
        return std::nullopt;
    }
    return fmt::format(
        "the file's {} is {}: planned in {}, in which models are usually trained; "
        "--precision changes this",
        model.precision_key,
        model.precision_word.empty() ? model.precision_value : model.precision_word,
        planned);
}

/// Reads the model; none: its costs are known instead.
std::optional<ModelConfig> read_config(const std::filesystem::path& model) {
    if (model.string().ends_with(".profile.json")) {
        return std::nullopt;
    }
    const std::filesystem::path file = config_file(model, "plan");
    return model_config(read_file(file, JsonLimits{}.max_bytes), file.string());
}

/// Tokens of a sample where nothing says it.
int usual_tokens(const std::optional<ModelConfig>& config) {
    const int learned = config ? config->model.learned_positions : 0;
    return learned > 0 ? std::min(usual_sequence, learned) : usual_sequence;
}

/// Reads or estimates the costs of the model.
void find_costs(const ModelQuestion& question,
                const std::optional<ModelConfig>& config,
                const Scenario::ClusterPart& cluster,
                int sequence,
                ModelOnCluster& asked) {
    if (!config) {
        asked.found = {.profile = read_profile(question.model), .file = question.model};
        const std::string& precision = asked.found.profile.precision;
        if (question.precision && *question.precision != precision) {
            throw Error(
                ErrorKind::BadInput,
                question.model.string(),
                fmt::format(
                    "its costs are for {}, but --precision is {}", precision, *question.precision),
                "leave --precision out, or name the model: then new costs are estimated");
        }
        const std::string& stack = asked.found.profile.stack;
        if (question.stack && stack_named(*question.stack) != stack) {
            throw Error(
                ErrorKind::BadInput,
                question.model.string(),
                stack.empty()
                    ? fmt::format("its costs are of no stack, but --stack is {}", *question.stack)
                    : fmt::format("its costs are of the stack '{}', but --stack is {}",
                                  stack,
                                  *question.stack),
                "leave --stack out, or name the model: then new costs are estimated");
        }
        if (question.whole_blocks) {
            asked.found.profile = with_whole_blocks(asked.found.profile);
        }
        return;
    }
    if (cluster.device == this_machine) {
        throw Error(ErrorKind::BadInput,
                    "--cluster",
                    fmt::format("costs cannot be estimated for '{}', as its cluster.device names "
                                "none whose rates are known",
                                question.cluster),
                    question.cluster.ends_with(".toml")
                        ? "set it there, as in device = \"h100-sxm\"; 'pipetwin devices' lists all"
                        : cluster_hint());
    }
    const EstimateQuestion estimate = estimate_of(question, cluster, sequence);
    EstimatedModel estimated = estimated_model(*config, estimate);
    std::ranges::move(estimated.notes, std::back_inserter(asked.notes));
    asked.found = {.profile = std::move(estimated.profile), .file = question.costs_file};
    asked.config = config->text;
    if (!question.precision && estimate.precision) {
        if (auto note = note_on_published_type(config->model, *estimate.precision)) {
            asked.notes.push_back(*std::move(note));
        }
    }
}

}  // namespace

int samples_for(double batch_tokens, int sequence, int devices) {
    constexpr double most_off = 0.05;
    const double wanted = batch_tokens / sequence;
    const auto lowest = static_cast<std::int64_t>(std::ceil(wanted * (1 - most_off)));
    const auto highest = static_cast<std::int64_t>(std::floor(wanted * (1 + most_off)));
    constexpr std::int64_t most_samples = 1 << 30;
    if (wanted > static_cast<double>(most_samples)) {
        throw Error(ErrorKind::Usage,
                    "--batch-tokens",
                    fmt::format("{} tokens are {} samples of {}, expected at most {}",
                                batch_tokens,
                                wanted,
                                sequence,
                                most_samples),
                    "name the tokens of one step, such as 4M");
    }
    if (std::fmod(wanted, devices) == 0) {
        return static_cast<int>(wanted);
    }
    for (std::int64_t divisor = devices; divisor > 0; --divisor) {
        if (devices % divisor != 0) {
            continue;
        }
        for (std::int64_t power = most_samples; power > 0; power /= 2) {
            const std::int64_t unit = std::lcm(divisor, power);
            const std::int64_t nearest = std::llround(wanted / static_cast<double>(unit)) * unit;
            if (nearest >= std::max<std::int64_t>(1, lowest) && nearest <= highest) {
                return static_cast<int>(nearest);
            }
        }
    }
    return std::max(1, static_cast<int>(std::llround(wanted)));
}

std::string question_name(const std::filesystem::path& model, std::string_view cluster) {
    return fmt::format(
        "{} on {}", model.filename().string(), std::filesystem::path(cluster).filename().string());
}

void expect_model_file(const std::filesystem::path& model) {
    std::error_code ignored;
    if (std::filesystem::is_directory(model, ignored) &&
        !std::filesystem::exists(model / "config.json", ignored)) {
        throw Error(ErrorKind::BadInput,
                    model.string(),
                    "this folder has no config.json, expected that of a model, or a scenario",
                    "name the file itself, as in pipetwin plan FOLDER/NAME.toml");
    }
    if (!std::filesystem::is_regular_file(model, ignored)) {
        return;  // a name, the folder of a model, or what can be read once only
    }
    const std::string text = read_file(model, JsonLimits{}.max_bytes);
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (model.extension() != ".json" && first != std::string::npos && text[first] != '{') {
        throw Error(ErrorKind::BadInput,
                    model.string(),
                    "this file describes no model, expected a model's config.json or its "
                    "*.profile.json",
                    "name one of these, or a model that 'pipetwin devices' lists");
    }
}

ModelOnCluster model_on_cluster(const ModelQuestion& question) {
    expect_model_file(question.model);
    if (!question.cluster.ends_with(".toml")) {
        find_cluster(question.cluster, "--cluster");
    }
    expect_no_count(question);
    expect_no_key_of_option(question, "training.precision", "--precision");
    expect_no_key_of_option(question, "model.context", "--sequence");
    expect_no_key_of_option(question, "cluster.profile", "--cluster");
    expect_no_key_of_option(question, "cluster.stack", "--stack");
    if (question.stack && *question.stack != no_stack) {
        find_stack(*question.stack, "--stack");
    }
    ModelOnCluster asked;
    const Scenario node =
        over_cluster(open_scenario(question), question, overrides_of(question, "cluster."));
    expect_enough_nodes(question, node.cluster);
    const std::optional<ModelConfig> config = read_config(question.model);
    int sequence = question.sequence.value_or(usual_tokens(config));
    find_costs(question, config, node.cluster, sequence, asked);
    const Profile& profile = asked.found.profile;
    if (profile.tokens_per_sample > 0) {
        if (question.sequence && *question.sequence != profile.tokens_per_sample) {
            throw Error(ErrorKind::BadInput,
                        question.model.string(),
                        fmt::format("its costs are for samples of {} tokens, but --sequence is {}",
                                    profile.tokens_per_sample,
                                    *question.sequence),
                        "leave --sequence out, or name the model: then new costs are estimated");
        }
        sequence = static_cast<int>(profile.tokens_per_sample);
    }
    const double tokens = question.batch_tokens.value_or(usual_batch_tokens);
    const int devices = question.nodes * devices_of_node(node.cluster);
    if (tokens < sequence) {
        asked.notes.push_back(fmt::format(
            "--batch-tokens {} is less than one sample of {} tokens: a step has one sample",
            with_separators(std::llround(tokens)),
            with_separators(sequence)));
    }
    if (!question.sequence) {
        asked.notes.push_back(fmt::format("samples have {} tokens; --sequence changes this",
                                          with_separators(sequence)));
    }
    if (!question.batch_tokens) {
        asked.notes.push_back(
            fmt::format("a step has {}; --batch-tokens changes this",
                        counted(samples_for(tokens, sequence, devices), "sample")));
    }
    if (profile.precision == "fp16") {
        asked.notes.emplace_back(
            "the costs are for fp16; the plan's scenario says bf16, because scenarios have no "
            "fp16");
    }
    const int per_node = devices_of_node(node.cluster);
    const std::string_view word = trained_as(profile.precision);
    const Precision type = word == "bf16"   ? Precision::Bf16
                           : word == "fp64" ? Precision::Fp64
                                            : Precision::Fp32;
    asked.nodes.count = question.nodes;
    asked.nodes.scenario_on = [question, tokens, sequence, per_node, type, profile](int nodes) {
        const int count = nodes * per_node;
        Scenario scenario =
            scenario_on(question, samples_for(tokens, sequence, count), type, count);
        scenario.file = question.model;  // of which errors speak
        open_division(scenario, profile);
        return scenario;
    };
    asked.scenario = asked.nodes.scenario_on(question.nodes);
    return asked;
}

}  // namespace pipetwin::sim
