// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/dropout.h"

#include "core/model/layer_spec.h"
#include "exec/device/column_kernels.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {

void Dropping::create(ParameterMaker& maker) {
    random_ = maker.dropout_stream();
}

DropoutMask Dropping::mask(const LayerCall& call, std::int64_t numbers) const {
    const double probability = rises_ ? probability_ * call.progress : probability_;
    return {.key = random_.of(static_cast<std::uint64_t>(call.step)).key(),
            .first_sample = call.first_sample,
            .numbers_per_sample = numbers,
            .probability = acts(call) ? probability : 0.0};
}

void Dropping::apply(const LayerCall& call, ConstView x, ConstView skip, View y) const {
    DropoutMask mask = this->mask(call, parts_ * y.size() / call.samples);
    mask.first_number = parts_ > 1 ? call.group.index() * y.size() : 0;
    call.kernels.dropout(mask, x, skip, y);
}

void Dropping::apply_to_columns(
    const LayerCall& call, std::int64_t numbers, ConstView x, ConstView skip, View y) const {
    call.kernels.columns().drop_columns(mask(call, numbers), call.samples, x, skip, y);
}

void OutputDropout::forward(const LayerCall& call, ConstView skip, View y) const {
    if (dropping_.acts(call)) {
        dropping_.apply(call, y, skip, y);
    }
}

ConstView OutputDropout::gradient(const LayerCall& call, ConstView dy, std::byte* place) const {
    if (!dropping_.acts(call)) {
        return dy;
    }
    const View masked(place, dy.dtype, dy.rows, dy.columns);
    dropping_.apply(call, dy, {}, masked);
    return masked;
}

namespace {

/// y = skip + mask x / (1 - p),  dx = skip + mask dy / (1 - p)        x, y (n, width)
///
/// Keeps nothing: its backward draws the mask again.
class Dropout final : public PlainLayer {
  public:
    Dropout(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, input, format), dropping_(spec.dropout) {}

    bool backward_reads_input() const override { return false; }
    void create_parameters(ParameterMaker& maker,
                           const std::string& /*path*/,
                           bool /*ends_residual*/) override {
        dropping_.create(maker);
    }
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) override {
        dropping_.apply(call, x, skip, y);
    }
    void input_gradient(const LayerCall& call, const Kept& /*kept*/, const Operands& of) override {
        dropping_.apply(call, of.dy, of.skip, of.dx);
    }

  private:
    Dropping dropping_;
};

/// y = skip + mask x / (1 - p),  dx = skip + mask dy / (1 - p)        x, y (n, width)
///
/// The mask has one decision for each channel of a sample, which is a column of it, or for each
/// sample: what a branch adds to a skip (drop path). Where p rises, it is the probability times
/// `LayerCall::progress`: 0 in the first step of the training, as in the reference's training of
/// AmoebaNet (tensorflow/tpu, models/official/amoeba_net). Keeps nothing.
class DropoutOfWhole final : public PlainLayer {
  public:
    DropoutOfWhole(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input, input, format),
          dropping_(spec.dropout, spec.type == LayerType::DropPath && spec.rising),
          decisions_(spec.type == LayerType::ChannelDropout ? input.width : 1) {}

    bool backward_reads_input() const override { return false; }
    void create_parameters(ParameterMaker& maker,
                           const std::string& /*path*/,
                           bool /*ends_residual*/) override {
        dropping_.create(maker);
    }
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) override {
        dropping_.apply_to_columns(call, decisions_, x, skip, y);
    }
    void input_gradient(const LayerCall& call, const Kept& /*kept*/, const Operands& of) override {
        dropping_.apply_to_columns(call, decisions_, of.dy, of.skip, of.dx);
    }

  private:
    Dropping dropping_;
    std::int64_t decisions_;  ///< for each sample
};

}  // namespace

const LayerMaker make_dropout = made<Dropout>;
const LayerMaker make_dropout_of_whole = made<DropoutOfWhole>;

}  // namespace pipetwin::exec
