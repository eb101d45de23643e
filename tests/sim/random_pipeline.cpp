// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/random_pipeline.h"

#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "tests/support/plain_plan.h"

namespace pipetwin::sim {

using testing::milliseconds;

std::ostream& operator<<(std::ostream& out, const Pipeline& x) {
    std::vector<std::pair<int, int>> pairs;
    for (const StagePair& skip : x.skips) {
        pairs.emplace_back(skip.from, skip.to);
    }
    return out << fmt::format(
               "{} p {} v {} m {}, F {} I {} W {} R {}, latency {}, transfer {}, recompute {} {}, "
               "skips {}",
               to_string(x.kind),
               x.shape.ranks,
               x.shape.chunks,
               x.shape.micro_batches,
               x.forward,
               x.backward_input,
               x.backward_weight,
               x.recompute,
               x.latency,
               x.transfer,
               to_string(x.mode),
               to_string(x.timing),
               pairs);
}

bool exists(ScheduleKind kind, const ScheduleShape& shape) {
    try {
        generate(kind, shape);
        return true;
    } catch (const Error&) {
        return false;
    }
}

namespace {

/// The shapes up to 6 ranks, 3 chunks and 12 micro-batches that a kind accepts, small ones first:
/// so they are what a failing case shrinks to.
std::vector<ScheduleShape> find_shapes(ScheduleKind kind) {
    std::vector<ScheduleShape> shapes;
    for (int m = 1; m <= 12; ++m) {
        for (int ranks = 1; ranks <= 6; ++ranks) {
            for (int chunks = 1; chunks <= 3; ++chunks) {
                shapes.push_back({.ranks = ranks, .chunks = chunks, .micro_batches = m});
            }
        }
    }
    std::erase_if(shapes, [kind](const ScheduleShape& shape) { return !exists(kind, shape); });
    std::ranges::stable_sort(shapes, {}, [](const ScheduleShape& shape) {
        return shape.ranks * shape.chunks * shape.micro_batches;
    });
    return shapes;
}

const std::vector<ScheduleShape>& shapes_of(ScheduleKind kind) {
    static std::map<ScheduleKind, std::vector<ScheduleShape>> known;
    const auto entry = known.find(kind);
    return entry != known.end() ? entry->second
                                : known.emplace(kind, find_shapes(kind)).first->second;
}

// RapidCheck lets numbers grow with the progress of a test; here all are wanted from the start.
template <class T>
T drawn(const rc::Gen<T>& generator) {
    return *rc::gen::resize(rc::kNominalSize, generator);
}

}  // namespace

int number(int lowest, int highest) {
    return drawn(rc::gen::inRange(lowest, highest + 1));
}

std::vector<int> numbers(std::size_t count, int lowest, int highest) {
    return drawn(
        rc::gen::container<std::vector<int>>(count, rc::gen::inRange(lowest, highest + 1)));
}

namespace {

RecomputeRules drawn_modes(std::size_t count) {
    std::vector<Recompute> modes;
    for (const int mode : numbers(count, 0, 2)) {
        modes.push_back(static_cast<Recompute>(mode));
    }
    return RecomputeRules(std::move(modes));
}

/// Up to four outputs that are read by a piece which is not the next one.
std::vector<StagePair> drawn_skips(int pieces) {
    std::set<StagePair> skips;
    for (int i = number(1, 4); i > 0; --i) {
        const int from = number(0, pieces - 3);
        skips.insert({.from = from, .to = number(from + 2, pieces - 1)});
    }
    return {skips.begin(), skips.end()};
}

Pipeline drawn_pipeline(ScheduleKind kind) {
    const auto& shapes = shapes_of(kind);
    Pipeline x;
    x.kind = kind;
    x.shape = shapes[static_cast<std::size_t>(number(0, static_cast<int>(shapes.size()) - 1))];
    const auto pieces =
        static_cast<std::size_t>(x.shape.ranks) * static_cast<std::size_t>(x.shape.chunks);
    for (auto* list : {&x.forward, &x.backward_input, &x.backward_weight, &x.recompute}) {
        *list = numbers(pieces, 0, 9);
    }
    x.latency = numbers(2 * pieces, 0, 9);
    if (number(0, 1) == 1) {
        x.transfer = numbers(2, 0, 5);
    }
    x.mode = drawn_modes(number(0, 1) == 1 ? pieces : 1);
    x.timing = static_cast<RecomputeTiming>(number(0, 1));
    if (pieces > 2 && number(0, 2) == 0) {
        x.skips = drawn_skips(static_cast<int>(pieces));
    }
    return x;
}

}  // namespace

Pipeline random_pipeline(ScheduleKind kind) {
    return *rc::gen::exec([kind] { return drawn_pipeline(kind); });
}

Pipeline random_pipeline() {
    const auto kinds = known_schedules();
    const int last = static_cast<int>(kinds.size()) - 1;
    return random_pipeline(kinds[static_cast<std::size_t>(number(0, last))].kind);
}

namespace {

std::vector<Duration> in_milliseconds(const std::vector<int>& numbers) {
    std::vector<Duration> result(numbers.size());
    std::ranges::transform(numbers, result.begin(), [](int ms) { return milliseconds(ms); });
    return result;
}

}  // namespace

Plan plan_of(const Pipeline& x, std::optional<int> capacity) {
    PlainCosts costs;
    costs.schedule = x.kind;
    costs.schedule_name = to_string(x.kind);
    costs.shape = x.shape;
    costs.forward = in_milliseconds(x.forward);
    costs.backward_input = in_milliseconds(x.backward_input);
    costs.backward_weight = in_milliseconds(x.backward_weight);
    costs.recompute_cost = in_milliseconds(x.recompute);
    costs.recompute = x.mode;
    costs.recompute_timing = x.timing;
    costs.channel_capacity = capacity;
    costs.skips = x.skips;
    if (!x.transfer.empty()) {
        costs.link.bytes_per_second = 1e9;
        costs.boundary = Bytes{x.transfer[0] * 1'000'000LL};
        costs.link.half_bandwidth = Bytes{x.transfer[1] * 1'000'000LL};
    }
    const Plan plan = make_plan(costs);
    std::vector<LinkCost> links = plan->links;
    for (std::size_t pair = 0; pair < links.size(); ++pair) {
        links[pair].latency = milliseconds(x.latency[pair % x.latency.size()]);
    }
    return plan.with_costs(plan->costs, links);
}

namespace {

/// REDUCE_GRAD behind the last backward of every stage.
Schedule with_reduction_of_every_stage(Schedule schedule) {
    for (auto& row : schedule.ranks) {
        for (int stage = 0; stage < schedule.stage_count(); ++stage) {
            const auto last = std::find_if(row.rbegin(), row.rend(), [stage](const Action& action) {
                return action.stage == stage &&
                       (action.op == Op::Backward || action.op == Op::BackwardInput ||
                        action.op == Op::BackwardWeight);
            });
            if (last != row.rend()) {
                row.insert(last.base(), {.op = Op::ReduceGradient, .stage = stage});
            }
        }
    }
    return schedule;
}

}  // namespace

Plan plan_with_updates(const Pipeline& x, std::optional<int> capacity) {
    PlanParts parts = plan_of(x, capacity).parts();
    parts.transfer = static_cast<TransferMode>(number(0, 2));
    if (number(0, 1) == 1) {
        parts.overlap_reduction = number(0, 1) == 1;
        for (int stage = 0; stage < parts.schedule.stage_count(); ++stage) {
            parts.all_reduce.push_back(milliseconds(number(0, 9)));
        }
        if (parts.overlap_reduction && number(0, 1) == 1) {
            for (int stage = 0; stage < parts.schedule.stage_count(); ++stage) {
                parts.bucketed_sums.push_back({.head = milliseconds(number(0, 9)),
                                               .tail = milliseconds(number(0, 3)),
                                               .slowed = milliseconds(number(0, 2))});
            }
        }
        parts.schedule = with_reduction_of_every_stage(std::move(parts.schedule));
    } else {
        if (!weight_sharing_stage(parts.schedule, 0) && parts.schedule.stage_count() > 1 &&
            number(0, 1) == 1) {
            parts.schedule.tied_ends = true;
            parts.tied_gradient = Bytes{number(0, 4) * 1'000'000LL};
            parts.reductions.assign(parts.schedule.rank_of_stage.size(), LinkCost{});
            for (LinkCost& link : parts.reductions) {
                link.latency = milliseconds(number(0, 3));
                link.bytes_per_second = 1e9;
            }
        }
        parts.schedule = add_reduction(std::move(parts.schedule));
    }
    parts.schedule = add_optimizer(std::move(parts.schedule), number(0, 1) == 1);
    for (StageState& state : parts.states) {
        state.optimizer = milliseconds(number(0, 4));
        state.norm = milliseconds(number(0, 4));
        state.weights = Bytes{number(0, 4'000'000)};
    }
    return Plan::make(std::move(parts));
}

Plan with_offload(const Plan& plan) {
    PlanParts parts = plan.parts();
    const Bytes boundary{number(0, 4) * 1'000'000LL};
    for (auto& of_pairs : parts.message_bytes) {
        std::ranges::fill(of_pairs, boundary);
    }
    for (auto& of_class : parts.costs) {
        for (std::size_t stage = 0; stage < of_class.size(); ++stage) {
            StageCost& cost = of_class[stage];
            const auto skips = [&](int StagePair::*end) {
                return std::ranges::count(parts.schedule.skips, static_cast<int>(stage), end);
            };
            cost.input = (1 + skips(&StagePair::to)) * boundary;
            cost.output = (1 + skips(&StagePair::from)) * boundary;
            cost.saved = cost.input + Bytes{number(0, 4) * 1'000'000LL};
            cost.forward_drop_peak = cost.saved + cost.output;
            cost.backward_peak = cost.saved + cost.output + cost.input;
        }
    }
    parts.host_link = LinkCost{.latency = milliseconds(number(0, 3)),
                               .bytes_per_second = 0.5e9 * (1 << number(0, 2)),
                               .half_bandwidth = Bytes{number(0, 2) * 1'000'000LL}};
    return Plan::make(std::move(parts));
}

}  // namespace pipetwin::sim
