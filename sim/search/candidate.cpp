// SPDX-License-Identifier: Apache-2.0
#include "sim/search/candidate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/costs/devices/stack.h"
#include "core/model/model.h"
#include "core/model/tensor_division.h"
#include "core/partition/model_blocks.h"
#include "core/plan/layer_recompute.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/division.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/shard_group.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin::sim {

namespace {

std::vector<int> divisors(int number) {
    std::vector<int> result;
    for (int divisor = 1; divisor <= number; ++divisor) {
        if (number % divisor == 0) {
            result.push_back(divisor);
        }
    }
    return result;
}

std::vector<int> stage_counts(const Scenario& scenario, int devices, int layers) {
    if (const auto& stages = scenario.pipeline.stages.known()) {
        return {*stages};
    }
    std::vector<int> result;
    for (int stages = 1; stages <= std::min(devices, layers); ++stages) {
        result.push_back(stages);
    }
    return result;
}

/// Whether the executor can divide the model's layers among so many devices; true where it cannot
/// train the model at all.
bool can_be_trained_by(const Scenario& scenario, const Model& model, int devices) {
    const bool divides_rows = scenario.pipeline.sequence_parallel.value_or(true);
    try {
        if (model.is_executable()) {
            divided_among(
                model, devices, divides_rows ? DividedSequence::Yes : DividedSequence::No);
        }
    } catch (const Error&) {
        return false;
    }
    return true;
}

std::vector<int> tensor_counts(const Scenario& scenario, const Model& model, int devices) {
    if (const auto& tensor = scenario.pipeline.tensor_parallel.known()) {
        return {*tensor};
    }
    std::vector<int> result;
    for (const int divisor : divisors(scenario.cluster.domain_devices())) {
        if (divisor <= devices && std::has_single_bit(static_cast<unsigned>(divisor)) &&
            can_be_trained_by(scenario, model, divisor)) {
            result.push_back(divisor);
        }
    }
    return result;
}

/// The value that is written, or those that "auto" stands for.
std::vector<int> written_choices(const OrAuto<int>& key) {
    return key.is_auto() ? key.choices() : std::vector{*key};
}

/// Parts of a sample.
std::vector<int> context_counts(const Scenario& scenario,
                                const DividedModel& model,
                                int tensor,
                                int devices) {
    constexpr int shortest_chunk = 512;  // tokens; two for each device
    std::vector<int> result = written_choices(scenario.pipeline.context_parallel);
    if (!result.empty()) {
        return result;
    }
    result.push_back(1);
    for (std::int64_t parts = 2;
         parts <= devices && model.sequence / (2 * parts * tensor) >= shortest_chunk;
         parts *= 2) {
        result.push_back(static_cast<int>(parts));
    }
    return result;
}

/// Sets how the devices of a shape may divide experts; most of these shapes are not possible.
std::vector<Shape> with_divided_experts(const Scenario& scenario,
                                        const DividedModel& model,
                                        Shape shape) {
    std::vector<int> parts = written_choices(scenario.pipeline.expert_parallel);
    if (parts.empty()) {
        parts = divisors(std::max(1, model.experts));
    }
    std::vector<Shape> shapes;
    for (const int part : parts) {
        shape.expert_parallel = part;
        std::vector<int> sharing = written_choices(scenario.pipeline.expert_tensor_parallel);
        if (sharing.empty()) {
            const bool one_by_one = shape.tensor_parallel > 1 && model.experts > 0;
            const bool is_least = part == 1 || part == model.experts;
            sharing = !one_by_one ? std::vector{0} : is_least ? std::vector{0, 1} : std::vector{1};
        }
        for (const int devices : sharing) {
            shape.expert_tensor_parallel = devices;
            shapes.push_back(shape);
        }
    }
    return shapes;
}

/// Whether the devices of a shape can divide samples and experts so.
bool divides(const Scenario& scenario, const DividedModel& model, const Shape& shape) {
    if (!shape.is_divided()) {
        return true;
    }
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    const bool sequence_parallel = pipeline.sequence_parallel.value_or(shape.tensor_parallel > 1);
    const bool by_heads = pipeline.context_method == ContextMethod::AllToAll;
    const bool divides_rows = shape.tensor_parallel == 1 || sequence_parallel;
    return (!shape.divides_experts() || (model.experts > 0 && divides_rows)) &&
           grid_fits({.sizes = {.tensor = shape.tensor_parallel,
                                .context = shape.context_parallel,
                                .data = shape.data_parallel,
                                .pipeline = shape.stages,
                                .expert_tensor = shape.expert_tensor_devices(),
                                .expert = shape.expert_parallel},
                      .order = axis_order(pipeline.order, scenario.cluster.placement),
                      .model = model,
                      .sequence_parallel = sequence_parallel,
                      .context_divides_heads = by_heads && shape.context_parallel > 1});
}

std::vector<int> replica_counts(const Scenario& scenario, int most) {
    if (const auto& replicas = scenario.pipeline.data_parallel.known()) {
        return {*replicas};
    }
    std::vector<int> result = divisors(scenario.training.batch);
    std::erase_if(result, [most](int replicas) { return replicas > most; });
    return result;
}

std::vector<int> micro_batch_counts(const Scenario& scenario, int replicas) {
    if (const std::optional<int> written = scenario.pipeline.micro_batches.known()) {
        // Replicas of which each has fewer samples than that would change what is written.
        const bool stays = !scenario.pipeline.data_parallel.is_auto() ||
                           scenario.training.batch < *written ||
                           replica_batch(scenario, replicas) >= *written;
        return stays ? std::vector{*written} : std::vector<int>{};
    }
    constexpr int most = 65536;
    std::vector<int> result = divisors(replica_batch(scenario, replicas));
    std::erase_if(result, [](int count) { return count > most; });
    return result;
}

/// Whether replicas form groups that divide a state, where any is divided.
bool may_divide(const Scenario& scenario, const AxisSizes& sizes) {
    const OrAuto<Shard>& shard = scenario.pipeline.shard;
    return (!shard.is_auto() && *shard == Shard::None) ||
           group_size(
               scenario.pipeline.shard_group,
               scenario.cluster,
               DeviceGrid(sizes, axis_order(scenario.pipeline.order, scenario.cluster.placement)));
}

/// More than eight chunks of one rank are never seen in practice.
constexpr std::array several_chunks{2, 3, 4, 6, 8};

std::vector<int> chunk_counts(const Scenario& scenario, ChunkCounts chunks, int most) {
    const std::optional<int> fixed = scenario.pipeline.chunks.known();
    std::vector<int> result;
    switch (chunks) {
        case ChunkCounts::One:
            result = {1};
            break;
        case ChunkCounts::Two:
            result = {2};
            break;
        case ChunkCounts::Several:
            result.assign(several_chunks.begin(), several_chunks.end());
            if (fixed && *fixed > 1) {
                result = {*fixed};
            }
            break;
    }
    std::erase_if(result, [&](int count) { return count > most || (fixed && *fixed != count); });
    return result;
}

std::vector<Recompute> recomputes_of(const Scenario& scenario, const Shape& shape) {
    if (const auto& written = scenario.pipeline.recompute.known()) {
        const std::optional<Recompute> one = written->everywhere();
        return one ? std::vector{*one} : std::vector<Recompute>{};
    }
    if (shape.micro_batches == 1) {
        return {Recompute::None, Recompute::Always};
    }
    return {Recompute::None, Recompute::ExceptLast, Recompute::Always};
}

/// A written list does. Else, on one rank that is one of the three; ranks of two pipelines share
/// their weights with another one; and where stashes are copied away, what fits depends on times.
bool may_recompute_by_rank(const Scenario& scenario,
                           const ScheduleChoice& choice,
                           const Shape& shape) {
    if (const auto& written = scenario.pipeline.recompute.known()) {
        return !written->everywhere();
    }
    const ScheduleTraits& row = schedule_traits(choice.schedule);
    return shape.stages > 1 && row.placement != StagePlacement::BothWays &&
           scenario.pipeline.offload == Offload::None && row.searched != Searched::No;
}

/// Whether modules are computed again as needed. Ranks of two pipelines share their weights with
/// another one, and where stashes are copied away, what fits depends on times.
bool may_recompute_modules(const Scenario& scenario, const ScheduleChoice& choice) {
    return scenario.pipeline.recompute_modules.is_auto() &&
           choice.costs.layer_recompute == LayerRecompute::None &&
           schedule_traits(choice.schedule).placement != StagePlacement::BothWays &&
           scenario.pipeline.offload == Offload::None;
}

/// Whether a search tries a schedule for a shape, where nothing names schedules.
bool is_searched(const ScheduleTraits& row, const Shape& shape) {
    const bool shares_weights = row.placement == StagePlacement::BothWays;
    return row.searched != Searched::No && !(shares_weights && shape.has_replicas());
}

/// Whether the model has blocks that can be recomputed one by one.
bool has_blocks(const Model& model) {
    if (!model.is_chain()) {
        return !recomputed_blocks(model).empty();
    }
    return model_blocks(model.layer_names()).has_value() && !recomputed_blocks(model).empty();
}

/// Whether replicas that share the optimizer's state are never slower than those that do not. Each
/// of them sends its weights on after its update: with reductions that overlap, or with an update
/// that waits for the norm of all gradients, another rank's sums may hide what is saved before it.
/// Groups of replicas, and those that broadcast weights, send more. And gradients of weights that
/// the ends of the model share are needed everywhere.
bool is_sharded_optimizer_faster(const Scenario& scenario,
                                 const Model& model,
                                 const Profile& profile) {
    const std::shared_ptr<const Stack> stack = stack_of(with_defaults(scenario), profile);
    const bool broadcasts = stack && stack->collectives.zero1 == WeightUpdates::Broadcast;
    return !broadcasts && scenario.pipeline.shard_group.is_all() &&
           !scenario.pipeline.overlap_reduction && scenario.training.clip_norm == 0 &&
           tied_bytes(model, profile) == Bytes{};
}

}  // namespace

