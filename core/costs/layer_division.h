// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

/// How devices share the layers of a model, the tokens of a sample and the experts of a layer.
/// Sizes of groups and who is in them: core/grid/parallel_grids.h.
namespace pipetwin {

/// How devices that have parts of one sample bring queries, keys and values together.
enum class ContextMethod {
    Ring,          ///< keys and values go round, beside the attention of those that came before
    AllGather,     ///< every device gathers all keys and values first
    AllToAll,      ///< every device has whole samples of some heads (Ulysses)
    RingAllToAll,  ///< heads inside a node, a ring of nodes
};

inline constexpr std::array<std::string_view, 4> context_methods{
    "ring", "all-gather", "all-to-all", "ring+all-to-all"};

/// The word in scenarios: "ring".
constexpr std::string_view to_string(ContextMethod method) {
    return context_methods[static_cast<std::size_t>(method)];
}

/// What sends the rows of tokens to the devices of their experts, and back.
enum class ExpertDispatch {
    Nccl,     ///< an all-to-all: a token goes to each of its experts on its own
    DeepEp,   ///< a token crosses once to each other node that has experts of it
    HybridEp  ///< as DeepEP, with NVLink domains of several nodes
};

inline constexpr std::array<std::string_view, 3> expert_dispatches{"nccl", "deepep", "hybridep"};

/// The word in scenarios: "nccl".
constexpr std::string_view to_string(ExpertDispatch dispatch) {
    return expert_dispatches[static_cast<std::size_t>(dispatch)];
}

/// Rows that the experts of the fullest device get.
struct ExpertLoad {
    double fullest = 1;              ///< device over the mean; 1: all get the same
    std::vector<double> of_block{};  ///< [block]: the same, in place of `fullest`; empty: of all
    double capacity = 0;  ///< rows of an expert over the mean, all of which are computed; 0: no cap
    int padding = 1;      ///< rows of an expert are filled up to a multiple of this

    double fullest_in(int block) const {
        return of_block.empty() ? fullest : of_block.at(static_cast<std::size_t>(block));
    }

    bool operator==(const ExpertLoad&) const = default;
};

/// Parts of a block whose results a forward drops and a backward computes again, by Megatron-LM's
/// words (megatron/core/transformer/transformer_config.py, recompute_modules).
enum class RecomputeModule {
    CoreAttention,  ///< scores, softmax and the products with them
    Norms,          ///< results of norms as wide as the model
    LatentUp,       ///< queries, keys and values of latent attention, up-projected
    FeedForward,    ///< of a dense block: all but its input
    ExpertActivation,
    Experts,        ///< router, messages and experts: all but the layer's input
    SharedExperts,  ///< that every token goes through
};

inline constexpr std::array<std::string_view, 7> recompute_module_words{
    "core_attn", "layernorm", "mla_up_proj", "mlp", "moe_act", "moe", "shared_experts"};

/// Some of the modules, each in all blocks of a stage or in the first ones that have it.
class RecomputeModules {
  public:
    static constexpr int all_blocks = std::numeric_limits<int>::max();

    bool has(RecomputeModule module) const { return blocks(module) > 0; }
    /// Blocks in which the module is computed again; `all_blocks`: in every one.
    int blocks(RecomputeModule module) const {
        return blocks_.at(static_cast<std::size_t>(module));
    }
    bool empty() const { return *this == RecomputeModules{}; }
    /// Whether no module is in some blocks of a stage only.
    bool is_of_all_blocks() const {
        return std::ranges::all_of(blocks_,
                                   [](int blocks) { return blocks == 0 || blocks == all_blocks; });
    }
    void add(RecomputeModule module, int blocks = all_blocks) {
        blocks_.at(static_cast<std::size_t>(module)) = blocks;
    }

    bool operator==(const RecomputeModules&) const = default;

  private:
    std::array<int, recompute_module_words.size()> blocks_{};
};

/// The words of a list, with the number of blocks where that is not all of them: "mlp:3".
std::vector<std::string> words_of(const RecomputeModules& modules);

/// Modules whose inputs go to host memory in a forward and come back in the backward, by
/// Megatron-LM's words (megatron/core/transformer/transformer_config.py, offload_modules).
enum class OffloadModule {
    AttentionNorm,        ///< norms before attention: the block's input
    QkvLinear,            ///< the product that makes queries, keys and values
    CoreAttention,        ///< queries, keys and values
    AttentionProjection,  ///< what attention made
    FeedForwardNorm,      ///< norms before a feed-forward half or experts
    ExpertFirst,          ///< the first product of experts: rows of tokens
    ExpertActivation,     ///< what the first product of experts makes
};

inline constexpr std::array<std::string_view, 7> offload_module_words{
    "attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"};

/// Some of the modules.
class OffloadModules {
  public:
    bool has(OffloadModule module) const { return (bits_ & bit(module)) != 0; }
    bool empty() const { return bits_ == 0; }
    void add(OffloadModule module) { bits_ |= bit(module); }

    bool operator==(const OffloadModules&) const = default;

  private:
    static unsigned bit(OffloadModule module) { return 1U << static_cast<unsigned>(module); }

    unsigned bits_ = 0;
};

/// The words of a list.
std::vector<std::string> words_of(const OffloadModules& modules);

/// Lists of modules: none, one for all stages, or one for each piece of the model.
struct ModuleLists {
    std::vector<RecomputeModules> of_piece{};
    /// A search of plans decides: costs are known by module, whatever the lists say.
    bool as_needed = false;

    /// The list of a piece; the empty one where there is none.
    RecomputeModules of(int piece) const {
        return of_piece.empty()       ? RecomputeModules{}
               : of_piece.size() == 1 ? of_piece.front()
                                      : of_piece.at(static_cast<std::size_t>(piece));
    }
    bool empty() const {
        return std::ranges::all_of(of_piece, [](const auto& list) { return list.empty(); });
    }

    bool operator==(const ModuleLists&) const = default;
};

/// The part of every layer that one device computes.
struct LayerDivision {
    int tensor = 1;                  ///< TP: devices that share each layer
    bool sequence_parallel = false;  ///< these divide the tokens between layers
    int context = 1;                 ///< CP: devices that have parts of each sample
    ContextMethod context_method = ContextMethod::Ring;
    int context_ring = 1;   ///< RingAllToAll: nodes of the ring; the others share heads
    int expert = 1;         ///< EP: groups that have parts of a layer's experts
    int expert_tensor = 1;  ///< ETP: devices that share each expert
    ExpertDispatch dispatch = ExpertDispatch::Nccl;  ///< where several groups have experts
    ExpertLoad load{};
    bool by_module = false;  ///< costs say what single modules keep (`LayerSample::modules`)

    /// Whether layers are divided by TP alone, as the samples of any profile say it.
    bool is_of_tensor_alone() const {
        return context == 1 && expert == 1 && expert_tensor == tensor && load == ExpertLoad{};
    }

    /// Whether the samples of any profile do not say what one device has: they are estimated anew.
    bool needs_estimate() const { return !is_of_tensor_alone() || by_module; }

    bool operator==(const LayerDivision&) const = default;
};

}  // namespace pipetwin
