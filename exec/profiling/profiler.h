// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/costs/profile.h"
#include "core/model/tensor_division.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "exec/device/number_format.h"
#include "exec/profiling/measured_pipeline.h"

namespace pipetwin {

class Model;
class Plan;
struct SettledScenario;

}  // namespace pipetwin

namespace pipetwin::exec {

/// The pipeline in which the layers are measured.
struct ProfilerOptions {
    std::vector<int> micro_batch_sizes;  ///< in samples; each is measured
    int micro_batches = 1;    ///< of a step, so as many stashes are alive as the schedule keeps
    int tensor_parallel = 1;  ///< devices of a rank, which divide its layers
    bool sequence_parallel = false;  ///< ... and the rows between them
    /// Replicas that divide gradients, or weights, too, as `shard` says: their sums and gathers are
    /// measured. Otherwise 1.
    int replicas = 1;
    Shard shard = Shard::None;
    int prefetch = 1;      ///< of weights, in blocks
    int busy_workers = 1;  ///< ranks; at most as many as there are cores and layers
    std::string schedule{default_schedule};
    int chunks = 1;      ///< per rank
    int group_size = 0;  ///< of interleaved-1f1b
    RecomputeRules recompute;
    RecomputeTiming recompute_timing = RecomputeTiming::Eager;
    /// Backwards compute core attention again, which is measured apart.
    bool recomputes_core = false;
    std::optional<std::vector<int>> partition;  ///< of `busy_workers` stages; none: `partition_of`
    /// The partition that a plan with these costs has; null: as make_plan has it.
    std::function<std::vector<int>(const SettledScenario& scenario, const Profile& costs)>
        partition_of{};
    int repeats = 0;                 ///< measured steps; 0: as many as a time budget holds
    double time_share = 1;           ///< of the time budget, and of the fewest steps
    Backend backend = Backend::Cpu;  ///< one that costs are measured on (exec/executor/backend.h)
    bool offload = false;  ///< stashes go to host memory and back; the link there is measured, too
    Precision precision = Precision::Fp32;
    OptimizerKind optimizer = OptimizerKind::AdamW;
    bool averages_weights = false;  ///< every update moves averages of the weights, too
    GpuShares gpu_shares = GpuShares::Own;
    std::vector<int> gpu_units{};  ///< as Scenario::ClusterPart
    std::uint64_t seed = 1;
    /// On a GPU, of one stage per rank with whole backwards: a few steps of zb-h1 say how much
    /// longer the halves take (Profile::halves_over_whole).
    bool measures_halves = false;
    double stretch = 1;  ///< every time is multiplied: what a paced device is to take
    std::function<void(double share, const std::string& what)> progress;
};

/// Measures per-layer costs on this machine, in a running pipeline: it trains a copy of the model
/// with random data through the executor, in the very schedule, and reads the clock after every
/// layer. So the costs are those of the run: cold stashes, tensors that come from another core,
/// neighbours that use the memory at the same time. (A layer measured alone is up to 50 % too
/// fast.) For costs that hold for other plans than this one see bench/accuracy/calibration.h.
///
/// The cost of a layer in a step is its mean over the micro-batches, since the first of them may
/// find colder caches; the cost in the profile is the mean of that over the steps that nothing
/// disturbed (exec/base/noise.h), and `calibration` says how many were clean and how far they
/// spread. On a restless machine it measures longer, so that there are some. What is left of a
/// rank's step when layers and waits are taken out is `dispatch`. The latency of a link is from the
/// send of a message to the moment its waiting receiver has it.
///
/// No weights, gradients or random state of anybody change.
Profile profile_model(const Model& model, const ProfilerOptions& options);

/// Measures layers again while something else goes on, some steps at a time: where the speed of the
/// machine changes, both see the same of it. In a pipeline of its own, as `profile_model`.
class ProfileRounds {
  public:
    /// The pipeline has the rows and the partition of `plan`, whose micro-batches have one size.
    ProfileRounds(const Plan& plan, const Model& model, const ProfilerOptions& options);

    /// One round: a step in which the caches fill again, then so many that are measured.
    void measure(int steps);

    /// Forgets all rounds: the next one stands alone.
    void forget();

    /// The largest share of its compute time that a measured step has lost to other programs; of
    /// none 0.
    double stolen() const;

    /// `base` with the costs of all rounds. There has been one at least.
    Profile profile(Profile base) const;

    /// How far the rounds lie apart: the longest median of a round over the shortest; of none, 1.
    double apart() const;

  private:
    const int size_;  ///< of a micro-batch
    const std::optional<MeasuredGroups> groups_;
    MeasuredPipeline pipeline_;
    Samples samples_{};
    std::vector<Duration> rounds_{};  ///< the median step of each
};

/// Notes in the profile of `model`, which is as the devices of its backend keep it, what each of
/// `devices` that divide the layers has of them: its bytes, and an equal part of the times. With a
/// divided sequence also what of these bytes is whole without it, so that a plan with
/// `sequence_parallel` has those with it. Throws Error(Infeasible) for layers that they cannot
/// divide (core/model/tensor_division.h).
void add_shares(Profile& profile,
                const Model& model,
                int devices,
                DividedSequence sequence,
                NumberFormat format);

/// Notes what core attention keeps of each layer of `model`, which is as the devices of its backend
/// keep it, and a quarter of the forward as its time; likewise of one of `devices`.
void add_core(Profile& profile, const Model& model, int devices, NumberFormat format);

/// Everything of such a profile that is known without measuring; every layer takes the same time.
Profile unmeasured_profile(const Model& model, const ProfilerOptions& options);

/// The plan of a scenario with such a profile: its sizes are right, its times are not.
Plan unmeasured_plan(const SettledScenario& scenario, const Model& model);

/// The options that fit a scenario.
ProfilerOptions profiler_options(const SettledScenario& scenario);

}  // namespace pipetwin::exec
