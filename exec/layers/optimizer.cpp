// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/optimizer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "core/base/error.h"
#include "exec/device/device.h"
#include "exec/device/kernels.h"

namespace pipetwin::exec {
namespace {

AdamFactors adam_factors(const OptimizerSettings& settings, int step, double gradient_scale) {
    const double rate = learning_rate(settings, step - 1);
    const bool is_apart = settings.kind == OptimizerKind::AdamW;
    return {.beta1 = settings.beta1,
            .beta2 = settings.beta2,
            .epsilon = epsilon_of(settings),
            .rate = rate / (1 - std::pow(settings.beta1, step)),
            .root_scale = 1 / std::sqrt(1 - std::pow(settings.beta2, step)),
            .decay_factor = is_apart ? 1 - rate * weight_decay_of(settings) : 1.0,
            .gradient_scale = gradient_scale,
            .weight_decay = is_apart ? 0 : weight_decay_of(settings)};
}

/// Valid until the thread's next call.
std::vector<UpdateView>& views_of(std::span<Parameter* const> parameters,
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
                         .average = parameter.average,
                         .squares = &squares[index],
                         .is_weight = parameter.is_weight});
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
    settings.milestones = training.learning_rate_milestones;
    settings.rate_factor = training.learning_rate_factor;
    settings.momentum = training.momentum.value_or(settings.momentum);
    settings.decay = training.rmsprop_decay.value_or(settings.decay);
    settings.epsilon = training.epsilon;
    settings.weight_decay = training.weight_decay;
    settings.weight_decay_of = training.weight_decay_of;
    if (!training.betas.empty()) {
        settings.beta1 = training.betas.front();
        settings.beta2 = training.betas.back();
    }
    settings.average_decay = training.average_decay;
    return settings;
}

double epsilon_of(const OptimizerSettings& settings) {
    constexpr double of_gpipe = 1;
    constexpr double of_torch = 1e-8;
    return settings.epsilon.value_or(settings.kind == OptimizerKind::RmsPropMomentum ? of_gpipe
                                                                                     : of_torch);
}

double weight_decay_of(const OptimizerSettings& settings) {
    constexpr double of_adamw = 0.01;
    return settings.weight_decay.value_or(settings.kind == OptimizerKind::AdamW ? of_adamw : 0);
}

double average_decay_of(const OptimizerSettings& settings, int step) {
    return std::min(settings.average_decay, (1.0 + step) / (10.0 + step));
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
        case RateSchedule::Step:
            return rate * std::pow(settings.rate_factor,
                                   std::ranges::upper_bound(settings.milestones, step) -
                                       settings.milestones.begin());
        case RateSchedule::InverseSqrt:
            return rate * std::sqrt(std::max(1, warmup) / (step + 1.0));
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
        case OptimizerKind::RmsPropMomentum:
            return 2;
    }
    throw InternalError("a kind of optimizer");
}

double first_begins_at(OptimizerKind kind) {
    return kind == OptimizerKind::RmsPropMomentum ? 1 : 0;
}

void sum_squares(Device& device,
                 std::span<Parameter* const> parameters,
                 std::span<double> squares) {
    device.kernels().sum_squares(views_of(parameters, squares));
}

namespace {

void update_by_rule(const Kernels& kernels,
                    std::span<const UpdateView> views,
                    const OptimizerSettings& settings,
                    int step,
                    double gradient_scale) {
    const double rate = learning_rate(settings, step - 1);
    const GradientUse gradient{.scale = gradient_scale, .weight_decay = weight_decay_of(settings)};
    switch (settings.kind) {
        case OptimizerKind::Sgd:
            return kernels.sgd(views, rate, gradient);
        case OptimizerKind::Momentum:
            return kernels.momentum(views, rate, settings.momentum, gradient);
        case OptimizerKind::RmsProp:
            return kernels.rmsprop(views, rate, settings.decay, epsilon_of(settings), gradient);
        case OptimizerKind::RmsPropMomentum:
            return kernels.rmsprop_momentum(views,
                                            {.rate = rate,
                                             .decay = settings.decay,
                                             .momentum = settings.momentum,
                                             .epsilon = epsilon_of(settings)},
                                            gradient);
        case OptimizerKind::Adam:
        case OptimizerKind::AdamW:
            return kernels.adam(views, adam_factors(settings, step, gradient_scale));
    }
    throw InternalError("a kind of optimizer");
}

}  // namespace

void update(Device& device,
            std::span<Parameter* const> parameters,
            const OptimizerSettings& settings,
            int step,
            std::span<double> squares,
            double gradient_scale) {
    PIPETWIN_EXPECT(step >= 1, "steps of an optimizer count from 1");
    const Kernels& kernels = device.kernels();
    std::vector<UpdateView>& views = views_of(parameters, squares);
    if (settings.weight_decay_of == WeightDecayOf::All || weight_decay_of(settings) == 0) {
        update_by_rule(kernels, views, settings, step, gradient_scale);
    } else {
        const auto others =
            std::ranges::stable_partition(views, std::identity{}, &UpdateView::is_weight);
        const auto weights = std::span(views).first(views.size() - others.size());
        OptimizerSettings without_decay = settings;
        without_decay.weight_decay = 0;
        update_by_rule(kernels, weights, settings, step, gradient_scale);
        update_by_rule(kernels, others, without_decay, step, gradient_scale);
    }
    if (settings.average_decay > 0) {
        kernels.average(views, average_decay_of(settings, step));
    }
}

}  // namespace pipetwin::exec
