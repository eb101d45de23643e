// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/padded_attention.h"

#include <utility>

#include "core/base/error.h"
#include "exec/layers/attention.h"

namespace pipetwin::exec {
namespace {

// What Kept::tensors holds: of the heads, and then of the attention itself.
constexpr std::size_t heads_softmax_slot = 0;
constexpr std::size_t heads_context_slot = 1;
constexpr std::size_t lengths_slot = 2;
constexpr std::size_t own_slot = PaddedHeads::kept_count;  ///< Q | K | V, or Q
constexpr std::size_t kv_slot = own_slot + 1;              ///< K | V

/// Up to where an operand of a product may begin on a GPU.
Bytes up_to_operand(Bytes bytes) {
    return {(bytes.count + 255) / 256 * 256};
}

Bytes bytes_of(std::int64_t rows, std::int64_t columns, DType type) {
    return Bytes{rows * columns * static_cast<std::int64_t>(size_of(type))};
}

/// Up to where any type may begin, in 16-byte accesses too.
Bytes up_to_any(Bytes bytes) {
    return {(bytes.count + 15) / 16 * 16};
}

}  // namespace

Bytes padded_attention_scratch(const PaddedAttentionShape& shape, const NumberFormat& format) {
    if (format.softmax == SoftmaxKept::Probabilities) {
        const Bytes bytes =
            bytes_of(shape.positions, shape.key_positions + shape.head_size, format.real);
        return {(bytes.count + 3) / 4 * 4};
    }
    const std::int64_t queries = std::int64_t{shape.samples} * shape.positions;
    const std::int64_t keys = std::int64_t{shape.samples} * shape.key_positions;
    return up_to_any(bytes_of(queries, shape.width(), format.real)) +
           up_to_any(bytes_of(keys, 2 * shape.width(), format.real)) +
           bytes_of(queries, shape.heads, format.exact());
}

PaddedHeads::PaddedHeads(const LayerSpec& spec,
                         const SampleShape& x,
                         int key_positions,
                         NumberFormat format)
    : sizes_(attention_sizes(spec, x.width)),
      positions_(x.positions),
      key_positions_(key_positions),
      format_(format),
      out_({.positions = x.positions, .width = sizes_.query_width()},
           {.outputs = x.width, .bias = spec.bias},
           format),
      dropout_(spec.dropout) {
    expect_heads_that_kernels_take(spec, sizes_, format);
}

PaddedAttentionShape PaddedHeads::shape(int samples) const {
    return {.samples = samples,
            .positions = positions_,
            .key_positions = key_positions_,
            .heads = sizes_.heads,
            .head_size = sizes_.head_size};
}

Bytes PaddedHeads::softmax_bytes(int samples) const {
    const std::int64_t rows = std::int64_t{samples} * positions_ * sizes_.heads;
    return format_.softmax == SoftmaxKept::Probabilities
               ? bytes_of(rows, key_positions_, format_.real)
               : bytes_of(rows, 1, format_.exact());
}

Bytes PaddedHeads::unread_bytes(int samples) const {
    return softmax_bytes(samples) + bytes_of(samples, 1, DType::I32);
}

Bytes PaddedHeads::kept_bytes(int samples) const {
    const std::int64_t rows = std::int64_t{samples} * positions_;
    return bytes_of(rows, sizes_.query_width(), format_.real) + unread_bytes(samples);
}

void PaddedHeads::free_unread(Kept& kept) {
    kept.tensors[heads_softmax_slot] = {};
    kept.tensors[lengths_slot] = {};
}

/// [gradient behind the dropout | dc | what the kernel needs]
Bytes PaddedHeads::workspace_bytes(int samples) const {
    const std::int64_t rows = std::int64_t{samples} * positions_;
    const Bytes gradient = up_to_operand(bytes_of(rows, out_.output().width, format_.real));
    const Bytes context = up_to_operand(bytes_of(rows, sizes_.query_width(), format_.real));
    return dropout_.workspace_bytes(gradient) + context +
           padded_attention_scratch(shape(samples), format_);
}

void PaddedHeads::create_parameters(ParameterMaker& maker,
                                    const std::string& path,
                                    bool ends_residual) {
    out_.create_parameters(maker, path + ".out", ends_residual);
    dropout_.create(maker);
}

void PaddedHeads::add_parameters(std::vector<Parameter*>& all) {
    for (Parameter* const parameter : out_.parameters()) {
        all.push_back(parameter);
    }
}

void PaddedHeads::forward(
    LayerCall& call, ConstColumns q, ConstColumns k, ConstView skip, View y, Kept& kept) {
    const PaddedAttentionShape sizes = shape(call.samples);
    const std::int64_t rows = y.rows;
    const bool log_sums = format_.softmax == SoftmaxKept::LogSums;
    Tensor softmax = call.arena.allocate(log_sums ? format_.exact() : format_.real,
                                         rows * sizes_.heads,
                                         log_sums ? 1 : key_positions_,
                                         MemoryKind::Stash);
    Tensor context =
        call.arena.allocate(format_.real, rows, sizes_.query_width(), MemoryKind::Stash);
    Tensor lengths = call.arena.allocate(DType::I32, call.samples, 1, MemoryKind::Stash);
    call.kernels.upload(lengths_of(*call.data, key_positions_), lengths);

    call.kernels.padded_attention_forward(sizes, q, k, lengths, softmax, context);  // P, c = P V
    out_.forward(call, context, dropout_.skip_of_layer(call, skip), y, kept);
    dropout_.forward(call, skip, y);  // y = skip + c w_out + b_out

    kept.tensors.push_back(std::move(softmax));
    kept.tensors.push_back(std::move(context));
    kept.tensors.push_back(std::move(lengths));
}

ConstView PaddedHeads::projected(const LayerCall& call, ConstView dy) const {
    return dropout_.gradient(call, dy, call.workspace);
}

void PaddedHeads::backward(LayerCall& call, Kept& kept, ConstView gradient, Columns q, Columns k) {
    const ConstView context = kept.tensors[heads_context_slot];
    const Bytes before = dropout_.workspace_bytes(
        up_to_operand(bytes_of(gradient.rows, gradient.columns, format_.real)));
    const View dcontext(
        call.workspace + before.count, context.dtype, context.rows, context.columns);
    std::byte* const scratch =
        call.workspace +
        (before + up_to_operand(bytes_of(context.rows, context.columns, format_.real))).count;
    out_.backward_input(call, kept, {}, gradient, {}, dcontext);  // dc = dy w_out^T
    call.kernels.padded_attention_backward(shape(call.samples),
                                           kept.tensors[heads_softmax_slot],
                                           context,
                                           dcontext,
                                           kept.tensors[lengths_slot],
                                           q,
                                           k,
                                           scratch);
    call.done(Op::BackwardInput);
}

void PaddedHeads::backward_weight(LayerCall& call, Kept& kept, ConstView gradient) {
    out_.backward_weight(call, kept, kept.tensors[heads_context_slot], gradient);
}

PaddedAttention::PaddedAttention(const LayerSpec& spec,
                                 const SampleShape& input,
                                 NumberFormat format)
    : ExecutableLayer(input, input, format),
      heads_(spec, input, input.positions, format),
      qkv_(input, {.outputs = heads_.sizes().qkv_width(), .bias = spec.bias}, format) {}

Bytes PaddedAttention::kept_bytes(int samples) const {
    return heads_.kept_bytes(samples) + matrix_bytes(rows(samples), heads_.sizes().qkv_width());
}

void PaddedAttention::create_parameters(ParameterMaker& maker,
                                        const std::string& path,
                                        bool ends_residual) {
    qkv_.create_parameters(maker, path + ".qkv", false);
    heads_.create_parameters(maker, path, ends_residual);
}

std::vector<Parameter*> PaddedAttention::parameters() {
    std::vector<Parameter*> all = qkv_.parameters();
    heads_.add_parameters(all);
    return all;
}

void PaddedAttention::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) {
    const AttentionSizes& sizes = heads_.sizes();
    Tensor qkv = call.arena.allocate(real(), x.rows, sizes.qkv_width(), MemoryKind::Stash);
    qkv_.forward(call, x, {}, qkv, kept);  // Q | K | V = x w_qkv + b_qkv
    heads_.forward(call, {qkv, 0}, {qkv, sizes.query_width()}, skip, y, kept);
    kept.tensors.push_back(std::move(qkv));
}

