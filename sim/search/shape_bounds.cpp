// SPDX-License-Identifier: Apache-2.0
#include "sim/search/shape_bounds.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/partition/feasible_splits.h"
#include "core/partition/partition_search.h"
#include "core/schedule/generators/generate.h"
#include "sim/bounds/row_windows.h"
#include "sim/engine/conditions.h"
#include "sim/search/frontier.h"

namespace pipetwin::sim {

StagePlacement placement_of(const ScheduleChoice& choice) {
    const ScheduleTraits& row = schedule_traits(choice.schedule);
    if (row.stale_gradients || !row.trains) {
        return StagePlacement::Unknown;
    }
    const bool one_pipeline = row.placement == StagePlacement::OnePerRank ||
                              row.placement == StagePlacement::Loop ||
                              row.placement == StagePlacement::V;
    return one_pipeline && choice.chunks == 1 ? StagePlacement::OnePerRank : row.placement;
}

Duration least_of_any(const LayerSums& sums, const BoundQuestion& question) {
    return question.has_backward ? share_of_work(sums, question.stages, question.micro_batches)
                                 : Duration{};
}

namespace {

/// [piece]: the rank that has it. Both ranks that have a piece of two pipelines count as one.
std::vector<int> ranks_of_pieces(StagePlacement placement, int ranks, int chunks) {
    const int pieces = ranks * chunks;
    std::vector<int> of_piece;
    for (int piece = 0; piece < pieces; ++piece) {
        const int turned = pieces - 1 - piece;
        of_piece.push_back(placement == StagePlacement::BothWays ? std::min(piece, turned)
                           : placement == StagePlacement::V && piece >= ranks ? turned
                                                                              : piece % ranks);
    }
    return of_piece;
}

int recomputed(Recompute recompute, int micro_batches) {
    switch (recompute) {
        case Recompute::None:
            return 0;
        case Recompute::Always:
            return micro_batches;
        case Recompute::ExceptLast:
            return micro_batches - 1;
    }
    PIPETWIN_EXPECT(false, "recompute out of range");
}

/// n, where all ranks together keep at least 1 / n of what the layers keep of one micro-batch, once
/// its forward has come through.
int parts_kept(const ScheduleChoice& choice, const BoundQuestion& question) {
    const bool keeps_one = question.recomputed == 0 ||
                           (!question.where_needed && question.recomputed < question.micro_batches);
    return keeps_one ? 1 : choice.chunks;
}

bool all_recompute(const BoundQuestion& question) {
    return question.recomputed > 0 && !question.where_needed;
}

/// Nanoseconds that rounding may have added to the sums of gradients of a rank.
int reduction_slack(int chunks) {
    return 2 * chunks;
}

/// The order of a candidate; none where the schedule has none of such a shape.
std::optional<Schedule> order_of(const Scenario& scenario, const Candidate& candidate) {
    try {
        return scenario_schedule(with_candidate(scenario, candidate));
    } catch (const Error&) {
        return std::nullopt;
    }
}

}  // namespace

BoundQuestion ShapeBounds::question(const ScheduleChoice& choice) const {
    BoundQuestion question = of_shape_;
    const bool puts_off = scenario_.pipeline.deferred_weights > 0;
    // What a rank does not hold it computes again, but for the last micro-batch.
    question.where_needed = choice.recompute_by_rank;
    const Recompute least = question.micro_batches == 1 ? Recompute::Always : Recompute::ExceptLast;
    question.recomputed =
        recomputed(choice.recompute_by_rank ? least : choice.recompute, question.micro_batches);
    const ScheduleTraits& row = schedule_traits(choice.schedule);
    question.split = puts_off ? BackwardSplit::Sometimes : row.split;
    question.forwards_first = row.forwards_first;
    const ScheduleShape shape{
        .ranks = question.stages, .chunks = choice.chunks, .micro_batches = question.micro_batches};
    // Forms of schedules with chunks are asked for more than one. Stashes that are copied to host
    // memory need room one at a time; and what puts W off takes some sooner than the rows have
    // them.
    const bool has_form = row.stashes && (row.chunks == ChunkCounts::One) == (choice.chunks == 1);
    const bool may_hold_less = scenario_.pipeline.offload != Offload::None ||
                               (puts_off && row.split != BackwardSplit::Never);
    for (int rank = 0; rank < question.stages; ++rank) {
        if (has_form && !may_hold_less) {
            question.stashes.push_back(row.stashes(shape, rank));
        }
        if (row.in_flight && !puts_off) {
            question.in_flight.push_back(row.in_flight(shape, rank));
        }
    }
    return question;
}

/// The partition that shares the work of a micro-batch out evenly among the pieces.
const std::vector<int>& ShapeBounds::balanced(int pieces, bool recomputes) {
    std::vector<int>& known = balanced_[{pieces, recomputes}];
    if (!known.empty()) {
        return known;
    }
    std::vector<Duration> times;
    for (int layer = 0; layer < sums_.layers(); ++layer) {
        const auto of_layer = [&](const std::vector<Duration>& sum) {
            return sum[as_index(layer + 1)] - sum[as_index(layer)];
        };
        const Duration forward = of_layer(sums_.forward);
        times.push_back(forward + (recomputes ? forward : Duration{}) +
                        of_layer(sums_.backward_input) + of_layer(sums_.backward_weight));
    }
    return known = balanced_partition(times, pieces).layers_per_stage();
}

/// For schedules with several pieces to a rank: where every rank recomputes or not for itself, the
/// partition that is balanced without and the one that is balanced with.
std::vector<std::vector<int>> ShapeBounds::balanced_ones(const ScheduleChoice& choice,
                                                         const BoundQuestion& question) {
    const int pieces = question.stages * choice.chunks;
    std::vector<std::vector<int>> partitions{balanced(pieces, all_recompute(question))};
    if (question.where_needed && balanced(pieces, true) != partitions.front()) {
        partitions.push_back(balanced(pieces, true));
    }
    return partitions;
}

std::optional<Duration> ShapeBounds::least_of_first(const ScheduleChoice& choice, Duration any) {
    const StagePlacement placement = placement_of(choice);
    const bool has_pieces = placement == StagePlacement::Loop || placement == StagePlacement::V;
    // Where devices differ the bound of pieces does not know which of them holds what.
    const bool alike = scenario_.cluster.devices.empty() && scenario_.cluster.speeds.empty();
    if (!has_pieces || !alike || !scenario_.pipeline.partition.is_auto() ||
        of_shape_.stages * choice.chunks > sums_.layers()) {
        return any;
    }
    const BoundQuestion asked = question(choice);
    Pieces pieces{.layers = {}, .v_shape = placement == StagePlacement::V};
    std::optional<Duration> least;
    for (std::vector<int>& layers : balanced_ones(choice, asked)) {
        pieces.layers = std::move(layers);
        if (const auto bound = bound_of_pieces(sums_, asked, pieces)) {
            least = std::min(least.value_or(*bound), *bound);
        }
    }
    return least ? std::optional(std::max(*least, any)) : std::nullopt;
}

/// Nanoseconds that the sum of gradients over the replicas takes for each byte of weights, at
/// least, where it stands behind all other work. An all-reduce takes longer the more bytes it has,
/// but no more than in proportion: up to all weights it is above the line from the first byte on.
double ShapeBounds::reduction_slope(const BoundQuestion& question) const {
    if (question.replicas.members == 1 || question.overlap_reduction) {
        return 0;
    }
    const Bytes all = sums_.weights.back();
    if (all <= Bytes{1}) {
        return 0;
    }
    const auto time = [&](Bytes bytes) {
        return all_reduce_time(question.all_reduce, question.replicas, bytes).count();
    };
    return std::max(
        0.0, static_cast<double>(time(all) - time(Bytes{1})) / static_cast<double>(all.count));
}

void ShapeBounds::add_reductions(RankQuantity& work,
                                 const BoundQuestion& question,
                                 int chunks) const {
    const double slope = reduction_slope(question);
    if (slope == 0) {
        return;
    }
    // Rounded down layer by layer, so that layers that are alike stay so.
    std::int64_t before = 0;
    for (std::size_t layer = 0; layer + 1 < work.before.front().size(); ++layer) {
        const Bytes weights = sums_.weights[layer + 1] - sums_.weights[layer];
        before += static_cast<std::int64_t>(slope * static_cast<double>(weights.count));
        work.before.front()[layer + 1] += before;
    }
    for (std::int64_t& fixed : work.fixed) {
        fixed -= reduction_slack(chunks);
    }
}

/// What every rank has of all micro-batches, with a part of what it waits for: the first forward
/// that comes through the layers before its first piece, and the last backward that goes back
/// through them. See `StepBound`.
RankChain ShapeBounds::chain_of(const ScheduleChoice& choice, const BoundQuestion& question) const {
    const StagePlacement placement = placement_of(choice);
    const int ranks = question.stages;
    RankChain chain{.layers = sums_.layers(),
                    .rank_of_piece = ranks_of_pieces(placement, ranks, choice.chunks),
                    .quantities = {}};
    const bool both_ways = placement == StagePlacement::BothWays;
    const bool waits = placement != StagePlacement::Unknown;
    // Where a model has two pipelines, each runs half of the micro-batches on a rank. Each rank of
    // a pair has the pair's first piece in one of them, and waits for the layers before it.
    const int micro_batches = both_ways ? question.micro_batches / 2 : question.micro_batches;
    const int again =
        question.where_needed || both_ways ? 0 : std::min(question.recomputed, micro_batches);
    RankQuantity all;
    RankQuantity there_and_back;
    for (std::vector<std::int64_t>* const sums :
         {&all.before.emplace_back(), &there_and_back.before.emplace_back()}) {
        const bool with_weights = sums == &all.before.front() || !question.puts_off();
        for (std::size_t i = 0; i <= as_index(chain.layers); ++i) {
            const Duration weights = with_weights ? sums_.backward_weight[i] : Duration{};
            const Duration update = sums == &all.before.front() ? sums_.update[i] : Duration{};
            sums->push_back(
                (micro_batches * (sums_.forward[i] + sums_.backward_input[i] + weights) +
                 again * sums_.forward[i] + update)
                    .count());
        }
    }
    for (std::size_t i = 0; waits && i <= as_index(chain.layers); ++i) {
        const Duration there = sums_.forward[i];
        const Duration back =
            sums_.backward_input[i] + (question.puts_off() ? Duration{} : sums_.backward_weight[i]);
        all.delay.push_back(there.count());
        there_and_back.delay.push_back((there + back).count());
    }
    for (int rank = 0; rank < chain.ranks(); ++rank) {
        const Duration actions = micro_batches * 2 * choice.chunks * sums_.dispatch;
        const Duration hops = waits ? question.hops_to(rank) + rank * sums_.dispatch : Duration{};
        all.fixed.push_back((actions + hops).count());
        there_and_back.fixed.push_back((actions + 2 * hops).count());
    }
    chain.quantities.push_back(std::move(all));
    chain.quantities.push_back(std::move(there_and_back));
    add_reductions(chain.quantities.front(), question, choice.chunks);
    if (question.memory_limit) {
        RankQuantity memory;
        std::vector<std::int64_t>& state = memory.before.emplace_back();
        for (const Bytes bytes : sums_.state) {
            state.push_back(bytes.count);
        }
        memory.limits.assign(as_index(chain.ranks()), question.memory_limit->count);
        chain.quantities.push_back(std::move(memory));
    }
    return chain;
}

/// Whether the order of the actions is the same for every partition, and short enough to be looked
/// at.
bool ShapeBounds::has_fixed_order(const ScheduleChoice& choice) const {
    constexpr std::int64_t most_actions = 1'000'000;
    const ScheduleTraits& row = schedule_traits(choice.schedule);
    return scenario_.pipeline.deferred_weights == 0 && !row.order_from_costs && row.trains &&
           !row.stale_gradients && !has_schedule_file(scenario_) &&
           actions_of({.shape = shape_, .choice = choice}) <= most_actions;
}

std::optional<Schedule> ShapeBounds::order_with_ways(const ScheduleChoice& choice) const {
    const StagePlacement placement = placement_of(choice);
    const bool has_pieces = placement == StagePlacement::Loop || placement == StagePlacement::V;
    if (!has_pieces || of_shape_.stages * choice.chunks > sums_.layers() ||
        !of_shape_.has_backward || !has_fixed_order(choice)) {
        return std::nullopt;
    }
    return scenario_schedule(with_candidate(scenario_, {.shape = shape_, .choice = choice}));
}

std::optional<Duration> ShapeBounds::least_by_ways(const ScheduleChoice& choice,
                                                   const OrderPaths& order,
                                                   const WaysSearch& search) const {
    const BoundQuestion asked = question(choice);
    // Where a rank has many micro-batches, recompute of all but the last stands for that of all,
    // too: it takes hardly less.
    constexpr int few_micro_batches = 32;
    const bool stands_for_all = asked.where_needed && asked.micro_batches > few_micro_batches;
    std::vector<Recompute> recomputes{choice.recompute};
    if (asked.where_needed) {
        recomputes = {Recompute::None, Recompute::ExceptLast};
        if (!stands_for_all) {
            recomputes.push_back(Recompute::Always);
        }
    }
    return bound_of_paths(order,
                          {.sums = sums_,
                           .recomputes = recomputes,
                           .counts_last = !stands_for_all,
                           .memory = asked.memory_limit,
                           .stashes_on_device = scenario_.pipeline.offload == Offload::None},
                          search);
}

/// The chain with what follows from the order of the actions, where a rank has several pieces in a
/// loop, or two in a V.
const RankChain& ShapeBounds::chain_with_windows(const ScheduleChoice& choice,
                                                 const BoundQuestion& question) const {
    if (last_chain_ && last_chain_->first == choice) {
        return last_chain_->second;
    }
    RankChain& chain = last_chain_.emplace(choice, chain_of(choice, question)).second;
    const StagePlacement placement = placement_of(choice);
    if (choice.chunks < 2 || !has_fixed_order(choice) ||
        (placement != StagePlacement::Loop && placement != StagePlacement::V)) {
        return chain;
    }
    if (const auto order = order_of(scenario_, {.shape = shape_, .choice = choice})) {
        const RowQuestion asked{
            .asked = question,
            .again = choice.recompute_by_rank ? Recompute::ExceptLast : choice.recompute,
            .holds_all = scenario_.pipeline.offload == Offload::None,
            .reduction = reduction_slope(question),
            .reduction_slack = reduction_slack(choice.chunks)};
        if (choice.chunks == 2) {
            add_windows(chain, *order, sums_, asked);
        } else if (placement == StagePlacement::Loop) {
            add_mean_memory(chain, *order, sums_, asked);
        }
    }
    return chain;
}

/// Time of the forward of one micro-batch through what ranks recompute where each recomputes only
/// what it cannot hold, at least. A rank that recomputes has what its largest piece keeps, and what
/// the others keep has to fit beside that and all state:
///
///     state + kept + (saved - kept) / chunks <= room of all ranks
///
/// The layers that take the least time for their bytes are left to be recomputed.
Duration ShapeBounds::forced_again(int chunks, const BoundQuestion& question) const {
    const bool is_known = question.where_needed && question.memory_limit && chunks > 1 &&
                          scenario_.pipeline.offload == Offload::None;
    if (!is_known) {
        return {};
    }
    const Bytes saved = sums_.saved.back();
    const double room =
        static_cast<double>((question.stages * *question.memory_limit - sums_.state.back()).count);
    const double most_kept =
        (room - static_cast<double>(saved.count) / chunks) * chunks / (chunks - 1);
    double left = static_cast<double>(saved.count) - std::max(0.0, most_kept);
    if (left <= 0) {
        return {};
    }
    struct Layer {
        double bytes = 0;
        double time = 0;
    };
    std::vector<Layer> layers;
    for (std::size_t layer = 0; layer < as_index(sums_.layers()); ++layer) {
        layers.push_back(
            {.bytes = static_cast<double>((sums_.saved[layer + 1] - sums_.saved[layer]).count),
             .time =
                 static_cast<double>((sums_.forward[layer + 1] - sums_.forward[layer]).count())});
    }
    std::ranges::sort(
        layers, [](const Layer& a, const Layer& b) { return a.time * b.bytes < b.time * a.bytes; });
    double time = 0;
    for (const Layer& layer : layers) {
        const double share = layer.bytes > 0 ? std::min(1.0, left / layer.bytes) : 0;
        time += share * layer.time;
        left -= share * layer.bytes;
        if (left <= 0) {
            break;
        }
    }
    return Duration{static_cast<std::int64_t>(time)};
}

/// The mean over the ranks of what each is busy for after the first forward has come through as
/// many layers as it has ranks before it.
Duration ShapeBounds::mean_of_ranks(int chunks, const BoundQuestion& question) const {
    Duration fill{};
    for (int rank = 0; rank < std::min(question.stages, sums_.layers()); ++rank) {
        fill += sums_.forward[as_index(rank)] + question.hops_to(rank);
    }
    const int again = question.where_needed ? 0 : question.recomputed;
    const Duration work =
        question.micro_batches *
            (sums_.forward.back() + sums_.backward_input.back() + sums_.backward_weight.back()) +
        again * sums_.forward.back() + sums_.update.back() +
        (question.micro_batches - 1) * forced_again(chunks, question);
    return (work + fill) / question.stages;
}

/// What all ranks together keep of micro-batches, at least. Where every rank has all of them of all
/// its pieces at once, that; else what is there while the first one turns around, of which nothing
/// is given back yet; it may be the last one, which no piece computes again where all others are.
/// Where pieces are computed again, each rank has its largest, which is no smaller than their mean.
Bytes ShapeBounds::least_kept(const ScheduleChoice& choice, const BoundQuestion& question) const {
    if (scenario_.pipeline.offload != Offload::None || !question.has_backward) {
        return {};
    }
    if (question.recomputed > 0) {
        return Bytes{sums_.saved.back().count / parts_kept(choice, question)};
    }
    const int micro_batches = question.micro_batches;
    const bool keeps_all = !question.stashes.empty() &&
                           std::ranges::all_of(question.stashes, [&](const LiveStashes& of_rank) {
                               return of_rank.all == micro_batches * choice.chunks;
                           });
    if (!keeps_all) {
        return sums_.saved.back();
    }
    // What waits for its W may have given back a part.
    const Bytes given_back = std::min(Bytes{}, sums_.split.back());
    return micro_batches *
           (sums_.saved.back() + (question.split == BackwardSplit::Never ? Bytes{} : given_back));
}

/// Whether all ranks together have room for the model's state and for what is kept; and so for
/// those layers alone for which a rank keeps more than so many bytes free, or it has none of them.
bool ShapeBounds::holds_all(const ScheduleChoice& choice, const BoundQuestion& question) const {
    if (!question.memory_limit) {
        return true;
    }
    if (sums_.state.back() + least_kept(choice, question) >
        question.stages * *question.memory_limit) {
        return false;
    }
    const bool keeps = scenario_.pipeline.offload == Offload::None && question.has_backward;
    const int parts = parts_kept(choice, question);
    const std::set<Bytes> rooms(sums_.room.begin(), sums_.room.end());
    const Bytes limit = *question.memory_limit + question.gathered;
    return std::ranges::all_of(rooms, [&](Bytes room) {
        Bytes state;
        Bytes saved;
        for (std::size_t layer = 0; layer < sums_.room.size(); ++layer) {
            if (sums_.room[layer] >= room) {
                state += sums_.state[layer + 1] - sums_.state[layer];
                saved += sums_.saved[layer + 1] - sums_.saved[layer];
            }
        }
        const Bytes kept = keeps ? Bytes{saved.count / parts} : Bytes{};
        return state + kept <= question.stages * (limit - room);
    });
}

std::optional<Duration> ShapeBounds::least(const ScheduleChoice& choice, Duration ceiling) const {
    const BoundQuestion asked = question(choice);
    switch (placement_of(choice)) {
        case StagePlacement::OnePerRank:
            return StepBound(sums_, asked).least(ceiling);
        case StagePlacement::Loop:
        case StagePlacement::V:
            return holds_all(choice, asked) ? std::optional(mean_of_ranks(choice.chunks, asked))
                                            : std::nullopt;
        case StagePlacement::BothWays:
        case StagePlacement::Unknown:
            return least_of_any(sums_, asked);
    }
    PIPETWIN_EXPECT(false, "placement out of range");
}

Duration ShapeBounds::closest_bound(const ScheduleChoice& choice,
                                    Duration least,
                                    Duration ceiling,
                                    Duration enough) const {
    const StagePlacement placement = placement_of(choice);
    const bool has_chain = placement == StagePlacement::Loop || placement == StagePlacement::V ||
                           placement == StagePlacement::BothWays;
    if (!scenario_.pipeline.partition.is_auto() || !has_chain) {
        return least;
    }
    const RankChain& chain = chain_with_windows(choice, question(choice));
    if (ceiling < Duration::max() && !rank_chain_keeps(chain, ceiling.count() - 1)) {
        return ceiling;
    }
    if (enough <= least) {
        return least;
    }
    const auto bound =
        rank_bound_between(chain, least.count(), std::min<std::int64_t>(enough.count(), never));
    return bound ? std::max(least, Duration{*bound}) : Duration::max();
}

Bytes ShapeBounds::even_share_of_memory(const ScheduleChoice& choice) const {
    const BoundQuestion asked = question(choice);
    const int pieces = asked.stages * choice.chunks;
    const Bytes saved{sums_.saved.back().count / pieces};  // of one piece and one micro-batch
    const int live = asked.stashes.empty() ? 1 : asked.stashes_of(0).all;
    const Bytes stashes = asked.recomputed > 0 ? live * sums_.least_boundary + saved : live * saved;
    return Bytes{sums_.state.back().count / asked.stages} + stashes;
}

bool ShapeBounds::may_be_faster(const ScheduleChoice& choice, Duration best) const {
    const StagePlacement placement = placement_of(choice);
    if (!scenario_.pipeline.partition.is_auto() || placement == StagePlacement::Unknown ||
        best == Duration::max()) {
        return true;
    }
    const BoundQuestion asked = question(choice);
    if (placement == StagePlacement::OnePerRank) {
        return StepBound(sums_, asked).keeps(best - Duration{1});
    }
    return rank_chain_keeps(chain_of(choice, asked), best.count() - 1) &&
           rank_chain_keeps(chain_with_windows(choice, asked), best.count() - 1);
}

/// The balanced one, if the bound is as good as any for it; else those that the bound finds, too.
std::vector<std::vector<int>> ShapeBounds::partitions_by_bound(const BoundQuestion& question,
                                                               Duration least) {
    const StepBound bound(sums_, question);
    const Duration kept = least + least / 5'000 + Duration{2};  // `least` is a little below
    std::vector<std::vector<int>> partitions{balanced(question.stages, all_recompute(question))};
    if (bound.keeps(partitions.front(), kept)) {
        return partitions;
    }
    for (std::vector<int> sizes : {bound.longest_first(kept), bound.longest_last(kept)}) {
        if (!sizes.empty() && std::ranges::find(partitions, sizes) == partitions.end()) {
            partitions.push_back(std::move(sizes));
        }
    }
    return partitions;
}

std::vector<std::vector<int>> ShapeBounds::partitions(const ScheduleChoice& choice,
                                                      Duration least) {
    if (!scenario_.pipeline.partition.is_auto()) {
        return {{}};  // it is the only one
    }
    const BoundQuestion asked = question(choice);
    switch (placement_of(choice)) {
        case StagePlacement::OnePerRank:
            return partitions_by_bound(asked, least);
        case StagePlacement::Loop:
        case StagePlacement::V:
        case StagePlacement::BothWays:
            return balanced_ones(choice, asked);
        case StagePlacement::Unknown:
            return {{}};
    }
    PIPETWIN_EXPECT(false, "placement out of range");
}

/// All partitions: what is left where nothing is known of a schedule but that there are plans of
/// it.
std::optional<std::vector<std::vector<int>>> ShapeBounds::every_partition(
    const ScheduleChoice& choice, std::int64_t most) const {
    int pieces = of_shape_.stages * choice.chunks;
    if (!schedule_traits(choice.schedule).order_from_costs) {
        const Candidate candidate{.shape = shape_, .choice = choice};
        pieces = model_stage_count(scenario_schedule(with_candidate(scenario_, candidate)));
    }
    if (split_count(sums_.layers(), pieces) > static_cast<double>(most)) {
        return std::nullopt;
    }
    std::vector<std::vector<int>> partitions;
    FeasibleSplits(sums_.layers(), pieces, [](int, int, int) {
        return true;
    }).for_each([&](std::span<const int> sizes) {
        partitions.emplace_back(sizes.begin(), sizes.end());
    });
    return partitions;
}

std::optional<std::vector<std::vector<int>>> ShapeBounds::faster_partitions(
    const ScheduleChoice& choice, Duration best, std::int64_t most) const {
    const BoundQuestion asked = question(choice);
    const StagePlacement placement = placement_of(choice);
    if (placement == StagePlacement::Unknown) {
        return every_partition(choice, most);
    }
    if (placement != StagePlacement::OnePerRank) {
        const std::int64_t limit = best == Duration::max() ? never : best.count() - 1;
        return rank_splits_within(chain_with_windows(choice, asked), limit, most);
    }
    const StepBound bound(sums_, asked);
    const FeasibleSplits splits(sums_.layers(), asked.stages, [&](int stage, int first, int end) {
        return bound.fits(stage, first, end) && bound.cost(stage, first, end) < best;
    });
    if (std::cmp_greater(splits.count(), std::max<std::int64_t>(most, 0))) {
        return std::nullopt;
    }
    std::vector<std::vector<int>> partitions;
    splits.for_each(
        [&](std::span<const int> sizes) { partitions.emplace_back(sizes.begin(), sizes.end()); });
    return partitions;
}

}  // namespace pipetwin::sim
