#pragma once

#include "core/scenario.h"
#include "exec/tensor.h"

namespace pipetwin::exec {

class Device;

/// Defaults are torch's; RMSProp as GPipe's own (decay 0.9, epsilon 1e-8, no momentum).
struct OptimizerSettings {
    OptimizerKind kind = OptimizerKind::AdamW;
    double learning_rate = 3e-4;
    double momentum = 0.9;       ///< momentum
    double decay = 0.9;          ///< rmsprop
    double beta1 = 0.9;          ///< adam, adamw
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.01;  ///< adamw, on every parameter
};

OptimizerSettings optimizer_settings(const Scenario& scenario);

/// A weight with its gradient and the optimizer's state for it; all of one shape and type.
struct Parameter {
    std::string name;  ///< "block0.attention.qkv.weight"
    Tensor value;
    Tensor gradient;
    Tensor first;      ///< momentum, or Adam's first moment, or RMSProp's square; empty for sgd
    Tensor second;     ///< Adam's second moment
};

/// One update of one parameter; `step` counts from 1 (Adam's bias correction).
void update(Device& device, Parameter& parameter, const OptimizerSettings& settings, int step);

}  // namespace pipetwin::exec
