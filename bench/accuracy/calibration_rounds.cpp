// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/calibration_rounds.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/settled_scenario.h"
#include "exec/base/cores.h"
#include "exec/profiling/profiler.h"
#include "exec/profiling/side_by_side.h"

namespace pipetwin::accuracy {
namespace {

using exec::LayerClock;
using exec::MeasuredPipeline;
using exec::Samples;
using exec::StepSample;

constexpr int micro_batches_of_one_stash = 3;

/// What a worker trains.
struct Share {
    Model model;
    std::vector<int> layers;  ///< [layer] its index in the whole model, below 0 for an added loss
    std::vector<int> pieces;  ///< layers of each
    bool begins = true;       ///< with the first layer of the whole model
};

/// Without weights in common with another layer, which may be held elsewhere.
LayerSpec untied(LayerSpec spec) {
    spec.tied = false;
    for (LayerSpec& inner : spec.inner) {
        inner = untied(std::move(inner));
    }
    return spec;
}

/// The pieces one behind the other, with a loss of their own where they are not the model's last.
Share share_of(const Model& model, const std::vector<CalibrationSetting::Piece>& pieces) {
    std::vector<LayerSpec> specs;
    std::vector<int> layers;
    std::vector<int> counts;
    for (const CalibrationSetting::Piece& piece : pieces) {
        for (int layer = piece.first; layer < piece.first + piece.count; ++layer) {
            specs.push_back(model.layer(layer).spec);
            layers.push_back(layer);
        }
        counts.push_back(piece.count);
    }
    if (std::cmp_less(layers.size(), model.layer_count())) {
        std::ranges::transform(specs, specs.begin(), untied);
    }
    if (layers.back() + 1 < model.layer_count()) {
        specs.push_back({.name = "calibration_loss", .type = LayerType::CrossEntropy});
        layers.push_back(-1);
        ++counts.back();
    }
    const int first = layers.front();
    return {.model = Model::chain(model.layer(first).input, std::move(specs)),
            .layers = std::move(layers),
            .pieces = std::move(counts),
            .begins = first == 0};
}

std::vector<CalibrationSetting::Piece> held_by(const CalibrationSetting& setting,
                                               int worker,
                                               const Model& model) {
    return setting.held.empty() ? std::vector{CalibrationSetting::Piece{0, model.layer_count()}}
                                : setting.held.at(as_index(worker));
}

/// Several pieces take turns of as many micro-batches as there are ranks, or of all of them.
SettledScenario scenario_of(const CalibrationSetting& setting,
                            const std::vector<int>& pieces,
                            const RoundsOptions& options) {
    SettledScenario scenario;
    const int turn = pieces.size() > 1 ? setting.workers : 1;
    const int micro_batches =
        setting.live_stashes > 1 ? setting.live_stashes : micro_batches_of_one_stash * turn;
    scenario.training.batch = setting.micro_batch_size * micro_batches;
    scenario.training.precision = options.precision;
    scenario.training.optimizer = options.optimizer;
    scenario.pipeline.stages = 1;
    scenario.pipeline.micro_batches = micro_batches;
    if (pieces.size() > 1) {
        PIPETWIN_EXPECT(!setting.splits, "of pieces that take turns no backward is split");
        scenario.pipeline.chunks = static_cast<int>(pieces.size());
        scenario.pipeline.group_size = turn;
        scenario.pipeline.schedule = setting.live_stashes > 1 ? "looped-bfs" : "interleaved-1f1b";
    } else {
        scenario.pipeline.schedule = setting.splits             ? "zb-h1"
                                     : setting.live_stashes > 1 ? "gpipe"
                                                                : "1f1b";
    }
    scenario.pipeline.partition = pieces;
    scenario.pipeline.recompute = setting.recomputes ? Recompute::Always : Recompute::None;
    return scenario;
}

/// The mean of what the steps of one core took, of the layers of the whole model.
std::vector<LayerTimes> mean_layers(const Samples& steps,
                                    const std::vector<int>& held,
                                    int layer_count) {
    std::vector<LayerTimes> layers(as_index(layer_count));
    for (std::size_t layer = 0; layer < held.size(); ++layer) {
        if (held[layer] < 0) {
            continue;
        }
        const auto mean = [&](Duration LayerClock::Laps::*part) {
            return exec::mean_over(
                steps, [&](const StepSample& step) { return step.layers[layer].*part; });
        };
        layers[as_index(held[layer])] = {
            .forward = mean(&LayerClock::Laps::forward),
            .recompute = mean(&LayerClock::Laps::recompute),
            .backward_input = mean(&LayerClock::Laps::backward_input),
            .backward_weight = mean(&LayerClock::Laps::backward_weight),
            .optimizer = mean(&LayerClock::Laps::optimizer)};
    }
    return layers;
}

}  // namespace

/// Copies of the training on so many cores at once.
class CalibrationRounds::Cores {
  public:
    Cores(const CalibrationSetting& setting, const Model& model, const RoundsOptions& options)
        : setting_(setting),
          layer_count_(model.layer_count()),
          pipelines_(pipelines_of(model, options)) {}

    /// A step of each.
    CalibrationRun step() {
        pipelines_.step();
        std::vector<Samples> one;
        for (const StepSample& core : pipelines_.last()) {
            one.push_back({core});
        }
        return run_of(one);
    }

