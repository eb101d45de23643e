#pragma once

#include <optional>
#include <vector>

#include "core/all_reduce.h"
#include "sim/search/layer_sums.h"

/// What no plan can go below: cheap enough to leave most of them out.
namespace pipetwin::sim {

/// What the bounds of a candidate depend on beside its layers.
struct BoundQuestion {
    int stages = 1;
    int micro_batches = 1;
    int recomputed = 0;  ///< micro-batches of which every stage computes the forward again
    bool split = false;  ///< the schedule may put weight gradients off
    /// Micro-batches whose stashes stage k holds at once, at least: the smaller of `in_flight` and
    /// stages - k; with `all_at_once` as many on every stage.
    int in_flight = 1;
    bool all_at_once = false;
    std::optional<Bytes> memory_limit{};  ///< for layers: what a device has beside its context
    ReplicaGroup replicas{};
    AllReduceKind all_reduce = AllReduceKind::Ring;
    bool overlap_reduction = false;
};

/// No schedule with one stage on each rank is faster, however the layers are partitioned.
///
/// With t(i, j) the time of layers i to j - 1 for one micro-batch, F(i) and B(i) those of a forward
/// and a backward through the layers before i, stage k of layers i to j - 1 cannot begin before the
/// first forward has come through all stages before it; then it has M micro-batches to compute and
/// its weights to update; and behind its last backward the backward goes back through all before
/// it:
///
///     first(k, i, j) = F(i) + k c  +  M t(i, j)   +  reduce(i, j) + update(i, j)
///     last(k, i, j)  = F(i) + k c  +  M t'(i, j)  +  B(i) + k c
///
/// c is the dispatch of an action; where weight gradients can be put off, t' and B leave them out.
/// The bound is the smallest, over all partitions, of the largest of these over the stages. Both
/// grow with j and shrink with i, so a limit can be kept if stages that each reach as far as they
/// may come to the end. A stage that cannot hold what it has to hold at least may not reach so far.
class StepBound {
  public:
    /// Keeps references to both.
    StepBound(const LayerSums& sums, const BoundQuestion& question)
        : sums_(sums), question_(question) {}

    /// To within a ten-thousandth below; none where no partition fits into the memory.
    std::optional<Duration> least() const;

    /// Whether any partition keeps the limit.
    bool keeps(Duration limit) const { return !furthest_ends(limit).empty(); }

    /// Whether this one does, and may fit.
    bool keeps(const std::vector<int>& layers_per_stage, Duration limit) const;

    /// A partition that keeps the limit, each stage in turn with as many layers as it may have; and
    /// one where each but the first has as many as it may. Empty where there is none.
    std::vector<int> longest_first(Duration limit) const;
    std::vector<int> longest_last(Duration limit) const;

    /// The larger of first and last.
    Duration cost(int stage, int first, int end) const;

    /// Whether a stage of these layers may fit.
    bool fits(int stage, int first, int end) const;

  private:
    bool allows(int stage, int first, int end, Duration limit) const {
        return fits(stage, first, end) && cost(stage, first, end) <= limit;
    }
    std::vector<int> furthest_ends(Duration limit) const;

    const LayerSums& sums_;
    const BoundQuestion& question_;
};

/// The same bound for given pieces, where a rank may have several: rank r has pieces r, r + p, r +
/// 2p, ..., or with `v_shape` r and 2p - 1 - r. The first of them is piece r either way, from which
/// every backward goes back through all before it. Without updates.
Duration bound_of_pieces(const LayerSums& sums,
                         const BoundQuestion& question,
                         const std::vector<int>& layers_per_piece,
                         bool v_shape);

/// An equal share of all work: what holds whatever the order.
Duration share_of_work(const LayerSums& sums, int stages, int micro_batches);

}  // namespace pipetwin::sim
