#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "exec/cuda/cudnn/cudnn_loaded.h"
#include "exec/cuda/kernels/attention/attention.h"

/// Causal self-attention in bf16 by cuDNN's flash attention, for what
/// exec/cuda/kernels/attention/attention.h describes: the same operands, the same log sums, so that
/// each direction may be cuDNN's or our own. cuDNN is looked for at run time; where it is missing,
/// or knows no plan that repeats its bits, our own kernels are taken and `describe` says why.
///
/// Nothing here needs cuDNN's headers: without them exec/cuda/cudnn/cudnn_absent.cpp takes the
/// places of the files that do.
namespace pipetwin::cuda {

/// Which half of attention a plan computes.
enum class AttentionDirection : std::uint8_t { Forward, Backward };

/// cuDNN's plans for attention on one rank's lane, one per shape and direction. Used by one thread
/// at a time, with the lane's context current.
class CudnnAttention {
  public:
    /// What decides whether cuDNN is used.
    struct Options {
        int compute_capability = 0;  ///< 90 for 9.0
        bool wanted = true;          ///< false: own kernels only
    };
    CudnnAttention(CudnnLoaded loaded, const Options& options);
    CudnnAttention(const CudnnAttention&) = delete;
    CudnnAttention& operator=(const CudnnAttention&) = delete;
    CudnnAttention(CudnnAttention&&) = delete;
    CudnnAttention& operator=(CudnnAttention&&) = delete;
    ~CudnnAttention();

    /// A plan that cuDNN found for a shape and a direction.
    struct Plan {
        int number = 0;
        std::size_t workspace_bytes = 0;  ///< of device memory, contents do not matter
    };
    /// The plan of a shape and a direction, searched for when first asked for; none: our own
    /// kernels compute it. Operands of a plan begin at multiples of 16 bytes.
    std::optional<Plan> plan(const AttentionShape& shape, AttentionDirection direction);

    /// "cuDNN 9.19.0", or "own kernels: " and why.
    std::string describe(const AttentionShape& shape, AttentionDirection direction);

    /// Operands of a forward, as those of attention_forward.
    struct Forward {
        const void* qkv;
        void* context;
        float* log_sums;
        void* workspace;
    };
    /// Operands of a backward, as those of attention_backward; `row_dots` is its scratch.
    struct Backward {
        const void* qkv;
        const void* context;
        const float* log_sums;
        const void* dcontext;
        void* dqkv;
        float* row_dots;
        void* workspace;
    };

    /// Runs the forward of a plan, by its number. Throws CudaFailure. Returns success: it is called
    /// by a CommandList.
    cudaError_t forward(int number, const Forward& operands, cudaStream_t stream);
    /// Runs the backward of a plan, by its number. Throws CudaFailure. Returns success.
    cudaError_t backward(int number, const Backward& operands, cudaStream_t stream);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pipetwin::cuda
