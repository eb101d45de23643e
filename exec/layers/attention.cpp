// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/attention.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/layer_spec.h"

namespace pipetwin::exec {
namespace {

// What Kept::tensors holds.
constexpr std::size_t qkv_slot = 0;
constexpr std::size_t softmax_slot = 1;
constexpr std::size_t context_slot = 2;

/// Most numbers of a head where log sums are kept: a GPU's kernels hold sums of a head in registers
/// (exec/cuda/kernels/attention/attention.h).
constexpr int largest_head_of_log_sums = 256;

/// Up to where any type may begin, in 16-byte accesses too.
Bytes aligned(Bytes bytes) {
    return {(bytes.count + 15) / 16 * 16};
}

/// Up to where an operand of a product may begin on a GPU.
Bytes operand_aligned(Bytes bytes) {
    return {(bytes.count + 255) / 256 * 256};
}

}  // namespace

void expect_heads_that_kernels_take(const LayerSpec& spec,
                                    const AttentionSizes& sizes,
                                    const NumberFormat& format) {
    if (format.softmax == SoftmaxKept::LogSums && sizes.head_size > largest_head_of_log_sums) {
        throw Error(ErrorKind::Infeasible,
                    "model",
                    fmt::format("the heads of '{}' have {} numbers each, expected at most {} on a "
                                "GPU",
                                spec.name,
                                sizes.head_size,
                                largest_head_of_log_sums),
                    "take more heads, or a smaller head_size; backend = \"cpu\" takes any");
    }
}

Bytes attention_scratch(const AttentionShape& shape, const NumberFormat& format) {
    const auto bytes_of = [](std::int64_t elements, DType type) {
        return Bytes{elements * static_cast<std::int64_t>(size_of(type))};
    };
    const std::int64_t positions = shape.positions;
    if (format.softmax == SoftmaxKept::Probabilities) {
        const std::int64_t sums = shape.group() > 1 ? 2 * positions * shape.head_size : 0;
        const Bytes rounded = bytes_of(positions * (positions + shape.head_size), format.real);
        return bytes_of(sums, format.exact()) + Bytes{(rounded.count + 3) / 4 * 4};
    }
    const std::int64_t rows = shape.samples * positions;
    return aligned(bytes_of(rows * shape.qkv_width(), format.real)) +
           bytes_of(rows * shape.heads, format.exact());
}

Attention::Attention(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
    : ExecutableLayer(input, input, format),
      sizes_(attention_sizes(spec, input.width)),
      rotary_(spec.rotary),
      qkv_(input, {.outputs = sizes_.qkv_width(), .bias = spec.bias}, format),
      out_({.positions = input.positions, .width = sizes_.query_width()},
           {.outputs = input.width, .bias = spec.bias},
           format),
      dropout_(spec.dropout) {
    expect_heads_that_kernels_take(spec, sizes_, format);
}

AttentionShape Attention::shape(int samples) const {
    return {.samples = samples,
            .positions = input().positions,
            .heads = sizes_.heads,
            .key_value_heads = sizes_.key_value_heads,
            .head_size = sizes_.head_size};
}

Bytes Attention::softmax_bytes(int samples) const {
    const std::int64_t n = rows(samples);
    return format().softmax == SoftmaxKept::Probabilities
               ? matrix_bytes(n * sizes_.heads, input().positions)
               : exact_bytes(n * sizes_.heads, 1);
}

Bytes Attention::context_room(int samples) const {
    const Bytes context = matrix_bytes(rows(samples), sizes_.query_width());
    return format().softmax == SoftmaxKept::LogSums ? operand_aligned(context) : aligned(context);
}

Bytes Attention::kept_bytes(int samples) const {
    const std::int64_t n = rows(samples);
    return matrix_bytes(n, sizes_.qkv_width()) + softmax_bytes(samples) +
           matrix_bytes(n, sizes_.query_width());
}

Bytes Attention::workspace_bytes(int samples) const {
    // dc, and then what the kernel needs; before them the gradient behind the dropout.
    const Bytes gradient = matrix_bytes(rows(samples), input().width);
    return dropout_.workspace_bytes(operand_aligned(gradient)) + context_room(samples) +
           attention_scratch(shape(samples), format());
}

void Attention::create_parameters(ParameterMaker& maker,
                                  const std::string& path,
                                  bool ends_residual) {
    qkv_.create_parameters(maker, path + ".qkv", false);
    out_.create_parameters(maker, path + ".out", ends_residual);
    dropout_.create(maker);
}

std::vector<Parameter*> Attention::parameters() {
    std::vector<Parameter*> all = qkv_.parameters();
    for (Parameter* const parameter : out_.parameters()) {
        all.push_back(parameter);
    }
    return all;
}

void Attention::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) {
    const AttentionShape sizes = shape(call.samples);
    Tensor qkv = call.arena.allocate(real(), x.rows, sizes.qkv_width(), MemoryKind::Stash);
    const bool log_sums = format().softmax == SoftmaxKept::LogSums;
    Tensor softmax = call.arena.allocate(log_sums ? format().exact() : real(),
                                         x.rows * sizes.heads,
                                         log_sums ? 1 : sizes.positions,
                                         MemoryKind::Stash);
    Tensor context = call.arena.allocate(real(), x.rows, sizes.query_width(), MemoryKind::Stash);

    qkv_.forward(call, x, {}, qkv, kept);  // Q | K | V = x w_qkv + b_qkv
    if (rotary_.is_there()) {
        call.kernels.rotate(sizes, rotary_, Turn::Forward, qkv);
    }
    call.kernels.attention_forward(sizes, qkv, softmax, context);  // P, c = P V
    out_.forward(call, context, dropout_.skip_of_layer(call, skip), y, kept);
    dropout_.forward(call, skip, y);  // y = skip + c w_out + b_out

    kept.tensors.push_back(std::move(qkv));
    kept.tensors.push_back(std::move(softmax));
    kept.tensors.push_back(std::move(context));
}

ConstView Attention::projected_gradient(const LayerCall& call, ConstView dy) const {
    return dropout_.gradient(call, dy, call.workspace);
}

View Attention::heads_backward(LayerCall& call, Kept& kept, ConstView dy) {
    const AttentionShape sizes = shape(call.samples);
    const Bytes gradient = matrix_bytes(dy.rows, dy.columns);
    std::byte* const place =
        call.workspace + dropout_.workspace_bytes(operand_aligned(gradient)).count;
    const View dcontext(place, real(), dy.rows, sizes.query_width());
    out_.backward_input(call, kept, {}, dy, {}, dcontext);  // dc = dy w_out^T
    View dqkv = kept.tensors[qkv_slot];
    call.kernels.attention_backward(sizes,
                                    kept.tensors[softmax_slot],
                                    kept.tensors[context_slot],
                                    dcontext,
                                    dqkv,
                                    place + context_room(call.samples).count);
    if (rotary_.is_there()) {
        call.kernels.rotate(sizes, rotary_, Turn::Back, dqkv);
    }
    call.done(Op::BackwardInput);
    return dqkv;
}

// dw_out += c^T dy,  dw_qkv += x^T (dQ | dK | dV)
void Attention::weights_backward(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView dqkv) {
    out_.backward_weight(call, kept, kept.tensors[context_slot], dy);
    qkv_.backward_weight(call, kept, x, dqkv);
}

// dx = skip + (dQ | dK | dV) w_qkv^T
void Attention::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    const View dqkv = heads_backward(call, kept, projected_gradient(call, dy));
    const View kept_dqkv(kept.tensors[qkv_slot]);
    if (dqkv.data != kept_dqkv.data) {
        call.kernels.columns().copy(dqkv, kept_dqkv);  // W comes later
    }
    qkv_.backward_input(call, kept, x, kept_dqkv, skip, dx);
}

void Attention::free_unread(Kept& kept) const {
    kept.tensors[softmax_slot] = {};
}

void Attention::backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) {
    weights_backward(call, kept, x, projected_gradient(call, dy), kept.tensors[qkv_slot]);
}

// Both. dQ | dK | dV come first, because the weights need them, and dx last, because it may be x.
void Attention::backward(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    const ConstView gradient = projected_gradient(call, dy);
    const ConstView dqkv = heads_backward(call, kept, gradient);
    weights_backward(call, kept, x, gradient, dqkv);
    qkv_.backward_input(call, kept, x, dqkv, skip, dx);
}

}  // namespace pipetwin::exec
