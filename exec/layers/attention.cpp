// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/layer_spec.h"
#include "exec/layers/dropout.h"
#include "exec/layers/linear.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {
namespace {

/// Most numbers of a head where log sums are kept: a GPU's kernels hold sums of a head in registers
/// (exec/cuda/kernels/attention/attention.h).
constexpr int largest_head_of_log_sums = 256;

Bytes bytes_of(std::int64_t rows, std::int64_t columns, DType type) {
    return Bytes{rows * columns * static_cast<std::int64_t>(size_of(type))};
}

Bytes up_to(std::int64_t alignment, Bytes bytes) {
    return {(bytes.count + alignment - 1) / alignment * alignment};
}

/// Up to where any type may begin, in 16-byte accesses too.
Bytes up_to_any(Bytes bytes) {
    return up_to(16, bytes);
}

/// Up to where an operand of a product may begin on a GPU.
Bytes up_to_operand(Bytes bytes) {
    return up_to(256, bytes);
}

/// The matrix of what is kept of the probabilities of so many rows over `keys` keys.
struct KeptSoftmax {
    std::int64_t rows;
    std::int64_t columns;
    DType type;

    KeptSoftmax(std::int64_t rows_of_heads, std::int64_t keys, const NumberFormat& format)
        : rows(rows_of_heads),
          columns(format.softmax == SoftmaxKept::Probabilities ? keys : 1),
          type(format.softmax == SoftmaxKept::Probabilities ? format.real : format.exact()) {}

    Bytes bytes() const { return bytes_of(rows, columns, type); }
    Tensor allocate(Arena& arena) const {
        return arena.allocate(type, rows, columns, MemoryKind::Stash);
    }
};

/// Throws Error(Infeasible) for heads that the kernels of a device with this number format do not
/// take: a GPU's hold sums of a head in registers.
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

}  // namespace

Bytes attention_scratch(const AttentionShape& shape, const NumberFormat& format) {
    const std::int64_t positions = shape.positions;
    if (format.softmax == SoftmaxKept::Probabilities) {
        const std::int64_t sums = shape.group() > 1 ? 2 * positions : 0;
        return bytes_of(sums, shape.head_size, format.exact()) +
               up_to(4, bytes_of(positions, positions + shape.head_size, format.real));
    }
    const std::int64_t rows = shape.samples * positions;
    return up_to_any(bytes_of(rows, shape.qkv_width(), format.real)) +
           bytes_of(rows, shape.heads, format.exact());
}

Bytes padded_attention_scratch(const PaddedAttentionShape& shape, const NumberFormat& format) {
    if (format.softmax == SoftmaxKept::Probabilities) {
        return up_to(4,
                     bytes_of(shape.positions, shape.key_positions + shape.head_size, format.real));
    }
    const std::int64_t queries = std::int64_t{shape.samples} * shape.positions;
    const std::int64_t keys = std::int64_t{shape.samples} * shape.key_positions;
    return up_to_any(bytes_of(queries, shape.width(), format.real)) +
           up_to_any(bytes_of(keys, 2 * shape.width(), format.real)) +
           bytes_of(queries, shape.heads, format.exact());
}

namespace {

/// Causal self-attention with h heads of size a. Per sample and head, T positions:
///
///   Q | K | V = x w_qkv + b_qkv                  x (n, width)   w_qkv (width, (h + 2 g) a)
///   Q, K are turned by their positions, where these are rotary (core/model/rotary.h)
///   P = softmax(Q K^T / sqrt a), zero above the diagonal                        P (T, T)
///   c = P V                                                                     c (n, width)
///   y = skip + c w_out + b_out                                       w_out (h a, width)
///
///   dc = dy w_out^T
///   dV = P^T dc,  dP = dc V^T,  dS = P * (dP - rowsum(dP * P)) / sqrt a
///   dQ = dS K,  dK = dS^T Q
///   dx = skip + (dQ | dK | dV) w_qkv^T
///
/// Heads in g groups of h / g share keys and values, whose gradients are sums over the group in the
/// order of its heads; dQ and dK are turned back. Biases may be missing.
///
/// With a dropout at its end y = skip + mask (c w_out + b_out) / (1 - p); probabilities are not
/// dropped.
///
/// Where devices divide it, each has some of the heads: their columns of w_qkv, and their rows of
/// w_out. Neighbours that have the same head of keys and values add up their dK and dV, so each has
/// all of this head's gradients of w_qkv; dx, a sum over the devices, takes what each has of its
/// own.
///
/// Keeps its input, Q | K | V, c, and P or what it can be found from (exec/device/number_format.h).
/// Where the backward is split, I puts dQ | dK | dV into the place of Q | K | V for W, which reads
/// the input, these, c and dy.
class Attention final : public ExecutableLayer {
  public:
    /// Throws Error(Infeasible) for heads that are too large for the kernels of a GPU.
    Attention(const LayerSpec& spec, const SampleShape& input, NumberFormat format);

