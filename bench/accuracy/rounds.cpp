// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/rounds.h"

#include "bench/accuracy/calibration_rounds.h"
#include "bench/accuracy/fit_interference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "core/base/median.h"
#include "core/timeline/compare.h"
#include "core/timeline/footprint.h"
#include "core/timeline/metrics.h"
#include "exec/base/cores.h"
#include "exec/base/noise.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "exec/profiling/calibrate.h"
#include "exec/profiling/measured_pipeline.h"
#include "exec/profiling/profiler.h"
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

/// A plan, step by step beside what its costs come from. Every round is predicted with its own
/// costs.
Rounds measured_rounds(const SettledScenario& scenario,
                       const Model& model,
                       const Calibration& base,
                       const GridOptions& options) {
    RoundsOptions how;
    how.precision = scenario.training.precision;
    how.settings =
        settings_needed(scenario,
                        model,
                        base.bytes,
                        calibration_settings(sizes_of(options), options.batch, grid_workers()));
    CalibrationRounds costs(model, how);
    const auto plan_with = [&](std::vector<CalibrationRun> runs) {
        Calibration calibration = base;
        calibration.runs = std::move(runs);
        return calibrated_plan(scenario, model, calibration);
    };
    const Plan plan = sim::with_settled_capacity(plan_with(costs.next().runs));
    exec::Executor executor(plan, model, exec::executor_options(scenario));
    const exec::Batch batch = exec::random_batch(model, scenario.training.batch, 1);
    Rounds rounds;
    exec::StepResult step;
    for (int index = 0; index < warm_up_steps; ++index) {
        executor.run_step(batch, index, step);
    }
    const auto is_enough = [&] {
        return rounds.verdict.clean >= options.fewest_rounds &&
               rounds.verdict.standard_error <= options.wanted_error;
    };
    for (int index = 0; index < options.most_rounds && !is_enough(); ++index) {
        CalibrationRounds::Round now = costs.next();
        executor.run_step(batch, warm_up_steps + index, step);
        rounds.peaks.resize(step.peak.size());
        for (std::size_t rank = 0; rank < step.peak.size(); ++rank) {
            rounds.peaks[rank] = std::max(rounds.peaks[rank], step.peak[rank].total());
        }
        const double stolen = std::max(now.stolen, step.stolen);
        if (stolen <= most_stolen_of_a_round || !options.insists_on_gate) {
            Plan own = plan_with(std::move(now.runs)).with_capacity(plan->channel_capacity.value());
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
        runs.push_back(measured_rounds(scenario, model, scalars.base, options));
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
    const Rounds rounds =
        measured_rounds(accuracy::scenario_of(cell, options), model, base, options);
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
