#include "cli/interop/import/asked_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/interop/exchange.h"
#include "cli/interop/import/importers.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/device_profile.h"
#include "core/costs/profile_json.h"
#include "core/costs/shipped_profiles.h"
#include "core/costs/whole_blocks.h"

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
        if (question.whole_blocks) {
            asked.found.profile = with_whole_blocks(asked.found.profile);
        }
        return;
    }
    const ImportOptions options = estimate_of(question, device, sequence);
    const Imported imported = import_hf(options);
    asked.notes.insert(asked.notes.end(), imported.notes.begin(), imported.notes.end());
    asked.found = {.profile = parse_profile(imported.content, question.model.string()),
                   .file = question.costs_file};
    asked.sizes = hf_sizes(options);
    asked.config = hf_text(question.model);
}

}  // namespace

int samples_for(double batch_tokens, int sequence) {
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
    for (std::int64_t power = most_samples; power > 1; power /= 2) {
        const std::int64_t nearest =
            static_cast<std::int64_t>(std::llround(wanted / static_cast<double>(power))) * power;
        if (nearest >= std::max<std::int64_t>(1, lowest) && nearest <= highest) {
            return static_cast<int>(nearest);
        }
    }
    return std::max(1, static_cast<int>(std::llround(wanted)));
}

std::string question_name(const std::filesystem::path& model, std::string_view cluster) {
    return fmt::format(
        "{} on {}", model.filename().string(), std::filesystem::path(cluster).filename().string());
}

AskedModel asked_model(const ModelQuestion& question) {
    if (question.cluster.empty()) {
        throw Error(ErrorKind::Usage,
                    "plan",
                    fmt::format("'{}' is a model, not a scenario, and --cluster is missing",
                                question.model.string()),
                    fmt::format("name the nodes that it is to be trained on, as in --cluster {}; "
                                "known: {}",
                                cluster_names().front(),
                                fmt::join(cluster_names(), ", ")));
    }
    if (!question.cluster.ends_with(".toml")) {
        find_cluster(question.cluster);  // the error names the folder, not a line of our own text
    }
    expect_no_count(question);
    AskedModel asked;
    const Scenario node = open_scenario(question, 1, "bf16", std::nullopt);
    int sequence = question.sequence.value_or(usual_tokens(question));
    find_costs(question, node.cluster.device, sequence, asked);
    const Profile& profile = asked.found.profile;
    if (profile.tokens_per_sample > 0) {
        if (question.sequence && *question.sequence != profile.tokens_per_sample) {
            throw Error(ErrorKind::BadInput,
                        question.model.string(),
                        fmt::format("its costs are of samples of {} tokens, but --sequence is {}",
                                    profile.tokens_per_sample,
                                    *question.sequence),
                        "leave --sequence out, or name the model: then costs are estimated anew");
        }
        sequence = static_cast<int>(profile.tokens_per_sample);
    }
    const double tokens = question.batch_tokens.value_or(usual_batch_tokens);
    asked.samples = samples_for(tokens, sequence);
    if (tokens < sequence) {
        asked.notes.push_back(fmt::format(
            "--batch-tokens {} is less than one sample of {} tokens: a step has one sample",
            with_separators(std::llround(tokens)),
            with_separators(sequence)));
    }
    if (!question.sequence || !question.batch_tokens) {
        asked.notes.push_back(
            fmt::format("defaults used: samples of {} tokens, {} of them per step; "
                        "change them with --sequence and --batch-tokens",
                        with_separators(sequence),
                        with_separators(asked.samples)));
    }
    const int devices = question.nodes * std::max(1, node.cluster.count);
    asked.scenario = open_scenario(
        question, asked.samples, profile.precision == "fp8" ? "bf16" : profile.precision, devices);
    asked.scenario.file = question.model;  // of which errors speak
    return asked;
}

}  // namespace pipetwin::cli