    Bytes kept_bytes(int samples) const override {
        const std::int64_t n = all_rows(samples);
        return matrix_bytes(n, sizes_.qkv_width()) + unread_bytes(samples) +
               matrix_bytes(n, sizes_.query_width());
    }
    Bytes unread_bytes(int samples) const override { return softmax(samples).bytes(); }
    void free_unread(Kept& kept) const override { kept.tensors[softmax_slot] = {}; }
    Bytes core_bytes(int samples) const override {
        return softmax(samples).bytes() + matrix_bytes(all_rows(samples), sizes_.query_width());
    }
    void forget_core(Kept& kept) const override {
        kept.tensors[softmax_slot] = {};
        kept.tensors[context_slot] = {};
    }
    void recompute_core(LayerCall& call, Kept& kept) override;
    /// dc, and then what the kernel needs; before them what the projections need, and the gradient
    /// behind the dropout.
    Bytes workspace_bytes(int samples) const override {
        const Bytes gradient = matrix_bytes(rows(samples), input().width);
        return room_of_projections(samples) + dropout_.workspace_bytes(up_to_operand(gradient)) +
               context_room(samples) + up_to_any(attention_scratch(shape(samples), format())) +
               2 * shared_bytes(samples);
    }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override {
        qkv_.create_parameters(maker, path + ".qkv", false);
        out_.create_parameters(maker, path + ".out", ends_residual);
        dropout_.create(maker);
    }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override;
    void backward(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    /// What Kept::tensors holds.
    enum : std::size_t { qkv_slot, softmax_slot, context_slot };

    AttentionShape shape(int samples) const {
        return {.samples = samples,
                .positions = parts_ * input().positions,
                .heads = sizes_.heads,
                .key_value_heads = sizes_.key_value_heads,
                .head_size = sizes_.head_size};
    }
    /// Rows of the sequences; the layer's input has a part of them where devices divide these.
    std::int64_t all_rows(int samples) const { return parts_ * rows(samples); }
    Bytes room_of_projections(int samples) const {
        return std::max(qkv_.workspace_bytes(samples), out_.workspace_bytes(samples));
    }
    /// The gradient of what the output projection makes.
    ConstView projected_gradient(const LayerCall& call, ConstView dy) const {
        return dropout_.gradient(
            call, dy, call.workspace + room_of_projections(call.samples).count);
    }
    KeptSoftmax softmax(int samples) const {
        return {all_rows(samples) * sizes_.heads, parts_ * input().positions, format()};
    }
    /// Bytes of dc in the workspace, up to where the kernel's scratch memory may begin: on a GPU
    /// the operand of a product.
    Bytes context_room(int samples) const {
        const Bytes context = matrix_bytes(all_rows(samples), sizes_.query_width());
        return format().softmax == SoftmaxKept::LogSums ? up_to_operand(context)
                                                        : up_to_any(context);
    }
    /// P and c = P V of Q | K | V, in new tensors.
    void run_core(const LayerCall& call, ConstView qkv, Tensor& softmax, Tensor& context) const;
    /// From dy to dQ | dK | dV, turned back. Returns where they are until the layer's workspace is
    /// used again: there, or in the place of Q | K | V.
    View heads_backward(LayerCall& call, Kept& kept, ConstView dy);
    void weights_backward(LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView dqkv);

    /// dK | dV of heads that other devices have, too, as two matrices at the end of the workspace:
    /// of all that have them, and the device's own.
    struct SharedGradients {
        View all;
        View own;
    };
    Bytes shared_bytes(int samples) const {
        return sharers_ > 1 ? up_to_any(matrix_bytes(all_rows(samples),
                                                     sizes_.qkv_width() - sizes_.query_width()))
                            : Bytes{};
    }
    SharedGradients shared_gradients(const LayerCall& call, ConstView dy) const;
    /// Adds up dK | dV in dQ | dK | dV over the devices that have the same head; the device's own
    /// are in the workspace then.
    void add_up_shared(LayerCall& call, const SharedGradients& shared, View dqkv) const;
    void put_shared(const LayerCall& call, ConstView from, View dqkv) const;

    AttentionSizes sizes_;
    int sharers_;
    int parts_;  ///< devices that have a part of the rows of input and output each
    Rotary rotary_;
    Linear qkv_;
    Linear out_;
    OutputDropout dropout_;
};

/// Columns of queries, of keys and of values.
std::array<int, 3> blocks_of(const AttentionSizes& sizes) {
    const int keys = sizes.key_value_heads * sizes.head_size;
    return {sizes.query_width(), keys, keys};
}

TensorCut by_rows(TensorCut cut) {
    cut.rows = true;
    return cut;
}

Attention::Attention(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
    : ExecutableLayer(input, input, format),
      sizes_(attention_sizes(spec, input.width)),
      sharers_(spec.cut.sharers),
      parts_(spec.cut.sequence ? spec.cut.devices : 1),
      rotary_(spec.rotary),
      qkv_(input,
           {.outputs = sizes_.qkv_width(),
            .bias = spec.bias,
            .cut = spec.cut,
            .blocks = blocks_of(sizes_)},
           format),
      out_({.positions = parts_ * input.positions, .width = sizes_.query_width()},
           {.outputs = input.width, .bias = spec.bias, .cut = by_rows(spec.cut)},
           format),
      dropout_(spec.dropout, parts_) {
    expect_heads_that_kernels_take(spec, sizes_, format);
    contain(qkv_);
    contain(out_);
}

void Attention::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) {
    const AttentionShape sizes = shape(call.samples);
    Tensor qkv =
        call.arena.allocate(real(), all_rows(call.samples), sizes.qkv_width(), MemoryKind::Stash);
    qkv_.forward(call, x, {}, qkv, kept);  // Q | K | V = x w_qkv + b_qkv
    if (rotary_.is_there()) {
        call.kernels.rotate(sizes, rotary_, Turn::Forward, qkv);
    }
    Tensor softmax;
    Tensor context;
    run_core(call, qkv, softmax, context);
    out_.forward(call, context, dropout_.skip_of_layer(call, skip), y, kept);
    dropout_.forward(call, skip, y);  // y = skip + c w_out + b_out

    kept.tensors.push_back(std::move(qkv));
    kept.tensors.push_back(std::move(softmax));
    kept.tensors.push_back(std::move(context));
}

void Attention::run_core(const LayerCall& call,
                         ConstView qkv,
                         Tensor& softmax,
                         Tensor& context) const {
    softmax = this->softmax(call.samples).allocate(call.arena);
    context = call.arena.allocate(real(), qkv.rows, sizes_.query_width(), MemoryKind::Stash);
    call.kernels.attention_forward(shape(call.samples), qkv, softmax, context);
}

void Attention::recompute_core(LayerCall& call, Kept& kept) {
    run_core(call, kept.tensors[qkv_slot], kept.tensors[softmax_slot], kept.tensors[context_slot]);
}

View Attention::heads_backward(LayerCall& call, Kept& kept, ConstView dy) {
    const AttentionShape sizes = shape(call.samples);
    const Bytes gradient = matrix_bytes(dy.rows, dy.columns);
    std::byte* const place = call.workspace + room_of_projections(call.samples).count +
                             dropout_.workspace_bytes(up_to_operand(gradient)).count;
    const View dcontext(place, real(), all_rows(call.samples), sizes.query_width());
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
    if (sharers_ > 1) {
        add_up_shared(call, shared_gradients(call, dy), kept_dqkv);
    }
}

void Attention::backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) {
    weights_backward(call, kept, x, projected_gradient(call, dy), kept.tensors[qkv_slot]);
}

// Both. dQ | dK | dV come first, because the weights need them, and dx last, because it may be x.
void Attention::backward(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    const ConstView gradient = projected_gradient(call, dy);
    const View dqkv = heads_backward(call, kept, gradient);
    const SharedGradients shared = shared_gradients(call, dy);
    if (sharers_ > 1) {
        add_up_shared(call, shared, dqkv);
    }
    weights_backward(call, kept, x, gradient, dqkv);
    if (sharers_ > 1) {
        put_shared(call, shared.own, dqkv);
    }
    qkv_.backward_input(call, kept, x, dqkv, skip, dx);
}

Attention::SharedGradients Attention::shared_gradients(const LayerCall& call, ConstView dy) const {
    const Bytes gradient = matrix_bytes(dy.rows, dy.columns);
    std::byte* const place = call.workspace + room_of_projections(call.samples).count +
                             dropout_.workspace_bytes(up_to_operand(gradient)).count +
                             context_room(call.samples).count +
                             up_to_any(attention_scratch(shape(call.samples), format())).count;
    const std::int64_t rows = all_rows(call.samples);
    const std::int64_t columns = sizes_.qkv_width() - sizes_.query_width();
    return {.all = {place, real(), rows, columns},
            .own = {place + shared_bytes(call.samples).count, real(), rows, columns}};
}

void Attention::add_up_shared(LayerCall& call, const SharedGradients& shared, View dqkv) const {
    for (const View& to : {shared.own, shared.all}) {
        call.kernels.copy_columns({.from = sizes_.query_width(), .count = to.columns}, dqkv, to);
    }
    call.group.all_reduce_of_neighbours(shared.all, sharers_);
    put_shared(call, shared.all, dqkv);
}

void Attention::put_shared(const LayerCall& call, ConstView from, View dqkv) const {
    call.kernels.copy_columns({.to = sizes_.query_width(), .count = from.columns}, from, dqkv);
}

/// What attentions have, in which a query sees all keys of its sample that are no padding, behind
/// their queries, keys and values: h heads of size a, and the output projection. A sample's length
/// t is in the batch (`Batch::lengths`); where that has none, no position is padding. Per sample
/// and head:
///
///   P = softmax(Q K^T / sqrt a), over the first t keys
///   y = skip + P V w_out + b_out                      w_out (h a, width)
///
/// Rows at padding are computed like all others, but no key or value of theirs has a part in
/// another row. Keeps P or what it can be found from (exec/device/number_format.h), P V and the
/// lengths, in front of what an attention keeps itself.
class PaddedHeads {
  public:
    /// `x`: the shape of the queries' sequence; `key_positions`: keys of a sample. Throws
    /// Error(Infeasible) for heads that the kernels do not take.
    PaddedHeads(const LayerSpec& spec, const SampleShape& x, int key_positions, NumberFormat format)
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

