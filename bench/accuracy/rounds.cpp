// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/rounds.h"

#include "bench/accuracy/calibration_rounds.h"
#include "bench/accuracy/fit_interference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "core/base/median.h"
#include "core/timeline/compare.h"
#include "core/timeline/footprint.h"
#include "core/timeline/metrics.h"
#include "exec/base/cores.h"
#include "exec/base/noise.h"
#include "exec/data/random_batch.h"
#include "exec/profiling/calibrate.h"
#include "exec/profiling/measured_pipeline.h"
#include "exec/profiling/profiler.h"
#include "exec/replicas/replicas.h"
#include "sim/simulate/replay_error.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::accuracy {

namespace {

constexpr int warm_up_steps = 2;

/// Which runs of two ranks the interference is fitted to. Their numbers of micro-batches and their
/// partition are none of the grid's.
struct ShortRun {
    int micro_batches;
    int micro_batch_size;
    const char* schedule;
};
constexpr std::array short_runs{
    ShortRun{6, 2, "1f1b"}, ShortRun{3, 4, "gpipe"}, ShortRun{6, 1, "gpipe"}};

SettledScenario scenario_of(const ShortRun& run, const GridOptions& options, Precision precision) {
    GridCell cell{.stages = 2,
                  .micro_batches = run.micro_batches,
                  .schedule = run.schedule,
                  .precision = precision};
    SettledScenario scenario = accuracy::scenario_of(cell, options);
    scenario.training.batch = run.micro_batches * run.micro_batch_size;
    std::vector<int> layers = *scenario.pipeline.partition;
    ++layers.front();
    --layers.back();
    scenario.pipeline.partition = layers;
    return scenario;
}

std::vector<int> sizes_of(const GridOptions& options) {
    std::set<int> sizes;
    for (const int micro_batches : {1, 2, 4, 8, 16}) {
        for (const int size : micro_batch_sizes(options.batch, micro_batches)) {
            sizes.insert(size);
        }
    }
    return {sizes.begin(), sizes.end()};
}

struct Round {
    Plan plan;  ///< with this round's costs
    Timeline predicted;
    Timeline measured;

    double ratio() const {
        return to_seconds(step_time(predicted)) / to_seconds(step_time(measured));
    }
};

struct Rounds {
    std::vector<Round> clean;
    std::vector<Bytes> peaks;  ///< measured, per rank
    RoundsVerdict verdict;
};

RoundsVerdict verdict_of(const std::vector<Round>& clean, int all) {
    std::vector<double> ratios;
    std::vector<Duration> steps;
    for (const Round& round : clean) {
        ratios.push_back(round.ratio());
        steps.push_back(step_time(round.measured));
    }
    const auto count = static_cast<int>(clean.size());
    return {.clean = count,
            .dropped = all - count,
            .p90_over_p10 = exec::p90_over_p10(steps),
            .standard_error = middle_of(std::move(ratios)).standard_error};
}

/// What a plan's costs come from, round by round.
class RoundCosts {
  public:
    RoundCosts() = default;
    RoundCosts(const RoundCosts&) = delete;
    RoundCosts& operator=(const RoundCosts&) = delete;
    virtual ~RoundCosts() = default;

    /// Measures a round; the plan with its costs.
    virtual Plan next() = 0;
    /// The largest share of the last round's steps that was lost to other programs.
    virtual double stolen() const = 0;
    /// Steps of the plan in a round, of which the last is compared: more than one where the costs
    /// are of steps that found the caches as the step before had left them.
    virtual int steps_of_plan() const { return 1; }
};

/// Costs of ranks that divide nothing: what one step of every setting took.
class CostsOfSettings final : public RoundCosts {
  public:
    CostsOfSettings(const SettledScenario& scenario,
                    const Model& model,
                    const Calibration& base,
                    const GridOptions& options)
        : scenario_(scenario), model_(model), base_(base), costs_(model, how(options)) {}

    Plan next() override {
        CalibrationRounds::Round now = costs_.next();
        stolen_ = now.stolen;
        base_.runs = std::move(now.runs);
        return calibrated_plan(scenario_, model_, base_);
    }
    double stolen() const override { return stolen_; }

  private:
    RoundsOptions how(const GridOptions& options) const {
        RoundsOptions rounds;
        rounds.precision = scenario_.training.precision;
        rounds.settings =
            settings_needed(scenario_,
                            model_,
                            base_.bytes,
                            calibration_settings(sizes_of(options), options.batch, grid_workers()));
        return rounds;
    }

