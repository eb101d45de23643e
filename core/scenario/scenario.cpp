// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/scenario.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/number_type.h"
#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/partition/model_blocks.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"
#include "core/schedule/schedule_csv.h"

namespace pipetwin {

namespace {

template <class Enum, std::size_t count>
std::string_view word_of(Enum value, const std::array<std::string_view, count>& words) {
    const std::size_t index = as_index(value);
    PIPETWIN_EXPECT(index < count, "value of an enum out of range");
    return words.at(index);
}

}  // namespace

std::string_view to_string(ModelKind kind) {
    return word_of(kind, words::model_kinds);
}

std::string_view to_string(DataKind kind) {
    return word_of(kind, words::data_kinds);
}

bool is_of_images(DataKind kind) {
    return kind == DataKind::Mnist || kind == DataKind::Cifar10 || kind == DataKind::Images ||
           kind == DataKind::Segmentation || kind == DataKind::Silhouettes;
}

bool is_of_pairs(DataKind kind) {
    return kind == DataKind::Gettext || kind == DataKind::Pairs;
}

std::string_view to_string(PairDirection direction) {
    return word_of(direction, words::pair_directions);
}

bool has_test_files(DataKind kind) {
    return kind == DataKind::Mnist || kind == DataKind::Cifar10 || kind == DataKind::Silhouettes;
}

std::string_view to_string(OptimizerKind kind) {
    return word_of(kind, words::optimizers);
}

std::string_view to_string(Precision precision) {
    return word_of(precision, words::precisions);
}

std::string_view trained_as(std::string_view costs_precision) {
    return has_narrow_products(costs_precision) || costs_precision == "fp16" ? "bf16"
           : costs_precision == "tf32"                                       ? "fp32"
                                                                             : costs_precision;
}

std::string_view to_string(RateSchedule schedule) {
    return word_of(schedule, words::rate_schedules);
}

std::string_view to_string(Backend backend) {
    return word_of(backend, words::backends);
}

std::string_view to_string(GpuShares shares) {
    return word_of(shares, words::gpu_shares);
}

std::string_view to_string(Placement placement) {
    return word_of(placement, words::placements);
}

std::string_view to_string(GradientType type) {
    return word_of(type, words::gradient_types);
}

std::string_view to_string(Accumulation accumulation) {
    return word_of(accumulation, words::accumulations);
}

std::string_view to_string(Shard shard) {
    return word_of(shard, words::shards);
}

std::string_view to_string(TransferMode transfer) {
    return word_of(transfer, words::transfers);
}

void require_mode_of_each_piece(std::size_t modes, int pieces, std::string place) {
    if (std::cmp_not_equal(modes, pieces)) {
        throw Error(
            ErrorKind::BadInput,
            std::move(place),
            fmt::format("pipeline.recompute: {} for {}, expected one entry per stage",
                        counted(modes, "entry"),
                        counted(pieces, "stage")),
            {"for all stages alike, write one word: {}", {{"pipeline.recompute", "\"always\""}}})
            .about("pipeline.recompute");
    }
}

void require_list_of_each_piece(const std::string& key,
                                std::size_t lists,
                                int pieces,
                                std::string place) {
    if (std::cmp_not_equal(lists, pieces)) {
        throw Error(ErrorKind::BadInput,
                    std::move(place),
                    fmt::format("{}: {} for {}, expected one list per stage",
                                key,
                                counted(lists, "list"),
                                counted(pieces, "stage")),
                    "for all stages alike, write one list of words")
            .about(key);
    }
}

namespace {

Model layers_model(const Scenario::ModelPart& part) {
    Model model = Model::graph(part.input, part.layers);
    if (!ends_with_loss(model.layer(model.layer_count() - 1).spec)) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"model.layer"},
                    "the last layer is not a cross_entropy, expected the loss there",
                    "end with [[model.layer]] type = \"cross_entropy\"");
    }
    return model;
}

Model profile_model(const ScenarioParts& scenario, const Profile* profile) {
    PIPETWIN_EXPECT(profile != nullptr, "a model of kind profile needs the profile");
    std::vector<Model::Named> layers;
    layers.reserve(profile->layers.size());
    for (const LayerCost& layer : profile->layers) {
        layers.push_back({layer.name, layer.inputs});
    }
    try {
        return Model::opaque(layers);
    } catch (const Error& error) {
        throw error.at(scenario.model.profile.string());
    }
}

}  // namespace

