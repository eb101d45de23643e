// SPDX-License-Identifier: Apache-2.0
#include "core/plan/layer_modules.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/partition/model_blocks.h"
#include "core/plan/layer_recompute.h"

namespace pipetwin {

bool ModuleRules::are_any() const {
    return recompute.as_needed || !recompute.empty() || recompute_only > 0 ||
           std::ranges::any_of(offload, [](const OffloadModules& list) { return !list.empty(); });
}

bool ModuleRules::depend_on_pieces() const {
    const auto is_of_some = [](const RecomputeModules& list) { return !list.is_of_all_blocks(); };
    return recompute.as_needed || recompute_only > 0 || recompute.of_piece.size() > 1 ||
           offload.size() > 1 || (!offload.empty() && offload_fraction < 1) ||
           std::ranges::any_of(recompute.of_piece, is_of_some);
}

std::vector<int> blocks_of_layers(const Model& model) {
    std::vector<int> blocks;
    int block = 0;
    for (const int layers : neighbours_of_one_name(model.layer_names())) {
        blocks.insert(blocks.end(), as_index(layers), block++);
    }
    return blocks;
}

namespace {

/// Layers `first` to `end` - 1 of a piece.
class PieceModules {
  public:
    PieceModules(const LayerSamples& samples, const std::vector<int>& blocks, int first, int end)
        : samples_(samples), blocks_(blocks), first_(first), end_(end) {}

    /// Calls `visit(modules of the layer)` for the layers of the first so many blocks that have the
    /// module.
    template <class Visit>
    void each(std::vector<ModuleBytes> LayerModules::*list,
              std::size_t module,
              int most_blocks,
              std::vector<ModulesOfLayer>& all,
              Visit visit) const {
        int begun = 0;
        int last = -1;
        for (int layer = first_; layer < end_; ++layer) {
            if (!has(list, module, layer)) {
                continue;
            }
            const int block = blocks_[as_index(layer)];
            begun += block != last ? 1 : 0;
            last = block;
            if (begun <= most_blocks) {
                visit(all[as_index(layer)]);
            }
        }
    }

    /// Blocks that have any of these inputs.
    int blocks_with(const OffloadModules& modules) const {
        std::set<int> blocks;
        for (int layer = first_; layer < end_; ++layer) {
            for (const ModuleBytes& input : samples_[as_index(layer)].modules.inputs) {
                if (modules.has(static_cast<OffloadModule>(input.module))) {
                    blocks.insert(blocks_[as_index(layer)]);
                }
            }
        }
        return static_cast<int>(blocks.size());
    }

  private:
    bool has(std::vector<ModuleBytes> LayerModules::*list, std::size_t module, int layer) const {
        const std::vector<ModuleBytes>& modules = samples_[as_index(layer)].modules.*list;
        return std::ranges::find(modules, module, &ModuleBytes::module) != modules.end();
    }