std::vector<const ScheduleTraits*> searched_rows(const Scenario& scenario, const Shape& shape) {
    std::vector<const ScheduleTraits*> rows;
    for (const std::string& name : scenario.pipeline.schedule.choices()) {
        rows.push_back(&schedule_traits(name));
    }
    if (rows.empty()) {
        for (const ScheduleName& known : known_schedules()) {
            if (const ScheduleTraits& row = schedule_traits(known.kind); is_searched(row, shape)) {
                rows.push_back(&row);
            }
        }
    }
    std::ranges::stable_sort(rows, {}, [](const ScheduleTraits* row) {
        return std::pair(row->searched != Searched::First, row->chunks);
    });
    if (shape.stages == 1) {  // all that go one way are the same on one rank
        const auto one = std::ranges::find_if(rows, [](const ScheduleTraits* row) {
            return row->placement != StagePlacement::BothWays;
        });
        rows = {one == rows.end() ? rows.front() : *one};
    }
    return rows;
}

CostOptions cost_options_of(const Scenario& scenario, const ScheduleChoice& choice) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    const CostOptions& costs = choice.costs;
    return {.layer_recompute =
                pipeline.recompute.is_auto() ? costs.layer_recompute : pipeline.layer_recompute,
            .shard = pipeline.shard.value_or(costs.shard),
            .sequence_parallel = pipeline.sequence_parallel.value_or(costs.sequence_parallel),
            .scatter_boundaries = pipeline.scatter_boundaries.value_or(costs.scatter_boundaries),
            .modules = costs.modules};
}

