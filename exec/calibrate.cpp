#include "exec/calibrate.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/plan.h"
#include "exec/channel.h"
#include "exec/cores.h"
#include "exec/measured_pipeline.h"
#include "exec/profiler.h"
#include "exec/speed_witness.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int micro_batches_of_one_stash = 3;

std::string text_of(const CalibrationSetting& setting) {
    return fmt::format("{} samples, {} stash{} alive{}{}, {} core{}",
                       setting.micro_batch_size,
                       setting.live_stashes,
                       setting.live_stashes == 1 ? "" : "es",
                       setting.recomputes ? ", recompute" : "",
                       setting.splits ? ", split backward" : "",
                       setting.workers,
                       setting.workers == 1 ? "" : "s");
}

Scenario scenario_of(const CalibrationSetting& setting, const CalibrateOptions& options) {
    Scenario scenario;
    const int micro_batches =
        setting.live_stashes > 1 ? setting.live_stashes : micro_batches_of_one_stash;
    scenario.training.batch = setting.micro_batch_size * micro_batches;
    scenario.training.precision = options.precision;
    scenario.training.optimizer = options.optimizer;
    scenario.pipeline.stages = 1;
    scenario.pipeline.micro_batches = micro_batches;
    scenario.pipeline.schedule = setting.splits             ? "zb-h1"
                                 : setting.live_stashes > 1 ? "gpipe"
                                                            : "1f1b";
    scenario.pipeline.recompute = setting.recomputes ? Recompute::Always : Recompute::None;
    return scenario;
}

/// Other cores at the same kind of work, from the end of the constructor for as long as it lives.
class BusyCores {
  public:
    BusyCores(const Plan& plan,
              const Model& model,
              const MeasuredPipeline::Options& options,
              const std::vector<int>& cores)
        : steps_(cores.size()) {
        for (const int core : cores) {
            MeasuredPipeline::Options own = options;
            own.cores = {core};
            pipelines_.push_back(std::make_unique<MeasuredPipeline>(plan, model, own));
        }
        for (std::size_t i = 0; i < cores.size(); ++i) {
            threads_.emplace_back([this, i](const std::stop_token& stop) {
                while (!stop.stop_requested()) {
                    pipelines_[i]->step();
                    ++steps_[i];
                    steps_[i].notify_one();
                }
            });
        }
        for (const std::atomic<int>& steps : steps_) {
            steps.wait(0);
        }
    }

    /// Of the one that did fewest.
    int steps() const {
        const auto fewest = std::ranges::min_element(
            steps_, {}, [](const std::atomic<int>& steps) { return steps.load(); });
        return fewest == steps_.end() ? 0 : fewest->load();
    }

  private:
    std::vector<std::unique_ptr<MeasuredPipeline>> pipelines_;
    std::vector<std::atomic<int>> steps_;
    std::vector<std::jthread> threads_;  // joined first
};

CalibrationRun run_of(const CalibrationSetting& setting,
                      const Samples& measured,
                      int steps_beside) {
    const GateVerdict verdict = judged(measured);
    const Samples samples = quiet(measured);
    CalibrationRun run{
        .setting = setting,
        .layers = {},
        .dispatch = mean_over(samples, [](const StepSample& step) { return step.dispatch; }),
        .clean_steps = verdict.clean,
        .dropped_steps = verdict.dropped,
        .p90_over_p10 = verdict.p90_over_p10,
        .steps_beside = steps_beside};
    for (std::size_t layer = 0; layer < measured.front().layers.size(); ++layer) {
        const auto mean = [&](Duration LayerClock::Laps::*part) {
            return mean_over(samples,
                             [&](const StepSample& step) { return step.layers[layer].*part; });
        };
        run.layers.push_back({.forward = mean(&LayerClock::Laps::forward),
                              .recompute = mean(&LayerClock::Laps::recompute),
                              .backward_input = mean(&LayerClock::Laps::backward_input),
                              .backward_weight = mean(&LayerClock::Laps::backward_weight),
                              .optimizer = mean(&LayerClock::Laps::optimizer)});
    }
    return run;
}

CalibrationRun measure(const CalibrationSetting& setting,
                       const Model& model,
                       const Profile& bytes,
                       const CalibrateOptions& options) {
    const Plan plan = make_plan(scenario_of(setting, options), model, bytes);
    const std::vector<int> cores = allowed_cores();
    MeasuredPipeline::Options own{.precision = options.precision,
                                  .optimizer = options.optimizer,
                                  .seed = options.seed,
                                  .cores = {cores.front()}};
    MeasuredPipeline pipeline(plan, model, own);
    const BusyCores others(plan, model, own, {cores.begin() + 1, cores.begin() + setting.workers});
    constexpr int warm_up = 2;
    for (int step = 0; step < warm_up; ++step) {
        pipeline.step();
    }
    SpeedWitness witness({cores.front()});
    Samples samples;
    const auto go_on = [&](int most_steps) {
        while (std::ssize(samples) < most_steps && judged(samples).clean < options.fewest_clean) {
            const double before = witness.wait(options.longest_wait);
            samples.push_back(pipeline.step());
            double& stolen = samples.back().stolen;
            stolen = lost_share(stolen, before, witness.missing());
        }
    };
    go_on(options.most_steps);
    const bool wants_more = options.fewest_clean >= fewest_clean_steps && !judged(samples).passes();
    if (wants_more) {  // a second chance: the first half may have been a bad moment
        const Samples first = std::exchange(samples, {});
        go_on(options.most_steps);
        if (!judged(samples).passes() && judged(first).clean > judged(samples).clean) {
            samples = first;
        }
    }
    return run_of(setting, samples, others.steps());
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
            if (live > 1) {
                of_size.push_back({.micro_batch_size = size, .live_stashes = live});
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
    PIPETWIN_EXPECT(!options.settings.empty(), "a setting to measure");
    Calibration calibration;
    ProfilerOptions sizes;
    sizes.precision = options.precision;
    for (const CalibrationSetting& setting : options.settings) {
        if (static_cast<std::size_t>(setting.workers) > allowed_cores().size()) {
            throw Error(
                ErrorKind::Unavailable,
                "calibration",
                fmt::format("{} workers on {} cores", setting.workers, allowed_cores().size()),
                "calibrate with a core for every worker");
        }
        sizes.micro_batch_sizes.push_back(setting.micro_batch_size);
    }
    calibration.bytes = unmeasured_profile(model, sizes);
    calibration.bytes.links = {fitted_link(transfer_ladder())};
    double done = 0;
    for (const CalibrationSetting& setting : options.settings) {
        calibration.runs.push_back(measure(setting, model, calibration.bytes, options));
        if (options.progress) {
            options.progress(++done / static_cast<double>(options.settings.size()),
                             text_of(setting));
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
    note.interference = measured_interference(calibrate(model, both));
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
