// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/torchtitan_stages.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/word_list.h"
#include "core/interop/launch/setting_values.h"

namespace pipetwin {

namespace {

struct Flavor {
    std::string_view model;
    std::string_view flavor;
    int blocks;
    std::string_view shipped{};  ///< its name in profiles/models
};

constexpr auto flavors = std::to_array<Flavor>({
    {"llama3", "debugmodel", 6},
    {"llama3", "8B", 32, "llama-3.1-8b"},
    {"llama3", "70B", 80, "llama-3.1-70b"},
    {"llama3", "405B", 126, "llama-3.1-405b"},
    {"deepseek_v3", "16B", 27},
    {"deepseek_v3", "236B", 60},
    {"deepseek_v3", "671B", 61},
    {"qwen3", "0.6B", 28},
    {"qwen3", "1.7B", 28},
    {"qwen3", "4B", 36},
    {"qwen3", "8B", 36, "qwen3-8b"},
    {"qwen3", "14B", 40},
    {"qwen3", "32B", 64},
});

[[noreturn]] void refuse_stages(const std::string& place, std::string what, std::string hint) {
    throw Error(ErrorKind::Infeasible, place, std::move(what), std::move(hint));
}

/// The number of a layer, "layers.7"; none for other modules.
std::optional<int> layer_of(std::string_view module, const std::string& place) {
    constexpr std::string_view prefix = "layers.";
    if (!module.starts_with(prefix)) {
        return std::nullopt;
    }
    const std::optional<int> layer = whole_in(module.substr(prefix.size()));
    if (!layer || *layer < 0) {
        refuse_stages(place,
                      fmt::format("'{}' names no layer", module.substr(0, 60)),
                      "torchtitan knows whole layers, as in layers.7");
    }
    return layer;
}

void expect_all_layers(const std::map<int, std::size_t>& stage_of_layer,
                       const TitanModel& model,
                       const std::string& place) {
    const std::optional<int>& blocks = model.blocks;
    if (blocks && !stage_of_layer.empty() && stage_of_layer.rbegin()->first >= *blocks) {
        const auto& [layer, stage] = *stage_of_layer.rbegin();
        refuse_stages(
            place,
            fmt::format(
                "'layers.{}' is in stage {}, but the layers of {} are layers.0 to layers.{}",
                layer,
                stage,
                model.name,
                *blocks - 1),
            "take it out of the list");
    }
    const auto known = static_cast<int>(stage_of_layer.size());
    const int layers = blocks ? *blocks : std::max(1, known);
    std::size_t stage = 0;
    for (int layer = 0; layer < layers; ++layer) {
        const auto found = stage_of_layer.find(layer);
        if (found == stage_of_layer.end()) {
            refuse_stages(place,
                          fmt::format("no stage has 'layers.{}'", layer),
                          "torchtitan leaves out what no stage names: add it to one");
        }
        if (found->second < stage) {
            refuse_stages(place,
                          fmt::format("'layers.{}' is in stage {}, in front of 'layers.{}' in "
                                      "stage {}",
                                      layer,
                                      found->second,
                                      layer - 1,
                                      stage),
                          "torchtitan runs the stages in turn: put the layers in order");
        }
        stage = found->second;
    }
}

/// The modules around the layers of the models that are known here.
void expect_ends(const std::map<std::string, std::size_t, std::less<>>& stage_of,
                 const std::string& place) {
    const bool has_head = stage_of.contains("output") || stage_of.contains("lm_head");
    const std::string_view missing = !stage_of.contains("tok_embeddings") ? "tok_embeddings"
                                     : !stage_of.contains("norm")         ? "norm"
                                     : !has_head                          ? "output"
                                                                          : "";
    if (!missing.empty()) {
        refuse_stages(place,
                      fmt::format("no stage has '{}'", missing),
                      fmt::format("torchtitan leaves out what no stage names: add it to the {} "
                                  "stage",
                                  missing == "tok_embeddings" ? "first" : "last"));
    }
}

}  // namespace

TitanModel titan_model(std::string_view name, std::string_view flavor) {
    TitanModel model{.name = fmt::format("{} {}", name, flavor), .blocks = {}, .shipped = {}};
    for (const Flavor& known : flavors) {
        if (known.model == name && known.flavor == flavor) {
            model.blocks = known.blocks;
            model.shipped = known.shipped;
        }
    }
    return model;
}

std::vector<int> titan_blocks(
    int blocks, int stages, int less_first, int less_last, const std::string& place) {
    if (stages == 1) {
        return {blocks};
    }
    const std::int64_t all = std::int64_t{blocks} + less_first + less_last;
    const auto least = static_cast<int>(all / stages);  // of two stages or more
    if (least == 0 || less_first > least || less_last > least) {
        refuse_stages(place,
                      fmt::format("{}, and embedding and head as {} and {}, for {} stages",
                                  counted(blocks, "layer"),
                                  less_first,
                                  less_last,
                                  stages),
                      "torchtitan refuses this, too: take fewer stages");
    }
    std::vector<int> of_stages(as_index(stages), least);
    for (int stage = 0; stage < all % stages; ++stage) {
        ++of_stages[as_index(stage)];
    }
    of_stages.front() -= less_first;
    of_stages.back() -= less_last;
    return of_stages;
}

std::vector<int> titan_blocks_before_2025(int blocks, int stages, const std::string& place) {
    if (stages > blocks) {
        refuse_stages(place,
                      fmt::format("{} for {}", counted(blocks, "layer"), counted(stages, "stage")),
                      "torchtitan refuses this, too: take fewer stages");
    }
    std::vector<int> of_stages(as_index(stages), blocks / stages);
    int extra = blocks % stages;
    for (int stage = 1; stage + 1 < stages && extra > 0; ++stage, --extra) {
        ++of_stages[as_index(stage)];
    }
    of_stages.back() += extra;
    return of_stages;
}

std::vector<int> titan_split_points(const std::vector<std::string>& texts,
                                    const TitanModel& model,
                                    const std::string& place) {
    std::vector<int> points;
    for (std::string text : texts) {
        std::ranges::replace(text, ',', ' ');
        for (const std::string_view module : words_in(text)) {
            const bool is_behind = module == "norm" || module == "output";
            const std::optional<int> layer = is_behind ? model.blocks : layer_of(module, place);
            if (!layer || (!points.empty() && *layer <= points.back()) ||
                (model.blocks && *layer > *model.blocks)) {
                refuse_stages(place,
                              fmt::format("'{}' begins no stage behind the one before it",
                                          module.substr(0, 60)),
                              "name layers of the model in order, as in layers.8");
            }
            points.push_back(*layer);
        }
    }
    return points;
}

std::vector<int> titan_blocks_between(const std::vector<int>& points, const TitanModel& model) {
    std::vector<int> blocks;
    for (std::size_t i = 0; model.blocks && i <= points.size(); ++i) {
        const int begin = i > 0 ? points[i - 1] : 0;
        blocks.push_back((i < points.size() ? points[i] : *model.blocks) - begin);
    }
    return blocks;
}

std::vector<int> titan_blocks_of_modules(const std::vector<std::string>& stages,
                                         const TitanModel& model,
                                         const std::string& place) {
    std::vector<int> blocks(stages.size());
    std::map<std::string, std::size_t, std::less<>> stage_of;
    std::map<int, std::size_t> stage_of_layer;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
        for (const std::string_view module : words_in(stages[stage])) {
            const std::optional<int> layer = layer_of(module, place);
            const auto [first, is_new] = stage_of.emplace(module, stage);
            if (!is_new) {
                refuse_stages(place,
                              fmt::format("'{}' is in stage {} and again in stage {}",
                                          module.substr(0, 60),
                                          first->second,
                                          stage),
                              "keep it in one of them");
            }
            if (layer) {
                stage_of_layer.emplace(*layer, stage);
                ++blocks[stage];
            }
        }
    }
    expect_all_layers(stage_of_layer, model, place);
    if (model.blocks) {
        expect_ends(stage_of, place);
    }
    return blocks;
}

}  // namespace pipetwin
