// SPDX-License-Identifier: Apache-2.0
#include "exec/profiling/measured_pipeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "core/base/as_index.h"
#include "core/plan/offload.h"
#include "core/timeline/timeline.h"
#include "exec/data/random_batch.h"
#include "exec/executor/backend.h"

namespace pipetwin::exec {

std::vector<Duration> times_of(const Samples& samples) {
    return over_steps(samples, [](const StepSample& step) { return step.time; });
}

GateVerdict evaluate_gate(const Samples& samples) {
    std::vector<GatedStep> steps;
    for (const StepSample& sample : samples) {
        steps.push_back({.time = sample.time, .stolen = sample.stolen});
    }
    return evaluate_gate(steps);
}

Samples quiet(Samples samples) {
    std::ranges::stable_sort(samples, {}, &StepSample::stolen);
    const auto calm = std::ranges::count_if(
        samples, [](const StepSample& sample) { return sample.stolen <= most_stolen; });
    const std::size_t third = (samples.size() + 2) / 3;
    samples.resize(calm > 0 ? as_index(calm) : third);
    const Duration longest = longest_quiet_time(times_of(samples));
    std::erase_if(samples, [longest](const StepSample& sample) { return sample.time > longest; });
    return samples;
}

MeasuredPipeline::MeasuredPipeline(const Plan& plan, const Model& model, const Options& options)
    : plan_(plan),
      marks_take_time_(traits(options.backend).marks_take_time),
      shared_devices_(traits(options.backend).needs_gpu ? gpus_shared_by(plan.rank_count())
                                                        : std::vector<int>{}),
      clock_(plan),
      batch_(random_batch(model, static_cast<int>(plan.samples().value()), options.seed)),
      pipelines_(plan, model, executor_options(options)) {}

ExecutorOptions MeasuredPipeline::executor_options(const Options& options) {
    ExecutorOptions executor;
    executor.backend = options.backend;
    executor.precision = options.precision;
    executor.gpu_shares = options.gpu_shares;
    executor.gpu_units = options.gpu_units;
    executor.seed = options.seed;
    executor.optimizer.kind = options.optimizer;
    executor.optimizer.average_decay = options.averages_weights ? any_average_decay : 0;
    executor.optimizer.learning_rate = 1e-6;  // so that random data leads nowhere
    executor.place.cores = options.cores;
    executor.input_gradient = options.input_gradient;
    // What actions last is what is to be found out.
    executor.hang_limits.first_step = std::chrono::minutes(10);
    executor.action_begun = [this](int rank, Op op, TimePoint begin, const GroupTimes& waited) {
        clock_.turn(rank, op, begin, waited);
    };
    executor.times_layers = [this] { return times_layers_; };
    executor.layer_done = [this](int layer, Op part, TimePoint done, const GroupTimes& waited) {
        clock_.lap(layer, part, done, waited);
    };
    return executor;
}

StepSample MeasuredPipeline::step() {
    clock_.restart();
    times_layers_ = true;
    pipelines_.run_step(batch_, step_++, result_);
    std::vector<LayerClock::Laps> layers = clock_.laps();
    Duration behind = result_.shards.time;  // messages of replicas in none of the layers
    for (const LayerClock::Laps& laps : layers) {
        behind -= laps.in_forward.replicas + laps.in_backward.replicas;
    }
    if (marks_take_time_) {
        times_layers_ = false;
        pipelines_.run_step(batch_, step_++, result_);
        fit_to_actions(layers, result_.timeline);
    }
    StepSample sample{.layers = layers,
                      .dispatch = dispatch_of(result_.timeline, layers),
                      .hops = hops_of(result_.timeline),
                      .time = step_time(result_.timeline),
                      .stolen = result_.stolen,
                      .groups = result_.groups,
                      .shards = result_.shards,
                      .host_rate = host_rate_of(result_.timeline)};
    sample.behind = behind;
    average_over_calls(sample.layers);
    if (!shared_devices_.empty()) {
        sample.actions = action_times(result_.timeline, shared_devices_);
    }
    return sample;
}

void MeasuredPipeline::take_out(const std::vector<double>& interference, Samples& samples) const {
    using Laps = LayerClock::Laps;
    for (StepSample& step : samples) {
        for (std::size_t layer = 0; layer < step.layers.size(); ++layer) {
            const int stage = plan_->partition->stage_of_layer(static_cast<int>(layer));
            const auto rank = as_index(plan_->schedule.rank_of_stage[as_index(stage)]);
            const auto scale = [&](const std::vector<Op>& ops,
                                   const std::vector<Duration Laps::*>& parts) {
                const double share =
                    share_alone(step.actions[rank], stage, ops, interference[rank]);
                for (Duration Laps::*part : parts) {
                    Duration& lap = step.layers[layer].*part;
                    lap = Duration(std::llround(share * static_cast<double>(lap.count())));
                }
            };
            scale({Op::Forward}, {&Laps::forward});
            scale({Op::Recompute}, {&Laps::recompute});
            scale({Op::Forward, Op::Recompute}, {&Laps::any_forward});
            scale({Op::Backward, Op::BackwardInput, Op::BackwardWeight},
                  {&Laps::core, &Laps::backward_input, &Laps::backward_weight});
            scale({Op::Optimizer}, {&Laps::optimizer});
        }
    }
}

void MeasuredPipeline::average_over_calls(std::vector<LayerClock::Laps>& layers) const {
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        const int stage = plan_->partition->stage_of_layer(static_cast<int>(layer));
        const int forwards = calls(stage, Op::Forward);
        const int recomputes = calls(stage, Op::Recompute);
        LayerClock::Laps& laps = layers[layer];
        laps.any_forward = (laps.forward + laps.recompute) / std::max(1, forwards + recomputes);
        laps.in_forward /= std::max(1, forwards + recomputes);
        laps.in_backward /= plan_.micro_batches();
        laps.forward /= std::max(1, forwards);
        laps.recompute /= std::max(1, recomputes);
        laps.core /= plan_.micro_batches();
        laps.backward_input /= plan_.micro_batches();
        laps.backward_weight /= plan_.micro_batches();
    }
}

