// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/plan.h"
#include "exec/base/noise.h"
#include "exec/data/batch.h"
#include "exec/profiling/interference.h"
#include "exec/profiling/layer_clock.h"
#include "exec/replicas/replicas.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

/// A pipeline under the clock: what the profiler and the calibration measure layers in.
namespace pipetwin::exec {

/// What a layer took per call: laps of one step over how often each was run.
struct StepSample {
    std::vector<LayerClock::Laps> layers;
    Duration dispatch{};         ///< of one compute action
    std::vector<Duration> hops;  ///< of messages that were waited for, from sender to owner
    Duration time{};
    double stolen = 0;
    GroupUse groups{};      ///< where devices divide layers; taken out of `layers`
    GroupUse shards{};      ///< where replicas divide gradients; likewise
    Duration behind{};      ///< part of `shards` that is of no layer's forward or backward
    double host_rate = 0;   ///< bytes per second of the slower way between device and host; 0: none
    StepActions actions{};  ///< where ranks share a GPU; else empty
};

/// The steps that were measured in one pipeline.
using Samples = std::vector<StepSample>;

/// `value` of every step.
template <class Value>
std::vector<Duration> over_steps(const Samples& samples, const Value& value) {
    std::vector<Duration> values;
    values.reserve(samples.size());
    for (const StepSample& step : samples) {
        values.push_back(value(step));
    }
    return values;
}

/// Means add up: those of all parts of a step to that of the step. A part that now and then takes
/// long, here in one step and there in another, would be lost in its median.
template <class Value>
Duration mean_over(const Samples& samples, const Value& value) {
    Duration sum{};
    for (const Duration one : over_steps(samples, value)) {
        sum += one;
    }
    return samples.empty() ? sum : sum / std::ssize(samples);
}

/// How long each step took.
std::vector<Duration> times_of(const Samples& samples);

/// What the gate says of these samples.
GateVerdict evaluate_gate(const Samples& samples);

/// The quiet steps; where every step lost time to others, the calmest third of all.
Samples quiet(Samples samples);

/// A decay of averages of weights; no time depends on it.
inline constexpr double any_average_decay = 0.999;

/// Trains a copy of the model with random data and reads the clock after every layer, that of the
/// first device where several divide the layers. Where that
/// makes the layers slower, every step is followed by one without it, which says how long the
/// actions take in a training; the layers' times are scaled to them.
class MeasuredPipeline {
  public:
    /// How to train.
    struct Options {
        Backend backend = Backend::Cpu;
        Precision precision = Precision::Fp32;
        OptimizerKind optimizer = OptimizerKind::AdamW;
        bool averages_weights = false;  ///< every update moves averages of the weights, too
        GpuShares gpu_shares = GpuShares::Own;
        std::vector<int> gpu_units{};  ///< as Scenario::ClusterPart
        std::uint64_t seed = 1;
        std::vector<int> cores{};     ///< as ProcessPlace
        bool input_gradient = false;  ///< as ExecutorOptions
    };
    MeasuredPipeline(const Plan& plan, const Model& model, const Options& options);

    /// Trains one step and returns what its layers took.
    StepSample step();

    /// The last step.
    const StepResult& result() const { return result_; }

    /// [rank] The GPU that it computes on with others; empty where each has a device of its own.
    const std::vector<int>& shared_devices() const { return shared_devices_; }

    /// Shortens the layers' times to those without other ranks that compute on the same GPU.
    /// `interference` has the share of every rank.
    void take_out(const std::vector<double>& interference, Samples& samples) const;

  private:
    ExecutorOptions executor_options(const Options& options);
    void average_over_calls(std::vector<LayerClock::Laps>& layers) const;
    int calls(int stage, Op op) const;
    void fit_to_actions(std::vector<LayerClock::Laps>& layers, const Timeline& timeline) const;
    Duration dispatch_of(const Timeline& timeline,
                         const std::vector<LayerClock::Laps>& layers) const;
    double host_rate_of(const Timeline& timeline) const;

    const Plan plan_;
    const bool marks_take_time_;  ///< then only every second step times its layers
    const std::vector<int> shared_devices_;
    bool times_layers_ = true;
    LayerClock clock_;
    const Batch batch_;
    Replicas pipelines_;
    StepResult result_;
    int step_ = 0;
};

/// From the arrival of each message that was waited for until its receiver had it.
std::vector<Duration> hops_of(const Timeline& timeline);

}  // namespace pipetwin::exec
