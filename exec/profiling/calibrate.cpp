#include "exec/profiling/calibrate.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/plan.h"
#include "exec/base/cores.h"
#include "exec/profiling/measured_pipeline.h"
#include "exec/profiling/profiler.h"
#include "exec/transport/channel.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

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
                            const CalibrateOptions& options) {
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
            return mean_over(steps,
                             [&](const StepSample& step) { return step.layers[layer].*part; });
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

/// The tensor is written here and read on another core, there and back again; the median of the
/// ways there.
Duration time_of_message(Bytes bytes) {
    constexpr int trips = 60;
    const Spin spin = allowed_cores().size() > 1 ? Spin::Briefly : Spin::Never;
    const auto there = make_local_channel(std::nullopt, spin);
    const auto back = make_local_channel(std::nullopt, spin);
    const auto numbers = bytes.count / static_cast<std::int64_t>(sizeof(float));
    Tensor tensor = Tensor::detached(host_memory(), DType::F32, 1, numbers);
    struct Read {
        std::vector<TimePoint> done;
        float sum = 0;  // so that it is read
    };
    auto reader = std::async(std::launch::async, [&] {
        Read read;
        for (int trip = 0; trip < trips; ++trip) {
            Channel::Received received = there->receive();
            const float* const first = received.message.tensor.as<float>();
            read.sum = std::accumulate(first, first + numbers, read.sum);
            read.done.push_back(Clock::now());
            back->send(std::move(received.message));
        }
        return read;
    });
    std::vector<TimePoint> sent;
    for (int trip = 0; trip < trips; ++trip) {
        std::fill_n(tensor.as<float>(), numbers, static_cast<float>(trip));
        sent.push_back(Clock::now());
        there->send({.micro_batch = 0, .tensor = std::move(tensor), .available = {}});
        tensor = std::move(back->receive().message.tensor);
    }
    const Read read = reader.get();
    std::vector<Duration> times;
    for (std::size_t trip = 0; trip < sent.size(); ++trip) {
        times.push_back(read.done[trip] - sent[trip]);
    }
    return quantile(std::move(times), 0.5);
}

}  // namespace

/// The same training on so many cores at once.
class CalibrationRounds::Cores {
  public:
    Cores(const CalibrationSetting& setting, const Model& model, const CalibrateOptions& options)
        : setting_(setting), layer_count_(model.layer_count()) {
        const std::vector<int> cores = allowed_cores();
        ProfilerOptions sizes;
        sizes.precision = options.precision;
        sizes.micro_batch_sizes = {setting.micro_batch_size};
        for (int worker = 0; worker < setting.workers; ++worker) {
            const Share share = share_of(model, held_by(setting, worker, model));
            const Plan plan = make_plan(scenario_of(setting, share.pieces, options),
                                        share.model,
                                        unmeasured_profile(share.model, sizes));
            const MeasuredPipeline::Options own{.precision = options.precision,
                                                .optimizer = options.optimizer,
                                                .seed = options.seed,
                                                .cores = {cores[as_index(worker)]},
                                                .input_gradient = !share.begins};
            pipelines_.push_back(std::make_unique<MeasuredPipeline>(plan, share.model, own));
            layers_.push_back(share.layers);
        }
        constexpr int warm_up = 2;
        for (int step = 0; step < warm_up; ++step) {
            all_at_once();
        }
    }

    /// A step of each.
    CalibrationRun step() {
        steps_.push_back(all_at_once());
        return run_of({steps_.size() - 1});
    }

    double last_stolen() const { return stolen(steps_.size() - 1); }

    CalibrationRun mean() const {
        std::vector<std::size_t> calm(steps_.size());
        std::iota(calm.begin(), calm.end(), std::size_t{0});
        std::ranges::stable_sort(calm, {}, [this](std::size_t step) { return stolen(step); });
        const std::size_t third = (calm.size() + 2) / 3;
        const std::size_t clean = as_index(clean_steps());
        calm.resize(clean > 0 ? clean : third);
        CalibrationRun run = run_of(calm);
        run.clean_steps = clean_steps();
        run.dropped_steps = static_cast<int>(steps_.size()) - run.clean_steps;
        return run;
    }