ModuleLists modules_with(const Scenario& scenario, const CostOptions& options) {
    return scenario.pipeline.recompute_modules.value_or(ModuleLists{.as_needed = options.modules});
}

SettledScenario with_candidate(const Scenario& scenario, const Candidate& candidate) {
    SettledScenario settled = with_defaults(scenario);
    SettledScenario::PipelinePart& pipeline = settled.pipeline;
    pipeline.stages = candidate.shape.stages;
    pipeline.data_parallel = candidate.shape.data_parallel;
    pipeline.tensor_parallel = candidate.shape.tensor_parallel;
    pipeline.context_parallel = candidate.shape.context_parallel;
    pipeline.expert_parallel = candidate.shape.expert_parallel;
    pipeline.expert_tensor_parallel = candidate.shape.expert_tensor_parallel;
    pipeline.micro_batches = candidate.shape.micro_batches;
    pipeline.schedule = candidate.choice.schedule;
    pipeline.chunks = candidate.choice.chunks;
    pipeline.recompute_timing = scenario.pipeline.recompute_timing.value_or(
        schedule_traits(pipeline.schedule).recompute_timing);
    pipeline.recompute = candidate.choice.recompute;
    if (candidate.choice.recompute_by_rank) {
        pipeline.recompute = scenario.pipeline.recompute.value_or(Recompute::None);
    }
    const CostOptions options = cost_options_of(scenario, candidate.choice);
    pipeline.layer_recompute = options.layer_recompute;
    pipeline.shard = options.shard;
    pipeline.sequence_parallel = options.sequence_parallel;
    pipeline.scatter_boundaries = options.scatter_boundaries;
    pipeline.recompute_modules = modules_with(scenario, options);
    return settled;
}