void PaddedAttention::heads_backward(LayerCall& call, Kept& kept, ConstView gradient) {
    const View qkv(kept.tensors[own_slot]);
    heads_.backward(call, kept, gradient, {qkv, 0}, {qkv, heads_.sizes().query_width()});
}

// dw_out += c^T dy,  dw_qkv += x^T (dQ | dK | dV)
void PaddedAttention::weights_backward(LayerCall& call,
                                       Kept& kept,
                                       ConstView x,
                                       ConstView gradient) {
    heads_.backward_weight(call, kept, gradient);
    qkv_.backward_weight(call, kept, x, kept.tensors[own_slot]);
}

// dx = skip + (dQ | dK | dV) w_qkv^T
void PaddedAttention::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    heads_backward(call, kept, heads_.projected(call, dy));
    qkv_.backward_input(call, kept, x, kept.tensors[own_slot], skip, dx);
}

void PaddedAttention::backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) {
    weights_backward(call, kept, x, heads_.projected(call, dy));
}

// Both. dQ | dK | dV come first, because the weights need them, and dx last, because it may be x.
void PaddedAttention::backward(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    const ConstView gradient = heads_.projected(call, dy);
    heads_backward(call, kept, gradient);
    weights_backward(call, kept, x, gradient);
    qkv_.backward_input(call, kept, x, kept.tensors[own_slot], skip, dx);
}

