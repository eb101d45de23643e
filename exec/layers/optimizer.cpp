#include "exec/layers/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/base/error.h"
#include "exec/device/device.h"
#include "exec/device/kernels.h"

namespace pipetwin::exec {
namespace {

AdamFactors adam_factors(const OptimizerSettings& settings, int step, double gradient_scale) {
    const double rate = learning_rate(settings, step - 1);
    return {.beta1 = settings.beta1,
            .beta2 = settings.beta2,
            .epsilon = settings.epsilon,
            .rate = rate / (1 - std::pow(settings.beta1, step)),
            .root_scale = 1 / std::sqrt(1 - std::pow(settings.beta2, step)),
            .decay_factor =
                settings.kind == OptimizerKind::AdamW ? 1 - rate * settings.weight_decay : 1.0,
            .gradient_scale = gradient_scale};
}

/// Valid until the thread's next call.
const std::vector<UpdateView>& views_of(std::span<Parameter* const> parameters,
                                        std::span<double> squares) {
    PIPETWIN_EXPECT(squares.size() == parameters.size(), "one result for each parameter");
    thread_local std::vector<UpdateView> views;  // as long as its thread, which does this again
    views.clear();
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        Parameter& parameter = *parameters[index];
        const ElementRange share =
            parameter.share.value_or(ElementRange{.begin = 0, .size = parameter.value.size()});
        if (share.size == 0) {
            squares[index] = 0;
            continue;
        }
        views.push_back({.value = part_of(View(parameter.value), share),
                         .gradient = part_of(ConstView(parameter.gradient), share),
                         .first = parameter.first,
                         .second = parameter.second,
                         .master = parameter.master,
                         .squares = &squares[index]});
    }
    return views;
}

}  // namespace

OptimizerSettings optimizer_settings(const ScenarioParts& scenario) {
    const Scenario::TrainingPart& training = scenario.training;
    OptimizerSettings settings;
    settings.kind = training.optimizer;
    settings.learning_rate = training.learning_rate;
    settings.schedule = training.learning_rate_schedule;
    settings.warmup_steps = training.warmup_steps;
    settings.final_learning_rate = training.final_learning_rate;
    settings.steps = training.steps;
    settings.clip_norm = training.clip_norm;
    return settings;
}

double learning_rate(const OptimizerSettings& settings, int step) {
    const double rate = settings.learning_rate;
    const int warmup = settings.warmup_steps;
    if (step < warmup) {
        return rate * (step + 1) / warmup;
    }
    const double rest = std::max(1, settings.steps - warmup);
    const double done = std::min(1.0, (step - warmup) / rest);
    const double end = settings.final_learning_rate;
    switch (settings.schedule) {
        case RateSchedule::Constant:
            return rate;
        case RateSchedule::Linear:
            return rate + (end - rate) * done;
        case RateSchedule::Cosine:
            return end + (rate - end) * (1 + std::cos(std::numbers::pi * done)) / 2;
    }
    throw InternalError("a schedule of the learning rate");
}

double clip_scale(const OptimizerSettings& settings, double norm) {
    constexpr double never_zero = 1e-6;
    return settings.clip_norm > 0 ? std::min(1.0, settings.clip_norm / (norm + never_zero)) : 1.0;
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

void sum_squares(Device& device,
                 std::span<Parameter* const> parameters,
                 std::span<double> squares) {
    device.kernels().sum_squares(views_of(parameters, squares));
}

void update(Device& device,
            std::span<Parameter* const> parameters,
            const OptimizerSettings& settings,
            int step,
            std::span<double> squares,
            double gradient_scale) {
    PIPETWIN_EXPECT(step >= 1, "steps of an optimizer count from 1");
    const Kernels& kernels = device.kernels();
    const std::vector<UpdateView>& views = views_of(parameters, squares);
    const double rate = learning_rate(settings, step - 1);
    switch (settings.kind) {
        case OptimizerKind::Sgd:
            return kernels.sgd(views, rate, gradient_scale);
        case OptimizerKind::Momentum:
            return kernels.momentum(views, rate, settings.momentum, gradient_scale);
        case OptimizerKind::RmsProp:
            return kernels.rmsprop(views, rate, settings.decay, settings.epsilon, gradient_scale);
        case OptimizerKind::Adam:
        case OptimizerKind::AdamW:
            return kernels.adam(views, adam_factors(settings, step, gradient_scale));
    }
    throw InternalError("a kind of optimizer");
}

}  // namespace pipetwin::exec
