#include "exec/optimizer.h"

#include <cmath>
#include <vector>

#include "core/error.h"
#include "exec/device.h"
#include "exec/kernels.h"

namespace pipetwin::exec {
namespace {

AdamFactors adam_factors(const OptimizerSettings& settings, int step) {
    return {.beta1 = settings.beta1,
            .beta2 = settings.beta2,
            .epsilon = settings.epsilon,
            .rate = settings.learning_rate / (1 - std::pow(settings.beta1, step)),
            .root_scale = 1 / std::sqrt(1 - std::pow(settings.beta2, step)),
            .decay_factor = settings.kind == OptimizerKind::AdamW
                                ? 1 - settings.learning_rate * settings.weight_decay
                                : 1.0};
}

}  // namespace

OptimizerSettings optimizer_settings(const Scenario& scenario) {
    OptimizerSettings settings;
    settings.kind = scenario.training.optimizer;
    settings.learning_rate = scenario.training.learning_rate;
    return settings;
}

int optimizer_slots(OptimizerKind kind) {
    switch (kind) {
        case OptimizerKind::Sgd:
            return 0;
        case OptimizerKind::Momentum:
        case OptimizerKind::RmsProp:
            return 1;
        case OptimizerKind::Adam:
        case OptimizerKind::AdamW:
            return 2;
    }
    throw InternalError("a kind of optimizer");
}

void update(Device& device,
            std::span<Parameter* const> parameters,
            const OptimizerSettings& settings,
            int step,
            std::span<double> squares) {
    PIPETWIN_EXPECT(step >= 1, "steps of an optimizer count from 1");
    PIPETWIN_EXPECT(squares.size() == parameters.size(), "one result for each parameter");
    const Kernels& kernels = device.kernels();
    thread_local std::vector<UpdateView> views;  // as long as its thread, which does this again
    views.clear();
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        Parameter& parameter = *parameters[index];
        views.push_back({.value = parameter.value,
                         .gradient = parameter.gradient,
                         .first = parameter.first,
                         .second = parameter.second,
                         .master = parameter.master,
                         .squares = &squares[index]});
    }
    switch (settings.kind) {
        case OptimizerKind::Sgd:
            return kernels.sgd(views, settings.learning_rate);
        case OptimizerKind::Momentum:
            return kernels.momentum(views, settings.learning_rate, settings.momentum);
        case OptimizerKind::RmsProp:
            return kernels.rmsprop(views, settings.learning_rate, settings.decay, settings.epsilon);
        case OptimizerKind::Adam:
        case OptimizerKind::AdamW:
            return kernels.adam(views, adam_factors(settings, step));
    }
    throw InternalError("a kind of optimizer");
}

}  // namespace pipetwin::exec