int MeasuredPipeline::calls(int stage, Op op) const {
    const int rank = plan_->schedule.rank_of_stage[as_index(stage)];
    return static_cast<int>(std::ranges::count_if(
        plan_->schedule.ranks[as_index(rank)],
        [&](const Action& action) { return action.stage == stage && action.op == op; }));
}

/// Scales the layers of every rank until they take as long as the rank's actions did in a step
/// whose layers were not timed: forwards, recompute, backwards and updates each by a factor of
/// their own.
void MeasuredPipeline::fit_to_actions(std::vector<LayerClock::Laps>& layers,
                                      const Timeline& timeline) const {
    using Laps = LayerClock::Laps;
    struct Part {
        std::vector<Op> ops;
        std::vector<Duration Laps::*> laps;
    };
    const std::array parts = {
        Part{{Op::Forward}, {&Laps::forward}},
        Part{{Op::Recompute}, {&Laps::recompute}},
        Part{{Op::Backward, Op::BackwardInput, Op::BackwardWeight},
             {&Laps::core, &Laps::backward_input, &Laps::backward_weight}},
        Part{{Op::Optimizer}, {&Laps::optimizer}},
    };
    for (int rank = 0; rank < plan_.rank_count(); ++rank) {
        for (const Part& part : parts) {
            std::vector<Duration*> laps;
            for (std::size_t layer = 0; layer < layers.size(); ++layer) {
                const int stage = plan_->partition->stage_of_layer(static_cast<int>(layer));
                if (plan_->schedule.rank_of_stage[as_index(stage)] == rank) {
                    std::ranges::transform(
                        part.laps, std::back_inserter(laps), [&](Duration Laps::*lap) {
                            return &(layers[layer].*lap);
                        });
                }
            }
            Duration of_layers{};
            for (const Duration* const lap : laps) {
                of_layers += *lap;
            }
            Duration of_actions{};
            for (const Span& span : timeline.ranks[as_index(rank)]) {
                const bool counts = std::ranges::count(part.ops, span.action.op) > 0;
                of_actions += counts ? span.end - span.ready : Duration{};
            }
            const double factor =
                of_layers > Duration{} ? to_seconds(of_actions) / to_seconds(of_layers) : 1;
            for (Duration* const lap : laps) {
                *lap = Duration(std::llround(factor * static_cast<double>(lap->count())));
            }
        }
    }
}

/// What is left of the ranks' time when waits and layers are taken out, per compute action.
Duration MeasuredPipeline::dispatch_of(const Timeline& timeline,
                                       const std::vector<LayerClock::Laps>& layers) const {
    Duration rest{};
    std::int64_t actions = 0;
    for (const std::vector<Span>& row : timeline.ranks) {
        rest += row.back().end - row.front().begin;
        for (const Span& span : row) {
            const bool waited = span.ready > span.begin;
            if (is_receive(span.action.op)) {
                rest -= waited ? span.end - span.begin : Duration{};
            } else if (!is_send(span.action.op)) {
                rest -= span.ready - span.begin;
            }
            actions += is_compute(span.action.op) || uses_gradients(span.action.op) ? 1 : 0;
        }
    }
    for (const LayerClock::Laps& laps : layers) {
        rest -= laps.sum();
    }
    rest -= result_.groups.time + result_.shards.time;
    return std::max(Duration{}, rest / actions);
}

/// While the link was busy.
double MeasuredPipeline::host_rate_of(const Timeline& timeline) const {
    if (timeline.host_copies.empty()) {
        return 0;
    }
    std::array<Duration, 2> busy{};  // [direction]
    for (std::size_t row = 0; row < timeline.host_copies.size(); ++row) {
        for (const Span& copy : timeline.host_copies[row]) {
            busy.at(row % 2) += copy.ready - copy.begin;
        }
    }
    Bytes bytes;
    for (const auto& copies : stash_copies(plan_)) {
        for (const StashCopy& copy : copies) {
            bytes += copy.bytes;
        }
    }
    const Duration slower = std::max(busy[0], busy[1]);
    return slower > Duration{} ? static_cast<double>(bytes.count) / to_seconds(slower) : 0;
}

std::vector<Duration> hops_of(const Timeline& timeline) {
    std::vector<Duration> hops;
    for (const std::vector<Span>& row : timeline.ranks) {
        for (const Span& span : row) {
            if (is_receive(span.action.op) && span.ready > span.begin) {
                hops.push_back(span.end - span.ready);
            }
        }
    }
    return hops;
}

}  // namespace pipetwin::exec
