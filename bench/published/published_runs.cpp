// SPDX-License-Identifier: Apache-2.0
#include "bench/published/published_runs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/artifacts/model_flops.h"
#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/interop/hf_config.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/scenario.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"
#include "core/timeline/metrics.h"
#include "sim/search/partition_choice.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::published {

namespace {

using nlohmann::json;
using std::string_view;

/// A word of JSON as `--set` has it.
std::string override_text(const json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

int scenario_number(const json& scenario, const char* key, int otherwise) {
    return scenario.contains(key) ? scenario.at(key).get<int>() : otherwise;
}

/// Sizes of a model as papers' formulas have them.
struct Sizes {
    double layers = 1;
    double hidden = 1;
    double vocabulary = 1;
    double sequence = 1;
};

Sizes sizes_of(const Run& run) {
    const DecoderModel model = parse_hf_config(run.model, run.name);
    return {.layers = static_cast<double>(model.blocks),
            .hidden = static_cast<double>(model.width),
            .vocabulary = static_cast<double>(model.vocabulary),
            .sequence = static_cast<double>(run.estimate.sequence)};
}

/// Operations of a step of a GPT by the formula that a source counts with (`FlopsCount`).
double operations_of(const Run& run, FlopsCount count) {
    const Sizes of = sizes_of(run);
    const double per_block = count == FlopsCount::Hardware ? 96 : 72;
    const double pairs = count == FlopsCount::Megatron ? 0.5 : 1;
    return per_block * run.batch * of.sequence * of.layers * of.hidden * of.hidden *
           (1 + pairs * of.sequence / (6 * of.hidden) +
            of.vocabulary / ((per_block / 6) * of.layers * of.hidden));
}

FlopsCount formula_of(const JsonObject& published) {
    const std::optional<FlopsCount> count = flops_count_named(published.text_or("formula", ""));
    if (!count) {
        published.refuse("formula", "palm, megatron or hardware");
    }
    return *count;
}

std::optional<double> step_of(const JsonObject& published, const Run& run) {
    const double samples = run.batch;
    const double devices = run.devices;
    if (published.has("step_seconds")) {
        return published.number_or("step_seconds", 0);
    }
    if (published.has("tflops_per_device")) {
        const double rate = 1e12 * published.number_or("tflops_per_device", 0);
        return operations_of(run, formula_of(published)) / (devices * rate);
    }
    if (published.has("tokens_per_second_per_device")) {
        return samples * run.estimate.sequence /
               (devices * published.number_or("tokens_per_second_per_device", 0));
    }
    if (published.has("samples_per_second_per_device")) {
        return samples / (devices * published.number_or("samples_per_second_per_device", 0));
    }
    return std::nullopt;
}

std::optional<Bytes> bytes_of(const JsonObject& published, string_view key) {
    return published.has(key) ? std::optional(Bytes{std::llround(published.number_or(key, 0))})
                              : std::nullopt;
}

Run read_run(const json& merged, string_view place, const std::string& pointer) {
    const JsonObject object(merged, place, pointer);
    Run run{.name = object.text("name")};
    run.model = merged.at("model").dump();
    run.model_name = object.text_or("model_name", "");
    const JsonObject estimate = object.object("estimate");
    run.device = estimate.text("device");
    run.stack = estimate.text_or("stack", "");
    run.year = static_cast<int>(object.whole("year"));
    run.table = object.text_or("table", "");
    run.estimate.precision = estimate.text("precision");
    run.estimate.sequence = static_cast<int>(estimate.whole("sequence"));
    run.estimate.attention = estimate.text_or("attention", "flash") == "standard"
                                 ? AttentionKernels::Standard
                                 : AttentionKernels::Flash;
    run.estimate.loss = estimate.text_or("loss", "fused") == "standard" ? LossKernels::Standard
                                                                        : LossKernels::Fused;
    run.estimate.selective = estimate.text_or("selective", "usual") == "core-attention"
                                 ? SelectiveRecompute::CoreAttention
                                 : SelectiveRecompute::Usual;
    const std::string kernels = estimate.text_or("kernels", "fused");
    run.estimate.kernels = kernels == "compiled" ? BlockKernels::Compiled
                           : kernels == "eager"  ? BlockKernels::Eager
                                                 : BlockKernels::Fused;
    run.estimate.most_devices = 8;
    const json& scenario = merged.at("scenario");
    for (const auto& [key, value] : scenario.items()) {
        run.scenario.push_back({key, override_text(value)});
    }
    run.devices = scenario_number(scenario, "cluster.count", 1);
    run.batch = scenario_number(scenario, "training.batch", 1);
    const int parts = scenario_number(scenario, "pipeline.data_parallel", 1) *
                      scenario_number(scenario, "pipeline.micro_batches", 1);
    run.estimate.micro_batch_size = std::max(1, run.batch / parts);
    const JsonObject published = object.object("published");
    run.step_seconds = step_of(published, run);
    run.peak = bytes_of(published, "peak_bytes");
    run.peak_kind = published.text_or("peak_kind", "unknown");
    run.state = bytes_of(published, "state_bytes");
    run.activations = bytes_of(published, "activation_bytes");
    if (published.has("fits")) {
        run.fits = published.flag("fits");
    } else if (run.step_seconds) {
        run.fits = true;
    }
    return run;
}

Bytes state_of(const MemoryUse& use) {
    return use[MemoryKind::Weights] + use[MemoryKind::Gradients] + use[MemoryKind::Optimizer];
}

/// The profile with an embedding and a head that keep nothing and have no parameters: what blocks
/// alone take.
Profile blocks_alone(const Profile& profile) {
    Profile blocks = profile;
    blocks.tied_bytes = {};
    for (LayerCost& layer : blocks.layers) {
        if (layer.kind != "embedding" && layer.kind != "head") {
            continue;
        }
        layer.parameter_bytes = {};
        layer.change_samples([](LayerSample& sample) {
            sample.saved = sample.input_saved = sample.core_saved = sample.whole_saved = {};
            sample.workspace = {};
        });
    }
    return blocks;
}

}  // namespace

namespace {

/// PyTorch counts what its memory pool holds: tensors and the workspaces of products, and, where
/// reserved bytes are meant, what the pool has beyond them and keeps of messages. The device counts
/// everything; an unknown measure is taken for what is allocated, with the context.
Bytes shown_peak(string_view kind, const MemoryUse& use, const BesideModel& beside) {
    const Bytes in_pool = use.total() - use[MemoryKind::Context] + beside.product_workspace;
    const Bytes beyond = beside.allocator_reserve + beside.kept_messages;
    return kind == "allocated"  ? in_pool
           : kind == "reserved" ? in_pool + beyond
           : kind == "device"   ? use.total() + beyond
                                : use.total();
}

}  // namespace

Set read_set(const std::filesystem::path& file) {
    const std::string place = file.string();
    const json root = parse_json(read_file(file, JsonLimits{}.max_bytes), place);
    const JsonObject object(root, place, "");
    Set set{.name = file.stem().string(),
            .source = object.text("source"),
            .setup = object.text_or("setup", ""),
            .hold_out = object.text_or("use", "develop") == "hold-out",
            .needs_stack = object.has("needs_stack") && object.flag("needs_stack")};
    const json common = root.value("common", json::object());
    std::size_t index = 0;
    for (const json& row : root.at("rows")) {
        json merged = common;
        merged.merge_patch(row);
        set.runs.push_back(read_run(merged, place, fmt::format("/rows/{}", index++)));
    }
    for (const JsonObject& order : object.objects("orders")) {
        set.orders.push_back({.text = order.text("text"), .runs = order.texts("rows")});
    }
    return set;
}

std::vector<Set> read_sets(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == ".json") {
            files.push_back(entry.path());
        }
    }
    std::ranges::sort(files);
    std::vector<Set> sets;
    std::ranges::transform(files, std::back_inserter(sets), read_set);
    return sets;
}

