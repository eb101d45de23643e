// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/path_shares.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/plan/plan.h"
#include "core/schedule/edge.h"
#include "sim/explain/explanation.h"
#include "sim/explain/sensitivity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::gui {

namespace {

using sim::Conditions;
using sim::Part;
using sim::Target;

constexpr std::int64_t most_evaluations = 20'000'000;  ///< actions, in all

/// The part that a share is of.
struct Group {
    enum class By { Kind, Stage, Link };
    By by{};
    Op op{};  ///< of a kind: all messages are SEND_F, all updates OPT
    bool host_copy = false;
    bool dispatch = false;  ///< the host's time in all actions, whatever their `op`
    int index = 0;          ///< of a stage, of a pair of stages

    auto operator<=>(const Group&) const = default;
};

Op kind_of(Op op) {
    return is_message(op) ? Op::SendForward : uses_gradients(op) ? Op::Optimizer : op;
}

std::string name_of(const Schedule& schedule, const Group& group) {
    switch (group.by) {
        case Group::By::Stage:
            return fmt::format("stage {}", group.index);
        case Group::By::Link:
            return fmt::format("link {} - {}",
                               stages_of_pair(schedule, as_index(group.index)).from,
                               stages_of_pair(schedule, as_index(group.index)).to);
        case Group::By::Kind:
            break;
    }
    if (group.host_copy) {
        return "copies of stashes";
    }
    if (group.dispatch) {
        return "dispatch";
    }
    return group.op == Op::SendForward ? "messages" : std::string(op_words(group.op));
}

/// The groups that a piece counts in.
std::vector<Group> groups_of(const Schedule& schedule, const PathPiece& piece) {
    const Op op = piece.action.op;
    std::vector<Group> groups{
        {.op = piece.host_copy ? Op::Forward : kind_of(op), .host_copy = piece.host_copy}};
    if (piece.host_copy) {
        return groups;
    }
    if (is_compute(op)) {
        groups.push_back({.by = Group::By::Stage, .index = piece.action.stage});
    } else if (is_send(op)) {
        groups.push_back({.by = Group::By::Link, .index = edge_of(schedule, piece.action) / 2});
    }
    return groups;
}

bool has_op(const Plan& plan, Op op) {
    return std::ranges::any_of(plan->schedule.ranks, [op](const auto& row) {
        return std::ranges::any_of(row, [op](const Action& action) { return action.op == op; });
    });
}

/// In the words of the sensitivity; none where they do not fit.
std::vector<Target> targets_of(const Plan& plan, const Group& group) {
    switch (group.by) {
        case Group::By::Stage:
            return {{.part = Part::Forward, .index = group.index},
                    {.part = Part::Backward, .index = group.index},
                    {.part = Part::Recompute, .index = group.index}};
        case Group::By::Link:
            return {{.part = Part::Link, .index = group.index}};
        case Group::By::Kind:
            break;
    }
    if (group.host_copy) {
        return {{.part = Part::HostLink}};
    }
    if (group.dispatch) {
        return {{.part = Part::Dispatch}};
    }
    switch (group.op) {
        case Op::Forward:
            return {{.part = Part::Forward}};
        case Op::Backward:
            // The part would make I and W faster, too.
            if (has_op(plan, Op::BackwardInput) || has_op(plan, Op::BackwardWeight)) {
                return {};
            }
            return {{.part = Part::Backward}};
        case Op::BackwardInput:
            return {{.part = Part::BackwardInput}};
        case Op::BackwardWeight:
            return {{.part = Part::BackwardWeight}};
        case Op::Recompute:
            return {{.part = Part::Recompute}};
        case Op::SendForward:
            return {{.part = Part::Link}};
        case Op::Optimizer:
            return {{.part = Part::Update}};
        case Op::ReduceGradient:
            return {{.part = Part::Reduction}};
        default:
            return {};
    }
}

Duration shortened(Duration time) {
    return Duration{
        static_cast<std::int64_t>(std::floor(static_cast<double>(time.count()) * faster_factor))};
}

void make_faster(LinkCost& link) {
    link.latency = shortened(link.latency);
    link.bytes_per_second /= faster_factor;
}

bool concerns(const Group& group, const Action& action) {
    return group.by == Group::By::Stage ? is_compute(action.op) && action.stage == group.index
                                        : group.by == Group::By::Kind && !group.host_copy &&
                                              !group.dispatch && kind_of(action.op) == group.op;
}

/// The time of the host that the duration of an action of the analysed step includes.
Duration host_time_in(const StepAnalysis& analysis, const Action& action, Duration duration) {
    if (!is_compute(action.op) && !(analysis.as_planned() && uses_gradients(action.op))) {
        return {};
    }
    const auto& side = analysis.run().side(analysis.side());
    const Duration dispatch = analysis.as_planned() ? analysis.plan()->dispatch
                              : side                ? side->dispatch.value_or(Duration{})
                                                    : Duration{};
    return std::min(dispatch, duration);
}

/// The conditions of a replay with all of a group faster.
Conditions faster(const StepAnalysis& analysis, Conditions conditions, const Group& group) {
    const Plan& plan = analysis.plan();
    const auto& rows = plan->schedule.ranks;
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        for (std::size_t cell = 0; cell < rows[rank].size(); ++cell) {
            Duration& duration = conditions.durations[rank][cell];
            const Duration host = host_time_in(analysis, rows[rank][cell], duration);
            if (group.dispatch) {
                duration -= host - shortened(host);
            } else if (concerns(group, rows[rank][cell])) {
                duration = host + shortened(duration - host);
            }
        }
    }
    const bool messages = group.by == Group::By::Kind && group.op == Op::SendForward;
    for (std::size_t boundary = 0; boundary < conditions.links.size(); ++boundary) {
        if (messages || (group.by == Group::By::Link && std::cmp_equal(group.index, boundary))) {
            make_faster(conditions.links[boundary]);
        }
    }
    for (double& rate : conditions.contention.shared_links) {
        rate /= messages ? faster_factor : 1;
    }
    if (group.host_copy && conditions.host_link) {
        make_faster(*conditions.host_link);
    }
    if (group.by == Group::By::Kind && group.op == Op::ReduceGradient) {
        for (Duration& time : conditions.overlapped_reductions) {
            time = shortened(time);
        }
        for (LinkCost& link : conditions.reductions) {
            make_faster(link);
        }
    }
    return conditions;
}

