// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plan.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/offload.h"
#include "core/schedule/edge.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/rows_hash.h"
#include "core/schedule/validate.h"

namespace pipetwin {

namespace {

void expect_sizes_agree(const Contention& contention, const Schedule& schedule) {
    const std::size_t ranks = schedule.ranks.size();
    PIPETWIN_EXPECT(contention.cores >= 0, "the number of cores is not negative");
    PIPETWIN_EXPECT(contention.interference.empty() || contention.interference.size() == ranks,
                    "the interference of every rank");
    for (const auto& row : contention.interference) {
        PIPETWIN_EXPECT(row.size() == ranks, "the interference with every rank");
        PIPETWIN_EXPECT(std::ranges::all_of(row, [](double share) { return share >= 0; }),
                        "interference is not negative");
    }
    PIPETWIN_EXPECT(
        contention.shared_links.empty() || contention.way_of_edge.size() == edge_count(schedule),
        "a way for every edge");
    PIPETWIN_EXPECT(
        contention.way_of_copies.empty() || contention.way_of_copies.size() == 2 * ranks,
        "a way to host memory and back for every rank");
    PIPETWIN_EXPECT(contention.link_names.empty() ||
                        contention.link_names.size() == contention.shared_links.size(),
                    "a name for every shared link");
    for (const auto* ways : {&contention.way_of_edge, &contention.way_of_copies}) {
        for (const auto& way : *ways) {
            PIPETWIN_EXPECT(std::ranges::all_of(
                                way,
                                [&contention](int link) {
                                    return link >= 0 && link < std::ssize(contention.shared_links);
                                }),
                            "a way leads over shared links");
        }
    }
}

/// The sizes that every user of a plan relies on.
void expect_sizes_agree(const PlanParts& parts) {
    const auto stages = parts.schedule.rank_of_stage.size();
    const std::size_t micro_batches = as_index(parts.schedule.micro_batches);
    const auto covers_all_stages = [stages](const auto& costs) { return costs.size() == stages; };
    const auto known_class = [&parts](int index) {
        return index >= 0 && as_index(index) < parts.costs.size();
    };
    PIPETWIN_EXPECT(parts.cost_class.size() == micro_batches, "one cost class per micro-batch");
    PIPETWIN_EXPECT(std::ranges::all_of(parts.cost_class, known_class), "cost class out of range");
    PIPETWIN_EXPECT(std::ranges::all_of(parts.costs, covers_all_stages), "one cost per stage");
    PIPETWIN_EXPECT(parts.states.size() == stages, "one state per stage");
    const std::size_t pairs = pair_count(parts.schedule);
    PIPETWIN_EXPECT(stages > 0 && parts.links.size() == pairs, "one link per pair of stages");
    PIPETWIN_EXPECT(
        parts.message_bytes.empty()
            ? parts.schedule.skips.empty()
            : parts.message_bytes.size() == parts.costs.size() &&
                  std::ranges::all_of(parts.message_bytes,
                                      [pairs](const auto& bytes) { return bytes.size() == pairs; }),
        "the bytes of each message");
    const bool own_weights = !gradient_source(parts.schedule, 0);
    PIPETWIN_EXPECT(parts.reductions.size() == (own_weights ? 0 : stages),
                    "one link per stage where some share their weights");
    PIPETWIN_EXPECT(parts.weight_gather.empty() || parts.weight_gather.size() == stages,
                    "every stage gathers its weights");
    PIPETWIN_EXPECT(parts.bucketed_sums.empty() ||
                        (parts.overlap_reduction && parts.bucketed_sums.size() == stages),
                    "each stage says how its sums go on beside its last backward");
    PIPETWIN_EXPECT(parts.all_reduce.empty() || parts.all_reduce.size() == stages,
                    "one all-reduce per stage");
    const std::size_t ranks = parts.schedule.ranks.size();
    PIPETWIN_EXPECT(parts.memory_limits.empty() || parts.memory_limits.size() == ranks,
                    "one memory limit per rank");
    PIPETWIN_EXPECT(parts.context.empty() || parts.context.size() == ranks, "one context per rank");
    PIPETWIN_EXPECT(parts.replicas >= 1, "at least one replica");
    expect_sizes_agree(parts.contention, parts.schedule);
    PIPETWIN_EXPECT(
        parts.micro_batch_sizes.empty() || parts.micro_batch_sizes.size() == micro_batches,
        "one size per micro-batch");
    const bool partitioned = !parts.partition || std::ssize(parts.partition->layers_per_stage()) ==
                                                     model_stage_count(parts.schedule);
    PIPETWIN_EXPECT(partitioned, "one piece of the partition per stage with weights of its own");
    PIPETWIN_EXPECT(parts.channel_capacity.value_or(0) >= 0, "capacity is not negative");
}

void expect_recompute_agrees(const PlanParts& parts) {
    PIPETWIN_EXPECT(
        recompute_of(parts.schedule) == parts.recompute.at(parts.schedule.micro_batches),
        "the rows recompute as the plan says");
}

/// By how much longer an action can last at most, as a share.
double largest_interference(const Contention& contention) {
    double largest = 0;
    for (const auto& row : contention.interference) {
        largest = std::max(largest, std::accumulate(row.begin(), row.end(), 0.0));
    }
    return largest;
}

double seconds_of_message(const LinkCost& link, Bytes message) {
    return to_seconds(link.latency) +
           to_seconds(transfer_time(message + link.half_bandwidth, link.bytes_per_second));
}

/// All actions and messages one after the other.
double seconds_of_rows(const Plan& plan) {
    double seconds = 0;
    for (const auto& row : plan->schedule.ranks) {
        for (const Action& action : row) {
            seconds += to_seconds(plan.duration(action));
            if (action.op == Op::ReduceGradient && plan->overlap_reduction) {
                seconds += to_seconds(plan.all_reduce_time(action.stage));
            }
            if (is_send(action.op)) {
                const int edge = edge_of(plan->schedule, action);
                seconds += seconds_of_message(plan->links.at(as_index(edge / 2)),
                                              plan.message_bytes(edge, action.micro_batch));
            }
        }
    }
    return seconds;
}

/// No less than the above, from costs alone: no action occurs twice on a stage but those that take
/// no time.
double most_seconds_of_rows(const Plan& plan) {
    std::vector<double> of_class(plan->costs.size());
    double seconds = 0;
    const auto most_of = [&plan](Op op, std::size_t stage) {
        return to_seconds(plan.duration({.op = op, .stage = static_cast<int>(stage)}));
    };
    for (std::size_t stage = 0; stage < plan->states.size(); ++stage) {
        for (std::size_t number = 0; number < of_class.size(); ++number) {
            const StageCost& cost = plan->costs[number][stage];
            of_class[number] += 5 * to_seconds(plan->dispatch) + to_seconds(cost.forward) +
                                to_seconds(cost.recompute) + to_seconds(cost.backward) +
                                to_seconds(cost.backward_input) + to_seconds(cost.backward_weight);
            if (exchanges(plan->schedule, static_cast<int>(stage))) {
                of_class[number] += 2 * seconds_of_message(plan->links[stage], cost.output);
            }
        }
        seconds += most_of(Op::GradientNorm, stage) + most_of(Op::Optimizer, stage) +
                   most_of(Op::ReduceGradient, stage) +
                   to_seconds(plan.all_reduce_time(static_cast<int>(stage)));
    }
    for (std::size_t pair = boundary_count(plan->schedule); pair < plan->links.size(); ++pair) {
        for (std::size_t number = 0; number < of_class.size(); ++number) {
            of_class[number] +=
                2 * seconds_of_message(plan->links[pair], plan->message_bytes[number][pair]);
        }
    }
    for (const int number : plan->cost_class) {
        seconds += of_class[as_index(number)];
    }
    return seconds;
}

/// All that passes shared links, one after the other.
double seconds_over_shared_links(const Plan& plan) {
    const Contention& contention = plan->contention;
    double seconds = 0;
    const auto add = [&](const std::vector<int>& way, Bytes bytes, const LinkCost& link) {
        for (const int shared : way) {
            seconds += to_seconds(transfer_time(bytes + link.half_bandwidth,
                                                contention.shared_links[as_index(shared)]));
        }
    };
    if (contention.shared_links.empty()) {
        return 0;
    }
    for (const auto& row : plan->schedule.ranks) {
        for (const Action& action : row) {
            if (is_send(action.op)) {
                const int edge = edge_of(plan->schedule, action);
                add(contention.way_of_edge[as_index(edge)],
                    plan.message_bytes(edge, action.micro_batch),
                    plan->links[as_index(edge / 2)]);
            }
        }
    }
    if (plan->host_link && !contention.way_of_copies.empty()) {
        const auto copies = stash_copies(plan);
        for (std::size_t rank = 0; rank < copies.size(); ++rank) {
            for (const StashCopy& copy : copies[rank]) {
                add(contention.way_of_copies[2 * rank], copy.bytes, *plan->host_link);
                add(contention.way_of_copies[2 * rank + 1], copy.bytes, *plan->host_link);
            }
        }
    }
    return seconds;
}

/// Throws Error(BadInput) if a step could last longer than `longest_step`. Both engines and every
/// metric add times as integers, some of them over all ranks. No step lasts longer than all of its
/// actions and messages one after the other; where that is below the limit, no sum overflows.
void require_bounded_time(const Plan& plan) {
    // The sum over all rows is wanted only where it matters: rounding is far smaller than a factor
    // of two.
    const double most = most_seconds_of_rows(plan);
    double seconds = most < to_seconds(longest_step) / 2 ? most : seconds_of_rows(plan);
    if (plan->host_link) {
        const LinkCost& link = *plan->host_link;
        for (const auto& row : stash_copies(plan)) {
            for (const StashCopy& copy : row) {
                seconds += 2 * (to_seconds(link.latency) +
                                to_seconds(transfer_time(copy.bytes + link.half_bandwidth,
                                                         link.bytes_per_second)));
            }
        }
    }
    require_bounded_step(
        seconds * (1 + largest_interference(plan->contention)) + seconds_over_shared_links(plan),
        "plan");
}

/// Throws Error(Infeasible) for rows that deadlock at the capacity (none: unbounded), about the key
/// that has it.
void require_free_of_deadlock(const PlanParts& parts, std::optional<int> capacity) {
    try {
        require_deadlock_free(parts.schedule, capacity, parts.schedule_name);
    } catch (const Error& error) {
        throw error.about(capacity ? "pipeline.channel_capacity" : "pipeline.schedule");
    }
}

}  // namespace

Plan Plan::make(PlanParts parts, RowsFrom rows) {
    const bool any_rows = rows == RowsFrom::Anywhere;
    if (any_rows) {
        require_valid(parts.schedule, parts.schedule_name);
        expect_recompute_agrees(parts);
    }
    expect_sizes_agree(parts);
    if (any_rows || parts.channel_capacity) {
        require_free_of_deadlock(parts, parts.channel_capacity);
    }
    Plan plan(std::move(parts));
    require_bounded_time(plan);
    return plan;
}

Plan Plan::with_capacity(int capacity) const& {
    return Plan(*this).with_capacity(capacity);
}

Plan Plan::with_capacity(int capacity) && {
    PIPETWIN_EXPECT(capacity >= 0, "capacity is not negative");
    require_free_of_deadlock(*parts_, capacity);
    return std::move(*this).with_proven_capacity(capacity);
}

Plan Plan::with_proven_capacity(int capacity) && {
    PIPETWIN_EXPECT(capacity >= 0, "capacity is not negative");
    if (parts_.use_count() > 1) {
        parts_ = std::make_shared<PlanParts>(*parts_);
    }
    parts_->channel_capacity = capacity;
    return std::move(*this);
}

Plan Plan::with_costs(std::vector<std::vector<StageCost>> costs,
                      std::vector<LinkCost> links) const {
    PlanParts parts = *parts_;
    parts.costs = std::move(costs);
    parts.links = std::move(links);
    expect_sizes_agree(parts);
    return Plan(std::move(parts));
}

const StageCost& Plan::cost(int stage, int micro_batch) const {
    const int cost_class = parts_->cost_class.at(as_index(micro_batch));
    return parts_->costs.at(as_index(cost_class)).at(as_index(stage));
}

Bytes Plan::message_bytes(int edge, int micro_batch) const {
    const int pair = edge / 2;
    if (!parts_->message_bytes.empty()) {
        const int cost_class = parts_->cost_class.at(as_index(micro_batch));
        return parts_->message_bytes.at(as_index(cost_class)).at(as_index(pair));
    }
    return edge % 2 == 0 ? cost(pair, micro_batch).output : cost(pair + 1, micro_batch).input;
}

Bytes Plan::handed_over(int stage) const {
    return parts_->schedule.tied_ends ? parts_->tied_gradient
                                      : parts_->states.at(as_index(stage)).weights;
}

Duration Plan::duration(const Action& action) const {
    if (uses_gradients(action.op)) {
        const StageState& state = parts_->states.at(as_index(action.stage));
        if (action.op == Op::GradientNorm) {
            return parts_->dispatch + state.norm;
        }
        return parts_->dispatch + state.optimizer + weight_gather_time(action.stage);
    }
    if (action.op == Op::ReduceGradient) {
        return !parts_->overlap_reduction ? all_reduce_time(action.stage)
               : parts_->bucketed_sums.empty()
                   ? Duration{}
                   : parts_->bucketed_sums.at(as_index(action.stage)).slowed;
    }
    if (!is_compute(action.op)) {
        return Duration{};
    }
    const StageCost& stage = cost(action.stage, action.micro_batch);
    switch (action.op) {
        case Op::Forward:
            return parts_->dispatch + stage.forward;
        case Op::Backward:
            return parts_->dispatch + stage.backward;
        case Op::BackwardInput:
            return parts_->dispatch + stage.backward_input;
        case Op::BackwardWeight:
            return parts_->dispatch + stage.backward_weight;
        default:
            return parts_->dispatch + stage.recompute;
    }
}

namespace {

/// The messages in a compute action; B has those of both of its halves.
std::vector<const ActionMessages*> messages_of(Op op, const StageCost& stage) {
    switch (op) {
        case Op::Forward:
        case Op::Recompute:
            return {&stage.forward_messages};
        case Op::BackwardInput:
            return {&stage.backward_input_messages};
        case Op::BackwardWeight:
            return {&stage.backward_weight_messages};
        case Op::Backward:
            return {&stage.backward_input_messages, &stage.backward_weight_messages};
        default:
            return {};
    }
}

Duration sum_over(const std::vector<const ActionMessages*>& messages,
                  Duration ActionMessages::*part) {
    Duration sum{};
    for (const ActionMessages* const of_half : messages) {
        sum += of_half->*part;
    }
    return sum;
}

}  // namespace

Duration Plan::shard_wait(const Action& action) const {
    return is_compute(action.op)
               ? sum_over(messages_of(action.op, cost(action.stage, action.micro_batch)),
                          &ActionMessages::shards)
               : Duration{};
}

Duration Plan::tensor_sums(const Action& action) const {
    return is_compute(action.op)
               ? sum_over(messages_of(action.op, cost(action.stage, action.micro_batch)),
                          &ActionMessages::tensor)
               : Duration{};
}

Duration Plan::with_computation(const Action& action, const OtherTime& other) const {
    const Duration time = duration(action) - parts_->dispatch;
    if (action.op == Op::Optimizer) {
        const Duration gather = weight_gather_time(action.stage);
        return other(time - gather) + gather;
    }
    return is_compute(action.op)
               ? pipetwin::with_computation(
                     time, messages_of(action.op, cost(action.stage, action.micro_batch)), other)
               : other(time);
}

Duration Plan::all_reduce_time(int stage) const {
    return parts_->all_reduce.empty() ? Duration{} : parts_->all_reduce.at(as_index(stage));
}

Duration Plan::weight_gather_time(int stage) const {
    return parts_->weight_gather.empty() ? Duration{} : parts_->weight_gather.at(as_index(stage));
}

std::optional<Bytes> Plan::memory_limit(int rank) const {
    return parts_->memory_limits.empty() ? parts_->memory_limit
                                         : parts_->memory_limits.at(as_index(rank));
}

std::optional<std::int64_t> Plan::samples() const {
    if (parts_->micro_batch_sizes.empty()) {
        return std::nullopt;
    }
    return parts_->replicas * std::accumulate(parts_->micro_batch_sizes.begin(),
                                              parts_->micro_batch_sizes.end(),
                                              std::int64_t{0});
}

std::string Plan::hash() const {
    return rows_hash(parts_->schedule);
}

std::optional<std::string> why_not_trainable(const Schedule& schedule, bool stale_gradients) {
    if (is_forward_only(schedule)) {
        return "a schedule without any backward cannot train";
    }
    if (stale_gradients) {
        return "it never flushes, so its gradients belong to older weights; it can only be "
               "simulated";
    }
    return std::nullopt;
}

std::vector<int> micro_batch_sizes(int batch, int micro_batches) {
    if (batch < 1) {
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("batch = {}: a mini-batch has at least one sample", batch),
                    {"set training.batch to 1 or more", {{"training.batch", "1"}}})
            .about("training.batch");
    }
    if (micro_batches < 1) {
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("micro_batches = {}: a mini-batch has at least one", micro_batches),
                    {"set pipeline.micro_batches to 1 or more", {{"pipeline.micro_batches", "1"}}})
            .about("pipeline.micro_batches");
    }
    const int count = std::min(batch, micro_batches);
    check_shape({.micro_batches = count});
    std::vector<int> sizes(as_index(count), batch / count);
    for (int larger = 0; larger < batch % count; ++larger) {
        ++sizes[as_index(larger)];
    }
    return sizes;
}

}  // namespace pipetwin
