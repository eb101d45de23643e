// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/layer_spec.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {
namespace {

constexpr int no_target = -1;

constexpr SampleShape after_loss{.token_ids = false, .positions = 1, .width = 0};

/// Notes 1 / (N T), the weight of a row in the mean over a mini-batch.
void weigh_rows(LayerCall& call, Kept& kept, const SampleShape& input) {
    const std::int64_t counted = call.data->counted_targets;
    kept.row_weight =
        1.0 / (counted > 0 ? static_cast<double>(counted)
                           : static_cast<double>(call.batch_samples) * input.positions);
    call.loss_scale = kept.row_weight;
}

/// Where a call wants the sums over its rows.
LossSums sums_of(const LayerCall& call) {
    return {.loss = call.loss_sum, .right = call.right_sum};
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
/// Where devices divide the classes, each has its columns of x and dx, and of each row they tell
/// one another the largest number, the sum of the exponentials and the target's number.
///
/// So micro-batches of any size add up to the mean over the mini-batch, and gradients are plain
/// sums. Keeps its input, the targets (int32) and l. The loss is summed in double; it is not part
/// of y, which is empty.
class CrossEntropy final : public PlainLayer {
  public:
    CrossEntropy(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, after_loss, format),
          columns_{.smoothing = spec.label_smoothing, .padding = spec.vocabulary_padding},
          devices_(spec.cut.devices),
          classes_((input.width - spec.vocabulary_padding) * devices_) {}

    Bytes kept_bytes(int samples) const override {
        return target_bytes(rows(samples)) + exact_bytes(rows(samples), 1);
    }
    /// A device's parts of its rows, and those of all devices.
    Bytes workspace_bytes(int samples) const override {
        return devices_ > 1 ? (1 + devices_) * exact_bytes(rows(samples), parts_of_row) : Bytes{};
    }
    /// In an evaluation also leaves the logits on the host that MicroBatch::logits wants. Throws
    /// Error(BadInput), naming sample, position and value, if a target is no class.
    void forward(
        LayerCall& call, ConstView x, ConstView /*skip*/, View /*y*/, Kept& kept) override {
        begin(call, kept);
        if (devices_ > 1) {
            PIPETWIN_EXPECT(call.data->logits == nullptr, "no device has all logits of a row");
            return sum_over_devices(call, x, kept);
        }
        call.kernels.cross_entropy_forward(
            x, kept.tensors[0], columns_, kept.tensors[1], sums_of(call));
        hand_out_logits(call, input(), classes_, x);
    }
    bool has_gradient_in_forward() const override { return true; }
    void forward_with_gradient(LayerCall& call, View x, Kept& kept) override {
        begin(call, kept);
        if (devices_ > 1) {
            sum_over_devices(call, x, kept);
            return call.kernels.cross_entropy_backward(
                x, kept.tensors[0], kept.tensors[1], columns_of(call), kept.row_weight, x);
        }
        call.kernels.cross_entropy_with_gradient(
            kept.tensors[0], columns_, kept.row_weight, kept.tensors[1], sums_of(call), x);
    }
    void input_gradient(const LayerCall& call, const Kept& kept, const Operands& of) override {
        call.kernels.cross_entropy_backward(
            of.x, kept.tensors[0], kept.tensors[1], columns_of(call), kept.row_weight, of.dx);
        call.add(of.skip, of.dx);
    }

  private:
    static constexpr std::int64_t parts_of_row = 4;  ///< Kernels::class_parts

    /// The columns of the calling device.
    ClassColumns columns_of(const LayerCall& call) const {
        ClassColumns columns = columns_;
        columns.first = std::int64_t{call.group.index()} * (classes_ / devices_);
        return columns;
    }
    /// l and the sums of `LossSums`, of the columns of all devices.
    void sum_over_devices(LayerCall& call, ConstView x, Kept& kept) const {
        const View own(call.workspace, format().exact(), x.rows, parts_of_row);
        const View all(call.workspace + exact_bytes(x.rows, parts_of_row).count,
                       format().exact(),
                       devices_ * x.rows,
                       parts_of_row);
        call.kernels.class_parts(x, kept.tensors[0], columns_of(call), own);
        call.group.all_gather(own, all);
        call.kernels.cross_entropy_of_parts(all, kept.tensors[0], kept.tensors[1], sums_of(call));
    }
    /// Puts the targets and room for l into `kept`, and says what a row weighs.
    void begin(LayerCall& call, Kept& kept) const {
        kept.tensors.push_back(load_targets(call, input(), classes_, no_target));
        kept.tensors.push_back(
            call.arena.allocate(format().exact(), rows(call.samples), 1, MemoryKind::Stash));
        weigh_rows(call, kept, input());
    }

    ClassColumns columns_;
    int devices_;  ///< that divide the classes
    int classes_;  ///< of all of them
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
    CrossEntropyOfTwo(const LayerSpec& spec,
                      const std::vector<SampleShape>& inputs,
                      NumberFormat format)
        : JoiningLayer(inputs, after_loss, format),
          columns_{.smoothing = spec.label_smoothing},
          auxiliary_weight_(spec.auxiliary_weight) {
        PIPETWIN_EXPECT(inputs.size() == 2 && inputs[0] == inputs[1], "two outputs of one shape");
    }

    Bytes kept_bytes(int samples) const override {
        return target_bytes(rows(samples)) + 2 * exact_bytes(rows(samples), 1);
    }
    bool backward_reads(std::size_t /*input*/) const override { return true; }
    bool weight_reads(std::size_t /*input*/) const override { return false; }
    /// Throws Error(BadInput), naming sample, position and value, if a target is no class.
    void join(LayerCall& call, std::span<const ConstView> x, View /*y*/, Kept& kept) override {
        kept.tensors.push_back(load_targets(call, input(), input().width, no_target));
        sum_up(call, kept, x[0], sums_of(call));
        weigh_rows(call, kept, input());
        if (!call.evaluation) {
            sum_up(call, kept, x[1], {.loss = call.auxiliary_sum});
            call.auxiliary_scale = auxiliary_weight_ * call.loss_scale;
        }
    }
    /// Nothing reads the logits behind the loss, so nothing is in a dx to be added to.
    void join_backward_input(LayerCall& call,
                             Kept& kept,
                             std::span<const ConstView> x,
                             ConstView /*dy*/,
                             std::span<const InputGradient> dx) override {
        const double scale = kept.row_weight;
        for (std::size_t input = 0; input < dx.size(); ++input) {
            PIPETWIN_EXPECT(!dx[input].adds, "the loss is the last reader of what it reads");
            if (!dx[input].dx.empty()) {
                call.kernels.cross_entropy_backward(x[input],
                                                    kept.tensors[0],
                                                    kept.tensors[1 + input],
                                                    columns_,
                                                    input == 0 ? scale : auxiliary_weight_ * scale,
                                                    dx[input].dx);
            }
        }
        call.done(Op::BackwardInput);
    }

  private:
    /// The loss of one of the outputs, whose l is kept.
    void sum_up(const LayerCall& call, Kept& kept, ConstView logits, const LossSums& sums) const {
        Tensor log_sums = call.arena.allocate(format().exact(), logits.rows, 1, MemoryKind::Stash);
        call.kernels.cross_entropy_forward(logits, kept.tensors[0], columns_, log_sums, sums);
        kept.tensors.push_back(std::move(log_sums));
    }

    ClassColumns columns_;
    double auxiliary_weight_;
};

/// The loss of a yes or no at every position: with t the target 0 or 1 of a row, N the samples of
/// the mini-batch and T the positions of a sample,
///
/// loss = 1 / (N T) sum over the rows of (max(x, 0) - x t + log(1 + exp(-|x|)))      x (n, 1)
/// dx = 1 / (N T) (1 / (1 + exp(-x)) - t)
///
/// Keeps its input and the targets (int32); else as CrossEntropy.
class BinaryCrossEntropy final : public PlainLayer {
  public:
    BinaryCrossEntropy(const LayerSpec& /*spec*/, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, after_loss, format) {}

    Bytes kept_bytes(int samples) const override { return target_bytes(rows(samples)); }
    /// Throws Error(BadInput), naming sample, position and value, if a target is neither 0 nor 1.
    void forward(
        LayerCall& call, ConstView x, ConstView /*skip*/, View /*y*/, Kept& kept) override {
        constexpr int yes_or_no = 2;
        kept.tensors.push_back(load_targets(call, input(), yes_or_no, 0));
        call.kernels.binary_cross_entropy_forward(x, kept.tensors[0], sums_of(call));
        weigh_rows(call, kept, input());
    }
    void input_gradient(const LayerCall& call, const Kept& kept, const Operands& of) override {
        call.kernels.binary_cross_entropy_backward(of.x, kept.tensors[0], kept.row_weight, of.dx);
        call.add(of.skip, of.dx);
    }
};

}  // namespace

const LayerMaker make_cross_entropy = made<CrossEntropy>;
const LayerMaker make_binary_cross_entropy = made<BinaryCrossEntropy>;
const JoiningMaker make_cross_entropy_of_two = made_of_several<CrossEntropyOfTwo>;

}  // namespace pipetwin::exec
