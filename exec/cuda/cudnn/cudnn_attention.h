// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "exec/cuda/cudnn/cudnn_loaded.h"
#include "exec/cuda/kernels/attention/attention.h"

/// Attention in bf16 by cuDNN's flash attention, for what exec/cuda/kernels/attention/attention.h
/// describes: the same operands, the same log sums, so that each direction may be cuDNN's or our
/// own. cuDNN is looked for at run time; where it is missing,
/// or knows no plan that repeats its bits, our own kernels are taken and `describe` says why.
///
/// Nothing here needs cuDNN's headers: without them exec/cuda/cudnn/cudnn_absent.cpp takes the
/// places of the files that do.
namespace pipetwin::cuda {

/// Which half of attention a plan computes.
enum class AttentionDirection : std::uint8_t { Forward, Backward };

/// One attention that a plan computes: its sizes, and the numbers from one row to the next of the
/// matrices that it reads and writes.
struct AttentionProblem {
    AttentionShape shape{};
    std::int64_t q_stride = 0;
    std::int64_t k_stride = 0;
    std::int64_t dq_stride = 0;
    std::int64_t dk_stride = 0;
    /// Sizes of the matrices, of which `shape` may be a part: some of the samples and heads.
    AttentionShape whole{};

    // NOLINTNEXTLINE(google-explicit-constructor): a shape alone has Q | K | V in one matrix
    AttentionProblem(const AttentionShape& of)
        : AttentionProblem(of, of.qkv_width(), of.qkv_width()) {}
    /// The gradients lie apart: dQ in one matrix, dK | dV in another.
    static AttentionProblem with_gradients_apart(const AttentionShape& of,
                                                 const AttentionInputs& inputs) {
        AttentionProblem made(of, inputs.q_stride, inputs.k_stride);
        made.dq_stride = of.query_width();
        made.dk_stride = 2 * of.key_width();
        return made;
    }
    /// A problem of the same matrices, of which fewer samples, and fewer heads of keys with those
    /// of their queries, are computed at once.
    AttentionProblem part(int samples, int key_value_heads) const {
        AttentionProblem made = *this;
        made.shape.samples = samples;
        made.shape.heads = key_value_heads * whole.group();
        made.shape.key_value_heads = key_value_heads;
        return made;
    }
    bool operator==(const AttentionProblem& other) const;

  private:
    AttentionProblem(const AttentionShape& of, std::int64_t q, std::int64_t k)
        : shape(of), q_stride(q), k_stride(k), dq_stride(q), dk_stride(k), whole(of) {}
};

/// cuDNN's plans for attention on one rank's lane, one per problem and direction. Used by one
/// thread at a time, with the lane's context current.
class CudnnAttention {
  public:
    /// What decides whether cuDNN is used.
    struct Options {
        int compute_capability = 0;  ///< 90 for 9.0
        bool wanted = true;          ///< false: own kernels only
        /// Bytes of workspace that a plan may take; 0: a 64th of the device's memory.
        std::size_t most_workspace = 0;
    };
    CudnnAttention(CudnnLoaded loaded, const Options& options);
    CudnnAttention(const CudnnAttention&) = delete;
    CudnnAttention& operator=(const CudnnAttention&) = delete;
    CudnnAttention(CudnnAttention&&) = delete;
    CudnnAttention& operator=(CudnnAttention&&) = delete;
    ~CudnnAttention();

    /// A plan that cuDNN found for a problem and a direction.
    struct Plan {
        int number = 0;
        std::size_t workspace_bytes = 0;  ///< of device memory, contents do not matter
        bool was_tried = false;
    };
    /// The plan of a problem and a direction, searched for when first asked for; none: our own
    /// kernels compute it. Operands of a plan begin at multiples of 16 bytes.
    std::optional<Plan> plan(const AttentionProblem& problem, AttentionDirection direction);

    /// "cuDNN 9.19.0", or "own kernels: " and why.
    std::string describe(const AttentionProblem& problem, AttentionDirection direction);

    /// Operands of a forward, as those of attention_forward.
    struct Forward {
        AttentionInputs inputs;
        void* context;
        float* log_sums;
        void* workspace;
    };
    /// Operands of a backward, as those of attention_backward; `row_dots` is its scratch. What it
    /// leaves in dK and dV at padding is undefined.
    struct Backward {
        AttentionInputs inputs;
        const void* context;
        const float* log_sums;
        const void* dcontext;
        AttentionGradients gradients;
        float* row_dots;
        void* workspace;
    };

    /// Runs a plan once and waits for it, since a library may refuse at run time what it has
    /// planned. False where it does: there is no plan for the problem any more. What the operands
    /// hold does not matter; outputs are written.
    bool passes(int number, const Forward& operands, cudaStream_t stream);
    bool passes(int number, const Backward& operands, cudaStream_t stream);

    /// Runs the forward of a plan, by its number. Throws CudaFailure. Returns success: it is called
    /// by a CommandList.
    cudaError_t forward(int number, const Forward& operands, cudaStream_t stream);
    /// Runs the backward of a plan, by its number. Throws CudaFailure. Returns success.
    cudaError_t backward(int number, const Backward& operands, cudaStream_t stream);

  private:
    template <class Run>
    bool passes(int number, cudaStream_t stream, const Run& run);

    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pipetwin::cuda
