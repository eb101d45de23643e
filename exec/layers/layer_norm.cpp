// SPDX-License-Identifier: Apache-2.0
#include "core/model/layer_spec.h"
#include "exec/layers/makers.h"
#include "exec/layers/norm.h"

namespace pipetwin::exec {
namespace {

/// Per row, with m = mean(x), s = 1 / sqrt(mean((x - m)^2) + 1e-5), z = (x - m) s:
///
/// y = skip + gain * z + bias        x, y (n, width)   gain, bias (width)
/// dx = skip + s (g - mean(g) - z mean(g * z)),  g = gain * dy
/// dgain += sum of dy * z,  dbias += sum of dy
///
/// Keeps its input, m and s.
class LayerNorm final : public Norm {
  public:
    LayerNorm(const LayerSpec& /*spec*/, const SampleShape& input, NumberFormat format)
        : Norm(input, Has::GainAndBias, format) {}

    Bytes kept_bytes(int samples) const override { return exact_bytes(rows(samples), 2); }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override {
        Tensor statistics = call.arena.allocate(format().exact(), x.rows, 2, MemoryKind::Stash);
        call.kernels.layer_norm_forward(x, gain().value, bias().value, y, statistics);
        call.add(skip, y);
        kept.tensors.push_back(std::move(statistics));
    }
    void gradients(const LayerCall& call, const Kept& kept, const Operands& of) override {
        const ConstView statistics = kept.tensors.front();
        const GradientSum dgain = gain().next_gradient();
        const GradientSum dbias = bias().next_gradient();
        if (of.dx.empty()) {
            call.kernels.layer_norm_backward_weight(of.x, statistics, of.dy, dgain, dbias);
        } else {
            call.kernels.layer_norm_backward(
                of.x, gain().value, statistics, of.dy, of.skip, of.dx, dgain, dbias);
        }
    }
};

/// Per row, with s = 1 / sqrt(mean(x^2) + epsilon), z = x s (Zhang and Sennrich, arXiv 1910.07467):
///
/// y = skip + gain * z        x, y (n, width)   gain (width)
/// dx = skip + s (g - z mean(g * z)),  g = gain * dy
/// dgain += sum of dy * z
///
/// Keeps its input and s.
class RmsNorm final : public Norm {
  public:
    RmsNorm(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : Norm(input, Has::Gain, format), epsilon_(spec.epsilon) {}

    Bytes kept_bytes(int samples) const override { return exact_bytes(rows(samples), 1); }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override {
        Tensor roots = call.arena.allocate(format().exact(), x.rows, 1, MemoryKind::Stash);
        call.kernels.rms_norm_forward(x, gain().value, epsilon_, y, roots);
        call.add(skip, y);
        kept.tensors.push_back(std::move(roots));
    }
    void gradients(const LayerCall& call, const Kept& kept, const Operands& of) override {
        const ConstView roots = kept.tensors.front();
        const GradientSum dgain = gain().next_gradient();
        if (of.dx.empty()) {
            call.kernels.rms_norm_backward_weight(of.x, roots, of.dy, dgain);
        } else {
            call.kernels.rms_norm_backward(of.x, gain().value, roots, of.dy, of.skip, of.dx, dgain);
        }
    }

  private:
    double epsilon_;
};

}  // namespace

const LayerMaker make_layer_norm = made<LayerNorm>;
const LayerMaker make_rms_norm = made<RmsNorm>;

}  // namespace pipetwin::exec