    int clean_steps() const {
        int clean = 0;
        for (std::size_t step = 0; step < steps_.size(); ++step) {
            clean += stolen(step) <= most_stolen ? 1 : 0;
        }
        return clean;
    }

  private:
    Samples all_at_once() {
        std::vector<std::future<StepSample>> others;
        for (std::size_t core = 1; core < pipelines_.size(); ++core) {
            others.push_back(
                std::async(std::launch::async, [this, core] { return pipelines_[core]->step(); }));
        }
        Samples samples{pipelines_.front()->step()};
        for (std::future<StepSample>& other : others) {
            samples.push_back(other.get());
        }
        return samples;
    }

    double stolen(std::size_t step) const {
        return std::ranges::max(steps_[step], {}, &StepSample::stolen).stolen;
    }

    CalibrationRun run_of(const std::vector<std::size_t>& steps) const {
        CalibrationRun run{.setting = setting_, .cores = {}};
        for (std::size_t core = 0; core < pipelines_.size(); ++core) {
            Samples own;
            for (const std::size_t step : steps) {
                own.push_back(steps_[step][core]);
            }
            run.cores.push_back(mean_layers(own, layers_[core], layer_count_));
            run.dispatch += mean_over(own, [](const StepSample& step) { return step.dispatch; }) /
                            std::ssize(pipelines_);
        }
        return run;
    }

    CalibrationSetting setting_;
    int layer_count_;
    std::vector<std::unique_ptr<MeasuredPipeline>> pipelines_;  // [core]
    std::vector<std::vector<int>> layers_;                      // [core], as Share::layers
    std::vector<Samples> steps_;                                // [step][core]
};

CalibrationRounds::CalibrationRounds(const Model& model, const CalibrateOptions& options) {
    PIPETWIN_EXPECT(!options.settings.empty(), "a setting to measure");
    const std::size_t cores = allowed_cores().size();
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

Calibration calibrate(const Model& model, const CalibrateOptions& options) {
    Calibration calibration;
    ProfilerOptions sizes;
    sizes.precision = options.precision;
    for (const CalibrationSetting& setting : options.settings) {
        sizes.micro_batch_sizes.push_back(setting.micro_batch_size);
    }
    calibration.bytes = unmeasured_profile(model, sizes);
    CalibrationRounds rounds(model, options);
    calibration.bytes.links = {fitted_link(transfer_ladder())};
    const auto is_short_of_clean_ones = [&](const CalibrationRun& run) {
        return run.clean_steps < options.fewest_clean;
    };
    for (int round = 0;
         round < options.most_steps &&
         (round == 0 || std::ranges::any_of(calibration.runs, is_short_of_clean_ones));
         ++round) {
        rounds.next();
        calibration.runs = rounds.means();
        if (options.progress) {
            options.progress(
                static_cast<double>(round + 1) / options.most_steps,
                fmt::format("round {} of {} settings", round + 1, options.settings.size()));
        }
    }
    return calibration;
}

void add_interference_and_ladder(Profile& profile,
                                 const Model& model,
                                 const CalibrateOptions& options) {
    const int cores = static_cast<int>(allowed_cores().size());
    if (cores < 2) {
        return;
    }
    const int size = profile.layers.front().samples.front().micro_batch_size;
    CalibrateOptions both = options;
    both.settings = {{.micro_batch_size = size}, {.micro_batch_size = size, .workers = cores}};
    CalibrationNote& note =
        profile.calibration ? *profile.calibration : profile.calibration.emplace();
    note.interference = measured_interference(calibrate(model, both).runs);
    note.ladder = transfer_ladder();
}

std::vector<LadderRung> transfer_ladder() {
    constexpr std::int64_t smallest = 64;
    constexpr std::int64_t largest = std::int64_t{4} << 20;
    std::vector<LadderRung> rungs;
    for (std::int64_t bytes = smallest; bytes <= largest; bytes *= 4) {
        rungs.push_back({.message = Bytes{bytes}, .time = time_of_message(Bytes{bytes})});
    }
    return rungs;
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

}  // namespace pipetwin::exec
