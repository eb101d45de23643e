// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/cross_entropy.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/layer_spec.h"

namespace pipetwin::exec {
namespace {

constexpr int no_target = -1;

constexpr SampleShape after_loss{.token_ids = false, .positions = 1, .width = 0};

/// 1 / (N T): the weight of a row in the mean over a mini-batch.
double row_weight(const LayerCall& call, const SampleShape& input) {
    const std::int64_t counted = call.data->counted_targets;
    return 1.0 / (counted > 0 ? static_cast<double>(counted)
                              : static_cast<double>(call.batch_samples) * input.positions);
}

/// The classes of the rows, on the device. Throws Error(BadInput) if a target is below `least` or
/// no class.
Tensor load_targets(const LayerCall& call, const SampleShape& input, int classes, int least) {
    const std::span<const std::int32_t> wanted =
        targets_of(*call.data, input.positions, classes, least);
    Tensor targets = call.arena.allocate(
        DType::I32, static_cast<std::int64_t>(wanted.size()), 1, MemoryKind::Stash);
    call.kernels.upload(wanted, targets);
    return targets;
}

/// Leaves the logits that are wanted on the host.
void hand_out_logits(const LayerCall& call, const SampleShape& input, int classes, ConstView x) {
    if (call.data->logits == nullptr) {
        return;
    }
    const WantedLogits& wanted = *call.data->logits;
    for (int sample = 0; sample < call.samples; ++sample) {
        const std::size_t of_batch = as_index(call.first_sample + sample);
        const std::int64_t row =
            std::int64_t{sample} * input.positions + wanted.positions[of_batch];
        const std::vector<double> logits =
            values(call.kernels,
                   ConstView(static_cast<const std::byte*>(x.data) +
                                 as_index(row * x.columns) * size_of(x.dtype),
                             x.dtype,
                             1,
                             classes));
        std::ranges::copy(logits,
                          wanted.values.subspan(of_batch * logits.size(), logits.size()).begin());
    }
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

CrossEntropy::CrossEntropy(const SampleShape& input,
                           const ClassColumns& columns,
                           NumberFormat format)
    : ExecutableLayer(input, after_loss, format),
      columns_(columns),
      classes_(input.width - static_cast<int>(columns.padding)) {}

Bytes CrossEntropy::kept_bytes(int samples) const {
    return target_bytes(rows(samples)) + exact_bytes(rows(samples), 1);
}

void CrossEntropy::begin(LayerCall& call, Kept& kept) const {
    Tensor targets = load_targets(call, input(), classes_, no_target);
    kept.tensors.push_back(std::move(targets));
    kept.tensors.push_back(
        call.arena.allocate(format().exact(), rows(call.samples), 1, MemoryKind::Stash));
    kept.row_weight = row_weight(call, input());
    call.loss_scale = kept.row_weight;
}

// loss = 1 / (N T) sum over the rows of (l - (1 - s) x[c] - s mean(x)),  l = log(sum exp x)
void CrossEntropy::forward(
    LayerCall& call, ConstView x, ConstView /*skip*/, View /*y*/, Kept& kept) {
    begin(call, kept);
    call.kernels.cross_entropy_forward(x,
                                       kept.tensors[0],
                                       columns_,
                                       kept.tensors[1],
                                       {.loss = call.loss_sum, .right = call.right_sum});
    hand_out_logits(call, input(), classes_, x);
}

// as above, and in the place of x: dx = 1 / (N T) (exp(x - l) - (1 - s) at c - s / classes)
void CrossEntropy::forward_with_gradient(LayerCall& call, View x, Kept& kept) {
    begin(call, kept);
    call.kernels.cross_entropy_with_gradient(kept.tensors[0],
                                             columns_,
                                             kept.row_weight,
                                             kept.tensors[1],
                                             {.loss = call.loss_sum, .right = call.right_sum},
                                             x);
}

// dx = 1 / (N T) (exp(x - l) - (1 - s) at c - s / classes)
void CrossEntropy::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView /*dy*/, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.cross_entropy_backward(
            x, kept.tensors[0], kept.tensors[1], columns_, kept.row_weight, dx);
    }
    add_skip(call, skip, dx);
}

CrossEntropyOfTwo::CrossEntropyOfTwo(const std::vector<SampleShape>& inputs,
                                     Options options,
                                     NumberFormat format)
    : JoiningLayer(inputs, after_loss, format), options_(options) {
    PIPETWIN_EXPECT(inputs.size() == 2 && inputs[0] == inputs[1], "two outputs of one shape");
}

Bytes CrossEntropyOfTwo::kept_bytes(int samples) const {
    return target_bytes(rows(samples)) + 2 * exact_bytes(rows(samples), 1);
}

// loss = 1 / (N T) sum over the rows of (loss of x_0 + w loss of x_1)
void CrossEntropyOfTwo::join(LayerCall& call,
                             std::span<const ConstView> x,
                             View /*y*/,
                             Kept& kept) {
    const ConstView classes =
        kept.tensors.emplace_back(load_targets(call, input(), input().width, no_target));
    const auto sum_up = [&](ConstView logits, const LossSums& sums) {
        Tensor log_sums = call.arena.allocate(format().exact(), logits.rows, 1, MemoryKind::Stash);
        call.kernels.cross_entropy_forward(
            logits, classes, {.smoothing = options_.label_smoothing}, log_sums, sums);
        kept.tensors.push_back(std::move(log_sums));
    };
    sum_up(x[0], {.loss = call.loss_sum, .right = call.right_sum});
    kept.row_weight = row_weight(call, input());
    call.loss_scale = kept.row_weight;
    if (!call.evaluation) {
        sum_up(x[1], {.loss = call.auxiliary_sum});
        call.auxiliary_scale = options_.auxiliary_weight * call.loss_scale;
    }
}

// Nothing reads the logits behind the loss, so nothing is in a dx to be added to.
void CrossEntropyOfTwo::join_backward_input(LayerCall& call,
                                            Kept& kept,
                                            std::span<const ConstView> x,
                                            ConstView /*dy*/,
                                            std::span<const InputGradient> dx) {
    const double scale = kept.row_weight;
    for (std::size_t input = 0; input < dx.size(); ++input) {
        PIPETWIN_EXPECT(!dx[input].adds, "the loss is the last reader of what it reads");
        if (!dx[input].dx.empty()) {
            call.kernels.cross_entropy_backward(
                x[input],
                kept.tensors[0],
                kept.tensors[1 + input],
                {.smoothing = options_.label_smoothing},
                input == 0 ? scale : options_.auxiliary_weight * scale,
                dx[input].dx);
        }
    }
    call.done(Op::BackwardInput);
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
    Tensor targets = load_targets(call, input(), yes_or_no, 0);
    call.kernels.binary_cross_entropy_forward(
        x, targets, {.loss = call.loss_sum, .right = call.right_sum});
    kept.row_weight = row_weight(call, input());
    call.loss_scale = kept.row_weight;
    kept.tensors.push_back(std::move(targets));
}

// dx = 1 / (N T) (1 / (1 + exp(-x)) - t)
void BinaryCrossEntropy::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView /*dy*/, ConstView skip, View dx) {
    if (!dx.empty()) {
        call.kernels.binary_cross_entropy_backward(x, kept.tensors[0], kept.row_weight, dx);
    }
    add_skip(call, skip, dx);
}

}  // namespace pipetwin::exec
