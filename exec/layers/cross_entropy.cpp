#include "exec/layers/cross_entropy.h"

namespace pipetwin::exec {
namespace {

constexpr SampleShape after_loss{.token_ids = false, .positions = 1, .width = 0};

/// 1 / (N T): the weight of a row in the mean over a mini-batch.
double row_weight(const LayerCall& call, const SampleShape& input) {
    return 1.0 / (static_cast<double>(call.batch_samples) * input.positions);
}

/// The classes of the rows, on the device. Throws Error(BadInput) if a target is no class.
Tensor load_targets(const LayerCall& call, const SampleShape& input, int classes) {
    const std::span<const std::int32_t> wanted = targets_of(*call.data, input.positions, classes);
    Tensor targets = call.arena.allocate(
        DType::I32, static_cast<std::int64_t>(wanted.size()), 1, MemoryKind::Stash);
    call.kernels.upload(wanted, targets);
    return targets;
}

Bytes target_bytes(std::int64_t rows) {
    return Bytes{rows * static_cast<std::int64_t>(size_of(DType::I32))};
}

/// Ends the backward of a loss, whose gradient is in `dx`.
void add_skip(const LayerCall& call, ConstView skip, View dx) {
    if (!dx.empty() && !skip.empty()) {
        call.kernels.add(skip, dx);
    }
    call.done(Op::BackwardInput);
}

}  // namespace

CrossEntropy::CrossEntropy(const SampleShape& input, double label_smoothing, NumberFormat format)
    : ExecutableLayer(input, after_loss, format), label_smoothing_(label_smoothing) {}

Bytes CrossEntropy::kept_bytes(int samples) const {
    return target_bytes(rows(samples)) + exact_bytes(rows(samples), 1);
}

// loss = 1 / (N T) sum over the rows of (l - (1 - s) x[c] - s mean(x)),  l = log(sum exp x)
void CrossEntropy::forward(
    LayerCall& call, ConstView x, ConstView /*skip*/, View /*y*/, Kept& kept) {
    Tensor targets = load_targets(call, input(), input().width);
    Tensor log_sums = call.arena.allocate(format().exact(), x.rows, 1, MemoryKind::Stash);
    call.kernels.cross_entropy_forward(
        x, targets, label_smoothing_, log_sums, {.loss = call.loss_sum, .right = call.right_sum});
    call.loss_scale = row_weight(call, input());
    kept.tensors.push_back(std::move(targets));
    kept.tensors.push_back(std::move(log_sums));
}

// dx = 1 / (N T) (exp(x - l) - (1 - s) at c - s / classes)
void CrossEntropy::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView /*dy*/, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.cross_entropy_backward(
            x, kept.tensors[0], kept.tensors[1], label_smoothing_, row_weight(call, input()), dx);
    }
    add_skip(call, skip, dx);
}

BinaryCrossEntropy::BinaryCrossEntropy(const SampleShape& input, NumberFormat format)
    : ExecutableLayer(input, after_loss, format) {}

Bytes BinaryCrossEntropy::kept_bytes(int samples) const {
    return target_bytes(rows(samples));
}

// loss = 1 / (N T) sum over the rows of (max(x, 0) - x t + log(1 + exp(-|x|)))
void BinaryCrossEntropy::forward(
    LayerCall& call, ConstView x, ConstView /*skip*/, View /*y*/, Kept& kept) {
    constexpr int yes_or_no = 2;
    Tensor targets = load_targets(call, input(), yes_or_no);
    call.kernels.binary_cross_entropy_forward(
        x, targets, {.loss = call.loss_sum, .right = call.right_sum});
    call.loss_scale = row_weight(call, input());
    kept.tensors.push_back(std::move(targets));
}

// dx = 1 / (N T) (1 / (1 + exp(-x)) - t)
void BinaryCrossEntropy::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView /*dy*/, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.binary_cross_entropy_backward(
            x, kept.tensors[0], row_weight(call, input()), dx);
    }
    add_skip(call, skip, dx);
}

}  // namespace pipetwin::exec
