// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/model/layer_spec.h"
#include "exec/device/column_kernels.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// Settings of a batch norm.
struct BatchNormOptions {
    double epsilon = 1e-5;
    RunningRule rule{};
    /// The running values move once a mini-batch, by its own moments; else once a micro-batch.
    bool deferred = true;
};

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
/// Keeps its input, m and s. As in a layer norm, I adds to the gradients of gain and bias.
class BatchNorm final : public ExecutableLayer {
  public:
    BatchNorm(const SampleShape& input, const BatchNormOptions& options, NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes workspace_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override { return kept_bytes(samples); }
    bool weight_reads_input() const override { return false; }
    bool weight_reads_gradient() const override { return false; }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;
    std::vector<Parameter*> parameters() override;
    bool has_parameters() const override { return true; }

    Bytes state_bytes() const override;
    std::vector<Parameter*> state() override;
    std::vector<BatchMoments*> batch_moments() override;
    void forget_batch() override;
    void commit_batch(const Kernels& kernels) override;

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void free_unread(Kept& kept) const override { kept.tensors.clear(); }

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
    void copy_running(const ColumnKernels& kernels, Running& from, Running& to) const;

    BatchNormOptions options_;
    Parameter gain_;
    Parameter bias_;
    Running running_;
    BatchMoments moments_;  ///< deferred: of the mini-batch so far
    Running pending_;       ///< not deferred: running values behind the micro-batches so far
    bool is_pending_ = false;
};

/// Settings of a norm over the positions of one sample.
struct SampleNormOptions {
    int groups = 1;  ///< of neighbouring columns that are normalised together
    bool has_gain = true;
    double epsilon = 1e-5;
};

/// A group norm; with as many groups as columns and no gain an instance norm. As BatchNorm, but m
/// and s are those of one sample and one group of columns, and there are no running values.
///
/// Keeps its input, m and s: 2 numbers a group and sample.
class SampleNorm final : public ExecutableLayer {
  public:
    SampleNorm(const SampleShape& input, const SampleNormOptions& options, NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes workspace_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override { return kept_bytes(samples); }
    bool weight_reads_input() const override { return false; }
    bool weight_reads_gradient() const override { return false; }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;
    std::vector<Parameter*> parameters() override;
    bool has_parameters() const override { return options_.has_gain; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void free_unread(Kept& kept) const override { kept.tensors.clear(); }

  private:
    NormParts parts(int samples) const { return {.blocks = samples, .groups = options_.groups}; }

    SampleNormOptions options_;
    Parameter gain_;
    Parameter bias_;
};

}  // namespace pipetwin::exec