    const LayerSamples& samples_;
    const std::vector<int>& blocks_;
    int first_;
    int end_;
};

/// Blocks of `all` that a fraction of them means.
int first_blocks(int all, double fraction) {
    constexpr double rounding = 1e-9;
    return all - static_cast<int>(std::floor(all * (1 - fraction) + rounding));
}

/// Marks the layers of all blocks behind the first `count` ones that a piece has of those that can
/// be computed again.
void keep_later_blocks(const Model& model,
                       const Partition& partition,
                       int count,
                       std::vector<ModulesOfLayer>& all) {
    if (!model.is_chain()) {
        throw Error(ErrorKind::Infeasible,
                    KeyValue{"pipeline.recompute_only", fmt::to_string(count)},
                    "the model has branches, of which all blocks are computed again or none",
                    "leave it out");
    }
    const std::vector<LayerRange> blocks = recomputed_blocks(model);
    for (int piece = 0; piece < partition.stage_count(); ++piece) {
        const int first = partition.first_layer(piece);
        const int end = first + partition.layers_in(piece);
        int begun = 0;
        for (const LayerRange& block : blocks) {
            const int own_end = std::min(block.end, end);
            const int own_first = std::max(block.first, first);
            begun += own_first < own_end ? 1 : 0;
            for (int layer = own_first; layer < own_end; ++layer) {
                all[as_index(layer)].keeps = begun > count;
            }
        }
    }
}

}  // namespace

std::vector<ModulesOfLayer> modules_of_layers(const Model& model,
                                              const LayerSamples& samples,
                                              const Partition& partition,
                                              const ModuleRules& rules) {
    std::vector<ModulesOfLayer> all =
        modules_of_layers(samples, blocks_of_layers(model), partition, rules);
    if (rules.recompute_only > 0) {
        keep_later_blocks(model, partition, rules.recompute_only, all);
    }
    return all;
}

std::vector<ModulesOfLayer> modules_of_layers(const LayerSamples& samples,
                                              const std::vector<int>& blocks,
                                              const Partition& partition,
                                              const ModuleRules& rules) {
    std::vector<ModulesOfLayer> all(samples.size());
    for (int piece = 0; piece < partition.stage_count(); ++piece) {
        const int first = partition.first_layer(piece);
        const PieceModules of(samples, blocks, first, first + partition.layers_in(piece));
        const RecomputeModules recompute = rules.recompute.of(piece);
        for (std::size_t module = 0; module < recompute_module_words.size(); ++module) {
            const auto word = static_cast<RecomputeModule>(module);
            of.each(&LayerModules::made,
                    module,
                    recompute.blocks(word),
                    all,
                    [word](ModulesOfLayer& layer) { layer.recompute.add(word); });
        }
        if (rules.offload.empty()) {
            continue;
        }
        const OffloadModules& offload =
            rules.offload.size() == 1 ? rules.offload.front() : rules.offload.at(as_index(piece));
        const int most = first_blocks(of.blocks_with(offload), rules.offload_fraction);
        for (std::size_t module = 0; module < offload_module_words.size(); ++module) {
            const auto word = static_cast<OffloadModule>(module);
            if (offload.has(word)) {
                of.each(&LayerModules::inputs, module, most, all, [word](ModulesOfLayer& layer) {
                    layer.offload.add(word);
                });
            }
        }
    }
    return all;
}

namespace {

/// Whether a module is computed again by itself, and not along with all of its layer's experts.
bool is_alone(RecomputeModule module, const RecomputeModules& all) {
    const bool is_inside =
        module == RecomputeModule::ExpertActivation || module == RecomputeModule::SharedExperts;
    return !(is_inside && all.has(RecomputeModule::Experts));
}

void drop(LayerSample& sample, const RecomputeModules& modules) {
    Bytes dropped;
    Duration again{};
    Duration sent{};
    for (const ModuleBytes& made : sample.modules.made) {
        const auto module = static_cast<RecomputeModule>(made.module);
        if (!modules.has(module) || !is_alone(module, modules)) {
            continue;
        }
        dropped += made.bytes;
        again += made.forward;
        if (module == RecomputeModule::Experts) {
            sent = sample.messages.forward_sums;
        }
    }
    if (dropped > Bytes{} || again > Duration{}) {
        rebuild(sample, sample.saved - dropped, again + sent);
        sample.messages.backward_sums += sent;
    }
}

/// Whether recompute makes the input of a module again, so that it is not kept.
bool is_made_again(OffloadModule module, const RecomputeModules& recompute) {
    switch (module) {
        case OffloadModule::QkvLinear:
            return recompute.has(RecomputeModule::Norms);
        case OffloadModule::CoreAttention:
            return recompute.has(RecomputeModule::LatentUp);
        case OffloadModule::ExpertFirst:
        case OffloadModule::ExpertActivation:
            return recompute.has(RecomputeModule::Experts);
        case OffloadModule::AttentionNorm:
        case OffloadModule::AttentionProjection:
        case OffloadModule::FeedForwardNorm:
            return false;
    }
    return false;
}

Bytes offloaded(const LayerSample& sample, const ModulesOfLayer& modules) {
    Bytes all;
    for (const ModuleBytes& input : sample.modules.inputs) {
        const auto module = static_cast<OffloadModule>(input.module);
        if (modules.offload.has(module) && !is_made_again(module, modules.recompute)) {
            all += input.bytes;
        }
    }
    return std::min(all, sample.saved);
}

Duration copy_time(const std::optional<LinkCost>& link, Bytes bytes) {
    return link && bytes > Bytes{}
               ? Duration{std::llround(message_ns(*link, static_cast<double>(bytes.count)))}
               : Duration{};
}

/// Layers `first` to `end` - 1 of one block, whose inputs `bytes` [layer - first] go to host
/// memory.
void offload_block(LayerSamples& samples,
                   std::size_t first,
                   const std::vector<Bytes>& bytes,
                   const std::optional<LinkCost>& host_link) {
    const Bytes of_block = std::accumulate(bytes.begin(), bytes.end(), Bytes{});
    if (of_block == Bytes{}) {
        return;
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        LayerSample& sample = samples[first + i];
        rebuild(sample, sample.saved - bytes[i], Duration{});
        sample.workspace += 2 * of_block - bytes[i];
    }
    add_copies(samples, first, first + bytes.size(), of_block, host_link);
}

}  // namespace

void add_copies(LayerSamples& samples,
                std::size_t first,
                std::size_t end,
                Bytes bytes,
                const std::optional<LinkCost>& host_link) {
    Duration forward{};
    Duration backward{};
    for (std::size_t layer = first; layer < end; ++layer) {
        forward += samples[layer].forward;
        backward += samples[layer].backward();
    }
    const Duration copies = copy_time(host_link, bytes);
    samples[end - 1].forward += std::max(Duration{}, copies - forward);
    samples[first].backward_input += std::max(Duration{}, copies - backward);
}

LayerSamples with_modules(LayerSamples samples,
                          const std::vector<int>& blocks,
                          const std::vector<ModulesOfLayer>& modules,
                          const std::optional<LinkCost>& host_link) {
    for (std::size_t layer = 0; layer < samples.size(); ++layer) {
        drop(samples[layer], modules[layer].recompute);
    }
    std::vector<Bytes> of_block;
    for (std::size_t layer = 0; layer < samples.size(); ++layer) {
        of_block.push_back(offloaded(samples[layer], modules[layer]));
        if (layer + 1 == samples.size() || blocks[layer + 1] != blocks[layer]) {
            offload_block(samples, layer + 1 - of_block.size(), of_block, host_link);
            of_block.clear();
        }
    }
    return samples;
}

}  // namespace pipetwin
