// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

/// The kinds of kernels between which training libraries differ, and the words for them.
namespace pipetwin {

/// How attention is computed.
enum class AttentionKernels {
    Flash,    ///< block by block: no score is written to memory
    Standard  ///< scores, softmax and dropout are kernels of their own, and keep what they make
};

/// How the loss is computed from the logits.
enum class LossKernels {
    Fused,    ///< one kernel each way: the logits become their gradient in place
    Standard  ///< kernels of their own, as PyTorch's cross-entropy over logits in fp32 has them
};

/// Kernels between the products of a block, and what they keep.
enum class BlockKernels {
    Fused,     ///< one for each norm, rotation and activation, as training libraries have them
    Compiled,  ///< as Fused, and a compiler keeps nothing that no backward reads: torch.compile
    Eager      ///< PyTorch's operators one by one: norms and rotations pass through fp32
};

/// Words of the kinds, in the order of their enums.
inline constexpr std::array<std::string_view, 2> attention_words{"flash", "standard"};
inline constexpr std::array<std::string_view, 2> loss_words{"fused", "standard"};
inline constexpr std::array<std::string_view, 3> block_words{"fused", "compiled", "eager"};

}  // namespace pipetwin
