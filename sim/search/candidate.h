// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/costs/profile.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/schedule/lower.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

/// What a plan search chooses from: every value of every key of a scenario that is "auto".
namespace pipetwin::sim {

/// How many devices do what, and how the mini-batch is cut.
struct Shape {
    int stages = 1;  ///< p of one replica: stages * chunks pieces
    int data_parallel = 1;
    int tensor_parallel = 1;
    int micro_batches = 1;
    int context_parallel = 1;
    int expert_parallel = 1;
    int expert_tensor_parallel = 0;  ///< 0: as tensor_parallel

    int devices() const { return stages * stage_devices(); }
    /// Devices with the same layers.
    int stage_devices() const { return data_parallel * tensor_parallel * context_parallel; }
    int expert_tensor_devices() const {
        return expert_tensor_parallel > 0 ? expert_tensor_parallel : tensor_parallel;
    }
    /// Whether other devices divide experts than all other weights.
    bool divides_experts() const {
        return expert_parallel > 1 || expert_tensor_devices() != tensor_parallel;
    }
    /// Whether samples or experts are divided.
    bool is_divided() const { return context_parallel > 1 || divides_experts(); }
    /// Whether several devices have the same weights, or the same experts.
    bool has_replicas() const {
        return stage_devices() > tensor_parallel ||
               stage_devices() > expert_tensor_devices() * expert_parallel;
    }
    auto operator<=>(const Shape&) const = default;
};

/// What the costs of layers and messages depend on beside the shape: what is recomputed inside of
/// layers, and what replicas and devices of a rank share.
struct CostOptions {
    LayerRecompute layer_recompute = LayerRecompute::None;  ///< on all ranks
    Shard shard = Shard::None;
    bool sequence_parallel = false;
    bool scatter_boundaries = false;
    bool modules = false;  ///< as many as a rank needs are computed again

    auto operator<=>(const CostOptions&) const = default;
};

/// A schedule, its chunks, what is recomputed, and what replicas and devices of a rank share.
struct ScheduleChoice {
    std::string schedule;
    int chunks = 1;
    Recompute recompute = Recompute::None;
    /// Every rank for itself: as the scenario's list says, or where recompute is open as little as
    /// it may, of none, except-last and always the first that fits. `recompute` says nothing then.
    bool recompute_by_rank = false;
    CostOptions costs{};

    auto operator<=>(const ScheduleChoice&) const = default;
};

/// The cost options of a choice. What the scenario writes down goes before what the choice says.
CostOptions cost_options_of(const Scenario& scenario, const ScheduleChoice& choice);

/// Modules that are computed again with these options: what the scenario writes down, or as needed.
ModuleLists modules_with(const Scenario& scenario, const CostOptions& options);

struct Candidate {
    Shape shape;
    ScheduleChoice choice;

