// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/plan/plain_plan.h"
#include "core/plan/plan.h"
#include "core/plan/plan_order.h"
#include "core/plan/routes.h"
#include "core/plan/shape_notes.h"
#include "core/schedule/edge.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/generators.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/schedule/lower.h"
#include "core/schedule/receives.h"
#include "core/schedule/validate.h"

/// A plan from plain numbers: the costs of each stage as given, without a model.
namespace pipetwin {

namespace {

using Costs = std::vector<Duration>;

void require_one_per_stage(const Costs& costs, std::string_view what, int stages) {
    if (costs.size() != static_cast<std::size_t>(stages)) {
        throw Error(
            ErrorKind::BadInput,
            "",
            fmt::format(
                "{}: {} for {}", what, counted(costs.size(), "number"), counted(stages, "stage")),
            "give one number for all, or one per stage in model order");
    }
    const auto negative = std::ranges::find_if(costs, [](Duration d) { return d < Duration{}; });
    if (negative != costs.end()) {
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("{}: {} is negative", what, format_duration(*negative)),
                    "a duration is 0 or more");
    }
}

/// The two halves of the backward, completed from what was given:
/// only B: I = B / 2 and W = B - I; only I and W: B = I + W.
struct BackwardCosts {
    Costs whole;
    Costs input;
    Costs weight;
};

BackwardCosts backward_costs(const PlainCosts& costs, int stages) {
    const bool split = !costs.backward_input.empty() || !costs.backward_weight.empty();
    BackwardCosts result{costs.backward, costs.backward_input, costs.backward_weight};
    if (split) {
        require_one_per_stage(result.input, "backward-input", stages);
        require_one_per_stage(result.weight, "backward-weight", stages);
    }
    if (!split || !result.whole.empty()) {
        require_one_per_stage(result.whole, "backward", stages);
    }
    for (std::size_t stage = 0; stage < as_index(stages); ++stage) {
        if (!split) {
            result.input.push_back(result.whole[stage] / 2);
            result.weight.push_back(result.whole[stage] - result.input[stage]);
        } else if (costs.backward.empty()) {
            result.whole.push_back(result.input[stage] + result.weight[stage]);
        }
    }
    return result;
}

/// Without a model the boundary is the only tensor that is known: a stage keeps its input and hands
/// on its output.
std::vector<StageCost> stage_costs(const PlainCosts& costs, int stages) {
    require_one_per_stage(costs.forward, "forward", stages);
    if (!costs.recompute_cost.empty()) {
        require_one_per_stage(costs.recompute_cost, "recompute", stages);
    }
    const BackwardCosts backward = backward_costs(costs, stages);
    std::vector<StageCost> result(as_index(stages));
    for (std::size_t s = 0; s < result.size(); ++s) {
        StageCost& stage = result[s];
        stage.forward = costs.forward[s];
        stage.recompute = costs.recompute_cost.empty() ? costs.forward[s] : costs.recompute_cost[s];
        stage.backward = backward.whole[s];
        stage.backward_input = backward.input[s];
        stage.backward_weight = backward.weight[s];
        stage.input = s == 0 ? Bytes{} : costs.boundary;
        stage.output = s + 1 == result.size() ? Bytes{} : costs.boundary;
        stage.saved = stage.input;
        stage.forward_drop_peak = stage.input + stage.output;
        stage.backward_peak = stage.saved + stage.output + stage.input;
    }
    return result;
}

/// The costs of each stage of the schedule, from those of each piece of the model.
std::vector<StageCost> stage_costs(const PlainCosts& costs, const Schedule& schedule) {
    const std::vector<StageCost> of_piece = stage_costs(costs, model_stage_count(schedule));
    std::vector<StageCost> result;
    for (const int piece : schedule.weights_of_stage) {
        result.push_back(of_piece[as_index(piece)]);
    }
    return result;
}

GeneratorOptions generator_options(const PlainCosts& costs) {
    GeneratorOptions options{.group_size = costs.group_size};
    if (schedule_traits(costs.schedule).order_from_costs) {
        check_shape(costs.shape);
        const int stages = costs.shape.ranks * costs.shape.chunks;
        PlanParts parts;
        parts.recompute = costs.recompute;
        parts.costs = {stage_costs(costs, stages)};
        parts.links.assign(as_index(stages - 1), costs.link);
        options.zero_bubble = zero_bubble_costs(parts, schedules::loop_placement(costs.shape));
    }
    return options;
}

/// A file's own rows are validated first, so that what is wrong is reported by the file's own
/// cells.
Schedule order_of(const PlainCosts& costs) {
    if (costs.schedule_from_file) {
        require_valid(*costs.schedule_from_file,
                      costs.schedule_name,
                      violations_shown,
                      &*costs.schedule_from_file);
        return costs.receives == Receives::Posted ? wait_where_used(*costs.schedule_from_file)
                                                  : *costs.schedule_from_file;
    }
    return generate(costs.schedule, costs.shape, generator_options(costs));
}

/// What is wrong with the messages of a file's rows, by the cells of the file.
void require_runnable(const Schedule& rows, const PlainCosts& costs) {
    const Schedule& written = *costs.schedule_from_file;
    require_valid(rows, costs.schedule_name, violations_shown, &written);
    require_deadlock_free(rows, costs.channel_capacity.known(), costs.schedule_name, &written);
}

/// One route for each skip: of the file's rows, where the second pipeline has the same as the
/// first, or as asked for.
std::vector<Route> skip_routes(const PlainCosts& costs, const Schedule& order) {
    std::vector<Route> routes;
    for (const StagePair& skip : costs.schedule_from_file ? order.skips : costs.skips) {
        if (!costs.schedule_from_file || first_stage_of_pipeline(order, skip.from) == 0) {
            routes.push_back({.stages = skip, .layer = skip.from});
        }
    }
    return routes;
}

/// Adds one message of a boundary's size for each skip.
void add_skips(const PlainCosts& costs, Schedule& order, PlanParts& parts) {
    std::vector<Route> routes = skip_routes(costs, order);
    if (routes.empty()) {
        return;
    }
    for (const Route& route : routes) {
        if (route.stages.from < 0 || route.stages.to >= model_stage_count(order) ||
            distance(route.stages) < 2) {
            throw Error(
                ErrorKind::BadInput,
                costs.schedule_name,
                fmt::format("a skip from stage {} to stage {}: it must pass over at least one "
                            "stage, from an earlier stage to a later one; the stages are 0 to {}",
                            route.stages.from,
                            route.stages.to,
                            model_stage_count(order) - 1),
                "name two stages that are not neighbours, the earlier one first");
        }
    }
    std::ranges::sort(routes);
    for (std::size_t stage = 0; stage < parts.costs.front().size(); ++stage) {
        StageCost& cost = parts.costs.front()[stage];
        const int piece = order.weights_of_stage.at(stage);
        for (const Route& route : routes) {
            const Bytes sent = route.stages.from == piece ? costs.boundary : Bytes{};
            const Bytes received = route.stages.to == piece ? costs.boundary : Bytes{};
            cost.output += sent;
            cost.input += received;
            cost.saved += received;
            cost.forward_drop_peak += sent + received;
            cost.backward_peak += sent + received + received;
        }
    }
    order.skips = skips_of(routes, order);
    parts.message_bytes.assign(1, std::vector<Bytes>(pair_count(order), costs.boundary));
}

int largest_stage_count_of_a_rank(const Schedule& schedule) {
    std::map<int, int> count;
    int largest = 1;
    for (const int rank : schedule.rank_of_stage) {
        largest = std::max(largest, ++count[rank]);
    }
    return largest;
}

}  // namespace

