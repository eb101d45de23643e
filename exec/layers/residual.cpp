// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"
#include "core/model/layer_spec.h"
#include "exec/layers/makers.h"
#include "exec/layers/sequence.h"

namespace pipetwin::exec {
namespace {

/// y = skip + x + f(x)        x, y (n, width), f a sequence
/// dx = skip + dy + dy df/dx
///
/// The sums cost no pass where f ends with a product and begins with a layer norm: those add the
/// skip themselves.
class Residual final : public ExecutableLayer {
  public:
    Residual(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : ExecutableLayer(input, input, format), branch_(spec.inner, input, format) {
        PIPETWIN_EXPECT(branch_.output() == input,
                        "the branch of a residual ends with the shape it began with");
        contain(branch_);
    }

    Bytes kept_bytes(int samples) const override { return branch_.kept_bytes(samples); }
    Bytes workspace_bytes(int samples) const override { return branch_.workspace_bytes(samples); }
    Bytes split_bytes(int samples) const override { return branch_.split_bytes(samples); }
    Bytes unread_bytes(int samples) const override { return branch_.unread_bytes(samples); }
    bool weight_reads_input() const override { return branch_.weight_reads_input(); }
    bool backward_reads_input() const override { return branch_.backward_reads_input(); }
    bool weight_reads_gradient() const override { return branch_.weight_reads_gradient(); }
    void free_unread(Kept& kept) const override { branch_.free_unread(kept); }
    Bytes core_bytes(int samples) const override { return branch_.core_bytes(samples); }
    void forget_core(Kept& kept) const override { branch_.forget_core(kept); }
    void recompute_core(LayerCall& call, Kept& kept) override {
        branch_.recompute_core(call, kept);
    }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool /*ends_residual*/) override {
        branch_.create_parameters(maker, path, true);
    }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override {
        branch_.forward(call, x, x, y, kept);
        call.add(skip, y);
    }
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override {
        branch_.backward_input(call, kept, x, dy, dy, dx);
        call.add(skip, dx);
    }
    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override {
        branch_.backward_weight(call, kept, x, dy);
    }
    void backward(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override {
        branch_.backward(call, kept, x, dy, dy, dx);
        call.add(skip, dx);
    }

  private:
    Sequence branch_;
};

}  // namespace

const LayerMaker make_residual = made<Residual>;

}  // namespace pipetwin::exec