int device_count(const Scenario& scenario) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (scenario.cluster.count > 0) {
        return scenario.cluster.count;
    }
    const OrAuto<int>& context = pipeline.context_parallel;
    if (pipeline.stages.is_auto() || pipeline.data_parallel.is_auto() ||
        pipeline.tensor_parallel.is_auto() || (context.is_auto() && context.choices().empty())) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    "nothing says how many devices there are to plan for",
                    {"set cluster.count, as in --set cluster.count=8", {{"cluster.count", "8"}}})
            .about("cluster.count");
    }
    return *pipeline.stages * *pipeline.data_parallel * *pipeline.tensor_parallel *
           context.value_or(1);
}

namespace {

/// The shapes of a scenario, and of those that cannot be divided so the one of most devices.
class Shapes {
  public:
    Shapes(const Scenario& scenario, const Profile& profile)
        : scenario_(scenario), profile_(profile), model_(divided_model(profile)) {
        if (!routes_experts(profile)) {
            model_.experts = 0;
        }
    }

    const DividedModel& model() const { return model_; }

    /// Adds the shape with all numbers of micro-batches, and all ways to divide experts.
    void add(const Shape& of) {
        if (!may_divide(scenario_,
                        {.tensor = of.tensor_parallel,
                         .context = of.context_parallel,
                         .data = of.data_parallel,
                         .pipeline = of.stages})) {
            return;
        }
        for (Shape shape : with_divided_experts(scenario_, model_, of)) {
            if (!divides(scenario_, model_, shape)) {
                refuse(shape);
                continue;
            }
            for (const int micro_batches : micro_batch_counts(scenario_, shape.data_parallel)) {
                shape.micro_batches = micro_batches;
                shapes_.push_back(shape);
            }
        }
    }

    /// All, ascending. Throws as `require_division` where none is left because of degrees that are
    /// written down.
    std::vector<Shape> all() && {
        if (shapes_.empty() && refused_) {
            CostOptions options;
            options.sequence_parallel = refused_->tensor_parallel > 1;
            const ScheduleChoice choice{.schedule = std::string(default_schedule),
                                        .costs = options};
            require_division(with_candidate(scenario_, {.shape = *refused_, .choice = choice}),
                             profile_,
                             refused_->stages);
        }
        std::ranges::sort(shapes_);
        return std::move(shapes_);
    }

  private:
    void refuse(const Shape& shape) {
        if (!refused_ || shape.stage_devices() > refused_->stage_devices()) {
            refused_ = shape;
        }
    }

    const Scenario& scenario_;
    const Profile& profile_;
    DividedModel model_;
    std::vector<Shape> shapes_{};
    std::optional<Shape> refused_{};
};

}  // namespace

std::vector<Shape> shapes_of(const Scenario& scenario, const Model& model, const Profile& profile) {
    const int devices = device_count(scenario);
    Shapes shapes(scenario, profile);
    for (const int stages : stage_counts(scenario, devices, model.layer_count())) {
        for (const int tensor : tensor_counts(scenario, model, devices)) {
            for (const int context : context_counts(scenario, shapes.model(), tensor, devices)) {
                const std::int64_t of_replica = std::int64_t{stages} * tensor * context;
                if (of_replica > devices) {
                    continue;
                }
                for (const int replicas :
                     replica_counts(scenario, devices / static_cast<int>(of_replica))) {
                    shapes.add({.stages = stages,
                                .data_parallel = replicas,
                                .tensor_parallel = tensor,
                                .context_parallel = context});
                }
            }
        }
    }
    return std::move(shapes).all();
}

