#pragma once

#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// The loss: with c the target class of a row, N the samples of the mini-batch and T the positions
/// of a sample,
///
/// loss = 1 / (N T) sum over the rows of (l - x[c]),  l = log(sum exp x)        x (n, classes)
/// dx = 1 / (N T) (exp(x - l) - one at c)
///
/// So micro-batches of any size add up to the mean over the mini-batch, and gradients are plain
/// sums. Keeps its input, the targets (int32) and l. The loss is summed in double; it is not part
/// of y, which is empty.
class CrossEntropy final : public ExecutableLayer {
  public:
    CrossEntropy(const SampleShape& input, NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override { return kept_bytes(samples); }
    void free_unread(Kept& kept) const override { kept.tensors.clear(); }
    /// Throws Error(BadInput), naming sample, position and value, if a target is no class.
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    double scale(const LayerCall& call) const;  // 1 / (N T)
};

}  // namespace pipetwin::exec
