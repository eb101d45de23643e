// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "core/base/error.h"
#include "core/model/layer_spec.h"
#include "exec/device/column_kernels.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {
namespace {

/// Some neighbouring positions of each sample, from `begin` on:
///
///     y[s, i] = skip[s, i] + x[s, begin + i]        x (n, width)   y (samples * positions, width)
///     dx[s, begin + i] = skip[s, begin + i] + dy[s, i],  skip elsewhere
///
/// Its backward does not read its input.
class Positions final : public PlainLayer {
  public:
    Positions(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, output_shape(spec, input), format),
          begin_(std::int64_t{spec.begin} * input.width),
          count_(std::int64_t{output().positions} * input.width) {}

    bool backward_reads_input() const override { return false; }
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) override {
        call.kernels.copy_columns({.from = begin_, .to = 0, .count = count_, .adds = false},
                                  by_sample(x, call.samples),
                                  by_sample(y, call.samples));
        call.add(skip, y);
    }
    void input_gradient(const LayerCall& call, const Kept& /*kept*/, const Operands& of) override {
        call.kernels.fill_zero(of.dx);
        call.kernels.copy_columns({.from = 0, .to = begin_, .count = count_, .adds = false},
                                  by_sample(of.dy, call.samples),
                                  by_sample(of.dx, call.samples));
        call.add(of.skip, of.dx);
    }

  private:
    /// All positions of a sample side by side, in one row.
    template <class AnyView>
    static AnyView by_sample(AnyView matrix, int samples) {
        return {matrix.data, matrix.dtype, samples, matrix.rows * matrix.columns / samples};
    }

    std::int64_t begin_;  ///< numbers of a sample before the first that y takes
    std::int64_t count_;  ///< numbers of a sample that y takes
};

/// All positions of a sample side by side, in one.
SampleShape flattened(const SampleShape& shape) {
    return {.positions = 1, .width = shape.positions * shape.width};
}

/// y = skip + x, in the shape of y: a layer that changes nothing, or gives the numbers of a sample
/// another shape.
///
/// Its backward does not read its input. Where no other layer reads that, a model with branches
/// does without this layer: what it makes is what it reads (core/plan/stage_values.h).
class Reshape final : public PlainLayer {
  public:
    Reshape(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, spec.type == LayerType::Flatten ? flattened(input) : input, format) {}

    bool backward_reads_input() const override { return false; }
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) override {
        call.kernels.columns().copy(x, y);
        call.add(skip, y);
    }
    void input_gradient(const LayerCall& call, const Kept& /*kept*/, const Operands& of) override {
        call.kernels.columns().copy(of.dy, of.dx);
        call.add(of.skip, of.dx);
    }
};

/// y = skip + (x | 0): zeros behind the columns of x        x (n, width), y (n, outputs)
/// dx = skip + the first columns of dy
///
/// Its backward does not read its input.
class PadChannels final : public PlainLayer {
  public:
    PadChannels(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, with_width(input, spec.outputs), format) {
        PIPETWIN_EXPECT(spec.outputs >= input.width, "columns are added");
    }

    bool backward_reads_input() const override { return false; }
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) override {
        if (skip.empty()) {
            call.kernels.fill_zero(y);
        } else {
            call.kernels.columns().copy(skip, y);
        }
        call.kernels.copy_columns(
            {.from = 0, .to = 0, .count = x.columns, .adds = !skip.empty()}, x, y);
    }
    void input_gradient(const LayerCall& call, const Kept& /*kept*/, const Operands& of) override {
        call.kernels.copy_columns(
            {.from = 0, .to = 0, .count = of.dx.columns, .adds = false}, of.dy, of.dx);
        call.add(of.skip, of.dx);
    }
};

}  // namespace

const LayerMaker make_positions = made<Positions>;
const LayerMaker make_reshape = made<Reshape>;
const LayerMaker make_channel_padding = made<PadChannels>;

}  // namespace pipetwin::exec