int ScenarioParts::ModelPart::tokens_per_sample() const {
    switch (kind) {
        case ModelKind::Gpt:
            return gpt.context;
        case ModelKind::Llama:
        case ModelKind::Moe:
            return llama.context;
        case ModelKind::Translation:
            return translation.source_context + translation.target_context;
        case ModelKind::Layers:
            return input.token_ids ? input.positions : 0;
        default:
            return 0;
    }
}

Model scenario_model(const ScenarioParts& scenario, const Profile* profile) {
    switch (scenario.model.kind) {
        case ModelKind::Gpt:
            return gpt_model(scenario.model.gpt);
        case ModelKind::Llama:
        case ModelKind::Moe:
            return llama_model(scenario.model.llama);
        case ModelKind::Translation:
            return translation_model(scenario.model.translation);
        case ModelKind::Mlp:
            return mlp_model(scenario.model.sizes);
        case ModelKind::Layers:
            return layers_model(scenario.model);
        case ModelKind::Profile:
            return profile_model(scenario, profile);
        default:
            return Model::graph(scenario.model.input, image_model_layers(scenario.model));
    }
}

int replica_batch(const ScenarioParts& scenario, int replicas) {
    const int batch = scenario.training.batch;
    if (batch % replicas != 0) {
        throw Error(
            ErrorKind::BadInput,
            scenario.file.string(),
            fmt::format("training.batch = {} cannot be shared out to pipeline.data_parallel "
                        "= {} replicas",
                        batch,
                        replicas),
            {fmt::format("set batch to a multiple of {0}, such as {1}",
                         replicas,
                         (batch / replicas + 1) * replicas),
             {{"training.batch", fmt::to_string((batch / replicas + 1) * replicas)}}})
            .about("training.batch");
    }
    return batch / replicas;
}

bool has_schedule_file(const Scenario& scenario) {
    return is_schedule_file(scenario.pipeline.schedule.value_or(""));
}

namespace {

/// "'embedding', 'block0', ..., 'head'"
std::string shown_layers(const std::vector<std::string>& names) {
    constexpr std::size_t most_shown = 3;
    const std::size_t shown = std::min(names.size(), most_shown);
    std::string text = fmt::format(
        "'{}'",
        fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "', '"));
    if (names.size() > most_shown) {
        text +=
            fmt::format("{} '{}'", names.size() > most_shown + 1 ? ", ...," : ",", names.back());
    }
    return text;
}

/// The sums that a list may have, and so what one of its entries means for this model.
std::string expected_sums(const std::optional<ModelBlocks>& blocks,
                          const std::vector<std::string>& names) {
    const std::string layers = fmt::format("{} (units: {})", names.size(), shown_layers(names));
    return blocks ? fmt::format(
                        "{} (whole blocks; the units before and after them go with the "
                        "first and the last stage) or {}",
                        blocks->count(),
                        layers)
                  : layers;
}

}  // namespace

Partition written_partition(const std::vector<int>& pieces,
                            std::optional<int> expected,
                            const Model& model) {
    const std::vector<std::string>& names = model.layer_names();
    const std::optional<ModelBlocks> blocks = model_blocks(names);
    const auto refuse = [&](const std::string& what) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"pipeline.partition"},
                    what,
                    {"let the balancer choose: {}", {{"pipeline.partition", "\"auto\""}}});
    };
    if (expected && std::ssize(pieces) != *expected) {
        refuse(
            fmt::format("{} {} for {}, expected one entry per stage, in the order of the model, "
                        "which together make {}",
                        pieces.size(),
                        pieces.size() == 1 ? "entry" : "entries",
                        counted(*expected, "stage"),
                        expected_sums(blocks, names)));
    }
    if (blocks) {
        if (std::optional<std::vector<int>> layers = layers_of_blocks(*blocks, pieces)) {
            return Partition(*std::move(layers), model.layer_count());
        }
    }
    const auto sum = std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0});
    const bool counts_blocks = blocks && sum == blocks->count();
    if (sum != model.layer_count() && !counts_blocks) {
        refuse(fmt::format("[{}] sums to {}, expected {}",
                           fmt::join(pieces, ", "),
                           sum,
                           expected_sums(blocks, names)));
    }
    const auto empty = std::ranges::find(pieces, 0);
    if (empty != pieces.end()) {
        refuse(fmt::format("stage {} has 0 {}, so it would be empty, expected at least 1",
                           empty - pieces.begin(),
                           counts_blocks ? "whole blocks" : "units"));
    }
    return Partition(pieces, model.layer_count());
}

std::optional<Partition> scenario_partition(const Scenario& scenario, const Model& model) {
    const auto& written = scenario.pipeline.partition.known();
    return written ? std::optional(written_partition(*written, scenario.pipeline.pieces(), model))
                   : std::nullopt;
}

}  // namespace pipetwin
