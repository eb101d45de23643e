// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/asked_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/option_hints.h"
#include "cli/interop/exchange.h"
#include "cli/interop/import/importers.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/device_profile.h"
#include "core/costs/profile_json.h"
#include "core/costs/shipped_profiles.h"
#include "core/costs/whole_blocks.h"
#include "core/interop/hf_config.h"
#include "core/text/json_text.h"

namespace pipetwin::cli {

namespace {

constexpr int usual_sequence = 4096;
constexpr double usual_batch_tokens = 4e6;

bool is_profile(const std::filesystem::path& file) {
    return file.string().ends_with(".profile.json");
}

/// Keys that say what a node is; the others are about all nodes.
std::vector<Override> of_cluster(std::vector<Override> overrides) {
    std::erase_if(overrides, [](const Override& key) { return !key.key.starts_with("cluster."); });
    return overrides;
}

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

/// A number that --set fixes; `otherwise` where it fixes none.
int fixed_number(const ModelQuestion& question, std::string_view key, int otherwise) {
    const auto set = std::ranges::find(question.overrides, key, &Override::key);
    if (set == question.overrides.end()) {
        return otherwise;
    }
    int number = 0;
    const char* const end = set->value.data() + set->value.size();
    const auto [rest, status] = std::from_chars(set->value.data(), end, number);
    return status == std::errc{} && rest == end && number > 0 ? number : otherwise;
}

/// Devices of one node: a file that does not count them has as many as share a node.
int devices_of_node(const Scenario::ClusterPart& node) {
    return std::max(1, node.count > 0 ? node.count : node.per_node);
}

/// Throws Error(Usage) for numbers of --set that the devices of the nodes cannot have.
void expect_enough_nodes(const ModelQuestion& question, const Scenario::ClusterPart& node) {
    const int tensor = fixed_number(question, "pipeline.tensor_parallel", 1);
    const int per_node = std::max(1, node.per_node);
    if (per_node % tensor != 0) {
        std::vector<int> divisors;
        for (int devices = 1; devices <= per_node; ++devices) {
            if (per_node % devices == 0) {
                divisors.push_back(devices);
            }
        }
        throw Error(
            ErrorKind::Usage,
            "--set pipeline.tensor_parallel",
            tensor > per_node
                ? fmt::format("{}, but devices that share layers sit on one node, which has {}",
                              tensor,
                              counted(per_node, "device"))
                : fmt::format("{}, but the {} of a node cannot be divided into groups of {}",
                              tensor,
                              counted(per_node, "device"),
                              tensor),
            fmt::format("use a divisor of that: {}", fmt::join(divisors, ", ")));
    }
    const std::int64_t stages = fixed_number(question, "pipeline.stages", 1);
    const std::int64_t replicas = fixed_number(question, "pipeline.data_parallel", 1);
    const std::int64_t needed = stages * replicas * tensor;
    const std::int64_t of_node = devices_of_node(node);
    if (needed > question.nodes * of_node) {
        std::vector<std::string> factors;
        for (const auto& [number, text] :
             {std::pair(stages, counted(stages, "stage")),
              std::pair(replicas, counted(replicas, "replica")),
              std::pair(std::int64_t{tensor}, fmt::format("{} devices per stage", tensor))}) {
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

/// Throws Error(BadInput) for a file in which no model is described: those are JSON.
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

/// The scenario with so many devices; none: one node, as the cluster's file has it.
Scenario open_scenario(const ModelQuestion& question,
                       int samples,
                       std::string_view precision,
                       std::optional<int> devices) {
    const std::string text = fmt::format(
        "[model]\nkind = \"profile\"\nfile = \"{}\"\n"
        "[training]\nbatch = {}\nprecision = \"{}\"\n"
        "[pipeline]\nstages = \"auto\"\nmicro_batches = \"auto\"\nschedule = \"auto\"\n"
        "chunks = \"auto\"\nrecompute = \"auto\"\ndata_parallel = \"auto\"\n"
        "tensor_parallel = \"auto\"\nshard = \"auto\"\nsequence_parallel = \"auto\"\n"
        "scatter_boundaries = \"auto\"\n"
        "[cluster]\nprofile = \"{}\"\n{}",
        question.costs_file.string(),
        samples,
        precision,
        question.cluster,
        devices ? fmt::format("count = {}\n", *devices) : "");
    // Paths in it are relative to the current folder. Nobody has written its lines.
    const std::string name = question_name(question.model, question.cluster);
    const std::filesystem::path file = std::filesystem::current_path() / name;
    try {
        return parse_scenario(text,
                              file,
                              devices ? question.overrides : of_cluster(question.overrides),
                              Unwritten::Auto);
    } catch (const Error& error) {
        throw error.place().starts_with(file.string())
            ? Error(error.kind(), name, error.text(), error.hint())
            : error;
    }
}

/// How costs of the model on the device are estimated from its name or config.json: in bf16, as
/// models are trained whatever they are published in.
ImportOptions estimate_of(const ModelQuestion& question, const std::string& device, int sequence) {
    ImportOptions options;
    const bool has_bf16 = find_device(device).matrix_rates.contains("bf16");
    options.file = question.model;
    options.micro_batch_size = 1;
    options.hf.device = device;
    options.hf.sequence = sequence;
    options.hf.precision =
        question.precision || !has_bf16 ? question.precision : std::optional<std::string>("bf16");
    options.hf.whole_blocks = question.whole_blocks;
    return options;
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

/// Tokens of a sample where nothing says it.
int usual_tokens(const ModelQuestion& question) {
    return is_profile(question.model)
               ? usual_sequence
               : std::min(usual_sequence, hf_most_tokens(question.model).value_or(usual_sequence));
}

/// Reads or estimates the costs of the model.
void find_costs(const ModelQuestion& question,
                const std::string& device,
                int sequence,
                AskedModel& asked) {
    if (is_profile(question.model)) {
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
        if (question.whole_blocks) {
            asked.found.profile = with_whole_blocks(asked.found.profile);
        }
        return;
    }
    if (device == this_machine) {
        throw Error(ErrorKind::BadInput,
                    "--cluster",
                    fmt::format("costs cannot be estimated for '{}', as its cluster.device names "
                                "none whose rates are known",
                                question.cluster),
                    question.cluster.ends_with(".toml")
                        ? "set it there, as in device = \"h100-sxm\"; 'pipetwin devices' lists all"
                        : cluster_hint());
    }
    const ImportOptions options = estimate_of(question, device, sequence);
    EstimatedModel estimated = estimated_model(options);
    std::ranges::move(estimated.notes, std::back_inserter(asked.notes));
    asked.found = {.profile = std::move(estimated.profile), .file = question.costs_file};
    asked.config = hf_text(question.model);
    if (!question.precision && options.hf.precision) {
        if (auto note = note_on_published_type(estimated.model, *options.hf.precision)) {
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

AskedModel asked_model(const ModelQuestion& question) {
    expect_model_file(question.model);
    if (question.cluster.empty()) {
        throw Error(ErrorKind::Usage,
                    "plan",
                    fmt::format("'{}' is a model, not a scenario, and --cluster is missing",
                                question.model.string()),
                    cluster_hint());
    }
    if (!question.cluster.ends_with(".toml")) {
        find_cluster(question.cluster, "--cluster");  // not at a line of our own text
    }
    expect_no_count(question);
    expect_no_key_of_option(question, "training.precision", "--precision");
    expect_no_key_of_option(question, "model.context", "--sequence");
    expect_no_key_of_option(question, "cluster.profile", "--cluster");
    AskedModel asked;
    const Scenario node = open_scenario(question, 1, "bf16", std::nullopt);
    expect_enough_nodes(question, node.cluster);
    int sequence = question.sequence.value_or(usual_tokens(question));
    find_costs(question, node.cluster.device, sequence, asked);
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
    asked.samples = samples_for(tokens, sequence, devices);
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
        asked.notes.push_back(fmt::format("a step has {}; --batch-tokens changes this",
                                          counted(asked.samples, "sample")));
    }
    if (profile.precision == "fp16") {
        asked.notes.emplace_back(
            "the costs are for fp16; the plan's scenario says bf16, because scenarios have no "
            "fp16");
    }
    const int per_node = devices_of_node(node.cluster);
    const std::string type(trained_as(profile.precision));
    asked.on_nodes = [question, tokens, sequence, per_node, type](int nodes) {
        const int count = nodes * per_node;
        Scenario scenario =
            open_scenario(question, samples_for(tokens, sequence, count), type, count);
        scenario.file = question.model;  // of which errors speak
        return scenario;
    };
    asked.scenario = asked.on_nodes(question.nodes);
    return asked;
}

}  // namespace pipetwin::cli
