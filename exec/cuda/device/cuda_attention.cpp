// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "exec/cuda/device/lane.h"
#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/kernels/cuda_kernels.h"

/// Attention on one rank's lane: by cuDNN where it has a plan, else by our own kernels.
namespace pipetwin::cuda {
namespace {

using exec::ConstView;
using exec::View;

AttentionShape shape_of(const exec::AttentionShape& shape) {
    return {.samples = shape.samples,
            .positions = shape.positions,
            .heads = shape.heads,
            .key_value_heads = shape.key_value_heads,
            .head_size = shape.head_size};
}

AttentionShape shape_of(const exec::PaddedAttentionShape& shape) {
    return {.samples = shape.samples,
            .positions = shape.positions,
            .heads = shape.heads,
            .key_value_heads = shape.heads,
            .head_size = shape.head_size,
            .padded_keys = shape.key_positions};
}

AttentionInputs inputs_of(const exec::ConstColumns& q,
                          const exec::ConstColumns& k,
                          ConstView lengths) {
    return {.q = first_of(q),
            .k = first_of(k),
            .q_stride = q.matrix.columns,
            .k_stride = k.matrix.columns,
            .lengths = lengths.as<std::int32_t>()};
}

/// The bytes of a matrix without gaps, up to where the next one may begin.
std::size_t aligned_bytes(Real real, std::int64_t rows, std::int64_t columns) {
    const std::int64_t bytes = rows * columns * (real == Real::F32 ? 4 : 2);
    return static_cast<std::size_t>((bytes + 15) / 16 * 16);
}

/// Queries and keys stand side by side at the beginning of a row.
Rotation rotation_of(const exec::AttentionShape& shape, const Rotary& rotary, exec::Turn turn) {
    Rotation rotation{.rows = std::int64_t{shape.samples} * shape.positions,
                      .stride = shape.qkv_width(),
                      .positions = shape.positions,
                      .heads = shape.heads + shape.key_value_heads,
                      .pairs = shape.head_size / 2};
    PIPETWIN_EXPECT(rotation.pairs <= most_rotary_pairs, "heads that the kernels take");
    for (int pair = 0; pair < rotation.pairs; ++pair) {
        const double frequency = rotary_frequency(rotary, pair, shape.head_size);
        rotation.frequencies[pair] = turn == exec::Turn::Forward ? frequency : -frequency;
    }
    return rotation;
}

cudaError_t attend_listed(CudnnAttention* attention,
                          int number,
                          CudnnAttention::Forward operands,
                          cudaStream_t stream) {
    return attention->forward(number, operands, stream);
}

cudaError_t attend_back_listed(CudnnAttention* attention,
                               int number,
                               CudnnAttention::Backward operands,
                               cudaStream_t stream) {
    return attention->backward(number, operands, stream);
}

/// What a forward gave, and the gradient of the context.
struct AttentionOutputs {
    ConstView softmax;
    ConstView context;
    ConstView dcontext;
};

/// A call of cuDNN.
template <class Operands>
struct CudnnAttentionCall {
    int number = 0;
    Operands operands;
};

/// The call of cuDNN for an attention, if it has a plan that can be run; cuDNN has flash attention
/// for half precision only. `operands` lacks the workspace. A plan that was never run before is
/// tried, behind all that is listed: what it writes is written again when the list runs.
template <class Operands>
std::optional<CudnnAttentionCall<Operands>> cudnn_call(Lane& lane,
                                                       Real real,
                                                       const AttentionProblem& problem,
                                                       AttentionDirection direction,
                                                       Operands operands) {
    const auto plan = real == Real::BF16 ? lane.attention().plan(problem, direction) : std::nullopt;
    if (!plan) {
        return std::nullopt;
    }
    operands.workspace = lane.cudnn_scratch(plan->workspace_bytes);
    if (!plan->was_tried) {
        lane.finish();
        if (!lane.attention().passes(plan->number, operands, lane.stream())) {
            return std::nullopt;
        }
    }
    return CudnnAttentionCall<Operands>{plan->number, operands};
}

void attend(Lane& lane,
            Real real,
            const AttentionProblem& problem,
            const AttentionInputs& inputs,
            View softmax,
            View context) {
    const CudnnAttention::Forward operands{.inputs = inputs,
                                           .context = context.data,
                                           .log_sums = softmax.as<float>(),
                                           .workspace = nullptr};
    if (const auto call = cudnn_call(lane, real, problem, AttentionDirection::Forward, operands)) {
        lane.list().add(
            "cudnnBackendExecute", attend_listed, &lane.attention(), call->number, call->operands);
        return;
    }
    lane.list().add("attention_forward",
                    cuda::attention_forward,
                    real,
                    problem.shape,
                    inputs,
                    context.data,
                    softmax.as<float>());
}

void attend_back(Lane& lane,
                 Real real,
                 const AttentionProblem& problem,
                 const AttentionInputs& inputs,
                 const AttentionOutputs& outputs,
                 const AttentionGradients& gradients,
                 float* row_dots) {
    const CudnnAttention::Backward operands{.inputs = inputs,
                                            .context = outputs.context.data,
                                            .log_sums = outputs.softmax.as<float>(),
                                            .dcontext = outputs.dcontext.data,
                                            .gradients = gradients,
                                            .row_dots = row_dots,
                                            .workspace = nullptr};
    const auto call = cudnn_call(lane, real, problem, AttentionDirection::Backward, operands);
    if (!call) {
        lane.list().add("attention_backward",
                        cuda::attention_backward,
                        real,
                        problem.shape,
                        inputs,
                        outputs.context.data,
                        outputs.softmax.as<float>(),
                        outputs.dcontext.data,
                        gradients,
                        row_dots);
        return;
    }
    lane.list().add(
        "cudnnBackendExecute", attend_back_listed, &lane.attention(), call->number, call->operands);
    if (!problem.shape.is_causal()) {
        lane.list().add(
            "clear_padding", clear_padding, real, problem.shape, inputs.lengths, gradients);
    }
}

}  // namespace

void CudaKernels::rotate(const exec::AttentionShape& shape,
                         const Rotary& rotary,
                         exec::Turn turn,
                         View qkv) const {
    lane_.list().add(
        "rotate", cuda::rotate, real_of(qkv.dtype), rotation_of(shape, rotary, turn), qkv.data);
}

void CudaKernels::attention_forward(const exec::AttentionShape& shape,
                                    ConstView qkv,
                                    View softmax,
                                    View context) const {
    const Real real = real_of(qkv.dtype);
    const AttentionShape of = shape_of(shape);
    attend(lane_, real, of, inputs_in_one(real, of, qkv.data), softmax, context);
}

// What the kernel writes may not be what it reads: dQ | dK | dV are left in the scratch.
void CudaKernels::attention_backward(const exec::AttentionShape& shape,
                                     ConstView softmax,
                                     ConstView context,
                                     ConstView dcontext,
                                     View& qkv,
                                     std::byte* scratch) const {
    const Real real = real_of(qkv.dtype);
    const AttentionShape of = shape_of(shape);
    auto* const row_dots =
        reinterpret_cast<float*>(scratch + aligned_bytes(real, qkv.rows, qkv.columns));
    attend_back(lane_,
                real,
                of,
                inputs_in_one(real, of, qkv.data),
                {softmax, context, dcontext},
                gradients_in_one(real, of, scratch),
                row_dots);
    qkv.data = scratch;
}

void CudaKernels::padded_attention_forward(const exec::PaddedAttentionShape& shape,
                                           exec::ConstColumns q,
                                           exec::ConstColumns k,
                                           ConstView lengths,
                                           View softmax,
                                           View context) const {
    const AttentionInputs inputs = inputs_of(q, k, lengths);
    attend(lane_,
           real_of(context.dtype),
           AttentionProblem::with_gradients_apart(shape_of(shape), inputs),
           inputs,
           softmax,
           context);
}

// Q and K | V are columns of a matrix, or of two.
void CudaKernels::padded_attention_backward(const exec::PaddedAttentionShape& shape,
                                            ConstView softmax,
                                            ConstView context,
                                            ConstView dcontext,
                                            ConstView lengths,
                                            exec::Columns q,
                                            exec::Columns k,
                                            std::byte* scratch) const {
    const Real real = real_of(dcontext.dtype);
    const std::int64_t width = shape.width();
    const AttentionInputs inputs = inputs_of({q.matrix, q.first}, {k.matrix, k.first}, lengths);
    std::byte* const dk = scratch + aligned_bytes(real, q.matrix.rows, width);
    auto* const row_dots =
        reinterpret_cast<float*>(dk + aligned_bytes(real, k.matrix.rows, 2 * width));
    attend_back(lane_,
                real,
                AttentionProblem::with_gradients_apart(shape_of(shape), inputs),
                inputs,
                {softmax, context, dcontext},
                {.dq = scratch, .dk = dk, .q_stride = width, .k_stride = 2 * width},
                row_dots);
    const auto put = [&](const std::byte* from, std::int64_t columns, const exec::Columns& to) {
        const ColumnCopy all{.rows = to.matrix.rows,
                             .columns = columns,
                             .x_width = columns,
                             .y_width = to.matrix.columns};
        lane_.list().add("copy_columns", cuda::copy_columns, real, all, from, first_of(to));
    };
    put(scratch, width, q);
    put(dk, 2 * width, k);
}

}  // namespace pipetwin::cuda
