// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/image/norms.h"

#include <utility>

#include "core/base/error.h"
#include "core/model/layer_spec.h"

namespace pipetwin::exec {
namespace {

/// The scratch of a call as the moments of its micro-batch.
View moments_in(const LayerCall& call, int columns) {
    return {call.workspace, DType::F64, 2, columns};
}

}  // namespace

BatchNorm::BatchNorm(const SampleShape& input, const BatchNormOptions& options, NumberFormat format)
    : ExecutableLayer(input, input, format), options_(options) {}

Bytes BatchNorm::kept_bytes(int /*samples*/) const {
    return exact_bytes(2, input().width);
}

Bytes BatchNorm::workspace_bytes(int /*samples*/) const {
    return Bytes{norm_scratch_bytes(input().width)};
}

void BatchNorm::create_parameters(ParameterMaker& maker,
                                  const std::string& path,
                                  bool /*ends_residual*/) {
    gain_ = maker.make(path + ".gain", 1, input().width, ParameterMaker::Role::Ones);
    bias_ = maker.make(path + ".bias", 1, input().width, ParameterMaker::Role::Zeros);
    running_ = make_running(maker, path);
    if (options_.deferred) {
        moments_.values = maker.make_sums(2, input().width);
    } else {
        pending_ = make_running(maker, path);
    }
}

BatchNorm::Running BatchNorm::make_running(ParameterMaker& maker, const std::string& path) const {
    const auto make = [&](const char* name, DType type, int columns, int value) {
        return maker.make_state(path + name, type, columns, value);
    };
    return {.mean = make(".running_mean", format().exact(), input().width, 0),
            .variance = make(".running_var", format().exact(), input().width, 1),
            .updates = make(".num_batches_tracked", DType::I32, 1, 0)};
}

std::vector<Parameter*> BatchNorm::parameters() {
    return {&gain_, &bias_};
}

Bytes BatchNorm::state_bytes() const {
    const Bytes running = exact_bytes(2, input().width) + Bytes{sizeof(std::int32_t)};
    return options_.deferred ? running + Bytes{norm_scratch_bytes(input().width)}
                             : running + running;
}

std::vector<Parameter*> BatchNorm::state() {
    return {&running_.mean, &running_.variance, &running_.updates};
}

std::vector<BatchMoments*> BatchNorm::batch_moments() {
    return options_.deferred ? std::vector<BatchMoments*>{&moments_} : std::vector<BatchMoments*>{};
}

void BatchNorm::forget_batch() {
    moments_.rows = 0;
    is_pending_ = false;
}

void BatchNorm::commit_batch(const Kernels& kernels) {
    const ColumnKernels& columns = kernels.columns();
    if (moments_.rows > 0) {
        columns.move_averages(options_.rule, moments_.view(), running_.values());
    }
    if (is_pending_) {
        copy_running(columns, pending_, running_);
    }
    forget_batch();
}

void BatchNorm::copy_running(const ColumnKernels& kernels, Running& from, Running& to) const {
    kernels.copy(from.mean.value, to.mean.value);
    kernels.copy(from.variance.value, to.variance.value);
    kernels.copy(from.updates.value, to.updates.value);
}

/// Takes the moments of one micro-batch into those of the mini-batch.
void BatchNorm::count(const ColumnKernels& kernels, const Moments& of_call) {
    if (options_.deferred) {
        kernels.add_moments(of_call, moments_.rows, moments_.values);
        moments_.rows += of_call.rows;
        return;
    }
    if (!is_pending_) {
        copy_running(kernels, running_, pending_);
        is_pending_ = true;
    }
    kernels.move_averages(options_.rule, of_call, pending_.values());
}

// y = skip + gain * z + bias
void BatchNorm::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) {
    const ColumnKernels& columns = call.kernels.columns();
    const NormParts parts{.blocks = 1, .groups = x.columns};
    Tensor statistics = call.arena.allocate(format().exact(), 2, input().width, MemoryKind::Stash);
    if (call.evaluation) {
        columns.running_statistics(running_.values(), options_.epsilon, statistics);
    } else {
        const View moments = moments_in(call, input().width);
        columns.norm_statistics(parts, options_.epsilon, x, statistics, moments);
        if (!call.recomputation) {
            count(columns, {.rows = x.rows, .values = moments});
        }
    }
    columns.normalise(parts, x, statistics, gain_.value, bias_.value, skip, y);
    kept.tensors.push_back(std::move(statistics));
}

// dgain += sum of dy * z,  dbias += sum of dy,
// dx = skip + s (g - mean(g) - z mean(g * z)),  g = gain * dy
void BatchNorm::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    call.kernels.columns().normalise_backward({.blocks = 1, .groups = x.columns},
                                              {.x = x,
                                               .statistics = kept.tensors.front(),
                                               .gain = gain_.value,
                                               .dy = dy,
                                               .skip = skip,
                                               .dx = dx,
                                               .dgain = call.kernels.begun(gain_.next_gradient()),
                                               .dbias = call.kernels.begun(bias_.next_gradient())},
                                              call.workspace);
    call.done(Op::BackwardInput);
}

SampleNorm::SampleNorm(const SampleShape& input,
                       const SampleNormOptions& options,
                       NumberFormat format)
    : ExecutableLayer(input, input, format), options_(options) {
    PIPETWIN_EXPECT(options.groups > 0 && input.width % options.groups == 0,
                    "groups of as many columns");
}

Bytes SampleNorm::kept_bytes(int samples) const {
    return exact_bytes(2 * std::int64_t{samples}, options_.groups);
}

Bytes SampleNorm::workspace_bytes(int /*samples*/) const {
    return Bytes{norm_scratch_bytes(input().width)};
}

void SampleNorm::create_parameters(ParameterMaker& maker,
                                   const std::string& path,
                                   bool /*ends_residual*/) {
    if (options_.has_gain) {
        gain_ = maker.make(path + ".gain", 1, input().width, ParameterMaker::Role::Ones);
        bias_ = maker.make(path + ".bias", 1, input().width, ParameterMaker::Role::Zeros);
    }
}

std::vector<Parameter*> SampleNorm::parameters() {
    return options_.has_gain ? std::vector<Parameter*>{&gain_, &bias_} : std::vector<Parameter*>{};
}

// y = skip + gain * z + bias
void SampleNorm::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) {
    const ColumnKernels& columns = call.kernels.columns();
    Tensor statistics = call.arena.allocate(
        format().exact(), 2 * std::int64_t{call.samples}, options_.groups, MemoryKind::Stash);
    columns.norm_statistics(
        parts(call.samples), options_.epsilon, x, statistics, moments_in(call, input().width));
    columns.normalise(parts(call.samples), x, statistics, gain_.value, bias_.value, skip, y);
    kept.tensors.push_back(std::move(statistics));
}

// dgain += sum of dy * z,  dbias += sum of dy,
// dx = skip + s (g - mean(g) - z mean(g * z)),  g = gain * dy
void SampleNorm::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    call.kernels.columns().normalise_backward(parts(call.samples),
                                              {.x = x,
                                               .statistics = kept.tensors.front(),
                                               .gain = gain_.value,
                                               .dy = dy,
                                               .skip = skip,
                                               .dx = dx,
                                               .dgain = call.kernels.begun(gain_.next_gradient()),
                                               .dbias = call.kernels.begun(bias_.next_gradient())},
                                              call.workspace);
    call.done(Op::BackwardInput);
}

}  // namespace pipetwin::exec
