#include "exec/layers/attention.h"

namespace pipetwin::exec {
namespace {

// What Kept::tensors holds.
constexpr std::size_t qkv_slot = 0;
constexpr std::size_t softmax_slot = 1;
constexpr std::size_t context_slot = 2;

/// Up to where any type may begin, in 16-byte accesses too.
Bytes aligned(Bytes bytes) {
    return {(bytes.count + 15) / 16 * 16};
}

/// Up to where an operand of a product may begin on a GPU.
Bytes operand_aligned(Bytes bytes) {
    return {(bytes.count + 255) / 256 * 256};
}

}  // namespace

Bytes attention_scratch(const AttentionShape& shape, const NumberFormat& format) {
    const auto bytes_of = [](std::int64_t elements, DType type) {
        return Bytes{elements * static_cast<std::int64_t>(size_of(type))};
    };
    const std::int64_t positions = shape.positions;
    if (format.softmax == SoftmaxKept::Probabilities) {
        return bytes_of(positions * positions, format.exact()) +
               bytes_of(positions * (shape.width / shape.heads), format.real);
    }
    const std::int64_t rows = shape.samples * positions;
    return aligned(bytes_of(3 * rows * shape.width, format.real)) +
           bytes_of(rows * shape.heads, format.exact());
}

Attention::Attention(const SampleShape& input, int heads, double dropout, NumberFormat format)
    : ExecutableLayer(input, input, format),
      heads_(heads),
      qkv_(input, {.outputs = 3 * input.width}, format),
      out_(input, {.outputs = input.width}, format),
      dropout_(dropout) {}

AttentionShape Attention::shape(int samples) const {
    return {.samples = samples,
            .positions = input().positions,
            .heads = heads_,
            .width = input().width};
}

Bytes Attention::softmax_bytes(int samples) const {
    const std::int64_t n = rows(samples);
    return format().softmax == SoftmaxKept::Probabilities
               ? matrix_bytes(n * heads_, input().positions)
               : exact_bytes(n * heads_, 1);
}

Bytes Attention::kept_bytes(int samples) const {
    const std::int64_t n = rows(samples);
    return matrix_bytes(n, 3 * input().width) + softmax_bytes(samples) +
           matrix_bytes(n, input().width);
}

Bytes Attention::workspace_bytes(int samples) const {
    // dc, and then what the kernel needs; before them the gradient behind the dropout.
    const Bytes matrix = matrix_bytes(rows(samples), input().width);
    return dropout_.workspace_bytes(operand_aligned(matrix)) + aligned(matrix) +
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
    Tensor qkv = call.arena.allocate(real(), x.rows, 3 * x.columns, MemoryKind::Stash);
    const bool log_sums = format().softmax == SoftmaxKept::LogSums;
    Tensor softmax = call.arena.allocate(log_sums ? format().exact() : real(),
                                         x.rows * heads_,
                                         log_sums ? 1 : sizes.positions,
                                         MemoryKind::Stash);
    Tensor context = call.arena.allocate(real(), x.rows, x.columns, MemoryKind::Stash);

    qkv_.forward(call, x, {}, qkv, kept);                          // Q | K | V = x w_qkv + b_qkv
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

void Attention::heads_backward(LayerCall& call, Kept& kept, ConstView dy) {
    const Bytes matrix = matrix_bytes(dy.rows, dy.columns);
    std::byte* const place =
        call.workspace + dropout_.workspace_bytes(operand_aligned(matrix)).count;
    const View dcontext(place, real(), dy.rows, dy.columns);
    out_.backward_input(call, kept, {}, dy, {}, dcontext);  // dc = dy w_out^T
    call.kernels.attention_backward(shape(call.samples),
                                    kept.tensors[softmax_slot],
                                    kept.tensors[context_slot],
                                    dcontext,
                                    kept.tensors[qkv_slot],
                                    place + aligned(matrix).count);
    call.done(Op::BackwardInput);
}

// dw_out += c^T dy,  dw_qkv += x^T (dQ | dK | dV)
void Attention::weights_backward(LayerCall& call, Kept& kept, ConstView x, ConstView dy) {
    out_.backward_weight(call, kept, kept.tensors[context_slot], dy);
    qkv_.backward_weight(call, kept, x, kept.tensors[qkv_slot]);
}

// dx = skip + (dQ | dK | dV) w_qkv^T
void Attention::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    heads_backward(call, kept, projected_gradient(call, dy));
    qkv_.backward_input(call, kept, x, kept.tensors[qkv_slot], skip, dx);
}

void Attention::free_unread(Kept& kept) const {
    kept.tensors[softmax_slot] = {};
}

void Attention::backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) {
    weights_backward(call, kept, x, projected_gradient(call, dy));
}

// Both. dQ | dK | dV come first, because the weights need them, and dx last, because it may be x.
void Attention::backward(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    const ConstView gradient = projected_gradient(call, dy);
    heads_backward(call, kept, gradient);
    weights_backward(call, kept, x, gradient);
    qkv_.backward_input(call, kept, x, kept.tensors[qkv_slot], skip, dx);
}

}  // namespace pipetwin::exec
