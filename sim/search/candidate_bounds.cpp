#include "sim/search/candidate_bounds.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/partition/feasible_splits.h"
#include "core/partition/partition.h"
#include "core/scenario/cluster.h"
#include "core/schedule/generators/generate.h"
#include "sim/engine/conditions.h"

namespace pipetwin::sim {

namespace {

/// Where the pieces of a candidate are, and so which partitions are tried.
enum class StagePlacement {
    OnePerRank,  ///< those that the bound finds
    Loop,        ///< the balanced one
    V,           ///< the balanced one
    Other,       ///< the balanced one, and no bound of its own
};

StagePlacement placement_of(const Scenario& scenario, const Style& style) {
    const bool alike = scenario.cluster.devices.empty() && scenario.cluster.speeds.empty();
    if (has_schedule_file(scenario) ||
        has_stale_gradients(with_candidate(scenario, {.shape = {}, .style = style})) ||
        style.schedule == "chimera" || style.schedule == "forward-only") {
        return StagePlacement::Other;
    }
    if (style.chunks == 1) {
        return StagePlacement::OnePerRank;
    }
    if (!alike) {  // the balanced partition depends on which device holds what
        return StagePlacement::Other;
    }
    const bool turns =
        style.schedule == "zb-v" || style.schedule == "dualpipe-v" || style.schedule == "hanayo";
    return turns ? StagePlacement::V : StagePlacement::Loop;
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

bool all_recompute(const BoundQuestion& question) {
    return question.recomputed > 0 && !question.where_needed;
}

/// [rank]: how long the smallest output takes from the first rank to this one.
std::vector<Duration> hops_of(const Cluster& cluster,
                              TransferMode transfer,
                              int ranks,
                              Bytes message) {
    std::vector<Duration> hops{{}};
    for (int rank = 1; rank < ranks; ++rank) {
        const LinkCost link = cluster.link(rank - 1, rank);
        const Duration moving =
            transfer == TransferMode::HandOver ? Duration{} : occupation(link, message);
        hops.push_back(hops.back() + moving + link.latency);
    }
    return hops;
}

/// What a device has for layers; none where not every device has a limit.
std::optional<Bytes> most_memory(const Cluster& cluster) {
    Bytes most{};
    for (const RankDevice& device : cluster.devices()) {
        if (!device.memory_limit) {
            return std::nullopt;
        }
        const Bytes context = device.profile ? device.profile->context.value : Bytes{};
        most = std::max(most, *device.memory_limit - context);
    }
    return most;
}

Duration least_of_any(const Scenario& scenario, const LayerSums& sums, int stages, int count) {
    return scenario.pipeline.schedule == "forward-only" ? Duration{}
                                                        : share_of_work(sums, stages, count);
}

}  // namespace

StashCount stashes_of(std::string_view schedule, int stages, int micro_batches) {
    if (schedule == "gpipe") {
        return {.most = micro_batches};
    }
    if (schedule == "1f1b") {
        return {.most = micro_batches, .falls = true};
    }
    if (schedule == "zb-h1") {
        return {.most = std::min(micro_batches, stages)};
    }
    if (schedule == "zb-h2") {
        return {.most = std::min(micro_batches, 2 * stages - 1)};
    }
    return {};
}

std::optional<InFlight> in_flight_of(std::string_view schedule) {
    if (schedule == "1f1b" || schedule == "zb-h1") {
        return InFlight{.least = 1, .slope = 1};
    }
    if (schedule == "zb-h2") {
        return InFlight{.least = 1, .slope = 2};
    }
    return std::nullopt;
}

std::vector<PieceStashes> stashes_of_pieces(const Style& style, int ranks, int micro_batches) {
    const int p = ranks;
    const int m = micro_batches;
    const int v = style.chunks;
    const std::string_view schedule = style.schedule;
    std::vector<PieceStashes> stashes(as_index(p));
    for (int r = 0; r < p; ++r) {
        PieceStashes& of_rank = stashes[as_index(r)];
        if (schedule == "interleaved-1f1b") {
            of_rank.all = std::min(m * v, (v - 1) * p + 2 * (p - 1 - r) + 1);
        } else if (schedule == "interleaved-zb") {
            const int group = m / std::max(1, m / p);
            const int in_flight = std::min(m * v, (v - 1) * group + p - r);
            of_rank.all = std::min(m * v, (v - 1) * group + p);
            of_rank.pending = of_rank.all - in_flight;
        } else if (schedule == "looped-bfs") {
            of_rank.all = m * v;
        } else if (schedule == "zb-v" || schedule == "hanayo") {
            of_rank.all = std::min(m + 1, 2 * p);
        } else if (schedule == "dualpipe-v") {
            of_rank.all = 2 * p + 1;
        } else {
            return {};
        }
    }
    return stashes;
}

CandidateBounds::SumsKey CandidateBounds::key_of(const Shape& shape) const {
    const int samples = scenario_.training.batch / shape.data_parallel;
    return {shape.tensor_parallel, std::max(1, samples / shape.micro_batches)};
}

/// A mini-batch has no more micro-batches than samples (C17).
int CandidateBounds::micro_batches_of(const Shape& shape) const {
    return std::min(shape.micro_batches, scenario_.training.batch / shape.data_parallel);
}

SettledScenario CandidateBounds::with_shape(const Shape& shape) const {
    return with_candidate(scenario_, {.shape = shape, .style = {.schedule = "1f1b"}});
}

void CandidateBounds::learn(const Shape& shape) {
    const SumsKey key = key_of(shape);
    if (sums_.contains(key)) {
        return;
    }
    std::unique_ptr<LayerSums>& sums = sums_[key];
    try {
        const SettledScenario settled = with_shape(shape);
        const Cluster cluster(settled, profile_, shape.stages);
        sums =
            std::make_unique<LayerSums>(layer_sums(settled, model_, profile_, cluster, key.second));
    } catch (const Error& error) {
        unknown_[key] = error.text();
    }
}

const std::string* CandidateBounds::unknown(const Shape& shape) const {
    const auto found = unknown_.find(key_of(shape));
    return found == unknown_.end() ? nullptr : &found->second;
}

/// Rank r is busy for its share of the work after the first forward has come through r layers at
/// least. The largest over the ranks is no less than the mean,
///
///     (M t(0, L) + F(0) + F(1) + ... + F(p - 1)) / p
Duration CandidateBounds::least(const Shape& shape) const {
    const LayerSums& sums = sums_of(shape);
    const std::optional<std::string>& schedule = scenario_.pipeline.schedule;
    const Duration share = least_of_any(scenario_, sums, shape.stages, micro_batches_of(shape));
    if (shape.stages > sums.layers() ||
        (schedule && placement_of(scenario_, {.schedule = *schedule}) == StagePlacement::Other)) {
        return share;
    }
    const bool both_ways = !schedule && shape.data_parallel == 1;  // chimera begins at both ends
    Duration fill{};
    for (int rank = 0; rank < shape.stages; ++rank) {
        fill += sums.forward[as_index(both_ways ? std::min(rank, shape.stages - 1 - rank) : rank)];
    }
    return share + fill / shape.stages;
}

ShapeBounds CandidateBounds::of(const Shape& shape) const {
    const SettledScenario settled = with_shape(shape);
    const Cluster cluster(settled, profile_, shape.stages);
    BoundQuestion question{
        .stages = shape.stages,
        .micro_batches = micro_batches_of(shape),
        .hops = hops_of(
            cluster, scenario_.cluster.transfer, shape.stages, sums_of(shape).least_boundary),
        .memory_limit = most_memory(cluster),
        .all_reduce = scenario_.pipeline.all_reduce,
        .overlap_reduction = scenario_.pipeline.overlap_reduction};
    // Where the replicas of one rank are nearer to each other than those of another, the bound does
    // without.
    const ReplicaGroup group = cluster.replicas_of(0);
    bool all_alike = true;
    for (int rank = 1; rank < shape.stages && all_alike; ++rank) {
        all_alike = cluster.replicas_of(rank) == group;
    }
    question.replicas = all_alike ? group : ReplicaGroup{};
    return {scenario_, sums_of(shape), std::move(question)};
}

BoundQuestion ShapeBounds::question(const Style& style) const {
    BoundQuestion question = of_shape_;
    const std::string& schedule = style.schedule;
    const bool puts_off = scenario_.pipeline.deferred_weights > 0;
    // What a rank does not hold it computes again, but for the last micro-batch.
    question.where_needed = style.recompute_by_rank;
    const Recompute least = question.micro_batches == 1 ? Recompute::Always : Recompute::ExceptLast;
    question.recomputed =
        recomputed(style.recompute_by_rank ? least : style.recompute, question.micro_batches);
    question.split = schedule.starts_with("zb-") || schedule == "interleaved-zb" ||
                     schedule == "dualpipe-v" || puts_off || has_schedule_file(scenario_);
    // Stashes that are copied to host memory need room one at a time.
    if (scenario_.pipeline.offload == Offload::None) {
        question.stashes = stashes_of(schedule, question.stages, question.micro_batches);
    }
    if (!puts_off) {
        question.in_flight = in_flight_of(schedule);
    }
    question.forward_first = schedule == "gpipe";
    return question;
}

/// The partition that shares the work of a micro-batch out evenly.
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

std::optional<Duration> ShapeBounds::least(const Style& style, Duration ceiling) {
    const BoundQuestion asked = question(style);
    const StagePlacement placement = placement_of(scenario_, style);
    if (placement == StagePlacement::OnePerRank) {
        return StepBound(sums_, asked).least(ceiling);
    }
    if (placement == StagePlacement::Other || scenario_.pipeline.partition) {
        return least_of_any(scenario_, sums_, asked.stages, asked.micro_batches);
    }
    Pieces pieces{.layers = {}, .v_shape = placement == StagePlacement::V, .stashes = {}};
    if (scenario_.pipeline.offload == Offload::None) {
        pieces.stashes = stashes_of_pieces(style, asked.stages, asked.micro_batches);
    }
    std::optional<Duration> least;
    for (std::vector<int>& layers : balanced_ones(style, asked)) {
        pieces.layers = std::move(layers);
        if (const auto bound = bound_of_pieces(sums_, asked, pieces)) {
            least = std::min(least.value_or(*bound), *bound);
        }
    }
    return least;
}

/// For schedules with several pieces to a rank: where every rank recomputes or not for itself, the
/// partition that is balanced without and the one that is balanced with.
std::vector<std::vector<int>> ShapeBounds::balanced_ones(const Style& style,
                                                         const BoundQuestion& question) {
    const int pieces = question.stages * style.chunks;
    std::vector<std::vector<int>> partitions{balanced(pieces, all_recompute(question))};
    if (question.where_needed && balanced(pieces, true) != partitions.front()) {
        partitions.push_back(balanced(pieces, true));
    }
    return partitions;
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

std::vector<std::vector<int>> ShapeBounds::partitions(const Style& style, Duration least) {
    if (scenario_.pipeline.partition) {
        return {{}};  // it is the only one
    }
    const BoundQuestion asked = question(style);
    switch (placement_of(scenario_, style)) {
        case StagePlacement::OnePerRank:
            return partitions_by_bound(asked, least);
        case StagePlacement::Loop:
        case StagePlacement::V:
            return balanced_ones(style, asked);
        case StagePlacement::Other:
            return {{}};
    }
    PIPETWIN_EXPECT(false, "placement out of range");
}

bool ShapeBounds::has_more_partitions(const Style& style) const {
    return !scenario_.pipeline.partition &&
           placement_of(scenario_, style) == StagePlacement::OnePerRank;
}

std::optional<std::vector<std::vector<int>>> ShapeBounds::faster_partitions(
    const Style& style, Duration best, std::int64_t most) const {
    const BoundQuestion asked = question(style);
    const StepBound bound(sums_, asked);
    const FeasibleSplits splits(
        sums_.layers(),
        asked.stages,
        [&](int stage, int first, int end) {
            return bound.fits(stage, first, end) && bound.cost(stage, first, end) < best;
        },
        LongerStage::NeverFits);
    if (std::cmp_greater(splits.count(), std::max<std::int64_t>(most, 0))) {
        return std::nullopt;
    }
    std::vector<std::vector<int>> partitions;
    splits.walk([&](std::span<const int> sizes) {
        if (std::cmp_equal(sizes.size(), asked.stages)) {
            partitions.emplace_back(sizes.begin(), sizes.end());
        }
        return Walk::Into;
    });
    return partitions;
}

}  // namespace pipetwin::sim