    double last_stolen() const { return pipelines_.last_stolen(); }

    CalibrationRun mean() const {
        CalibrationRun run = run_of(pipelines_.calm_steps());
        run.clean_steps = pipelines_.clean_steps();
        run.dropped_steps = pipelines_.steps() - run.clean_steps;
        return run;
    }

  private:
    std::vector<std::unique_ptr<MeasuredPipeline>> pipelines_of(const Model& model,
                                                                const RoundsOptions& options) {
        const std::vector<int> cores = exec::allowed_cores();
        exec::ProfilerOptions sizes;
        sizes.precision = options.precision;
        sizes.micro_batch_sizes = {setting_.micro_batch_size};
        std::vector<std::unique_ptr<MeasuredPipeline>> pipelines;
        for (int worker = 0; worker < setting_.workers; ++worker) {
            const Share share = share_of(model, held_by(setting_, worker, model));
            const Plan plan = make_plan(scenario_of(setting_, share.pieces, options),
                                        share.model,
                                        exec::unmeasured_profile(share.model, sizes));
            const MeasuredPipeline::Options own{.precision = options.precision,
                                                .optimizer = options.optimizer,
                                                .seed = options.seed,
                                                .cores = {cores[as_index(worker)]},
                                                .input_gradient = !share.begins};
            pipelines.push_back(std::make_unique<MeasuredPipeline>(plan, share.model, own));
            layers_.push_back(share.layers);
        }
        return pipelines;
    }

    CalibrationRun run_of(const std::vector<Samples>& cores) const {
        CalibrationRun run{.setting = setting_, .cores = {}};
        for (std::size_t core = 0; core < cores.size(); ++core) {
            run.cores.push_back(mean_layers(cores[core], layers_[core], layer_count_));
            run.dispatch +=
                exec::mean_over(cores[core], [](const StepSample& step) { return step.dispatch; }) /
                std::ssize(cores);
        }
        return run;
    }

    CalibrationSetting setting_;
    int layer_count_;
    std::vector<std::vector<int>> layers_;  ///< [core], as Share::layers
    exec::SideBySide pipelines_;            ///< [core]
};

CalibrationRounds::CalibrationRounds(const Model& model, const RoundsOptions& options) {
    PIPETWIN_EXPECT(!options.settings.empty(), "a setting to measure");
    const std::size_t cores = exec::allowed_cores().size();
    for (const CalibrationSetting& setting : options.settings) {
        if (as_index(setting.workers) > cores) {
            throw Error(ErrorKind::Unavailable,
                        "calibration",
                        fmt::format("{} workers on {} cores", setting.workers, cores),
                        "calibrate with a core for every worker");
        }
        measured_.push_back(std::make_unique<Cores>(setting, model, options));
    }
}

CalibrationRounds::~CalibrationRounds() = default;

CalibrationRounds::Round CalibrationRounds::next() {
    Round round;
    for (const auto& cores : measured_) {
        round.runs.push_back(cores->step());
        round.stolen = std::max(round.stolen, cores->last_stolen());
    }
    return round;
}

std::vector<CalibrationRun> CalibrationRounds::means() const {
    std::vector<CalibrationRun> runs;
    for (const auto& cores : measured_) {
        runs.push_back(cores->mean());
    }
    return runs;
}

std::vector<CalibrationSetting> calibration_settings(const std::vector<int>& micro_batch_sizes,
                                                     int batch,
                                                     int workers) {
    std::set<CalibrationSetting> settings;
    for (const int size : micro_batch_sizes) {
        std::vector<CalibrationSetting> of_size{{.micro_batch_size = size},
                                                {.micro_batch_size = size, .recomputes = true},
                                                {.micro_batch_size = size, .splits = true}};
        for (const int share : {1, 2}) {
            const int live = 3 * batch / (4 * share * size);
            for (const bool recomputes : {false, true}) {
                if (live > 1) {
                    of_size.push_back(
                        {.micro_batch_size = size, .live_stashes = live, .recomputes = recomputes});
                }
            }
        }
        for (CalibrationSetting& setting : of_size) {
            settings.insert(setting);
            setting.workers = workers;
            settings.insert(setting);
        }
    }
    return {settings.begin(), settings.end()};
}

LinkCost fitted_link(const std::vector<LadderRung>& rungs) {
    PIPETWIN_EXPECT(rungs.size() >= 3, "a ladder has three rungs");
    const LadderRung& low = rungs.front();
    const LadderRung& high = rungs.back();
    const LadderRung& below = rungs[rungs.size() - 2];
    LinkCost link{.latency = low.time};
    const double seconds = to_seconds(high.time - below.time);
    if (seconds <= 0) {
        return link;
    }
    link.bytes_per_second = static_cast<double>((high.message - below.message).count) / seconds;
    // What the largest takes beyond latency and full rate is the half-bandwidth's share.
    const double rest = to_seconds(high.time - low.time) * link.bytes_per_second -
                        static_cast<double>(high.message.count);
    link.half_bandwidth = Bytes{std::max<std::int64_t>(0, std::llround(rest))};
    return link;
}

}  // namespace pipetwin::accuracy
