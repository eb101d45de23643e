// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/model/layer_spec.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// The loss: with c the target class of a row, N the samples of the mini-batch and T the positions
/// of a sample,
///
/// loss = 1 / (N T) sum over the rows of (l - x[c]),  l = log(sum exp x)        x (n, classes)
/// dx = 1 / (N T) (exp(x - l) - one at c)
///
/// With label smoothing s, x[c] becomes (1 - s) x[c] + s mean(x), and one at c becomes 1 - s at c
/// and s / classes everywhere: the mean over all classes has the share s of the loss, as in torch
/// and TensorFlow.
///
/// A position whose target is -1 has no part in the loss, and its dx is 0. N T is then the number
/// of positions of the mini-batch, over all replicas, that have a target.
///
/// The columns of padding are no classes: nothing above sees them, and their dx is 0.
///
/// So micro-batches of any size add up to the mean over the mini-batch, and gradients are plain
/// sums. Keeps its input, the targets (int32) and l. The loss is summed in double; it is not part
/// of y, which is empty.
class CrossEntropy final : public ExecutableLayer {
  public:
    CrossEntropy(const SampleShape& input, const ClassColumns& columns, NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override { return kept_bytes(samples); }
    void free_unread(Kept& kept) const override { kept.tensors.clear(); }
    /// In an evaluation also leaves the logits on the host that MicroBatch::logits wants. Throws
    /// Error(BadInput), naming sample, position and value, if a target is no class.
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    /// The forward of a training, with the gradient in the place of x: `backward_input` is done.
    void forward_with_gradient(LayerCall& call, View x, Kept& kept);
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    /// Puts the targets and room for l into `kept`, and says what a row weighs.
    void begin(LayerCall& call, Kept& kept) const;

    ClassColumns columns_;
    int classes_;
};

/// The loss of two outputs that stand for the same classes: those of the model, and auxiliary ones
/// that an earlier layer has made. With w the auxiliary weight,
///
/// loss = loss of x_0 + w loss of x_1,  dx_0 = d loss of x_0,  dx_1 = w d loss of x_1
///
/// in training, each as in CrossEntropy with the same label smoothing; an evaluation is about x_0
/// alone, and so is the number of right rows. Keeps the targets (int32) and l of both.
class CrossEntropyOfTwo final : public JoiningLayer {
  public:
    struct Options {
        double label_smoothing = 0;
        double auxiliary_weight = 0;
    };
    CrossEntropyOfTwo(const std::vector<SampleShape>& inputs, Options options, NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override { return kept_bytes(samples); }
    void free_unread(Kept& kept) const override { kept.tensors.clear(); }
    bool backward_reads(std::size_t /*input*/) const override { return true; }
    bool weight_reads(std::size_t /*input*/) const override { return false; }
    /// Throws Error(BadInput), naming sample, position and value, if a target is no class.
    void join(LayerCall& call, std::span<const ConstView> x, View y, Kept& kept) override;
    void join_backward_input(LayerCall& call,
                             Kept& kept,
                             std::span<const ConstView> x,
                             ConstView dy,
                             std::span<const InputGradient> dx) override;

  private:
    Options options_;
};

/// The loss of a yes or no at every position: with t the target 0 or 1 of a row, N the samples of
/// the mini-batch and T the positions of a sample,
///
/// loss = 1 / (N T) sum over the rows of (max(x, 0) - x t + log(1 + exp(-|x|)))      x (n, 1)
/// dx = 1 / (N T) (1 / (1 + exp(-x)) - t)
///
/// Keeps its input and the targets (int32); else as CrossEntropy.
class BinaryCrossEntropy final : public ExecutableLayer {
  public:
    BinaryCrossEntropy(const SampleShape& input, NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override { return kept_bytes(samples); }
    void free_unread(Kept& kept) const override { kept.tensors.clear(); }
    /// Throws Error(BadInput), naming sample, position and value, if a target is neither 0 nor 1.
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
};

}  // namespace pipetwin::exec