    const SettledScenario& scenario_;
    const Model& model_;
    Calibration base_;
    CalibrationRounds costs_;
    double stolen_ = 0;
};

/// Costs of devices or replicas that divide layers: what `profile` measures of them in a pipeline
/// of other numbers of micro-batches, their messages included.
class CostsOfGroups final : public RoundCosts {
  public:
    CostsOfGroups(const SettledScenario& scenario, const Model& model)
        : scenario_(scenario),
          model_(model),
          sizes_(exec::profiler_options(scenario)),
          base_(exec::unmeasured_profile(model, sizes_)),
          costs_(make_plan(with_other_micro_batches(scenario), model, base_), model, sizes_) {}

    Plan next() override {
        costs_.forget();
        costs_.measure(1);
        return make_plan(scenario_, model_, costs_.profile(base_));
    }
    double stolen() const override { return costs_.stolen(); }
    int steps_of_plan() const override { return 2; }

  private:
    /// The scenario with micro-batches of the same size: three quarters as many, and 3 at least.
    static SettledScenario with_other_micro_batches(SettledScenario scenario) {
        const int size = replica_batch(scenario) / scenario.pipeline.micro_batches;
        constexpr int fewest = 3;
        const int others = std::max(fewest, 3 * scenario.pipeline.micro_batches / 4);
        scenario.pipeline.micro_batches = others;
        scenario.training.batch = others * size * scenario.pipeline.data_parallel;
        return scenario;
    }

    const SettledScenario& scenario_;
    const Model& model_;
    exec::ProfilerOptions sizes_;
    Profile base_;
    exec::ProfileRounds costs_;
};

/// A plan, step by step beside what its costs come from. Every round is predicted with its own
/// costs.
Rounds measured_rounds(const SettledScenario& scenario,
                       const Model& model,
                       RoundCosts& costs,
                       const GridOptions& options) {
    const Plan plan = sim::with_settled_capacity(costs.next());
    exec::Replicas pipelines(plan, model, exec::executor_options(scenario));
    const exec::Batch batch = exec::random_batch(model, scenario.training.batch, 1);
    Rounds rounds;
    exec::StepResult step;
    for (int index = 0; index < warm_up_steps; ++index) {
        pipelines.run_step(batch, index, step);
    }
    const auto is_enough = [&] {
        return rounds.verdict.clean >= options.fewest_rounds &&
               rounds.verdict.standard_error <= options.wanted_error;
    };
    for (int index = 0; index < options.most_rounds && !is_enough(); ++index) {
        const Plan now = costs.next();
        for (int each = 0; each < costs.steps_of_plan(); ++each) {
            pipelines.run_step(batch, warm_up_steps + index, step);
        }
        rounds.peaks.resize(step.peak.size());
        for (std::size_t rank = 0; rank < step.peak.size(); ++rank) {
            rounds.peaks[rank] = std::max(rounds.peaks[rank], step.peak[rank].total());
        }
        const double stolen = std::max(costs.stolen(), step.stolen);
        if (stolen <= most_stolen_of_a_round || !options.insists_on_gate) {
            Plan own = now.with_capacity(plan->channel_capacity.value());
            Timeline predicted = sim::simulate(own);
            rounds.clean.push_back({.plan = std::move(own),
                                    .predicted = std::move(predicted),
                                    .measured = aligned(step.timeline)});
        }
        rounds.verdict = verdict_of(rounds.clean, index + 1);
    }
    return rounds;
}

double error_of(const std::vector<Round>& rounds, std::size_t begin, std::size_t end) {
    std::vector<double> ratios;
    for (std::size_t round = begin; round < end; ++round) {
        ratios.push_back(rounds[round].ratio());
    }
    return middle_of(std::move(ratios)).value - 1;
}

}  // namespace

bool Scalars::passes() const {
    return std::ranges::all_of(short_runs, &RoundsVerdict::passes);
}

std::string short_run_name(std::size_t index) {
    const ShortRun& run = short_runs.at(index);
    return fmt::format("{} ({} x {})", run.schedule, run.micro_batches, run.micro_batch_size);
}

int grid_workers() {
    return exec::allowed_cores().size() > 1 ? 2 : 1;
}

Profile grid_sizes(const Model& model, const GridOptions& options, Precision precision) {
    exec::ProfilerOptions sizes;
    sizes.precision = precision;
    sizes.micro_batch_sizes = sizes_of(options);
    return exec::unmeasured_profile(model, sizes);
}

