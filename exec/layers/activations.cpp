// SPDX-License-Identifier: Apache-2.0
#include "core/model/layer_spec.h"
#include "exec/device/column_kernels.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {
namespace {

/// y = skip + x F(x)                      x, y (n, width)
/// dx = skip + dy (F(x) + x F'(x))
///
/// exact: F(x) = (1 + erf(x / sqrt 2)) / 2,  F'(x) = exp(-x^2 / 2) / sqrt(2 pi)
/// tanh:  F(x) = (1 + tanh(v)) / 2,  F'(x) = v' (1 - tanh(v)^2) / 2,
///        v = sqrt(2 / pi) (x + 0.044715 x^3)
///
/// Keeps its input.
class Gelu final : public PlainLayer {
  public:
    Gelu(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, input, format), form_(spec.gelu) {}

    std::optional<GeluForm> gelu() const override { return form_; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) override {
        call.kernels.gelu_forward(form_, x, y);
        call.add(skip, y);
    }
    void input_gradient(const LayerCall& call, const Kept& /*kept*/, const Operands& of) override {
        call.kernels.gelu_backward(form_, of.x, of.dy, of.dx);
        call.add(of.skip, of.dx);
    }

  private:
    GeluForm form_;
};

/// Gates g and values v side by side, s = 1 / (1 + exp(-g)) (Shazeer, arXiv 2002.05202):
///
/// y = skip + v g s                       x = g | v (n, 2 width)   y (n, width)
/// dg = dy v s (1 + g (1 - s)),  dv = dy g s,  dx = skip + (dg | dv)
///
/// Keeps its input.
class SwiGlu final : public PlainLayer {
  public:
    SwiGlu(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, output_shape(spec, input), format) {}

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) override {
        call.kernels.swiglu_forward(x, y);
        call.add(skip, y);
    }
    void input_gradient(const LayerCall& call, const Kept& /*kept*/, const Operands& of) override {
        call.kernels.swiglu_backward(of.x, of.dy, of.dx);
        call.add(of.skip, of.dx);
    }
};

/// y = skip + (x where x > 0, else slope x)        x, y (n, width); relu has slope 0
/// dx = skip + (dy where x > 0, else slope dy)
///
/// Keeps its input, or reads its output in place of that: y > 0 where x > 0. So its backward takes
/// either as x, and dy may lie in the place of dx.
class Rectifier final : public PlainLayer {
  public:
    Rectifier(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, input, format),
          slope_(spec.type == LayerType::LeakyRelu ? spec.slope : 0) {}

    bool may_read_output() const override { return true; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) override {
        call.kernels.columns().rectify(slope_, x, x, y);
        call.add(skip, y);
    }
    void input_gradient(const LayerCall& call, const Kept& /*kept*/, const Operands& of) override {
        call.kernels.columns().rectify(slope_, of.x, of.dy, of.dx);
        call.add(of.skip, of.dx);
    }

  private:
    double slope_;
};

}  // namespace

const LayerMaker make_gelu = made<Gelu>;
const LayerMaker make_swiglu = made<SwiGlu>;
const LayerMaker make_rectifier = made<Rectifier>;

}  // namespace pipetwin::exec
