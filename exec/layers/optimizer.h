// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/scenario/choices.h"
#include "exec/base/element_range.h"
#include "exec/device/kernels.h"
#include "exec/device/tensor.h"

namespace pipetwin {

struct ScenarioParts;

}  // namespace pipetwin

namespace pipetwin::exec {

class Device;
struct Parameter;

/// Numbers of a layer's parameters, one after the other, of which each of several replicas has a
/// share: of their gradients (ZeRO-2), or of the weights, too (ZeRO-3). A table that two layers use
/// is one by itself.
struct DividedNumbers {
    std::int64_t count = 0;
    std::vector<ElementRange> shares{};  ///< [replica]
    ElementRange own{};                  ///< this replica's
    Tensor whole{};           ///< all values, in one row; empty where replicas divide them
    Tensor values{};          ///< those of the share, in one row; empty where there are all
    Tensor gradients{};       ///< sums of the share over the mini-batch so far, in one row
    Tensor received{};        ///< likewise, of another copy or use; empty where there is none
    std::int64_t passed = 0;  ///< numbers that have parameters
    std::vector<Parameter*> parameters{};  ///< in the order of their numbers
};

/// Settings of the optimizer and of its learning rate. Defaults are torch's; RMSProp has decay 0.9
/// and epsilon 1e-8, and with momentum those of GPipe's training of AmoebaNet: decay 0.9, momentum
/// 0.9, epsilon 1.
struct OptimizerSettings {
    OptimizerKind kind = OptimizerKind::AdamW;
    double learning_rate = 3e-4;
    double momentum = 0.9;  ///< momentum, rmsprop-momentum
    double decay = 0.9;     ///< rmsprop, rmsprop-momentum
    double beta1 = 0.9;     ///< adam, adamw
    double beta2 = 0.999;
    std::optional<double> epsilon{};  ///< none: 1, of rmsprop-momentum, else 1e-8
    /// On what `weight_decay_of` says; none: 0.01, of adamw, else 0.
    std::optional<double> weight_decay{};
    WeightDecayOf weight_decay_of = WeightDecayOf::All;
    double average_decay = 0;  ///< of the averages of the weights; 0: there are none
    RateSchedule schedule = RateSchedule::Constant;
    int warmup_steps = 0;
    double final_learning_rate = 0;
    int steps = 0;                  ///< of the whole run; Linear and Cosine end there
    double clip_norm = 0;           ///< 0: gradients stay as they are
    std::vector<int> milestones{};  ///< Step: steps from which the rate is `rate_factor` times that
    double rate_factor = 0.1;       ///< of the step before
};

/// The epsilon of these settings, or the one that their optimizer has by default.
double epsilon_of(const OptimizerSettings& settings);

/// The weight decay of these settings, or the one that their optimizer has by default.
double weight_decay_of(const OptimizerSettings& settings);

/// Factor by which an average of weights fades with an update, which counts from 1: min(average
/// decay, (1 + step) / (10 + step)), as TensorFlow's ExponentialMovingAverage has it with
/// `num_updates`, so that the first weights soon fade.
double average_decay_of(const OptimizerSettings& settings, int step);

/// The learning rate of a step, which counts from 0: a function of it alone. With r the rate, f the
/// final one, w the steps of the warm-up, n those of the run, t = (step - w) / (n - w):
///
///   step < w    r (step + 1) / w
///   constant    r
///   linear      r + (f - r) t
///   cosine      f + (r - f) (1 + cos(pi t)) / 2
///
///   step        r times the factor for every milestone that is not after this step
///   inverse-sqrt  r sqrt(max(w, 1) / (step + 1)), as in Vaswani et al., arXiv 1706.03762, equation
///   3
///
/// From step n on, linear and cosine stay at f. As torch's LinearLR, then CosineAnnealingLR or
/// MultiStepLR.
double learning_rate(const OptimizerSettings& settings, int step);

/// Factor that clips gradients of this norm, all together: min(1, clip_norm / (norm + 1e-6)), as
/// torch's clip_grad_norm_; 1 where they are not clipped.
double clip_scale(const OptimizerSettings& settings, double norm);

/// The settings that a scenario asks for.
OptimizerSettings optimizer_settings(const ScenarioParts& scenario);

/// A weight with its gradient and the optimizer's state for it; all of one shape, and but for a
/// value in half precision of one type. Where other replicas have a part of the state, `first`,
/// `second`, `master` and `average` are one row of the numbers of `share`.
struct Parameter {
    std::string name;  ///< "block0.attention.qkv.weight"
    Tensor value;
    Tensor gradient;
    Tensor first;     ///< momentum, or Adam's first moment, or RMSProp's square; empty for sgd
    Tensor second;    ///< Adam's second moment, or the momentum of rmsprop-momentum
    Tensor master;    ///< what `value` is rounded from; empty where nothing is rounded
    Tensor average;   ///< of the exact value over the steps; empty where none is wanted
    Tensor received;  ///< the gradient of another copy, or use; empty where there is none
    bool has_gradient = false;  ///< `gradient` is this step's; false: whatever was there before
    bool has_received = false;  ///< likewise
    /// Where replicas divide gradients: of what this is a part, from its number `first_number` on;
    /// null: they do not. Then `gradient` and `received` are places where all of them stand while
    /// their layer is at work, of this micro-batch alone, and so is `value` where replicas divide
    /// weights, too.
    DividedNumbers* divided = nullptr;
    std::int64_t first_number = 0;
    Tensor value_share{};     ///< the numbers of `share`, in one row
    Tensor gradient_share{};  ///< likewise: their sum over the mini-batch
    Tensor received_share{};
    bool has_gradient_share = false;  ///< as `has_gradient`, of the sum
    bool has_received_share = false;
    bool is_copy = false;    ///< of a parameter that an earlier stage has: it counts there
    bool is_weight = false;  ///< of a product or convolution: no norm's, no bias and no embedding
    /// The part of the value that this replica updates; none: all of it.
    std::optional<ElementRange> share{};
    /// [replica]: likewise of all that divide the optimizer's state alone; empty: they do not.
    std::vector<ElementRange> shares{};
    /// Rows and columns of every tensor that neither the model nor a file has. Gradients there are
    /// 0, so weights stay 0.
    MatrixPadding padding{};
    /// The gradient is a term of the sum over the devices that divide the layer.
    bool is_partial = false;
    /// What of the model's matrix this device has, where several divide the layer.
    MatrixCut cut{};

