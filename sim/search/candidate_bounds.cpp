// SPDX-License-Identifier: Apache-2.0
#include "sim/search/candidate_bounds.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <string>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/estimate_source.h"
#include "core/model/model.h"
#include "core/partition/feasible_splits.h"
#include "core/partition/model_blocks.h"
#include "core/partition/partition_search.h"
#include "core/plan/layer_recompute.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/cluster.h"
#include "core/scenario/division.h"
#include "core/scenario/layer_costs.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/shard_group.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule_csv.h"
#include "sim/bounds/row_windows.h"
#include "sim/engine/conditions.h"
#include "sim/search/frontier.h"

namespace pipetwin::sim {

namespace {

/// [rank]: how long the smallest output takes from the first rank to this one.
std::vector<Duration> hops_of(const Cluster& cluster,
                              TransferMode transfer,
                              int ranks,
                              Bytes message) {
    std::vector<Duration> hops{{}};
    for (int rank = 1; rank < ranks; ++rank) {
        const LinkCost link = cluster.boundary_link(rank - 1, rank);
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
        most = std::max(most, *device.memory_limit - device.context);
    }
    return most;
}

/// What every rank keeps free for gathered weights and gradients before their sums: as much as
/// those layers ask for that not all ranks but one have room for.
Bytes gathered_everywhere(const LayerSums& sums, int ranks, Bytes limit) {
    Bytes most{};
    for (const Bytes room : std::set<Bytes>(sums.room.begin(), sums.room.end())) {
        Bytes state{};
        for (std::size_t layer = 0; layer < sums.room.size(); ++layer) {
            state += sums.room[layer] >= room ? sums.state[layer + 1] - sums.state[layer] : Bytes{};
        }
        most = state > (ranks - 1) * (limit - room) ? room : most;
    }
    return most;
}

/// Whether every schedule that is tried has backwards: not some files, nor those that cannot train.
bool all_have_backwards(const Scenario& scenario) {
    const std::optional<std::string>& schedule = scenario.pipeline.schedule.known();
    if (has_schedule_file(scenario)) {
        return !is_forward_only(read_schedule_csv(*schedule));
    }
    const auto trains = [](const std::string& name) { return schedule_traits(name).trains; };
    return schedule ? trains(*schedule)
                    : std::ranges::all_of(scenario.pipeline.schedule.choices(), trains);
}

/// Which ranks the first micro-batch comes to late: those further down, or those further from both
/// ends.
enum class Fill { Unknown, Down, BothWays };

Fill fill_of(const Scenario& scenario, const Shape& shape) {
    const std::optional<std::string>& schedule = scenario.pipeline.schedule.known();
    if (schedule) {
        const StagePlacement placement = placement_of({.schedule = *schedule});
        return placement == StagePlacement::Unknown    ? Fill::Unknown
               : placement == StagePlacement::BothWays ? Fill::BothWays
                                                       : Fill::Down;
    }
    Fill fill = Fill::Down;
    for (const ScheduleTraits* const row : searched_rows(scenario, shape)) {
        if (row->placement == StagePlacement::Unknown) {
            return Fill::Unknown;
        }
        if (row->placement == StagePlacement::BothWays) {
            fill = Fill::BothWays;
        }
    }
    return fill;
}

/// Whether messages between replicas are part of the layers' costs.
bool gathers(const Shape& shape, const CostOptions& options) {
    return shape.has_replicas() && options.shard >= Shard::Gradients;
}

/// Each has some kilobytes. More than these are computed whenever they are asked for.
constexpr std::size_t most_later_sums = 16'384;

}  // namespace

CandidateBounds::CandidateBounds(const Scenario& scenario,
                                 const Model& model,
                                 const Profile& profile)
    : scenario_(scenario),
      model_(model),
      profile_(profile),
      choices_(scenario, model, profile),
      has_backward_(all_have_backwards(scenario)),
      devices_(device_count(scenario)),
      devices_vary_(slowest_device(with_defaults(scenario), profile, 2) > 1) {}

CandidateBounds::SumsKey CandidateBounds::key_of(const Shape& shape,
                                                 const CostOptions& options) const {
    const int samples = scenario_.training.batch / shape.data_parallel;
    SumsKey key{.tensor_parallel = shape.tensor_parallel,
                .micro_batch_size = std::max(1, samples / shape.micro_batches),
                .optimizer_shards = options.shard != Shard::None ? shards_of(shape) : 1,
                .layer_recompute = options.layer_recompute,
                .sequence_parallel = options.sequence_parallel,
                .modules = options.modules,
                .accumulates = micro_batches_of(shape) > 1,
                .takes_all = devices_vary_ && shape.devices() == devices_};
    // Lists of the cluster have an entry for each rank, and fit one number of them alone.
    const Scenario::ClusterPart& cluster = scenario_.cluster;
    if (!cluster.devices.empty() || !cluster.speeds.empty() || !cluster.memory_limits.empty() ||
        cluster.placement == Placement::Written) {
        key.stages = shape.stages;
        key.replicas = shape.data_parallel;
    }
    if (shape.is_divided()) {
        key.context_parallel = shape.context_parallel;
        key.expert_parallel = shape.expert_parallel;
        key.expert_tensor_parallel = shape.expert_tensor_parallel;
        key.shares_divided = options.shard != Shard::None;
        key.placed = placed_devices(shape);
        if (!numbers_in_order()) {
            key.stages = shape.stages;
            key.replicas = shape.data_parallel;
        }
    }
    if (gathers(shape, options)) {
        key.gathered = options.shard;
        key.replicas = shape.data_parallel;
        key.is_pipeline = shape.stages > 1;
    }
    return key;
}

/// Whether devices with the same layers are numbered one after the other, parts of a sample and of
/// experts first, and nodes take them so.
bool CandidateBounds::numbers_in_order() const {
    const Scenario::ClusterPart& cluster = scenario_.cluster;
    return is_in_order(cluster.placement) &&
           axis_order(scenario_.pipeline.order, cluster.placement) == pipeline_last;
}

/// Groups that divide samples, and those that divide experts, are neighbours, and begin at
/// multiples of their size: their places on nodes come again and again.
///
///     | 0 1 2 3 | 4 5 6 7 | 8 9 10 11 |   nodes of 4
///     | - - - - - - | - - - - - - |       groups of 6: two places, seen on 12 devices
int CandidateBounds::placed_devices(const Shape& shape) const {
    const std::int64_t period =
        std::lcm(std::lcm(std::int64_t{shape.tensor_parallel} * shape.context_parallel,
                          std::int64_t{shape.expert_tensor_devices()} * shape.expert_parallel),
                 std::int64_t{devices_of_places(scenario_.cluster)});
    return static_cast<int>(std::min<std::int64_t>(period, shape.devices()));
}

/// Replicas that divide a state, where any do.
int CandidateBounds::shards_of(const Shape& shape) const {
    return group_size(scenario_.pipeline.shard_group,
                      scenario_.cluster,
                      DeviceGrid({.tensor = shape.tensor_parallel,
                                  .context = shape.context_parallel,
                                  .data = shape.data_parallel,
                                  .pipeline = shape.stages},
                                 axis_order(scenario_.pipeline.order, scenario_.cluster.placement)))
        .value_or(shape.data_parallel);
}

/// A mini-batch has no more micro-batches than samples.
int CandidateBounds::micro_batches_of(const Shape& shape) const {
    return std::min(shape.micro_batches, scenario_.training.batch / shape.data_parallel);
}

SettledScenario CandidateBounds::with_options(const Shape& shape,
                                              const CostOptions& options) const {
    SettledScenario settled = with_candidate(
        scenario_, {.shape = shape, .choice = {.schedule = std::string(default_schedule)}});
    SettledScenario::PipelinePart& pipeline = settled.pipeline;
    pipeline.layer_recompute = options.layer_recompute;
    pipeline.shard = options.shard;
    if (shape.devices() != devices_) {  // a bound for any number of them
        settled.cluster.device_spread = 0;
    }
    pipeline.sequence_parallel = options.sequence_parallel;
    pipeline.scatter_boundaries = options.scatter_boundaries;
    pipeline.recompute_modules = modules_with(scenario_, options);
    return settled;
}

CandidateBounds::Sums CandidateBounds::make_sums(const SumsKey& key,
                                                 const SettledScenario& settled,
                                                 const Cluster& cluster,
                                                 const LayerRules& rules) const {
    const DeviceKinds kinds = device_kinds(cluster);
    return std::make_shared<const LayerSums>(
        layer_sums(settled, model_, profile_, kinds, rules, *whole_layers(key, kinds, rules)));
}

CostTable CandidateBounds::make_whole_layers(int micro_batch_size,
                                             const DeviceKinds& kinds,
                                             LayerRules rules) const {
    const Profile* const divided = divided_profile_of(rules.division);
    if (divided != nullptr) {
        rules.division = {.tensor = rules.tensor.devices, .expert_tensor = rules.tensor.devices};
    }
    return costs_of_whole_layers(
        model_, divided != nullptr ? *divided : profile_, {micro_batch_size}, kinds, rules);
}

std::shared_ptr<const CostTable> CandidateBounds::whole_layers(const SumsKey& key,
                                                               const DeviceKinds& kinds,
                                                               const LayerRules& rules) const {
    SumsKey whole = key;
    whole.layer_recompute = LayerRecompute::None;
    whole.optimizer_shards = 1;
    whole.accumulates = false;
    whole.shares_divided = false;
    whole.gathered = Shard::None;
    whole.is_pipeline = false;
    whole.replicas = key.stages > 0 ? key.replicas : 1;
    using Entries = decltype(whole_layers_);
    if (Entries::const_accessor found; whole_layers_.find(found, whole)) {
        return found->second;
    }
    auto table =
        std::make_shared<const CostTable>(make_whole_layers(key.micro_batch_size, kinds, rules));
    if (whole_layers_.size() < most_later_sums) {
        whole_layers_.insert(Entries::value_type(whole, table));
    }
    return table;
}

/// Estimating a model takes longer than summing up its layers. A ring of nodes depends on where the
/// devices lie.
void CandidateBounds::learn_divisions(const Missing& missing) {
    std::vector<LayerDivision> divisions;
    for (const auto& [key, of] : missing) {
        const auto& [shape, options] = of;
        if (!shape.is_divided() ||
            scenario_.pipeline.context_method == ContextMethod::RingAllToAll) {
            continue;
        }
        const LayerDivision division = layer_division(with_options(shape, options), profile_);
        if (divided_profile_of(division) == nullptr &&
            std::ranges::find(divisions, division) == divisions.end()) {
            divisions.push_back(division);
        }
    }
    std::vector<std::optional<Profile>> profiles(divisions.size());
    tbb::parallel_for(std::size_t{0}, divisions.size(), [&](std::size_t i) {
        try {
            profiles[i] = divided_profile(profile_, divisions[i]);
        } catch (const Error&) {  // told where its sums are asked for
            profiles[i].reset();
        }
    });
    for (std::size_t i = 0; i < divisions.size(); ++i) {
        if (profiles[i]) {
            divided_.emplace_back(divisions[i], *std::move(profiles[i]));
        }
    }
}

/// Null: not known.
const Profile* CandidateBounds::divided_profile_of(const LayerDivision& division) const {
    const auto known =
        std::ranges::find(divided_, division, &std::pair<LayerDivision, Profile>::first);
    return known == divided_.end() ? nullptr : &known->second;
}

namespace {

std::size_t hash_of(std::initializer_list<int> parts) {
    std::size_t sum = 0;
    for (const int part : parts) {
        constexpr std::size_t factor = 1'000'003;
        sum = sum * factor + static_cast<std::size_t>(part);
    }
    return sum;
}

}  // namespace

std::size_t CandidateBounds::HashOfSums::hash(const SumsKey& key) {
    return hash_of({key.tensor_parallel,
                    key.micro_batch_size,
                    key.optimizer_shards,
                    static_cast<int>(key.layer_recompute),
                    key.sequence_parallel ? 1 : 0,
                    key.modules ? 1 : 0,
                    static_cast<int>(key.gathered),
                    key.stages,
                    key.context_parallel,
                    key.expert_parallel});
}

std::size_t CandidateBounds::HashOfLater::hash(const LaterKey& key) {
    return HashOfSums::hash(key.layers) ^ hash_of({key.replicas.members, key.replicas.per_node});
}

CandidateBounds::Sums CandidateBounds::later_sums(const SumsKey& key,
                                                  const SettledScenario& settled,
                                                  const Cluster& cluster) const {
    const LayerRules rules = cluster.layer_rules();
    LaterKey later{.layers = key, .replicas = {}, .between = {}, .experts = {}};
    if (key.gathered != Shard::None) {
        later.replicas = rules.gathered.replicas;
        later.between = rules.gathered.between;
        later.experts = rules.gathered.experts;
    }
    using Entries = decltype(later_sums_);
    if (Entries::const_accessor found; later_sums_.find(found, later)) {
        return found->second;
    }
    Sums sums = make_sums(key, settled, cluster, rules);
    if (later_sums_.size() < most_later_sums) {
        later_sums_.insert(Entries::value_type(later, sums));
    }
    return sums;
}

void CandidateBounds::add_missing(const Shape& shape,
                                  const CostOptions& options,
                                  Missing& missing) const {
    const SumsKey key = key_of(shape, options);
    if (!sums_.contains(key)) {
        missing.try_emplace(key, shape, options);
    }
}

template <class MakeSums>
std::vector<std::variant<CandidateBounds::Sums, Error>> CandidateBounds::make_missing(
    const Missing& missing, const MakeSums& make) const {
    const std::vector<Missing::value_type> all(missing.begin(), missing.end());
    std::vector<std::variant<Sums, Error>> made(all.size());
    tbb::parallel_for(std::size_t{0}, all.size(), [&](std::size_t i) {
        const auto& [shape, options] = all[i].second;
        try {
            const SettledScenario settled = with_options(shape, options);
            made[i] = make(all[i].first, settled, shape);
        } catch (const Error& error) {
            made[i] = error;
        }
    });
    return made;
}

/// Sums with messages between replicas are left out, as most shapes are never looked into; of
/// shapes that divide samples or experts, of which there are more, all but the first.
std::vector<CostOptions> CandidateBounds::learned_options(const Shape& shape) const {
    std::vector<CostOptions> all{choices_.fastest_layers(shape), any_order_options(shape)};
    for (const CostOptions& options : choices_.cost_options(shape)) {
        if (!gathers(shape, options) && !shape.is_divided()) {
            all.push_back(options);
        }
    }
    return all;
}

void CandidateBounds::learn(std::span<const Shape> shapes) {
    Missing missing;
    for (const Shape& shape : shapes) {
        for (const CostOptions& options : learned_options(shape)) {
            add_missing(shape, options, missing);
        }
    }
    learn_divisions(missing);
    auto made = make_missing(
        missing, [&](const SumsKey& key, const SettledScenario& settled, const Shape& shape) {
            const Cluster cluster(settled, profile_, shape.stages);
            return make_sums(key, settled, cluster, cluster.layer_rules());
        });
    auto next = made.begin();
    for (const auto& [key, of] : missing) {
        if (const Error* const error = std::get_if<Error>(&*next)) {
            sums_.emplace(key, nullptr);
            unknown_.emplace(key, *error);
        } else {
            sums_.emplace(key, std::get<Sums>(std::move(*next)));
        }
        ++next;
    }
}

/// The fewest devices that divide layers as those of a shape do.
CandidateBounds::Missing::value_type CandidateBounds::work_of(const Shape& shape) const {
    const CostOptions options = choices_.fastest_layers(shape);
    const int dense = shape.tensor_parallel * shape.context_parallel;
    Shape least = shape;
    least.stages = 1;
    least.data_parallel =
        std::lcm(dense, shape.expert_tensor_devices() * shape.expert_parallel) / dense;
    const int samples = scenario_.training.batch / shape.data_parallel;
    return {{.tensor_parallel = shape.tensor_parallel,
             .micro_batch_size = std::max(1, samples / shape.micro_batches),
             .layer_recompute = options.layer_recompute,
             .sequence_parallel = options.sequence_parallel,
             .context_parallel = shape.context_parallel,
             .expert_parallel = shape.expert_parallel,
             .expert_tensor_parallel = shape.expert_tensor_parallel},
            {least, options}};
}

void CandidateBounds::learn_work(std::span<const Shape> shapes) {
    Missing missing;
    for (const Shape& shape : shapes) {
        const auto [key, of] = work_of(shape);
        if (!work_.contains(key)) {
            missing.try_emplace(key, of);
        }
    }
    learn_divisions(missing);
    constexpr double at_once = std::numeric_limits<double>::infinity();
    auto made = make_missing(
        missing, [&](const SumsKey& key, const SettledScenario& settled, const Shape& shape) {
            const Cluster cluster(
                settled, profile_, shape.stages, {.inside = at_once, .between = at_once});
            const DeviceKinds kinds = device_kinds(cluster);
            const LayerRules rules = cluster.layer_rules();
            return std::make_shared<const LayerSums>(
                layer_sums(settled,
                           model_,
                           profile_,
                           kinds,
                           rules,
                           make_whole_layers(key.micro_batch_size, kinds, rules)));
        });
    auto next = made.begin();
    for (const auto& [key, of] : missing) {
        Sums* const sums = std::get_if<Sums>(&*next++);
        work_.emplace(key, sums != nullptr ? std::move(*sums) : nullptr);
    }
}

bool CandidateBounds::may_hold_state(const Shape& shape) const {
    const SettledScenario settled = with_options(shape, choices_.fastest_layers(shape));
    std::optional<Bytes> memory;
    try {
        memory = most_memory(Cluster(settled, profile_, shape.stages));
    } catch (const Error&) {  // told where its sums are asked for
        return true;
    }
    return !memory || kept_state(model_,
                                 profile_,
                                 {.optimizer = optimizer_state(settled),
                                  .fp32_gradients = has_fp32_gradients(settled, profile_)}) <=
                          devices_ * *memory;
}

Duration CandidateBounds::least_without_messages(const Shape& shape) const {
    const auto known = work_.find(work_of(shape).first);
    return known != work_.end() && known->second ? least_with(shape, *known->second) : Duration{};
}

const Error* CandidateBounds::unknown(const Shape& shape) const {
    const auto found = unknown_.find(key_of(shape, choices_.fastest_layers(shape)));
    return found == unknown_.end() ? nullptr : &found->second;
}

CostOptions CandidateBounds::any_order_options(const Shape& shape) const {
    CostOptions options = choices_.fastest_layers(shape);
    options.sequence_parallel = options.sequence_parallel || choices_.may_divide_sequence(shape);
    return options;
}

Duration CandidateBounds::share_with(const Shape& shape, const LayerSums& sums) const {
    return least_of_any(sums,
                        {.stages = shape.stages,
                         .micro_batches = micro_batches_of(shape),
                         .has_backward = has_backward_});
}

Duration CandidateBounds::share_of_any_order(const Shape& shape) const {
    if (unknown(shape) != nullptr) {
        return Duration::max();
    }
    for (const CostOptions& options : {any_order_options(shape), choices_.fastest_layers(shape)}) {
        const auto known = sums_.find(key_of(shape, options));
        if (known != sums_.end() && known->second) {
            return share_with(shape, *known->second);
        }
    }
    const auto work = work_.find(work_of(shape).first);
    return work != work_.end() && work->second ? share_with(shape, *work->second) : Duration::max();
}

/// Rank r is busy for its share of the work after the first forward has come through r layers at
/// least. The largest over the ranks is no less than the mean,
///
///     (M t(0, L) + F(0) + F(1) + ... + F(p - 1)) / p
Duration CandidateBounds::least_with(const Shape& shape, const LayerSums& sums) const {
    const Duration share = share_with(shape, sums);
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

Duration CandidateBounds::least(const Shape& shape) const {
    return least_with(shape, sums_of(shape, choices_.fastest_layers(shape)));
}

/// What one stage cannot hold goes to host memory, and a block takes the longer of its computation
/// and its copies: no byte is copied in less time than those of the block that hides them best.
Duration CandidateBounds::least_copies(const Shape& shape,
                                       const Cluster& cluster,
                                       const LayerSums& sums) const {
    const std::optional<LinkCost> link = cluster.layer_rules().modules.host_link;
    const std::optional<Bytes> limit = most_memory(cluster);
    if (!link || !limit || !cluster.offloads_as_needed() || !model_.is_chain()) {
        return {};
    }
    const Bytes too_much = sums.state.back() + sums.saved.back() - *limit;
    if (too_much <= Bytes{} || !model_blocks(model_.layer_names())) {
        return {};
    }
    double least = std::numeric_limits<double>::infinity();  // ns per byte
    for (const LayerRange& block : recomputed_blocks(model_)) {
        const auto of_block = [&block](const auto& sum) {
            return sum[as_index(block.end)] - sum[as_index(block.first)];
        };
        const double bytes = static_cast<double>(of_block(sums.saved).count);
        const double copies = bytes / link->bytes_per_second * 1e9;
        const auto seen = [copies](Duration computation) {
            return std::max(0.0, copies - static_cast<double>(computation.count()));
        };
        const Duration backward = of_block(sums.backward_input) + of_block(sums.backward_weight);
        least = std::min(least, (seen(of_block(sums.forward)) + seen(backward)) / bytes);
    }
    const double each = least * static_cast<double>(too_much.count);
    return std::isfinite(each) ? Duration{std::llround(each)} * micro_batches_of(shape)
                               : Duration{};
}

BoundQuestion CandidateBounds::question_of(const Shape& shape,
                                           const CostOptions& options,
                                           const Cluster& cluster,
                                           const LayerSums& sums) const {
    BoundQuestion question{
        .stages = shape.stages,
        .micro_batches = micro_batches_of(shape),
        .has_backward = has_backward_,
        .hops = hops_of(cluster, scenario_.cluster.transfer, shape.stages, sums.least_boundary),
        .memory_limit = most_memory(cluster),
        .all_reduce = scenario_.pipeline.all_reduce,
        .overlap_reduction = scenario_.pipeline.overlap_reduction};
    if (question.memory_limit && cluster.offloads_as_needed()) {  // the rest goes to the host's
        const std::optional<Bytes>& host = cluster.part().host_memory;
        question.memory_limit = host ? std::optional(*question.memory_limit + *host) : std::nullopt;
    }
    if (question.memory_limit) {
        question.gathered = gathered_everywhere(sums, shape.stages, *question.memory_limit);
        *question.memory_limit -= question.gathered;
    }
    // Gradients that are summed with every micro-batch are not summed again.
    // Groups of replicas may sum sooner than all at once, on links that are much slower outside.
    const bool groups = options.shard != Shard::None && !scenario_.pipeline.shard_group.is_all();
    // Other devices have the same weights where samples or experts are divided.
    if (groups || shape.is_divided() || options.shard >= Shard::Gradients) {
        return question;
    }
    // Where the replicas of one rank are nearer to each other than those of another, the bound does
    // without.
    const DeviceGroup group = cluster.replicas_of(0);
    bool all_alike = true;
    for (int rank = 1; rank < shape.stages && all_alike; ++rank) {
        all_alike = cluster.replicas_of(rank) == group;
    }
    question.replicas = all_alike ? group : DeviceGroup{};
    return question;
}

ShapeBounds CandidateBounds::of(const Shape& shape, const ScheduleChoice& choice) const {
    const CostOptions options = cost_options_of(scenario_, choice);
    const SumsKey key = key_of(shape, options);
    const SettledScenario settled = with_options(shape, options);
    const Cluster cluster(settled, profile_, shape.stages);
    const auto known = sums_.find(key);
    Sums sums = known == sums_.end() ? nullptr : known->second;
    if (!sums) {
        sums = later_sums(key, settled, cluster);
    }
    BoundQuestion question = question_of(shape, options, cluster, *sums);
    const Duration floor = least_with(shape, *sums) + least_copies(shape, cluster, *sums);
    return {scenario_, shape, std::move(sums), std::move(question), floor};
}

}  // namespace pipetwin::sim