    /// Number of tensors that it keeps.
    static constexpr std::size_t kept_count = 3;

    const AttentionSizes& sizes() const { return sizes_; }
    Linear& output_projection() { return out_; }

    Bytes kept_bytes(int samples) const { return context_bytes(samples) + unread_bytes(samples); }
    Bytes unread_bytes(int samples) const {
        return softmax(samples).bytes() + bytes_of(samples, 1, DType::I32);
    }
    static void free_unread(Kept& kept) {
        kept.tensors[softmax_slot] = {};
        kept.tensors[lengths_slot] = {};
    }
    /// [gradient behind the dropout | dc | what the kernel needs]
    Bytes workspace_bytes(int samples) const {
        return gradient_room(samples) + up_to_operand(context_bytes(samples)) +
               padded_attention_scratch(shape(samples), format_);
    }
    void create_parameters(ParameterMaker& maker, const std::string& path, bool ends_residual) {
        out_.create_parameters(maker, path + ".out", ends_residual);
        dropout_.create(maker);
    }

    /// y = skip + P V w_out + b_out. Throws Error(BadInput), naming the sample, for a length beyond
    /// the keys. `k`: the columns of the keys, with those of the values behind them.
    void forward(
        LayerCall& call, ConstColumns q, ConstColumns k, ConstView skip, View y, Kept& kept);
    /// The gradient of the output projection: dy, or what the dropout has left of it in scratch.
    ConstView projected(const LayerCall& call, ConstView dy) const {
        return dropout_.gradient(call, dy, call.workspace);
    }
    /// From the projected gradient to dQ and dK | dV, in the places of Q and K | V.
    void backward(LayerCall& call, Kept& kept, ConstView gradient, Columns q, Columns k);
    /// dw_out += (P V)^T gradient.
    void backward_weight(LayerCall& call, Kept& kept, ConstView gradient) {
        out_.backward_weight(call, kept, kept.tensors[context_slot], gradient);
    }