void open_division(Scenario& scenario, const Profile& profile) {
    constexpr int long_sample = 16'384;  // tokens
    Scenario::PipelinePart& pipeline = scenario.pipeline;
    const auto open = [](OrAuto<int>& key, int unwritten) {
        if (key.choices() == std::vector{unwritten}) {
            key.open();
        }
    };
    if (routes_experts(profile)) {
        open(pipeline.expert_parallel, 1);
        open(pipeline.expert_tensor_parallel, 0);
    }
    if (divided_model(profile).sequence >= long_sample && scenario.cluster.count > 0) {
        open(pipeline.context_parallel, 1);
    }
    close_division(scenario);
}

void leave_undivided(Scenario& scenario) {
    const auto settle = [](OrAuto<int>& key, int undivided) {
        key = key.value_or(key.choices().empty() ? undivided : key.choices().front());
    };
    settle(scenario.pipeline.context_parallel, 1);
    settle(scenario.pipeline.expert_parallel, 1);
    settle(scenario.pipeline.expert_tensor_parallel, 0);
}

std::vector<int> telling_stage_counts(const std::vector<Shape>& shapes, int layers) {
    constexpr std::size_t few = 40;
    std::set<int> counts;
    int devices = 1;
    for (const Shape& shape : shapes) {
        counts.insert(shape.stages);
        devices = std::max(devices, shape.devices());
    }
    const auto largest = [layers](int stages) { return (layers + stages - 1) / stages; };
    if (counts.size() > few) {
        std::erase_if(counts, [&](int stages) {
            return devices % stages != 0 && largest(stages) == largest(stages - 1);
        });
    }
    return {counts.begin(), counts.end()};
}

Choices::Choices(const Scenario& scenario, const Model& model, const Profile& profile)
    : scenario_(scenario),
      profile_(profile),
      layers_(model.layer_count()),
      trains_(model.is_executable()),
      may_share_(!trains_ || scenario.training.average_decay == 0),
      sharded_is_faster_(is_sharded_optimizer_faster(scenario, model, profile)) {
    if (!scenario.pipeline.recompute.is_auto()) {
        return;
    }
    if (knows_core_attention(profile)) {
        layer_recomputes_.push_back(LayerRecompute::Selective);
    }
    if (has_blocks(model)) {
        layer_recomputes_.push_back(LayerRecompute::Block);
    }
}

bool Choices::may_divide_sequence(const Shape& shape) const {
    return shape.tensor_parallel > 1 &&
           (shape.is_divided() || knows_shares(profile_, shape.tensor_parallel));
}

std::vector<Shard> Choices::shards_of(const Shape& shape) const {
    const OrAuto<Shard>& shard = scenario_.pipeline.shard;
    if (!shard.is_auto()) {
        return {*shard};
    }
    if (!shape.has_replicas() || !may_share_) {
        return {Shard::None};
    }
    std::vector<Shard> shards;
    // Groups of divided layers have measured collectives: an all-reduce in the switch may be faster
    // than a reduce-scatter and an all-gather.
    if (!sharded_is_faster_ || shape.is_divided()) {
        shards.push_back(Shard::None);
    }
    shards.push_back(Shard::Optimizer);
    if (shard.allows(Shard::Weights)) {
        shards.push_back(Shard::Gradients);
        shards.push_back(Shard::Weights);
    }
    return shards;
}

CostOptions Choices::fastest_layers(const Shape& shape) const {
    const Scenario::PipelinePart& pipeline = scenario_.pipeline;
    const bool shares_optimizer =
        pipeline.shard.is_auto() && shape.has_replicas() && may_share_ && sharded_is_faster_;
    return {.layer_recompute = pipeline.layer_recompute,
            .shard = shares_optimizer ? Shard::Optimizer : pipeline.shard.value_or(Shard::None),
            .sequence_parallel = pipeline.sequence_parallel.value_or(may_divide_sequence(shape)),
            .scatter_boundaries = pipeline.scatter_boundaries.value_or(false)};
}