Prediction predict(const Run& run) {
    return predict_with(run, run.stack.empty() ? nullptr : find_stack(run.stack));
}

sim::RunSetup setup_of(const Run& run, std::shared_ptr<const Stack> stack) {
    sim::RunSetup setup{.place = run.name,
                        .model = parse_hf_config(run.model, run.name),
                        .device = run.device,
                        .estimate = run.estimate,
                        .keys = run.scenario};
    setup.estimate.stack = std::move(stack);
    return setup;
}

Prediction predict_with(const Run& run, std::shared_ptr<const Stack> stack) {
    Prediction prediction;
    try {
        const sim::RunSetup setup = setup_of(run, std::move(stack));
        const Scenario scenario = sim::scenario_of(setup);
        const sim::RunCosts costs = sim::costs_of(setup, scenario);
        const Profile& profile = costs.profile;
        const Model& model = *costs.model;
        const Plan plan = sim::make_settled_plan(settle(scenario), model, profile);
        const std::vector<MemoryPeak> peaks = memory_peaks(plan);
        for (int rank = 0; rank < plan.rank_count(); ++rank) {
            const MemoryUse& use = peaks[as_index(rank)].use;
            const Bytes limit = plan.memory_limit(rank).value_or(use.total());
            prediction.fits = prediction.fits && use.total() <= limit;
            if (use.total() > prediction.peak.total()) {
                prediction.peak = use;
                prediction.limit = plan.memory_limit(rank);
                prediction.shown_peak =
                    shown_peak(run.peak_kind, use, beside_model(plan, rank, use));
            }
        }
        if (run.state || run.activations) {
            const Plan blocks =
                sim::make_settled_plan(settle(scenario), model, blocks_alone(profile));
            const MemoryPeak of_first = memory_peaks(blocks).front();
            prediction.block_state = state_of(of_first.use);
            prediction.block_stash = of_first.use[MemoryKind::Stash] - of_first.recomputed;
        }
        prediction.step_seconds = to_seconds(step_time(sim::simulate(plan)));
    } catch (const Error& error) {
        prediction.refused = fmt::format("{}: {}", error.place(), error.text());
        prediction.fits = false;
    }
    return prediction;
}