/// Asks the plan where the step is the plan's, and a replay of the step where it is not.
class Gains {
  public:
    explicit Gains(const StepAnalysis& analysis) : analysis_(analysis), plan_(analysis.plan()) {
        if (analysis.as_planned()) {
            sensitivity_.emplace(plan_);
        } else {
            conditions_ = sim::conditions_of(plan_, analysis.replayed());
        }
        const auto actions =
            static_cast<std::int64_t>(std::max<std::size_t>(1, sim::action_count(plan_)));
        // By events a step takes ten times as long and more.
        const std::int64_t budget =
            plan_->contention.any() ? most_evaluations / 20 : most_evaluations;
        left_ = std::max<std::int64_t>(8, budget / actions);
    }

    std::optional<Duration> of(const Group& group) {
        if (left_-- <= 0) {
            return std::nullopt;
        }
        if (!sensitivity_) {
            return analysis_.replayed_length() -
                   sim::replayed_step(plan_, faster(analysis_, conditions_, group));
        }
        const std::vector<Target> targets = targets_of(plan_, group);
        const auto can_answer = [this](const Target& target) {
            return sensitivity_->can_answer(target);
        };
        if (targets.empty() || !std::ranges::all_of(targets, can_answer)) {
            return std::nullopt;
        }
        return analysis_.length() - sensitivity_->step_if(targets, 1 / faster_factor);
    }

  private:
    const StepAnalysis& analysis_;
    const Plan& plan_;
    std::optional<sim::Sensitivity> sensitivity_;
    Conditions conditions_;
    std::int64_t left_ = 0;
};

}  // namespace

PathShares path_shares(const StepAnalysis& analysis) {
    PathShares result;
    if (!analysis.has_causes()) {
        return result;
    }
    const Schedule& schedule = analysis.plan()->schedule;
    std::map<Group, Duration> times;
    for (const PathPiece& piece : analysis.critical_path()) {
        const Duration time = piece.end - piece.begin;
        const Duration host =
            piece.host_copy ? Duration{} : host_time_in(analysis, piece.action, time);
        for (const Group& group : groups_of(schedule, piece)) {
            times[group] += time - host;
        }
        if (host > Duration{}) {
            times[{.dispatch = true}] += host;
        }
    }
    std::vector<std::pair<Group, Duration>> ordered(times.begin(), times.end());
    std::ranges::stable_sort(ordered, std::ranges::greater{}, &std::pair<Group, Duration>::second);
    Gains gains(analysis);
    for (const auto& [group, time] : ordered) {
        auto& shares = group.by == Group::By::Kind    ? result.kinds
                       : group.by == Group::By::Stage ? result.stages
                                                      : result.links;
        const double whole = std::max(1.0, static_cast<double>(analysis.replayed_length().count()));
        shares.push_back({.name = name_of(schedule, group),
                          .time = time,
                          .share = static_cast<double>(time.count()) / whole,
                          .gain = gains.of(group)});
    }
    result.predicted_messages =
        analysis.side() == Side::Measured && analysis.knows_plan_of_run() &&
        std::ranges::any_of(analysis.critical_path(),
                            [](const PathPiece& piece) { return is_send(piece.action.op); });
    result.unexplained = analysis.length() - analysis.replayed_length();
    return result;
}

}  // namespace pipetwin::gui