/// What replicas and devices of a rank share, with the recompute of layers that the scenario says.
std::vector<CostOptions> Choices::options_with_shards(const Shape& shape) const {
    CostOptions option = fastest_layers(shape);
    const bool may_scatter = scenario_.pipeline.scatter_boundaries.is_auto() && !trains_ &&
                             shape.tensor_parallel > 1 && shape.stages > 1 &&
                             !option.sequence_parallel;
    std::vector<CostOptions> options;
    for (const Shard shard : shards_of(shape)) {
        option.shard = shard;
        options.push_back(option);
        if (may_scatter) {
            options.push_back(option);
            options.back().scatter_boundaries = true;
        }
    }
    return options;
}

std::vector<CostOptions> Choices::cost_options(const Shape& shape) const {
    std::vector<CostOptions> all = options_with_shards(shape);
    const std::size_t shared = all.size();
    for (std::size_t i = 0; i < shared && scenario_.pipeline.recompute_modules.is_auto(); ++i) {
        all.push_back(all[i]);
        all.back().modules = true;
    }
    for (const LayerRecompute layers : layer_recomputes_) {
        for (std::size_t i = 0; i < shared; ++i) {
            all.push_back(all[i]);
            all.back().layer_recompute = layers;
        }
    }
    return all;
}

/// Schedules with their chunks.
std::vector<ScheduleChoice> Choices::orders_of(const Shape& shape) const {
    const Scenario::PipelinePart& pipeline = scenario_.pipeline;
    const int most_chunks = std::max(1, layers_ / shape.stages);
    if (!pipeline.schedule.is_auto() && !pipeline.chunks.is_auto()) {
        return {{.schedule = *pipeline.schedule, .chunks = *pipeline.chunks}};
    }
    const std::vector<const ScheduleTraits*> rows =
        pipeline.schedule.is_auto() ? searched_rows(scenario_, shape)
                                    : std::vector{&schedule_traits(*pipeline.schedule)};
    std::vector<ScheduleChoice> orders;
    for (const ScheduleTraits* const row : rows) {
        for (const int chunks : chunk_counts(scenario_, row->chunks, most_chunks)) {
            orders.push_back(
                {.schedule = pipeline.schedule.value_or(std::string(row->name)), .chunks = chunks});
        }
    }
    return orders;
}

/// The order with every recompute.
void Choices::add_recomputes(ScheduleChoice order,
                             const Shape& shape,
                             std::vector<ScheduleChoice>& choices) const {
    order.costs.layer_recompute = scenario_.pipeline.layer_recompute;
    for (const Recompute recompute : recomputes_of(scenario_, shape)) {
        order.recompute = recompute;
        order.costs.modules =
            recompute == Recompute::None && may_recompute_modules(scenario_, order);
        choices.push_back(order);
        order.costs.modules = false;
    }
    order.recompute = Recompute::None;
    if (may_recompute_by_rank(scenario_, order, shape)) {
        order.recompute_by_rank = true;
        choices.push_back(order);
        order.recompute_by_rank = false;
    }
    for (const LayerRecompute layers : layer_recomputes_) {
        order.costs.layer_recompute = layers;
        choices.push_back(order);
    }
}

std::vector<ScheduleChoice> Choices::of(const Shape& shape) const {
    std::vector<ScheduleChoice> choices;
    const std::vector<CostOptions> options = options_with_shards(shape);
    for (ScheduleChoice& order : orders_of(shape)) {
        for (const CostOptions& option : options) {
            order.costs = option;
            add_recomputes(order, shape, choices);
        }
    }
    return choices;
}

std::int64_t Choices::count(const Shape& shape) {
    std::int64_t& known = counts_[{shape.stages,
                                   shape.has_replicas(),
                                   shape.is_divided(),
                                   shape.tensor_parallel > 1,
                                   may_divide_sequence(shape),
                                   shape.micro_batches == 1}];
    known = known > 0 ? known : std::ssize(of(shape));
    return known;
}

std::vector<ScheduleChoice> choices_of(const Scenario& scenario,
                                       const Model& model,
                                       const Profile& profile,
                                       const Shape& shape) {
    return Choices(scenario, model, profile).of(shape);
}

}  // namespace pipetwin::sim