Plan make_plan(const PlainCosts& costs, RowsFrom rows) {
    PlanParts parts;
    parts.schedule_name = costs.schedule_name;
    parts.recompute = costs.recompute;
    Schedule order = order_of(costs);
    if (costs.schedule_from_file && order != *costs.schedule_from_file) {
        parts.notes.emplace_back(
            "receives of the schedule file are posted where they stand, and waited for where their "
            "tensors are used, as PyTorch does");
    }
    parts.costs = {stage_costs(costs, order)};
    add_skips(costs, order, parts);
    parts.links.assign(pair_count(order), costs.link);
    if (costs.deferred_weights > 0) {
        order = with_deferred_weights(order, parts, costs.deferred_weights);
    }
    parts.recompute_timing =
        costs.recompute_timing.value_or(schedule_traits(costs.schedule).recompute_timing);
    parts.schedule = lower(std::move(order),
                           {.recompute = costs.recompute,
                            .timing = parts.recompute_timing,
                            .messages = costs.message_order},
                           costs.schedule_name);
    if (costs.schedule_from_file) {
        require_runnable(parts.schedule, costs);
    }
    parts.recompute = lowered_recompute(parts.schedule, costs.recompute);
    const int stages = parts.schedule.stage_count();
    parts.chunks = largest_stage_count_of_a_rank(parts.schedule);
    parts.cost_class.assign(as_index(parts.schedule.micro_batches), 0);
    parts.states.resize(as_index(stages));
    if (weight_sharing_stage(parts.schedule, 0)) {
        parts.reductions.assign(as_index(stages), costs.link);
    }
    parts.channel_capacity = costs.channel_capacity.known();
    parts.stale_gradients = schedule_traits(costs.schedule).stale_gradients;
    std::ranges::move(schedule_notes(to_string(costs.schedule), parts.chunks),
                      std::back_inserter(parts.notes));
    const bool others = costs.schedule_from_file || costs.deferred_weights > 0;
    return Plan::make(std::move(parts), others ? RowsFrom::Anywhere : rows);
}

}  // namespace pipetwin