    /// Whether each replica has a share of the value alone.
    bool divides_value() const { return divided != nullptr && divided->whole.empty(); }
    /// The value, or this replica's share of it, as it stays from step to step.
    Tensor& kept_value() { return divides_value() ? value_share : value; }
    /// The gradient of the mini-batch, or this replica's share of it.
    Tensor& sum() { return divided != nullptr ? gradient_share : gradient; }
    /// What another copy, or use, adds to it.
    Tensor& received_sum() { return divided != nullptr ? received_share : received; }
    /// Whether the sum is this step's.
    bool& has_sum() { return divided != nullptr ? has_gradient_share : has_gradient; }
    bool& has_received_sum() { return divided != nullptr ? has_received_share : has_received; }

    /// The value without its padding.
    PaddedMatrix matrix() const {
        return {.rows = value.rows() - padding.rows,
                .columns = value.columns() - padding.columns,
                .padding = padding,
                .cut = cut};
    }

    /// The sum to which the next micro-batch gives its term of the gradient.
    GradientSum next_gradient() { return {gradient, std::exchange(has_gradient, true)}; }
    /// The sum to which the next micro-batch gives its term, where the parameter is used twice.
    GradientSum next_received() { return {received, std::exchange(has_received, true)}; }
};

/// Writes the sum of the squares of each gradient to `squares`, as `update` does, without an
/// update.
void sum_squares(Device& device, std::span<Parameter* const> parameters, std::span<double> squares);

/// One update of each parameter; `step` counts from 1 (Adam's bias correction). `squares`, memory
/// of `Device::results`, gets the sum of the squares of every gradient, in double and in a fixed
/// order: the norm costs no pass of its own. With g the gradient times `gradient_scale`, plus
/// weight_decay w but for adamw, and the rate that of the step:
///
///   sgd        w -= rate g
///   momentum   v = momentum v + g;  w -= rate v
///   rmsprop    v = decay v + (1 - decay) g^2;  w -= rate g / (sqrt(v) + epsilon)
///   adam       m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
///              w -= rate m' / (sqrt(v') + epsilon),  m' = m / (1 - beta1^step),  v' = v / (1 -
///              beta2^step)
///   adamw      w -= rate weight_decay w first, then as adam
///   rmsprop-momentum   v = decay v + (1 - decay) g^2, from 1;
///                      m = momentum m + rate g / sqrt(v + epsilon);  w -= m      (TensorFlow's)
///
/// Where the settings average the weights, the average then moves towards the new ones:
/// average += (1 - average_decay_of(settings, step)) (w - average).
void update(Device& device,
            std::span<Parameter* const> parameters,
            const OptimizerSettings& settings,
            int step,
            std::span<double> squares,
            double gradient_scale = 1);

}  // namespace pipetwin::exec
