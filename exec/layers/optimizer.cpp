// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "core/base/error.h"
#include "core/scenario/choices.h"
#include "core/scenario/scenario.h"
#include "exec/device/device.h"
#include "exec/device/kernels.h"

namespace pipetwin::exec {
namespace {

/// How an optimizer updates: its rule, and the factors that come from the settings beside
/// rate, weight decay and the gradient's scale.
struct Formula {
    OptimizerKind kind;
    UpdateRule rule;
    void (*set)(const OptimizerSettings& settings, int step, UpdateFactors<double>& factors);
};

void set_momentum(const OptimizerSettings& settings, int /*step*/, UpdateFactors<double>& f) {
    f.keep_first = settings.momentum;
}

void set_rmsprop(const OptimizerSettings& settings, int /*step*/, UpdateFactors<double>& f) {
    f.keep_first = settings.decay;
    f.take_first = 1 - settings.decay;
    f.keep_second = settings.momentum;
    f.epsilon = epsilon_of(settings);
}

void set_adam(const OptimizerSettings& settings, int step, UpdateFactors<double>& f) {
    f.rate /= 1 - std::pow(settings.beta1, step);
    f.keep_first = settings.beta1;
    f.take_first = 1 - settings.beta1;
    f.keep_second = settings.beta2;
    f.take_second = 1 - settings.beta2;
    f.epsilon = epsilon_of(settings);
    f.root_scale = 1 / std::sqrt(1 - std::pow(settings.beta2, step));
}

/// Weights decay apart from the gradient.
void set_adamw(const OptimizerSettings& settings, int step, UpdateFactors<double>& f) {
    f.decay_factor = 1 - f.rate * f.weight_decay;
    f.weight_decay = 0;
    set_adam(settings, step, f);
}

constexpr std::array formulas{
    Formula{OptimizerKind::Sgd, UpdateRule::Sgd, nullptr},
    Formula{OptimizerKind::Momentum, UpdateRule::Momentum, set_momentum},
    Formula{OptimizerKind::RmsProp, UpdateRule::RmsProp, set_rmsprop},
    Formula{OptimizerKind::Adam, UpdateRule::Adam, set_adam},
    Formula{OptimizerKind::AdamW, UpdateRule::Adam, set_adamw},
    Formula{OptimizerKind::RmsPropMomentum, UpdateRule::RmsPropMomentum, set_rmsprop},
};

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
        const bool is_divided = parameter.divided != nullptr;
        views.push_back({.value = is_divided ? View(parameter.value_share)
                                             : part_of(View(parameter.value), share),
                         .gradient = is_divided ? ConstView(parameter.gradient_share)
                                                : part_of(ConstView(parameter.gradient), share),
                         .first = parameter.first,
                         .second = parameter.second,
                         .master = parameter.master,
                         .average = parameter.average,
                         .squares = &squares[index],
                         .is_weight = parameter.is_weight,
                         .counted = {.columns = parameter.cut.counted,
                                     .of = std::max<std::int64_t>(1, parameter.value.columns()),
                                     .first = share.begin}});
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
    return settings.epsilon.value_or(traits(settings.kind).epsilon);
}

double weight_decay_of(const OptimizerSettings& settings) {
    return settings.weight_decay.value_or(traits(settings.kind).weight_decay);
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
    const Formula& formula = *std::ranges::find(formulas, settings.kind, &Formula::kind);
    UpdateFactors<double> factors{.rate = learning_rate(settings, step - 1),
                                  .gradient_scale = gradient_scale,
                                  .weight_decay = weight_decay_of(settings)};
    if (formula.set != nullptr) {
        formula.set(settings, step, factors);
    }
    kernels.update(formula.rule, views, factors);
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
