#include "sim/search/candidate_bounds.h"

#include <algorithm>
#include <span>
#include <string>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/partition/feasible_splits.h"
#include "core/partition/partition.h"
#include "core/scenario/cluster.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule_csv.h"
#include "sim/engine/conditions.h"

namespace pipetwin::sim {

namespace {

/// Where the pieces of a candidate are for its bound, and so which partitions are tried: for one on
/// each rank those that the bound finds, else the balanced one.
StagePlacement placement_of(const Scenario& scenario, const ScheduleChoice& choice) {
    const ScheduleTraits& row = schedule_traits(choice.schedule);
    const bool one_pipeline = row.placement == StagePlacement::OnePerRank ||
                              row.placement == StagePlacement::Loop ||
                              row.placement == StagePlacement::V;
    if (!one_pipeline || row.stale_gradients || !row.trains) {
        return StagePlacement::Unknown;
    }
    if (choice.chunks == 1) {
        return StagePlacement::OnePerRank;
    }
    // Where devices differ the balanced partition depends on which of them holds what.
    const bool alike = scenario.cluster.devices.empty() && scenario.cluster.speeds.empty();
    return !alike                               ? StagePlacement::Unknown
           : row.placement == StagePlacement::V ? StagePlacement::V
                                                : StagePlacement::Loop;
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

/// All have, but some files and the schedules that cannot train.
bool all_have_backwards(const Scenario& scenario) {
    const std::optional<std::string>& schedule = scenario.pipeline.schedule;
    if (has_schedule_file(scenario)) {
        return !is_forward_only(read_schedule_csv(*schedule));
    }
    return !schedule || schedule_traits(*schedule).trains;
}

Duration least_of_any(const LayerSums& sums, const BoundQuestion& question) {
    return question.has_backward ? share_of_work(sums, question.stages, question.micro_batches)
                                 : Duration{};
}

/// Which ranks the first micro-batch comes to late: those further down, or those further from both
/// ends.
enum class Fill { Unknown, Down, BothWays };

Fill fill_of(const Scenario& scenario, const Shape& shape) {
    const std::optional<std::string>& schedule = scenario.pipeline.schedule;
    if (schedule) {
        return placement_of(scenario, {.schedule = *schedule}) == StagePlacement::Unknown
                   ? Fill::Unknown
                   : Fill::Down;
    }
    Fill fill = Fill::Down;
    for (const ScheduleName& known : known_schedules()) {
        const ScheduleTraits& row = schedule_traits(known.kind);
        if (!is_searched(row, shape)) {
            continue;
        }
        if (row.placement == StagePlacement::Unknown) {
            return Fill::Unknown;
        }
        if (row.placement == StagePlacement::BothWays) {
            fill = Fill::BothWays;
        }
    }
    return fill;
}

}  // namespace

CandidateBounds::CandidateBounds(const Scenario& scenario,
                                 const Model& model,
                                 const Profile& profile)
    : scenario_(scenario),
      model_(model),
      profile_(profile),
      has_backward_(all_have_backwards(scenario)) {}

CandidateBounds::SumsKey CandidateBounds::key_of(const Shape& shape) const {
    const int samples = scenario_.training.batch / shape.data_parallel;
    return {shape.tensor_parallel,
            std::max(1, samples / shape.micro_batches),
            scenario_.pipeline.shard_optimizer ? shape.data_parallel : 1};
}

/// A mini-batch has no more micro-batches than samples.
int CandidateBounds::micro_batches_of(const Shape& shape) const {
    return std::min(shape.micro_batches, scenario_.training.batch / shape.data_parallel);
}

SettledScenario CandidateBounds::with_shape(const Shape& shape) const {
    return with_candidate(scenario_,
                          {.shape = shape, .choice = {.schedule = std::string(default_schedule)}});
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
        sums = std::make_unique<LayerSums>(
            layer_sums(settled, model_, profile_, cluster, std::get<1>(key)));
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
    const Duration share = least_of_any(sums,
                                        {.stages = shape.stages,
                                         .micro_batches = micro_batches_of(shape),
                                         .has_backward = has_backward_});
    const Fill order = fill_of(scenario_, shape);
    if (shape.stages > sums.layers() || order == Fill::Unknown) {
        return share;
    }
    Duration fill{};
    for (int rank = 0; rank < shape.stages; ++rank) {
        const int nearest =
            order == Fill::BothWays ? std::min(rank, shape.stages - 1 - rank) : rank;
        fill += sums.forward[as_index(nearest)];
    }
    return share + fill / shape.stages;
}

ShapeBounds CandidateBounds::of(const Shape& shape) const {
    const SettledScenario settled = with_shape(shape);
    const Cluster cluster(settled, profile_, shape.stages);
    BoundQuestion question{
        .stages = shape.stages,
        .micro_batches = micro_batches_of(shape),
        .has_backward = has_backward_,
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

std::optional<Duration> ShapeBounds::least(const ScheduleChoice& choice, Duration ceiling) {
    const BoundQuestion asked = question(choice);
    const StagePlacement placement = placement_of(scenario_, choice);
    if (placement == StagePlacement::OnePerRank) {
        return StepBound(sums_, asked).least(ceiling);
    }
    if (placement == StagePlacement::Unknown || scenario_.pipeline.partition) {
        return least_of_any(sums_, asked);
    }
    Pieces pieces{.layers = {}, .v_shape = placement == StagePlacement::V};
    std::optional<Duration> least;
    for (std::vector<int>& layers : balanced_ones(choice, asked)) {
        pieces.layers = std::move(layers);
        if (const auto bound = bound_of_pieces(sums_, asked, pieces)) {
            least = std::min(least.value_or(*bound), *bound);
        }
    }
    return least;
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
    if (scenario_.pipeline.partition) {
        return {{}};  // it is the only one
    }
    const BoundQuestion asked = question(choice);
    switch (placement_of(scenario_, choice)) {
        case StagePlacement::OnePerRank:
            return partitions_by_bound(asked, least);
        case StagePlacement::Loop:
        case StagePlacement::V:
            return balanced_ones(choice, asked);
        case StagePlacement::BothWays:
        case StagePlacement::Unknown:
            return {{}};
    }
    PIPETWIN_EXPECT(false, "placement out of range");
}

bool ShapeBounds::has_more_partitions(const ScheduleChoice& choice) const {
    return !scenario_.pipeline.partition &&
           placement_of(scenario_, choice) == StagePlacement::OnePerRank;
}

std::optional<std::vector<std::vector<int>>> ShapeBounds::faster_partitions(
    const ScheduleChoice& choice, Duration best, std::int64_t most) const {
    const BoundQuestion asked = question(choice);
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
