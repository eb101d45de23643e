// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/base/error.h"
#include "core/model/layer_spec.h"
#include "exec/device/column_kernels.h"
#include "exec/layers/makers.h"
#include "exec/layers/norm.h"

namespace pipetwin::exec {
namespace {

/// The scratch of a call as the moments of its micro-batch.
View moments_in(const LayerCall& call, int columns) {
    return {call.workspace, DType::F64, 2, columns};
}

/// Per column (channel), over the rows of one micro-batch, n of them; with m = mean(x),
/// s = 1 / sqrt(mean((x - m)^2) + epsilon), z = (x - m) s:
///
/// y = skip + gain * z + bias        x, y (n, width)   gain, bias (width)
/// dx = skip + s (g - mean(g) - z mean(g * z)),  g = gain * dy
/// dgain += sum of dy * z,  dbias += sum of dy
///
/// Normalisation is per micro-batch, so results depend on how a mini-batch is cut into
/// micro-batches, as in GPipe (arXiv 1811.06965, section 2.2). An evaluation normalises by the
/// running mean and variance. These follow, after a step that has succeeded, the mean and the
/// unbiased variance S / (n - 1) of all samples of the mini-batch, in all replicas; or, where not
/// deferred, those of each micro-batch, one after the other, as in torch.
///
/// Keeps its input, m and s.
class BatchNorm final : public Norm {
  public:
    BatchNorm(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : Norm(input, Has::GainAndBias, format),
          epsilon_(spec.epsilon),
          rule_{.momentum = spec.momentum, .cumulative = spec.cumulative},
          deferred_(spec.deferred) {}

    Bytes kept_bytes(int /*samples*/) const override { return exact_bytes(2, input().width); }
    Bytes workspace_bytes(int /*samples*/) const override {
        return Bytes{norm_scratch_bytes(input().width)};
    }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override {
        Norm::create_parameters(maker, path, ends_residual);
        running_ = make_running(maker, path);
        if (deferred_) {
            moments_.values = maker.make_sums(2, input().width);
        } else {
            pending_ = make_running(maker, path);
        }
    }

    Bytes state_bytes() const override {
        const Bytes running = exact_bytes(2, input().width) + Bytes{sizeof(std::int32_t)};
        return running + (deferred_ ? Bytes{norm_scratch_bytes(input().width)} : running);
    }
    std::vector<Parameter*> state() override {
        return {&running_.mean, &running_.variance, &running_.updates};
    }
    std::vector<BatchMoments*> batch_moments() override {
        return deferred_ ? std::vector{&moments_} : std::vector<BatchMoments*>{};
    }
    void forget_batch() override {
        moments_.rows = 0;
        is_pending_ = false;
    }
    void commit_batch(const Kernels& kernels) override;

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void gradients(const LayerCall& call, const Kept& kept, const Operands& of) override {
        call.kernels.columns().normalise_backward(
            {.blocks = 1, .groups = of.x.columns}, over_rows(call, kept, of), call.workspace);
    }

  private:
    /// Tensors of running values, in the order of torch's names.
    struct Running {
        Parameter mean;
        Parameter variance;
        Parameter updates;

        RunningValues values() {
            return {.mean = mean.value, .variance = variance.value, .updates = updates.value};
        }
    };

    Running make_running(ParameterMaker& maker, const std::string& path) const;
    void count(const ColumnKernels& kernels, const Moments& of_call);
    static void copy_running(const ColumnKernels& kernels, Running& from, Running& to);

    double epsilon_;
    RunningRule rule_;
    /// The running values move once a mini-batch, by its own moments; else once a micro-batch.
    bool deferred_;
    Running running_;
    BatchMoments moments_;  ///< deferred: of the mini-batch so far
    Running pending_;       ///< not deferred: running values behind the micro-batches so far
    bool is_pending_ = false;
};

BatchNorm::Running BatchNorm::make_running(ParameterMaker& maker, const std::string& path) const {
    const auto make = [&](const char* name, DType type, int columns, int value) {
        return maker.make_state(path + name, type, columns, value);
    };
    return {.mean = make(".running_mean", format().exact(), input().width, 0),
            .variance = make(".running_var", format().exact(), input().width, 1),
            .updates = make(".num_batches_tracked", DType::I32, 1, 0)};
}

void BatchNorm::commit_batch(const Kernels& kernels) {
    const ColumnKernels& columns = kernels.columns();
    if (moments_.rows > 0) {
        columns.move_averages(rule_, moments_.view(), running_.values());
    }
    if (is_pending_) {
        copy_running(columns, pending_, running_);
    }
    forget_batch();
}

void BatchNorm::copy_running(const ColumnKernels& kernels, Running& from, Running& to) {
    kernels.copy(from.mean.value, to.mean.value);
    kernels.copy(from.variance.value, to.variance.value);
    kernels.copy(from.updates.value, to.updates.value);
}

/// Takes the moments of one micro-batch into those of the mini-batch.
void BatchNorm::count(const ColumnKernels& kernels, const Moments& of_call) {
    if (deferred_) {
        kernels.add_moments(of_call, moments_.rows, moments_.values);
        moments_.rows += of_call.rows;
        return;
    }
    if (!is_pending_) {
        copy_running(kernels, running_, pending_);
        is_pending_ = true;
    }
    kernels.move_averages(rule_, of_call, pending_.values());
}

// y = skip + gain * z + bias
void BatchNorm::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) {
    const ColumnKernels& columns = call.kernels.columns();
    const NormParts parts{.blocks = 1, .groups = x.columns};
    Tensor statistics = call.arena.allocate(format().exact(), 2, input().width, MemoryKind::Stash);
    if (call.evaluation) {
        columns.running_statistics(running_.values(), epsilon_, statistics);
    } else {
        const View moments = moments_in(call, input().width);
        columns.norm_statistics(parts, epsilon_, x, statistics, moments);
        if (!call.recomputation) {
            count(columns, {.rows = x.rows, .values = moments});
        }
    }
    columns.normalise(parts, x, statistics, gain().value, bias().value, skip, y);
    kept.tensors.push_back(std::move(statistics));
}

/// A group norm; an instance norm has as many groups as columns, and no gain. As BatchNorm, but m
/// and s are those of one sample and one group of columns, and there are no running values.
///
/// Keeps its input, m and s: 2 numbers a group and sample.
class SampleNorm final : public Norm {
  public:
    SampleNorm(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : Norm(input, spec.type == LayerType::GroupNorm ? Has::GainAndBias : Has::Nothing, format),
          groups_(spec.type == LayerType::GroupNorm ? spec.groups : input.width),
          epsilon_(spec.epsilon) {
        PIPETWIN_EXPECT(groups_ > 0 && input.width % groups_ == 0, "groups of as many columns");
    }

    Bytes kept_bytes(int samples) const override {
        return exact_bytes(2 * std::int64_t{samples}, groups_);
    }
    Bytes workspace_bytes(int /*samples*/) const override {
        return Bytes{norm_scratch_bytes(input().width)};
    }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override {
        const ColumnKernels& columns = call.kernels.columns();
        Tensor statistics = call.arena.allocate(
            format().exact(), 2 * std::int64_t{call.samples}, groups_, MemoryKind::Stash);
        columns.norm_statistics(
            parts(call.samples), epsilon_, x, statistics, moments_in(call, input().width));
        columns.normalise(parts(call.samples), x, statistics, gain().value, bias().value, skip, y);
        kept.tensors.push_back(std::move(statistics));
    }
    void gradients(const LayerCall& call, const Kept& kept, const Operands& of) override {
        call.kernels.columns().normalise_backward(
            parts(call.samples), over_rows(call, kept, of), call.workspace);
    }

  private:
    NormParts parts(int samples) const { return {.blocks = samples, .groups = groups_}; }

    int groups_;  ///< of neighbouring columns that are normalised together
    double epsilon_;
};

}  // namespace

const LayerMaker make_batch_norm = made<BatchNorm>;
const LayerMaker make_sample_norm = made<SampleNorm>;

}  // namespace pipetwin::exec