Scalars measured_scalars(const Model& model,
                         const GridOptions& options,
                         Precision precision,
                         const Said& say) {
    Scalars scalars;
    scalars.base.bytes = grid_sizes(model, options, precision);
    scalars.base.bytes.links = {fitted_link(exec::transfer_ladder())};
    if (grid_workers() == 1) {
        return scalars;
    }
    std::vector<Rounds> runs;
    std::vector<Duration> hops;
    for (std::size_t index = 0; index < short_runs.size(); ++index) {
        say("short run " + short_run_name(index));
        const SettledScenario scenario = scenario_of(short_runs.at(index), options, precision);
        CostsOfSettings costs(scenario, model, scalars.base, options);
        runs.push_back(measured_rounds(scenario, model, costs, options));
        scalars.short_runs.push_back(runs.back().verdict);
        for (const Round& round : runs.back().clean) {
            std::ranges::copy(exec::hops_of(round.measured), std::back_inserter(hops));
        }
    }
    // Of messages that were waited for, often so long that the receiver had to be woken.
    scalars.hop = exec::quantile(hops, 0.5);
    LinkCost& link = scalars.base.bytes.links.front();
    link.latency = std::max(link.latency, scalars.hop);
    std::vector<FitCase> cases;
    for (const Rounds& run : runs) {
        FitCase& one = cases.emplace_back();
        for (const Round& round : run.clean) {
            PlanParts parts = round.plan.parts();
            parts.links = scalars.base.bytes.links;
            one.steps.push_back(
                {.plan = Plan::make(std::move(parts)), .measured = step_time(round.measured)});
        }
        if (one.steps.empty()) {
            return scalars;  // which the gate refuses
        }
    }
    const InterferenceFit fit = fit_interference(cases);
    scalars.base.interference = fit.interference;
    scalars.fit_error_percent = fit.error_percent;
    scalars.leave_one_out_percent = fit.leave_one_out_percent;
    return scalars;
}

CellResult measured_cell(const GridCell& cell,
                         const Model& model,
                         const Calibration& base,
                         const GridOptions& options) {
    const SettledScenario scenario = accuracy::scenario_of(cell, options);
    std::unique_ptr<RoundCosts> costs;
    if (cell.is_divided()) {
        costs = std::make_unique<CostsOfGroups>(scenario, model);
    } else {
        costs = std::make_unique<CostsOfSettings>(scenario, model, base, options);
    }
    const Rounds rounds = measured_rounds(scenario, model, *costs, options);
    CellResult result;
    result.cell = to_string(cell);
    result.verdict = rounds.verdict;
    if (rounds.clean.empty()) {
        return result;
    }
    TimelineSet predicted;
    TimelineSet measured;
    std::vector<double> bubbles;
    std::vector<double> replays;
    for (const Round& round : rounds.clean) {
        predicted.steps.push_back(round.predicted);
        measured.steps.push_back(round.measured);
        TimelineSet one_predicted;
        one_predicted.steps = {round.predicted};
        TimelineSet one_measured;
        one_measured.steps = {round.measured};
        const Comparison one = compare(one_predicted, one_measured);
        bubbles.push_back(one.predicted_bubble_total - one.measured_bubble_total);
        const Duration replayed = sim::replay_of_own_durations(round.plan, round.measured);
        replays.push_back(to_seconds(replayed) / to_seconds(step_time(round.measured)) - 1);
    }
    const Comparison all = compare(predicted, measured);
    const std::size_t half = rounds.clean.size() / 2;
    result.predicted = all.step.predicted;
    result.measured = all.step.measured;
    result.error = error_of(rounds.clean, 0, rounds.clean.size());
    result.noise_floor = std::abs(error_of(rounds.clean, 0, half) -
                                  error_of(rounds.clean, half, rounds.clean.size()));
    result.replay_error = median(std::move(replays));
    result.bubble_difference = median(std::move(bubbles));
    const std::vector<MemoryUse> peaks = peak_memory(rounds.clean.front().plan);
    for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
        const std::int64_t difference =
            std::abs(peaks[rank].total().count - rounds.peaks[rank].count);
        result.memory_difference = std::max(result.memory_difference, difference);
    }
    for (const ActionDelta& delta : all.actions) {
        if (!is_send(delta.action.op) && !is_receive(delta.action.op)) {
            Pair& part =
                result.parts[fmt::format("{}{}", delta.action.stage, op_text(delta.action.op))];
            part.predicted += delta.duration.predicted;
            part.measured += delta.duration.measured;
        }
    }
    return result;
}

}  // namespace pipetwin::accuracy