  private:
    /// What Kept::tensors holds in front.
    enum : std::size_t { softmax_slot, context_slot, lengths_slot };

    PaddedAttentionShape shape(int samples) const {
        return {.samples = samples,
                .positions = positions_,
                .key_positions = key_positions_,
                .heads = sizes_.heads,
                .head_size = sizes_.head_size};
    }
    KeptSoftmax softmax(int samples) const {
        return {std::int64_t{samples} * positions_ * sizes_.heads, key_positions_, format_};
    }
    Bytes context_bytes(int samples) const { return out_.input_bytes(samples); }
    Bytes gradient_room(int samples) const {
        return dropout_.workspace_bytes(up_to_operand(out_.output_bytes(samples)));
    }

    AttentionSizes sizes_;
    int positions_;
    int key_positions_;
    NumberFormat format_;
    Linear out_;
    OutputDropout dropout_;
};

void PaddedHeads::forward(
    LayerCall& call, ConstColumns q, ConstColumns k, ConstView skip, View y, Kept& kept) {
    const PaddedAttentionShape sizes = shape(call.samples);
    Tensor softmax = this->softmax(call.samples).allocate(call.arena);
    Tensor context =
        call.arena.allocate(format_.real, y.rows, sizes_.query_width(), MemoryKind::Stash);
    Tensor lengths = call.arena.allocate(DType::I32, call.samples, 1, MemoryKind::Stash);
    call.kernels.upload(lengths_of(*call.data, key_positions_), lengths);

    call.kernels.padded_attention_forward(sizes, q, k, lengths, softmax, context);  // P, c = P V
    out_.forward(call, context, dropout_.skip_of_layer(call, skip), y, kept);
    dropout_.forward(call, skip, y);  // y = skip + c w_out + b_out

    kept.tensors.push_back(std::move(softmax));
    kept.tensors.push_back(std::move(context));
    kept.tensors.push_back(std::move(lengths));
}

void PaddedHeads::backward(LayerCall& call, Kept& kept, ConstView gradient, Columns q, Columns k) {
    const ConstView context = kept.tensors[context_slot];
    std::byte* const place = call.workspace + gradient_room(call.samples).count;
    const View dcontext(place, context.dtype, context.rows, context.columns);
    out_.backward_input(call, kept, {}, gradient, {}, dcontext);  // dc = dy w_out^T
    call.kernels.padded_attention_backward(
        shape(call.samples),
        kept.tensors[softmax_slot],
        context,
        dcontext,
        kept.tensors[lengths_slot],
        q,
        k,
        place + up_to_operand(context_bytes(call.samples)).count);
    call.done(Op::BackwardInput);
}

/// Self-attention in which a query sees all positions that are no padding:
///
///   Q | K | V = x w_qkv + b_qkv                       x (n, width)   w_qkv (width, 3 h a)
///   dx = skip + (dQ | dK | dV) w_qkv^T
///
/// Keeps its input and Q | K | V beside what the heads keep.
class PaddedAttention final : public ExecutableLayer {
  public:
    PaddedAttention(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : ExecutableLayer(input, input, format),
          heads_(spec, input, input.positions, format),
          qkv_(input, {.outputs = heads_.sizes().qkv_width(), .bias = spec.bias}, format) {
        contain(qkv_);
        contain(heads_.output_projection());
    }

    Bytes kept_bytes(int samples) const override {
        return heads_.kept_bytes(samples) + qkv_.output_bytes(samples);
    }
    Bytes unread_bytes(int samples) const override { return heads_.unread_bytes(samples); }
    void free_unread(Kept& kept) const override { PaddedHeads::free_unread(kept); }
    Bytes workspace_bytes(int samples) const override { return heads_.workspace_bytes(samples); }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override {
        qkv_.create_parameters(maker, path + ".qkv", false);
        heads_.create_parameters(maker, path, ends_residual);
    }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override {
        Tensor qkv = call.arena.allocate(real(), x.rows, qkv_.output().width, MemoryKind::Stash);
        qkv_.forward(call, x, {}, qkv, kept);  // Q | K | V = x w_qkv + b_qkv
        heads_.forward(call, {qkv, 0}, {qkv, heads_.sizes().query_width()}, skip, y, kept);
        kept.tensors.push_back(std::move(qkv));
    }
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override {
        heads_backward(call, kept, heads_.projected(call, dy));
        qkv_.backward_input(call, kept, x, kept.tensors[qkv_slot], skip, dx);
    }
    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override {
        weights_backward(call, kept, x, heads_.projected(call, dy));
    }
    /// dQ | dK | dV come first, because the weights need them, and dx last, because it may be x.
    void backward(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override {
        const ConstView gradient = heads_.projected(call, dy);
        heads_backward(call, kept, gradient);
        weights_backward(call, kept, x, gradient);
        qkv_.backward_input(call, kept, x, kept.tensors[qkv_slot], skip, dx);
    }

  private:
    static constexpr std::size_t qkv_slot = PaddedHeads::kept_count;

    void heads_backward(LayerCall& call, Kept& kept, ConstView gradient) {
        const View qkv(kept.tensors[qkv_slot]);
        heads_.backward(call, kept, gradient, {qkv, 0}, {qkv, heads_.sizes().query_width()});
    }
    /// dw_out += c^T dy,  dw_qkv += x^T (dQ | dK | dV)
    void weights_backward(LayerCall& call, Kept& kept, ConstView x, ConstView gradient) {
        heads_.backward_weight(call, kept, gradient);
        qkv_.backward_weight(call, kept, x, kept.tensors[qkv_slot]);
    }

    PaddedHeads heads_;
    Linear qkv_;
};

/// Attention of one sequence x to another, the memory m, whose lengths are those of the batch:
///
///   Q = x w_q + b_q,  K | V = m w_kv + b_kv           x (n, width)   m (n', width')
///   dm = (dK | dV) w_kv^T,  dx = dQ w_q^T
///
/// Keeps Q and K | V beside what the heads keep.
class CrossAttention final : public JoiningLayer {
  public:
    /// `inputs`: the shapes of x and of the memory.
    CrossAttention(const LayerSpec& spec,
                   const std::vector<SampleShape>& inputs,
                   NumberFormat format)
        : JoiningLayer(inputs, inputs.front(), format),
          heads_(spec, inputs[0], inputs[1].positions, format),
          q_(inputs[0], {.outputs = heads_.sizes().query_width(), .bias = spec.bias}, format),
          kv_(inputs[1], {.outputs = 2 * heads_.sizes().query_width(), .bias = spec.bias}, format) {
        contain(q_);
        contain(kv_);
        contain(heads_.output_projection());
    }

    Bytes kept_bytes(int samples) const override {
        return heads_.kept_bytes(samples) + q_.output_bytes(samples) + kv_.output_bytes(samples);
    }
    Bytes unread_bytes(int samples) const override { return heads_.unread_bytes(samples); }
    void free_unread(Kept& kept) const override { PaddedHeads::free_unread(kept); }
    Bytes workspace_bytes(int samples) const override { return heads_.workspace_bytes(samples); }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override {
        q_.create_parameters(maker, path + ".q", false);
        kv_.create_parameters(maker, path + ".kv", false);
        heads_.create_parameters(maker, path, ends_residual);
    }

    bool backward_reads(std::size_t /*input*/) const override { return true; }
    bool weight_reads(std::size_t /*input*/) const override { return true; }
    void join(LayerCall& call, std::span<const ConstView> x, View y, Kept& kept) override {
        Tensor q = call.arena.allocate(real(), x[0].rows, q_.output().width, MemoryKind::Stash);
        Tensor kv = call.arena.allocate(real(), x[1].rows, kv_.output().width, MemoryKind::Stash);
        q_.forward(call, x[0], {}, q, kept);    // Q = x w_q + b_q
        kv_.forward(call, x[1], {}, kv, kept);  // K | V = m w_kv + b_kv
        heads_.forward(call, {q, 0}, {kv, 0}, {}, y, kept);
        kept.tensors.push_back(std::move(q));
        kept.tensors.push_back(std::move(kv));
    }
    void join_backward_input(LayerCall& call,
                             Kept& kept,
                             std::span<const ConstView> /*x*/,
                             ConstView dy,
                             std::span<const InputGradient> dx) override {
        heads_backward(call, kept, heads_.projected(call, dy));
        inputs_backward(call, kept, dx);
    }
    void join_backward_weight(LayerCall& call,
                              Kept& kept,
                              std::span<const ConstView> x,
                              ConstView dy) override {
        weights_backward(call, kept, x, heads_.projected(call, dy));
    }
    /// Both from one masked gradient.
    void join_backward(LayerCall& call,
                       Kept& kept,
                       std::span<const ConstView> x,
                       ConstView dy,
                       std::span<const InputGradient> dx) override {
        const ConstView gradient = heads_.projected(call, dy);
        heads_backward(call, kept, gradient);
        weights_backward(call, kept, x, gradient);
        inputs_backward(call, kept, dx);
    }

  private:
    static constexpr std::size_t q_slot = PaddedHeads::kept_count;
    static constexpr std::size_t kv_slot = q_slot + 1;

    void heads_backward(LayerCall& call, Kept& kept, ConstView gradient) {
        heads_.backward(call,
                        kept,
                        gradient,
                        {View(kept.tensors[q_slot]), 0},
                        {View(kept.tensors[kv_slot]), 0});
    }
    /// dw_out += c^T dy,  dw_q += x^T dQ,  dw_kv += m^T (dK | dV)
    void weights_backward(LayerCall& call,
                          Kept& kept,
                          std::span<const ConstView> x,
                          ConstView gradient) {
        heads_.backward_weight(call, kept, gradient);
        q_.backward_weight(call, kept, x[0], kept.tensors[q_slot]);
        kv_.backward_weight(call, kept, x[1], kept.tensors[kv_slot]);
    }
    /// dm = (dK | dV) w_kv^T,  dx = dQ w_q^T: from the last input to the first
    void inputs_backward(LayerCall& call, Kept& kept, std::span<const InputGradient> dx) {
        const auto backward = [&](Linear& layer, std::size_t slot, const InputGradient& to) {
            layer.backward_input(call,
                                 kept,
                                 {},
                                 kept.tensors[slot],
                                 to.adds ? ConstView(to.dx) : ConstView{},
                                 to.dx);
        };
        backward(kv_, kv_slot, dx[1]);
        backward(q_, q_slot, dx[0]);
    }

    PaddedHeads heads_;
    Linear q_;
    Linear kv_;
};

Made self_attention(const LayerSpec& spec, const SampleShape& input, NumberFormat format) {
    return spec.causal ? made<Attention>(spec, input, format)
                       : made<PaddedAttention>(spec, input, format);
}

}  // namespace

const LayerMaker make_attention = self_attention;
const JoiningMaker make_cross_attention = made_of_several<CrossAttention>;

}  // namespace pipetwin::exec