std::string key_of(const Run& run, string_view key) {
    const auto found = std::ranges::find(run.scenario, key, &Override::key);
    return found == run.scenario.end() ? "" : found->value;
}

std::vector<Compared> compared_runs(const std::vector<Set>& sets) {
    std::vector<Compared> all;
    for (const Set& set : sets) {
        if (set.needs_stack) {
            continue;
        }
        for (const Run& run : set.runs) {
            const std::optional<double> predicted =
                run.step_seconds ? predict_with(run, nullptr).step_seconds : std::nullopt;
            if (!predicted) {
                continue;
            }
            const std::string tensor = key_of(run, "pipeline.tensor_parallel");
            all.push_back(
                {.set = set.name,
                 .source = set.setup,
                 .device = run.device,
                 .model = fmt::format(
                     "{} {} {}", run.model, run.estimate.sequence, run.estimate.precision),
                 .devices = run.devices,
                 .kind = {.shards_weights = key_of(run, "pipeline.shard") == "weights",
                          .tensor_parallel = tensor.empty() ? 1 : std::stoi(tensor)},
                 .measured = *run.step_seconds,
                 .predicted = *predicted});
        }
    }
    return all;
}

double quantile(std::vector<Grouped> values, double share) {
    std::map<std::string, double> sizes;
    for (const Grouped& one : values) {
        ++sizes[one.group];
    }
    std::ranges::sort(values, {}, &Grouped::value);
    double below = 0;
    for (const Grouped& one : values) {
        below += 1 / sizes[one.group];
        if (below >= share * static_cast<double>(sizes.size())) {
            return one.value;
        }
    }
    return values.empty() ? 1 : values.back().value;
}

namespace {

/// Calls `visit(a, b)` for every two runs of a set, either way round.
template <class Visit>
void for_pairs(const std::vector<Compared>& runs, Visit visit) {
    for (const Compared& a : runs) {
        for (const Compared& b : runs) {
            if (&a != &b && a.set == b.set) {
                visit(a, b);
            }
        }
    }
}

}  // namespace

LearnedRange range_of(const std::vector<Grouped>& factors) {
    std::set<std::string> groups;
    for (const Grouped& one : factors) {
        groups.insert(one.group);
    }
    return {.low = quantile(factors, 0.05),
            .high = quantile(factors, 0.95),
            .runs = static_cast<int>(factors.size()),
            .sources = static_cast<int>(groups.size())};
}

LearnedRange learned_range(const std::vector<Compared>& runs, const RunKind& kind) {
    std::vector<Grouped> factors;
    for (const Compared& run : runs) {
        if (estimate_error(run.kind) == estimate_error(kind)) {
            factors.push_back({run.measured / run.predicted, run.source});
        }
    }
    return range_of(factors);
}

LearnedRange calibrated_range(const std::vector<Compared>& runs) {
    std::vector<Grouped> factors;
    for_pairs(runs, [&factors](const Compared& measured, const Compared& other) {
        if (measured.model == other.model && measured.device == other.device) {
            const double correction = measured.measured / measured.predicted;
            factors.push_back({other.measured / (correction * other.predicted), other.source});
        }
    });
    return range_of(factors);
}

double right_orders(const std::vector<Compared>& runs, double from, double to) {
    std::map<std::string, std::pair<double, double>> sets;  // right, all
    for_pairs(runs, [&](const Compared& a, const Compared& b) {
        const double apart = b.predicted / a.predicted - 1;
        if (apart >= from && apart < to && a.devices == b.devices) {
            auto& [right, all] = sets[a.set];
            right += a.measured < b.measured ? 1 : 0;
            ++all;
        }
    });
    double sum = 0;
    for (const auto& [name, counts] : sets) {
        sum += counts.first / counts.second;
    }
    return sets.empty() ? 0 : sum / static_cast<double>(sets.size());
}

}  // namespace pipetwin::published
