#pragma once

#include <string>
#include <vector>

#include "core/model/model.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/schedule/lower.h"

/// What a plan search chooses from: every value of every key of a scenario that is "auto".
namespace pipetwin::sim {

/// How many devices do what, and how the mini-batch is cut.
struct Shape {
    int stages = 1;  ///< p of one replica: stages * chunks pieces
    int data_parallel = 1;
    int tensor_parallel = 1;
    int micro_batches = 1;

    int devices() const { return stages * data_parallel * tensor_parallel; }
    auto operator<=>(const Shape&) const = default;
};

/// A schedule, its chunks, and what is recomputed.
struct ScheduleChoice {
    std::string schedule;
    int chunks = 1;
    Recompute recompute = Recompute::None;
    /// Every rank for itself: as the scenario's list says, or where recompute is open as little as
    /// it may, of none, except-last and always the first that fits. `recompute` says nothing then.
    bool recompute_by_rank = false;
    LayerRecompute layer_recompute = LayerRecompute::None;  ///< as the scenario says

    auto operator<=>(const ScheduleChoice&) const = default;
};

struct Candidate {
    Shape shape;
    ScheduleChoice choice;

    auto operator<=>(const Candidate&) const = default;
};

/// Whether the schedule is tried for a shape where the scenario leaves it open. Two pipelines of
/// one model have no replicas.
bool is_searched(const ScheduleTraits& row, const Shape& shape);

/// The scenario with the candidate in place of every "auto" but the partition. Where recompute is
/// by rank, it is what the scenario writes down, or none. Where the scenario does not say when
/// recomputes run, it is the default of the candidate's schedule.
SettledScenario with_candidate(const Scenario& scenario, const Candidate& candidate);

/// Every shape that the scenario leaves open, ascending. What is "auto" takes these values:
///
///     stages            1 to the number of devices, and of layers
///     tensor_parallel   powers of two that divide the devices of a node
///     data_parallel     divisors of the mini-batch
///     micro_batches     divisors of a replica's part of the mini-batch
///
/// as far as the devices go: fewer than all may be used; and so many replicas that each has a
/// sample for every micro-batch that is written down. Throws Error(BadInput) if nothing says how
/// many devices there are, or the mini-batch cannot be shared out to a stated number of replicas.
std::vector<Shape> shapes_of(const Scenario& scenario, const Model& model);

/// The numbers of stages of these shapes, ascending. Of more than 40 only those that divide the
/// devices, and those with which the largest stage of so many layers has fewer layers than with one
/// stage less: 1000 layers on 500 stages are 2 each, and so they are, at the most, on 501 to 999.
std::vector<int> telling_stage_counts(const std::vector<Shape>& shapes, int layers);

/// Every choice that the scenario leaves open for a shape. Schedules whose rows do not say
/// `searched` (with stale gradients, without a backward, or with a search of their own) are taken
/// only where the scenario names them.
std::vector<ScheduleChoice> choices_of(const Scenario& scenario,
                                       const Model& model,
                                       const Shape& shape);

}  // namespace pipetwin::sim