CrossAttention::CrossAttention(const LayerSpec& spec,
                               const std::vector<SampleShape>& inputs,
                               NumberFormat format)
    : JoiningLayer(inputs, inputs.front(), format),
      heads_(spec, inputs[0], inputs[1].positions, format),
      q_(inputs[0], {.outputs = heads_.sizes().query_width(), .bias = spec.bias}, format),
      kv_(inputs[1], {.outputs = 2 * heads_.sizes().query_width(), .bias = spec.bias}, format) {}

Bytes CrossAttention::kept_bytes(int samples) const {
    return heads_.kept_bytes(samples) + q_.output_bytes(samples) + kv_.output_bytes(samples);
}

void CrossAttention::create_parameters(ParameterMaker& maker,
                                       const std::string& path,
                                       bool ends_residual) {
    q_.create_parameters(maker, path + ".q", false);
    kv_.create_parameters(maker, path + ".kv", false);
    heads_.create_parameters(maker, path, ends_residual);
}

std::vector<Parameter*> CrossAttention::parameters() {
    std::vector<Parameter*> all = q_.parameters();
    for (Parameter* const parameter : kv_.parameters()) {
        all.push_back(parameter);
    }
    heads_.add_parameters(all);
    return all;
}

void CrossAttention::join(LayerCall& call, std::span<const ConstView> x, View y, Kept& kept) {
    Tensor q = call.arena.allocate(real(), x[0].rows, q_.output().width, MemoryKind::Stash);
    Tensor kv = call.arena.allocate(real(), x[1].rows, kv_.output().width, MemoryKind::Stash);
    q_.forward(call, x[0], {}, q, kept);    // Q = x w_q + b_q
    kv_.forward(call, x[1], {}, kv, kept);  // K | V = m w_kv + b_kv
    heads_.forward(call, {q, 0}, {kv, 0}, {}, y, kept);
    kept.tensors.push_back(std::move(q));
    kept.tensors.push_back(std::move(kv));
}

void CrossAttention::heads_backward(LayerCall& call, Kept& kept, ConstView gradient) {
    heads_.backward(
        call, kept, gradient, {View(kept.tensors[own_slot]), 0}, {View(kept.tensors[kv_slot]), 0});
}

// dw_out += c^T dy,  dw_q += x^T dQ,  dw_kv += m^T (dK | dV)
void CrossAttention::weights_backward(LayerCall& call,
                                      Kept& kept,
                                      std::span<const ConstView> x,
                                      ConstView gradient) {
    heads_.backward_weight(call, kept, gradient);
    q_.backward_weight(call, kept, x[0], kept.tensors[own_slot]);
    kv_.backward_weight(call, kept, x[1], kept.tensors[kv_slot]);
}

// dm = (dK | dV) w_kv^T,  dx = dQ w_q^T: from the last input to the first
void CrossAttention::inputs_backward(LayerCall& call,
                                     Kept& kept,
                                     std::span<const InputGradient> dx) {
    const auto backward = [&](Linear& layer, std::size_t slot, const InputGradient& to) {
        layer.backward_input(
            call, kept, {}, kept.tensors[slot], to.adds ? ConstView(to.dx) : ConstView{}, to.dx);
    };
    backward(kv_, kv_slot, dx[1]);
    backward(q_, own_slot, dx[0]);
}

void CrossAttention::join_backward_input(LayerCall& call,
                                         Kept& kept,
                                         std::span<const ConstView> /*x*/,
                                         ConstView dy,
                                         std::span<const InputGradient> dx) {
    heads_backward(call, kept, heads_.projected(call, dy));
    inputs_backward(call, kept, dx);
}

void CrossAttention::join_backward_weight(LayerCall& call,
                                          Kept& kept,
                                          std::span<const ConstView> x,
                                          ConstView dy) {
    weights_backward(call, kept, x, heads_.projected(call, dy));
}

// Both from one masked gradient.
void CrossAttention::join_backward(LayerCall& call,
                                   Kept& kept,
                                   std::span<const ConstView> x,
                                   ConstView dy,
                                   std::span<const InputGradient> dx) {
    const ConstView gradient = heads_.projected(call, dy);
    heads_backward(call, kept, gradient);
    weights_backward(call, kept, x, gradient);
    inputs_backward(call, kept, dx);
}

}  // namespace pipetwin::exec
