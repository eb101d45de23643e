// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/layer_costs.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin::accuracy {

namespace {

/// The most micro-batches that are between their forward and the end of their backward, over all
/// ranks, in stashes of the whole model: what is kept of them where nothing is recomputed.
double stashes_of(const Plan& plan) {
    Bytes most{};
    for (const std::vector<Action>& row : plan->schedule.ranks) {
        const bool splits = std::ranges::find(row, Op::BackwardWeight, &Action::op) != row.end();
        Bytes kept{};
        Bytes peak{};
        for (const Action& action : row) {
            if (action.op == Op::Forward) {
                kept += plan.cost(action.stage, 0).saved;
                peak = std::max(peak, kept);
            } else if (action.op == (splits ? Op::BackwardWeight : Op::Backward)) {
                kept -= plan.cost(action.stage, 0).saved;
            }
        }
        most += peak;
    }
    Bytes one{};
    for (const int stage : plan->schedule.weights_of_stage) {
        one += plan.cost(stage, 0).saved;
    }
    return one > Bytes{} ? static_cast<double>(most.count) / static_cast<double>(one.count) : 1;
}

using Held = std::vector<std::vector<CalibrationSetting::Piece>>;

/// What a worker has to hold that stands for a rank; empty where that is all the model, or where
/// what a rank has is no chain of layers.
Held held_by_ranks(const Plan& plan, const Model& model) {
    const Schedule& schedule = plan->schedule;
    Held held(static_cast<std::size_t>(plan.rank_count()));
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        const std::size_t index = as_index(stage);
        if (schedule.weights_of_stage[index] != stage) {
            return {};  // held twice
        }
        std::vector<CalibrationSetting::Piece>& pieces =
            held[as_index(schedule.rank_of_stage[index])];
        const CalibrationSetting::Piece piece{plan->partition->first_layer(stage),
                                              plan->partition->layers_in(stage)};
        if (!pieces.empty()) {
            const int last = pieces.back().first + pieces.back().count - 1;
            if (!(model.layer(last).output == model.layer(piece.first).input)) {
                return {};
            }
        }
        pieces.push_back(piece);
    }
    return plan.stage_count() > 1 ? held : Held{};
}

/// The kind of setting that a part of a cost comes from.
struct Kind {
    bool recomputes = false;
    bool splits = false;
};

/// Which kinds a plan has, and what is nearest to it of each.
class Needs {
  public:
    Needs(const Plan& plan, const Model& model)
        : plan_(plan),
          workers_(plan.rank_count() > 1 ? 2 : 1),
          stashes_(stashes_of(plan)),
          held_(held_by_ranks(plan, model)) {}

    /// The candidates as a plan like this has them.
    std::vector<CalibrationSetting> with_held(std::vector<CalibrationSetting> candidates) const {
        for (CalibrationSetting& candidate : candidates) {
            const bool takes_turns = !held_.empty() && held_.front().size() > 1;
            if (std::cmp_equal(candidate.workers, held_.size()) &&
                !(candidate.splits && takes_turns)) {
                candidate.held = held_;
            }
        }
        return candidates;
    }

    bool splits() const {
        return std::ranges::any_of(plan_->schedule.ranks, [](const std::vector<Action>& row) {
            return std::ranges::find(row, Op::BackwardWeight, &Action::op) != row.end();
        });
    }

    /// The share of the stage's micro-batches that are computed again.
    double recomputed_share(int stage) const {
        const int piece = plan_->schedule.weights_of_stage[as_index(stage)];
        int count = 0;
        for (int k = 0; k < plan_.micro_batches(); ++k) {
            count += recomputes(plan_->recompute.of(piece), k, plan_.micro_batches()) ? 1 : 0;
        }
        return static_cast<double>(count) / plan_.micro_batches();
    }

    std::vector<Kind> kinds(int stage) const {
        const double share = recomputed_share(stage);
        std::vector<Kind> all;
        if (share < 1 || splits()) {
            all.push_back({.splits = splits()});
        }
        if (share > 0) {
            all.push_back({.recomputes = true});
        }
        return all;
    }

    const CalibrationSetting& nearest(const std::vector<CalibrationSetting>& candidates,
                                      int size,
                                      Kind kind) const {
        const CalibrationSetting* best = nullptr;
        // Whether it holds other layers, then how far it is.
        std::pair least{true, std::numeric_limits<double>::infinity()};
        for (const CalibrationSetting& candidate : candidates) {
            const bool fits =
                candidate.micro_batch_size == size && candidate.recomputes == kind.recomputes &&
                candidate.splits == kind.splits && (candidate.workers > 1) == (workers_ > 1) &&
                (candidate.held.empty() || candidate.held == held_);
            const int models = candidate.held.empty() ? candidate.workers : 1;
            const std::pair far{candidate.held != held_,
                                std::abs(std::log(candidate.live_stashes * models / stashes_))};
            if (fits && far < least) {
                best = &candidate;
                least = far;
            }
        }
        if (best == nullptr) {
            throw Error(ErrorKind::BadInput,
                        "calibration",
                        fmt::format("nothing was measured of {} samples{}{} on {} core{}",
                                    size,
                                    kind.recomputes ? " with recompute" : "",
                                    kind.splits ? " with a split backward" : "",
                                    workers_,
                                    workers_ == 1 ? "" : "s"),
                        "calibrate for this scenario, too");
        }
        return *best;
    }

  private:
    const Plan& plan_;
    int workers_;
    double stashes_;
    Held held_;
};

