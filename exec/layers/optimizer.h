#pragma once

#include <optional>
#include <span>

#include "core/scenario/scenario.h"
#include "exec/base/element_range.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {

class Device;

/// Settings of the optimizer and of its learning rate. Defaults are torch's; RMSProp as GPipe's own
/// (decay 0.9, epsilon 1e-8, no momentum).
struct OptimizerSettings {
    OptimizerKind kind = OptimizerKind::AdamW;
    double learning_rate = 3e-4;
    double momentum = 0.9;  ///< momentum
    double decay = 0.9;     ///< rmsprop
    double beta1 = 0.9;     ///< adam, adamw
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.01;  ///< adamw, on every parameter
    RateSchedule schedule = RateSchedule::Constant;
    int warmup_steps = 0;
    double final_learning_rate = 0;
    int steps = 0;         ///< of the whole run; Linear and Cosine end there
    double clip_norm = 0;  ///< 0: gradients stay as they are
};

/// The learning rate of a step, which counts from 0: a function of it alone. With r the rate, f the
/// final one, w the steps of the warm-up, n those of the run, t = (step - w) / (n - w):
///
///   step < w    r (step + 1) / w
///   constant    r
///   linear      r + (f - r) t
///   cosine      f + (r - f) (1 + cos(pi t)) / 2
///
/// From step n on, linear and cosine stay at f. As torch's LinearLR, then CosineAnnealingLR.
double learning_rate(const OptimizerSettings& settings, int step);

/// Factor that clips gradients of this norm, all together: min(1, clip_norm / (norm + 1e-6)), as
/// torch's clip_grad_norm_; 1 where they are not clipped.
double clip_scale(const OptimizerSettings& settings, double norm);

/// The settings that a scenario asks for.
OptimizerSettings optimizer_settings(const ScenarioParts& scenario);

/// A weight with its gradient and the optimizer's state for it; all of one shape, and but for a
/// value in half precision of one type. Where other replicas have a part of the state, `first`,
/// `second` and `master` are one row of the numbers of `share`.
struct Parameter {
    std::string name;  ///< "block0.attention.qkv.weight"
    Tensor value;
    Tensor gradient;
    Tensor first;          ///< momentum, or Adam's first moment, or RMSProp's square; empty for sgd
    Tensor second;         ///< Adam's second moment
    Tensor master;         ///< what `value` is rounded from; empty where nothing is rounded
    Tensor received;       ///< the gradient of another copy, or use; empty where there is none
    bool is_copy = false;  ///< of a parameter that an earlier stage has: it counts there
    /// The part of the value that this replica updates; none: all of it.
    std::optional<ElementRange> share{};
};

/// Tensors of optimizer state per parameter: sgd 0, momentum and rmsprop 1, adam and adamw 2.
int optimizer_slots(OptimizerKind kind);

/// Writes the sum of the squares of each gradient to `squares`, as `update` does, without an
/// update.
void sum_squares(Device& device, std::span<Parameter* const> parameters, std::span<double> squares);

/// One update of each parameter; `step` counts from 1 (Adam's bias correction). `squares`, memory
/// of `Device::results`, gets the sum of the squares of every gradient, in double and in a fixed
/// order: the norm costs no pass of its own. With g the gradient times `gradient_scale`, and the
/// rate that of the step:
///
///   sgd        w -= rate g
///   momentum   v = momentum v + g;  w -= rate v
///   rmsprop    v = decay v + (1 - decay) g^2;  w -= rate g / (sqrt(v) + epsilon)
///   adam       m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
///              w -= rate m' / (sqrt(v') + epsilon),  m' = m / (1 - beta1^step),  v' = v / (1 -
///              beta2^step)
///   adamw      w -= rate weight_decay w first, then as adam
void update(Device& device,
            std::span<Parameter* const> parameters,
            const OptimizerSettings& settings,
            int step,
            std::span<double> squares,
            double gradient_scale = 1);

}  // namespace pipetwin::exec
