// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/dropout.h"

#include "core/model/layer_spec.h"
#include "exec/device/column_kernels.h"

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
    call.kernels.dropout(mask(call, y.size() / call.samples), x, skip, y);
}

void Dropping::apply_to_columns(
    const LayerCall& call, std::int64_t numbers, ConstView x, ConstView skip, View y) const {
    call.kernels.columns().drop_columns(mask(call, numbers), call.samples, x, skip, y);
}

Dropout::Dropout(const SampleShape& input, double probability, NumberFormat format)
    : ExecutableLayer(input, input, format), dropping_(probability) {}

void Dropout::create_parameters(ParameterMaker& maker,
                                const std::string& /*path*/,
                                bool /*ends_residual*/) {
    dropping_.create(maker);
}

// y = skip + mask x / (1 - p)
void Dropout::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    dropping_.apply(call, x, skip, y);
}

// dx = skip + mask dy / (1 - p)
void Dropout::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        dropping_.apply(call, dy, skip, dx);
    }
    call.done(Op::BackwardInput);
}

DropoutOfWhole::DropoutOfWhole(const SampleShape& input, Options options, NumberFormat format)
    : ExecutableLayer(input, input, format),
      dropping_(options.probability, options.rises),
      decisions_(options.part == DroppedWhole::Channel ? input.width : 1) {}

void DropoutOfWhole::create_parameters(ParameterMaker& maker,
                                       const std::string& /*path*/,
                                       bool /*ends_residual*/) {
    dropping_.create(maker);
}

// y = skip + mask x / (1 - p)
void DropoutOfWhole::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& /*kept*/) {
    dropping_.apply_to_columns(call, decisions_, x, skip, y);
}

// dx = skip + mask dy / (1 - p)
void DropoutOfWhole::backward_input(
    LayerCall& call, Kept& /*kept*/, ConstView /*x*/, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        dropping_.apply_to_columns(call, decisions_, dy, skip, dx);
    }
    call.done(Op::BackwardInput);
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

}  // namespace pipetwin::exec