    auto operator<=>(const Candidate&) const = default;
};

/// The schedules that are tried for a shape where the scenario leaves the schedule open: those that
/// it lists, or else those that a search knows. By their chunks, then as they are listed. Two
/// pipelines of one model have no replicas. One stage needs one schedule.
std::vector<const ScheduleTraits*> searched_rows(const Scenario& scenario, const Shape& shape);

/// The scenario with the candidate in place of every "auto" but the partition. Where recompute is
/// by rank, it is what the scenario writes down, or none. Where the scenario does not say when
/// recomputes run, it is the default of the candidate's schedule.
SettledScenario with_candidate(const Scenario& scenario, const Candidate& candidate);

/// Devices to plan for: those of the cluster, or as many as the scenario takes. Throws
/// Error(BadInput) if nothing says how many there are.
int device_count(const Scenario& scenario);

/// Every shape that the scenario leaves open, ascending. What is "auto" takes these values:
///
///     stages                  1 to the number of devices, and of layers
///     tensor_parallel         powers of two that divide the devices of a node
///     data_parallel           divisors of the mini-batch
///     micro_batches           divisors of a replica's part of the mini-batch
///     context_parallel        powers of two that leave each of a sample's chunks 512 tokens or
///                             more: with fewer its messages are longer than what it computes
///     expert_parallel         divisors of the experts
///     expert_tensor_parallel  1; or as tensor_parallel where experts are whole, as without it, or
///                             cannot be divided further
///
/// as far as the devices go: fewer than all may be used; and so many replicas that each has a
/// sample for every micro-batch that is written down. Samples and experts are divided only as
/// `require_division` lets them be, and as far as the costs say what they are. Throws
/// Error(BadInput) if nothing says how many devices there are, the mini-batch cannot be shared out
/// to a stated number of replicas, or no shape has the degrees that are written down.
std::vector<Shape> shapes_of(const Scenario& scenario, const Model& model, const Profile& profile);

/// Opens what the scenario does not say of how samples and experts are divided, where that may pay:
/// experts of a model that routes tokens to them, samples of 16,384 tokens or more.
void open_division(Scenario& scenario, const Profile& profile);

/// Sets what is open of how samples and experts are divided: not at all, or as the first choice
/// that is named.
void leave_undivided(Scenario& scenario);

/// The numbers of stages of these shapes, ascending. Of more than 40 only those that divide the
/// devices, and those with which the largest stage of so many layers has fewer layers than with one
/// stage less: 1000 layers on 500 stages are 2 each, and so they are, at the most, on 501 to 999.
std::vector<int> telling_stage_counts(const std::vector<Shape>& shapes, int layers);

/// What a scenario leaves open for a shape beside the partition. What is "auto" takes these values:
///
///     schedule, chunks    those of `searched_rows`; others only where the scenario names them
///     recompute           none, except-last, always; by rank; of blocks, where the names of the
///                         layers tell them; of core attention, where the profile knows it
///     shard               of several replicas: optimizer, and none where that may be faster;
///                         gradients and weights where the scenario asks for "auto"
///     sequence_parallel   true where several devices of a rank share layers and the profile knows
///                         their shares: no layer takes longer or more memory with it, and no
///                         message has more bytes (`with_tensor_parallel`)
///     scatter_boundaries  both, where it changes anything
///
/// A model that is made of our own layers is planned to be trained: left out then is what is only
/// simulated, which are scattered boundaries, and averages of weights that replicas divide.
class Choices {
  public:
    /// Keeps references to the scenario and the profile.
    Choices(const Scenario& scenario, const Model& model, const Profile& profile);

    /// Every choice for the shape.
    std::vector<ScheduleChoice> of(const Shape& shape) const;

    /// The number of choices for the shape. For one thread.
    std::int64_t count(const Shape& shape);

    /// All cost options that these choices have, each once.
    std::vector<CostOptions> cost_options(const Shape& shape) const;

    /// The one of them with which no layer takes longer than with any other.
    CostOptions fastest_layers(const Shape& shape) const;

    /// Whether layers may take less time where the sequence is divided.
    bool may_divide_sequence(const Shape& shape) const;

  private:
    std::vector<CostOptions> options_with_shards(const Shape& shape) const;
    std::vector<Shard> shards_of(const Shape& shape) const;
    std::vector<ScheduleChoice> orders_of(const Shape& shape) const;
    void add_recomputes(ScheduleChoice order,
                        const Shape& shape,
                        std::vector<ScheduleChoice>& choices) const;

    const Scenario& scenario_;
    const Profile& profile_;
    int layers_ = 1;
    std::vector<LayerRecompute> layer_recomputes_{};  ///< that are open, beside none
    bool trains_ = false;                             ///< the model can be trained
    bool may_share_ = true;                           ///< replicas may divide what each would have
    bool sharded_is_faster_ = false;                  ///< the optimizer, than all of it everywhere
    /// [what the number of choices depends on]
    std::map<std::tuple<int, bool, bool, bool, bool, bool>, std::int64_t> counts_{};
};

/// `Choices::of` of one shape.
std::vector<ScheduleChoice> choices_of(const Scenario& scenario,
                                       const Model& model,
                                       const Profile& profile,
                                       const Shape& shape);

}  // namespace pipetwin::sim