class CalibratedCosts {
  public:
    CalibratedCosts(const Plan& plan, const Model& model, const Calibration& calibration)
        : plan_(plan),
          calibration_(calibration),
          needs_(plan, model),
          factor_(plan.rank_count() > 1 ? 1 / (1 + calibration.interference) : 1) {
        for (const CalibrationRun& run : calibration.runs) {
            settings_.push_back(run.setting);
        }
    }

    std::vector<std::vector<StageCost>> costs() const {
        std::vector<std::vector<StageCost>> all = plan_->costs;
        for (std::size_t cost_class = 0; cost_class < all.size(); ++cost_class) {
            for (int stage = 0; stage < plan_.stage_count(); ++stage) {
                fill(
                    all[cost_class][as_index(stage)], stage, size_of(static_cast<int>(cost_class)));
            }
        }
        return all;
    }

    Duration optimizer(int stage) const {
        return sum(run(size_of(0), needs_.kinds(stage).front()), stage, &LayerTimes::optimizer);
    }

    Duration dispatch() const { return run(size_of(0), needs_.kinds(0).front()).dispatch; }

  private:
    int size_of(int cost_class) const {
        const auto first = std::ranges::find(plan_->cost_class, cost_class);
        return plan_->micro_batch_sizes[as_index(first - plan_->cost_class.begin())];
    }

    const CalibrationRun& run(int size, Kind kind) const {
        return *std::ranges::find(
            calibration_.runs, needs_.nearest(settings_, size, kind), &CalibrationRun::setting);
    }

    Duration sum(const CalibrationRun& run, int stage, Duration LayerTimes::*part) const {
        const std::size_t index = as_index(stage);
        const int piece = plan_->schedule.weights_of_stage[index];
        const std::size_t rank = as_index(plan_->schedule.rank_of_stage[index]);
        const std::vector<LayerTimes>& layers = run.cores[rank % run.cores.size()];
        const int first = plan_->partition->first_layer(piece);
        Duration sum{};
        for (int layer = first; layer < first + plan_->partition->layers_in(piece); ++layer) {
            sum += layers.at(as_index(layer)).*part;
        }
        return scaled(sum, factor_);
    }

    /// The mean over the micro-batches with recompute and without.
    Duration mix(int stage, int size, bool splits, Duration LayerTimes::*part) const {
        const double share = needs_.recomputed_share(stage);
        const auto of = [&](Kind kind) { return sum(run(size, kind), stage, part); };
        Duration mean{};
        if (share > 0) {
            mean += scaled(of({.recomputes = true}), share);
        }
        if (share < 1) {
            mean += scaled(of({.splits = splits}), 1 - share);
        }
        return mean;
    }

    void fill(StageCost& cost, int stage, int size) const {
        const bool splits = needs_.splits();
        cost.forward = mix(stage, size, splits, &LayerTimes::forward);
        cost.recompute = {};
        if (needs_.recomputed_share(stage) > 0) {
            cost.recompute = sum(run(size, {.recomputes = true}), stage, &LayerTimes::recompute);
        }
        if (splits) {
            const CalibrationRun& split = run(size, {.splits = true});
            cost.backward_input = sum(split, stage, &LayerTimes::backward_input);
            cost.backward_weight = sum(split, stage, &LayerTimes::backward_weight);
            cost.backward = cost.backward_input + cost.backward_weight;
        } else {
            cost.backward = mix(stage, size, false, &LayerTimes::backward_input) +
                            mix(stage, size, false, &LayerTimes::backward_weight);
            cost.backward_input = cost.backward / 2;
            cost.backward_weight = cost.backward - cost.backward_input;
        }
    }

    const Plan& plan_;
    const Calibration& calibration_;
    Needs needs_;
    std::vector<CalibrationSetting> settings_;
    double factor_ = 1;
};

}  // namespace

std::vector<CalibrationSetting> settings_needed(const SettledScenario& scenario,
                                                const Model& model,
                                                const Profile& bytes,
                                                const std::vector<CalibrationSetting>& candidates) {
    const Plan plan = make_plan(scenario, model, bytes);
    const Needs needs(plan, model);
    const std::vector<CalibrationSetting> held = needs.with_held(candidates);
    std::set<CalibrationSetting> needed;
    for (const int size :
         std::set(plan->micro_batch_sizes.begin(), plan->micro_batch_sizes.end())) {
        for (int stage = 0; stage < plan.stage_count(); ++stage) {
            for (const Kind kind : needs.kinds(stage)) {
                needed.insert(needs.nearest(held, size, kind));
            }
        }
    }
    return {needed.begin(), needed.end()};
}

Plan calibrated_plan(const SettledScenario& scenario,
                     const Model& model,
                     const Calibration& calibration) {
    const Plan plain = make_plan(scenario, model, calibration.bytes);
    const CalibratedCosts costs(plain, model, calibration);
    PlanParts parts = plain.parts();
    parts.costs = costs.costs();
    const int slots = optimizer_state(scenario).numbers;
    for (int stage = 0; stage < plain.stage_count(); ++stage) {
        StageState& state = parts.states[as_index(stage)];
        state.optimizer =
            costs.optimizer(stage) / state_shards(scenario, calibration.bytes).optimizer;
        state.norm = norm_time(state.optimizer, slots);
    }
    parts.dispatch = costs.dispatch();
    const auto ranks = static_cast<std::size_t>(plain.rank_count());
    if (ranks > 1 && calibration.interference > 0) {
        parts.contention.interference.assign(ranks,
                                             std::vector<double>(ranks, calibration.interference));
    }
    return Plan::make(std::move(parts));
}

}  // namespace pipetwin::accuracy
