// SPDX-License-Identifier: Apache-2.0
#include "core/model/layer_spec.h"
#include "exec/layers/makers.h"
#include "exec/layers/norm.h"

namespace pipetwin::exec {
namespace {

/// Layer norm. Per row, with m = mean(x), s = 1 / sqrt(mean((x - m)^2) + epsilon), z = (x - m) s:
///
/// y = skip + gain * z + bias        x, y (n, width)   gain, bias (width)
/// dx = skip + s (g - mean(g) - z mean(g * z)),  g = gain * dy
/// dgain += sum of dy * z,  dbias += sum of dy
///
/// An RMSNorm (Zhang and Sennrich, arXiv 1910.07467) has 0 in the place of m and of mean(g), and no
/// bias.
///
/// Keeps its input, s, and m of a layer norm.
class RowNorm final : public Norm {
  public:
    RowNorm(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : Norm(input,
               spec.type == LayerType::RmsNorm ? Has::Gain : Has::GainAndBias,
               format,
               spec.cut.sequence) {
        if (spec.type == LayerType::RmsNorm) {
            rule_ = {.centred = false, .epsilon = spec.epsilon};
        }
    }

    Bytes kept_bytes(int samples) const override { return exact_bytes(rows(samples), kept()); }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override {
        Tensor statistics =
            call.arena.allocate(format().exact(), x.rows, this->kept(), MemoryKind::Stash);
        call.kernels.row_norm_forward(rule_, x, gain().value, bias().value, y, statistics);
        call.add(skip, y);
        kept.tensors.push_back(std::move(statistics));
    }
    void gradients(const LayerCall& call, const Kept& kept, const Operands& of) override {
        const ConstView statistics = kept.tensors.front();
        const GradientSum dgain = gain().next_gradient();
        const GradientSum dbias = bias().next_gradient();
        if (of.dx.empty()) {
            call.kernels.row_norm_backward_weight(rule_, of.x, statistics, of.dy, dgain, dbias);
        } else {
            call.kernels.row_norm_backward(
                rule_, of.x, gain().value, statistics, of.dy, of.skip, of.dx, dgain, dbias);
        }
    }

  private:
    /// Numbers that are kept of a row.
    std::int64_t kept() const { return rule_.centred ? 2 : 1; }

    RowNormRule rule_{};
};

}  // namespace

const LayerMaker make_row_norm = made<RowNorm>;

}  // namespace pipetwin::exec
