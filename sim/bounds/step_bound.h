// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/base/as_index.h"
#include "core/costs/collectives/all_reduce.h"
#include "core/schedule/generators/schedule_traits.h"
#include "sim/bounds/layer_sums.h"

/// What no plan can go below: cheap enough to leave most of them out.
namespace pipetwin::sim {

/// What the bounds of a candidate depend on beside its layers.
struct BoundQuestion {
    int stages = 1;
    int micro_batches = 1;
    bool has_backward = true;
    int recomputed =
        0;  ///< micro-batches of which a rank computes the forward again, where it does
    bool where_needed = false;  ///< a rank does that only if it cannot hold what it would keep
    BackwardSplit split = BackwardSplit::Sometimes;
    std::vector<LiveStashes>
        stashes{};  ///< [rank] what it holds at once, at least; empty: one each
    /// [rank] how many micro-batches are on their way to the last stage and back, at most; empty:
    /// as many as there are.
    std::vector<int> in_flight{};
    bool forwards_first = false;  ///< every rank has all forwards before its first backward
    /// [rank]: how long a message takes from the first rank to this one, at least, passed on from
    /// each to the next; empty: no time.
    std::vector<Duration> hops{};
    /// For layers: what a device has beside its context and `gathered`.
    std::optional<Bytes> memory_limit{};
    Bytes gathered{};  ///< what every rank keeps free for gathered weights and summed gradients
    DeviceGroup replicas{};
    AllReduceKind all_reduce = AllReduceKind::Ring;
    bool overlap_reduction = false;

    /// Whether weight gradients may be put off.
    bool puts_off() const { return split != BackwardSplit::Never; }
    LiveStashes stashes_of(int rank) const {
        return stashes.empty() ? LiveStashes{} : stashes[as_index(rank)];
    }
    Duration hops_to(int rank) const { return hops.empty() ? Duration{} : hops[as_index(rank)]; }
};

/// No schedule with one stage on each rank is faster, however the layers are partitioned.
///
/// With t(i, j) the time of layers i to j - 1 for one micro-batch, F(i) and B(i) those of a forward
/// and a backward through the layers before i, and h(k) that of a message from the first rank to
/// rank k, stage k of layers i to j - 1 cannot begin before the first forward has come through all
/// stages before it; then it has M micro-batches to compute and its weights to update; and behind
/// its last backward the backward goes back through all before it:
///
///     first(k, i, j) = F(i) + k c + h(k)  +  M t(i, j)   +  reduce(i, j) + update(i, j)
///     last(k, i, j)  = F(i) + k c + h(k)  +  M t'(i, j)  +  B(i) + k c + h(k)
///
/// Where no more than n micro-batches are on their way from stage k to the last stage and back at
/// once, the forward of micro-batch m waits for the backward of one that began no later than the
/// forward of m - n. With r(k, i) that way there and back, and q, s from M - 1 = q n + s:
///
///     cycles(k, i, j) = F(i) + k c + h(k)  +  q r(k, i) + s f(i, j) + r(k, i)  +  B(i) + k c +
///     h(k)
///
/// Nor can stage k begin its first backward before the first micro-batch has been to the last stage
/// and back, and by then it has done no more than n forwards; and when it does the last one, no
/// more than n backwards are left. With F'(j) and B'(j) through the layers from j on, without the
/// messages and dispatches that go with them:
///
///     start(k, i, j) = F(L) + B'(j)  +  (M - n) f(i, j) + M b(i, j)    +  max(update(i, j), B(i))
///     both(k, i, j)  = F(L) + B'(j)  +  (M - n) (f(i, j) + b(i, j))    +  F'(j) + B'(j) + b(i, j)
///     + B(i)
///
/// and where all forwards come first
///
///     turn(k, i, j)  = F(i)  +  M f(i, j)  +  F'(j) + B'(j)  +  M b(i, j)  +  max(update(i, j),
///     B(i))
///
/// A forward that is computed again counts as part of its backward in all but the first.
///
/// c is the dispatch of an action; where weight gradients can be put off, t', r, b and B leave them
/// out. The bound is the smallest, over all partitions, of the largest of these over the stages.
/// All grow with j and shrink with i, so a limit can be kept if stages that each reach as far as
/// they may come to the end. A stage that cannot hold what it has to hold at least may not reach so
/// far, or computes its forwards again.
class StepBound {
  public:
    /// Keeps references to both.
    StepBound(const LayerSums& sums, const BoundQuestion& question)
        : sums_(sums), question_(question) {}

    /// To within a ten-thousandth below; none where no partition fits into the memory. What is not
    /// below `ceiling` may be told as that.
    std::optional<Duration> least(Duration ceiling = Duration::max()) const;

    /// Whether any partition keeps the limit.
    bool keeps(Duration limit) const { return !furthest_ends(limit).empty(); }

    /// Whether this one does, and may fit.
    bool keeps(const std::vector<int>& layers_per_stage, Duration limit) const;

    /// A partition that keeps the limit, each stage in turn with as many layers as it may have; and
    /// one where each but the first has as many as it may. Empty where there is none.
    std::vector<int> longest_first(Duration limit) const;
    std::vector<int> longest_last(Duration limit) const;

    /// The largest of these.
    Duration cost(int stage, int first, int end) const;

    /// Whether a stage of these layers may fit.
    bool fits(int stage, int first, int end) const;

  private:
    Duration before(int stage, int first) const;
    Duration after(int stage, int first) const;
    Duration way(int stage, int first) const;
    Duration cycles(int stage, int first, int end) const;
    Duration waits(int stage, int first, int end) const;
    int recomputed(int stage, int first, int end) const;
    bool holds(int stage, int first, int end, bool recomputes) const;
    bool allows(int stage, int first, int end, Duration limit) const {
        return fits(stage, first, end) && cost(stage, first, end) <= limit;
    }
    std::vector<int> furthest_ends(Duration limit) const;

    const LayerSums& sums_;
    const BoundQuestion& question_;
};

/// The pieces of every rank: r has r, r + p, r + 2p, ..., or with `v_shape` r and 2p - 1 - r.
struct Pieces {
    std::vector<int> layers;  ///< of each
    bool v_shape = false;
};

/// What no step with these pieces goes below, as StepBound's. The first piece of rank r is piece r,
/// from which every backward goes back through all before it. None where they do not fit.
std::optional<Duration> bound_of_pieces(const LayerSums& sums,
                                        const BoundQuestion& question,
                                        const Pieces& pieces);

/// An equal share of all work: what holds whatever the order.
Duration share_of_work(const LayerSums& sums, int stages, int micro_batches);

}  // namespace pipetwin::sim
