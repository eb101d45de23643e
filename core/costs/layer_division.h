// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
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

/// Some of the modules.
class RecomputeModules {
  public:
    bool has(RecomputeModule module) const { return (bits_ & bit(module)) != 0; }
    bool empty() const { return bits_ == 0; }
    void add(RecomputeModule module) { bits_ |= bit(module); }

    bool operator==(const RecomputeModules&) const = default;

  private:
    static unsigned bit(RecomputeModule module) { return 1U << static_cast<unsigned>(module); }

    unsigned bits_ = 0;
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
    ExpertLoad load{};
    RecomputeModules recompute{};

    /// Whether layers are divided by TP alone, as the samples of any profile say it.
    bool is_of_tensor_alone() const {
        return context == 1 && expert == 1 && expert_tensor == tensor && load == ExpertLoad{};
    }

    /// Whether the samples of any profile do not say what one device has: they are estimated anew.
    bool needs_estimate() const { return !is_of_tensor_alone() || !recompute.empty(); }

    bool operator==(const LayerDivision&) const = default;
};

}  // namespace pipetwin
