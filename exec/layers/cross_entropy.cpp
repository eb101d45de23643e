#include "exec/layers/cross_entropy.h"

namespace pipetwin::exec {

CrossEntropy::CrossEntropy(const SampleShape& input, NumberFormat format)
    : ExecutableLayer(input, {.token_ids = false, .positions = 1, .width = 0}, format) {}

Bytes CrossEntropy::kept_bytes(int samples) const {
    const Bytes targets{rows(samples) * static_cast<std::int64_t>(size_of(DType::I32))};
    return targets + exact_bytes(rows(samples), 1);
}

double CrossEntropy::scale(const LayerCall& call) const {
    return 1.0 / (static_cast<double>(call.batch_samples) * input().positions);
}

// loss = 1 / (N T) sum over the rows of (l - x[c]),  l = log(sum exp x)
void CrossEntropy::forward(
    LayerCall& call, ConstView x, ConstView /*skip*/, View /*y*/, Kept& kept) {
    const std::span<const std::int32_t> wanted =
        targets_of(*call.data, input().positions, input().width);
    Tensor targets = call.arena.allocate(DType::I32, x.rows, 1, MemoryKind::Stash);
    Tensor log_sums = call.arena.allocate(format().exact(), x.rows, 1, MemoryKind::Stash);
    call.kernels.upload(wanted, targets);
    call.kernels.cross_entropy_forward(x, targets, log_sums, call.loss_sum);
    call.loss_scale = scale(call);
    kept.tensors.push_back(std::move(targets));
    kept.tensors.push_back(std::move(log_sums));
}

// dx = 1 / (N T) (exp(x - l) - one at c)
void CrossEntropy::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView /*dy*/, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.cross_entropy_backward(x, kept.tensors[0], kept.tensors[1], scale(call), dx);
        if (!skip.empty()) {
            call.kernels.add(skip, dx);
        }
    }
    call.done(Op::BackwardInput);
}

}  // namespace pipetwin::exec
