// SPDX-License-Identifier: Apache-2.0
#include "exec/profiling/calibrate.h"

#include <algorithm>
#include <future>
#include <numeric>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/generators/generate.h"
#include "exec/base/cores.h"
#include "exec/profiling/profiler.h"
#include "exec/profiling/side_by_side.h"
#include "exec/transport/channel.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// The model on each of so many cores, trained in one stage by 1f1b.
SideBySide trained_on(int cores, const Model& model, int size, const CalibrateOptions& options) {
    constexpr int micro_batches = 3;
    SettledScenario scenario;
    scenario.training.batch = size * micro_batches;
    scenario.training.precision = options.precision;
    scenario.training.optimizer = options.optimizer;
    scenario.training.average_decay = options.averages_weights ? any_average_decay : 0;
    scenario.pipeline.stages = 1;
    scenario.pipeline.micro_batches = micro_batches;
    scenario.pipeline.schedule = to_string(ScheduleKind::OneFOneB);
    scenario.pipeline.partition = std::vector{model.layer_count()};
    scenario.pipeline.recompute = Recompute::None;
    ProfilerOptions sizes;
    sizes.precision = options.precision;
    sizes.micro_batch_sizes = {size};
    const Plan plan = make_plan(scenario, model, unmeasured_profile(model, sizes));
    const std::vector<int> allowed = allowed_cores();
    std::vector<std::unique_ptr<MeasuredPipeline>> pipelines;
    for (int core = 0; core < cores; ++core) {
        const MeasuredPipeline::Options own{.precision = options.precision,
                                            .optimizer = options.optimizer,
                                            .averages_weights = options.averages_weights,
                                            .seed = options.seed,
                                            .cores = {allowed[as_index(core)]}};
        pipelines.push_back(std::make_unique<MeasuredPipeline>(plan, model, own));
    }
    return SideBySide(std::move(pipelines));
}

/// What all layers take of a micro-batch, on the mean core.
Duration layers_time(const SideBySide& trained) {
    const auto of_step = [](const StepSample& step) {
        Duration sum{};
        for (const LayerClock::Laps& layer : step.layers) {
            sum += layer.forward + layer.recompute + layer.backward_input + layer.backward_weight;
        }
        return sum;
    };
    const std::vector<Samples> cores = trained.calm_steps();
    Duration sum{};
    for (const Samples& core : cores) {
        sum += mean_over(core, of_step);
    }
    return sum / std::ssize(cores);
}

/// By how much longer the layers take beside others than alone, as a share.
double measured_interference(const Model& model,
                             int size,
                             int cores,
                             const CalibrateOptions& options) {
    SideBySide alone = trained_on(1, model, size, options);
    SideBySide beside = trained_on(cores, model, size, options);
    const auto is_enough = [&options](const SideBySide& trained) {
        return trained.clean_steps() >= options.fewest_clean;
    };
    for (int round = 0;
         round < options.most_steps && (round == 0 || !is_enough(alone) || !is_enough(beside));
         ++round) {
        alone.step();
        beside.step();
        if (options.progress) {
            options.progress(static_cast<double>(round + 1) / options.most_steps,
                             fmt::format("round {}", round + 1));
        }
    }
    const double one = to_seconds(layers_time(alone));
    return one > 0 ? std::max(0.0, to_seconds(layers_time(beside)) / one - 1) : 0;
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

void add_interference_and_ladder(Profile& profile,
                                 const Model& model,
                                 const CalibrateOptions& options) {
    const int cores = static_cast<int>(allowed_cores().size());
    if (cores < 2) {
        return;
    }
    const int size = profile.layers.front().samples.front().micro_batch_size;
    CalibrationNote& note =
        profile.calibration ? *profile.calibration : profile.calibration.emplace();
    note.interference = measured_interference(model, size, cores, options);
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

}  // namespace pipetwin::exec
