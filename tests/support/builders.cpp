// SPDX-License-Identifier: Apache-2.0
#include "tests/support/builders.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin::testing {

PlainCosts uniform_costs(const Uniform& what) {
    const auto stages = static_cast<std::size_t>(what.ranks);
    PlainCosts costs;
    costs.schedule = what.kind;
    costs.schedule_name = to_string(what.kind);
    costs.shape = {.ranks = what.ranks, .micro_batches = what.micro_batches};
    costs.forward.assign(stages, what.forward);
    costs.backward.assign(stages, what.backward);
    if (what.recompute_cost) {
        costs.recompute_cost.assign(stages, *what.recompute_cost);
    }
    costs.recompute = what.recompute;
    costs.recompute_timing = what.timing;
    costs.link = {.latency = what.latency, .bytes_per_second = what.bytes_per_second};
    costs.boundary = what.boundary;
    costs.channel_capacity = what.capacity;
    return costs;
}

Plan uniform_plan(const Uniform& what) {
    return make_plan(uniform_costs(what));
}

Plan uniform_plan(
    ScheduleKind kind, int ranks, int micro_batches, Duration forward, Duration backward) {
    return uniform_plan({.kind = kind,
                         .ranks = ranks,
                         .micro_batches = micro_batches,
                         .forward = forward,
                         .backward = backward});
}

PlainCosts staged_costs(ScheduleKind kind,
                        int micro_batches,
                        std::vector<Duration> forward,
                        std::vector<Duration> backward) {
    PlainCosts costs = uniform_costs(
        {.kind = kind, .ranks = static_cast<int>(forward.size()), .micro_batches = micro_batches});
    costs.forward = std::move(forward);
    costs.backward = std::move(backward);
    return costs;
}

Schedule lowered(ScheduleKind kind,
                 const ScheduleShape& shape,
                 const RecomputeRules& recompute,
                 RecomputeTiming timing) {
    return lower(generate(kind, shape),
                 {.recompute = recompute, .timing = timing, .updates = true},
                 to_string(kind));
}

std::string to_string(const ShapedSchedule& schedule) {
    return fmt::format("{}, {} ranks, {} chunks, {} micro-batches",
                       pipetwin::to_string(schedule.kind),
                       schedule.shape.ranks,
                       schedule.shape.chunks,
                       schedule.shape.micro_batches);
}

std::vector<ShapedSchedule> every_schedule(const std::vector<int>& ranks,
                                           const std::vector<int>& chunks,
                                           const std::vector<int>& micro_batches) {
    std::vector<ShapedSchedule> result;
    const auto add_where_taken = [&result](ScheduleKind kind, const ScheduleShape& shape) {
        try {
            generate(kind, shape);
            result.push_back({kind, shape});
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::Infeasible) << error.text();
        }
    };
    for (const ScheduleName& known : known_schedules()) {
        const std::size_t before = result.size();
        for (const int p : ranks) {
            for (const int v : chunks) {
                for (const int m : micro_batches) {
                    add_where_taken(known.kind, {.ranks = p, .chunks = v, .micro_batches = m});
                }
            }
        }
        EXPECT_GT(result.size(), before) << "no shape of " << known.name;
    }
    return result;
}

bool weights_follow_inputs(const Schedule& schedule) {
    std::map<int, std::vector<int>> inputs;  // of a stage: micro-batches
    std::map<int, std::vector<int>> weights;
    for (const auto& row : schedule.ranks) {
        for (const Action& action : row) {
            if (action.op == Op::BackwardInput || action.op == Op::Backward) {
                inputs[action.stage].push_back(action.micro_batch);
            }
            if (action.op == Op::BackwardWeight || action.op == Op::Backward) {
                weights[action.stage].push_back(action.micro_batch);
            }
        }
    }
    return inputs == weights;
}

Action action_of(std::string_view text) {
    constexpr int last_op = static_cast<int>(Op::Optimizer);
    for (int op = 0; op <= last_op; ++op) {
        Action action{.op = static_cast<Op>(op)};
        const std::size_t digits = text.find_first_not_of("0123456789");
        std::from_chars(text.data(), text.data() + text.size(), action.stage);
        const std::size_t micro_batch = digits + op_text(action.op).size();
        if (digits < text.size() && micro_batch < text.size()) {
            std::from_chars(
                text.data() + micro_batch, text.data() + text.size(), action.micro_batch);
        }
        if (to_string(action) == text) {
            return action;
        }
    }
    throw std::invalid_argument("not an action: " + std::string(text));
}

Schedule schedule_of(std::initializer_list<std::string_view> rows) {
    Schedule schedule;
    for (const std::string_view row : rows) {
        std::istringstream cells{std::string(row)};
        auto& actions = schedule.ranks.emplace_back();
        for (std::string cell; cells >> cell;) {
            const Action action = action_of(cell);
            actions.push_back(action);
            const auto stage = static_cast<std::size_t>(action.stage);
            if (stage >= schedule.rank_of_stage.size()) {
                schedule.rank_of_stage.resize(stage + 1, -1);
            }
            if (schedule.rank_of_stage[stage] < 0) {
                schedule.rank_of_stage[stage] = schedule.rank_count() - 1;
            }
            schedule.micro_batches = std::max(schedule.micro_batches, action.micro_batch + 1);
        }
    }
    for (int stage = 0; stage < schedule.stage_count(); ++stage) {
        schedule.weights_of_stage.push_back(stage);
    }
    return schedule;
}

std::string row_text(const Schedule& schedule, int rank) {
    std::string text;
    for (const Action& action : schedule.ranks.at(static_cast<std::size_t>(rank))) {
        text += (text.empty() ? "" : " ") + to_string(action);
    }
    return text;
}

}  // namespace pipetwin::testing
