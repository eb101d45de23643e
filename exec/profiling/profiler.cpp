// SPDX-License-Identifier: Apache-2.0
#include "exec/profiling/profiler.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <future>
#include <set>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/version.h"
#include "core/model/model.h"
#include "core/model/tensor_division.h"
#include "core/plan/plan.h"
#include "core/plan/stage_costs.h"
#include "core/plan/tensor_parallel.h"
#include "core/scenario/scenario.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/generators/generate.h"
#include "exec/base/cores.h"
#include "exec/base/noise.h"
#include "exec/executor/backend.h"
#include "exec/layers/make_layer.h"
#include "exec/profiling/measured_pipeline.h"
#include "exec/transport/channel.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// On a quiet machine the first is enough; on one that is not, quiet steps are waited for.
constexpr std::chrono::seconds time_budget{8};
constexpr std::chrono::seconds patience{30};
constexpr double quiet_p90_over_p10 = 1.03;
constexpr int fewest_steps_of_halves = 5;

int worker_count(const ProfilerOptions& options, const Model& model) {
    const int cores = static_cast<int>(allowed_cores().size()) / options.tensor_parallel;
    const int most = traits(options.backend).on_cores ? std::max(1, cores) : options.busy_workers;
    return std::max(1,
                    std::min({options.busy_workers, most, model.layer_count() / options.chunks}));
}

/// Devices of a rank that are measured together. Where they cannot be in one process, one is
/// measured that has all of each layer, and the others get equal parts of its times.
int measured_devices(const ProfilerOptions& options) {
    return traits(options.backend).groups_share_process ? options.tensor_parallel : 1;
}

/// The scenario's order can be walked here: its rules may ask for ranks that are left out, a file
/// has its own number of them, and some orders cannot train.
bool has_order(const SettledScenario& scenario) {
    try {
        const Schedule schedule = scenario_schedule(scenario);
        const bool stale = has_stale_gradients(scenario);
        return schedule.rank_count() == scenario.pipeline.stages &&
               !why_not_trainable(schedule, stale);
    } catch (const Error&) {
        return false;
    }
}

SettledScenario scenario_of(const ProfilerOptions& options, int size, int workers) {
    SettledScenario scenario;
    scenario.training.batch = size * options.micro_batches * options.replicas;
    scenario.training.precision = options.precision;
    scenario.cluster.backend = options.backend;
    if (options.offload) {
        scenario.pipeline.offload = Offload::Stash;
        scenario.cluster.host_link_gbps = 100;  // until it is measured; no order depends on it
    }
    scenario.training.optimizer = options.optimizer;
    scenario.training.average_decay = options.averages_weights ? any_average_decay : 0;
    scenario.training.learning_rate = 1e-6;  // so that random data leads nowhere
    scenario.pipeline.stages = workers;
    scenario.pipeline.tensor_parallel = measured_devices(options);
    scenario.pipeline.sequence_parallel =
        options.sequence_parallel && scenario.pipeline.tensor_parallel > 1;
    scenario.pipeline.data_parallel = options.replicas;
    scenario.pipeline.shard = options.shard;
    scenario.pipeline.prefetch = options.prefetch;
    scenario.pipeline.micro_batches = options.micro_batches;
    scenario.pipeline.schedule = options.schedule;
    scenario.pipeline.chunks = options.chunks;
    scenario.pipeline.group_size = options.group_size;
    if (!has_order(scenario)) {
        scenario.pipeline.schedule = to_string(ScheduleKind::OneFOneB);
        scenario.pipeline.chunks = 1;
    }
    scenario.pipeline.recompute = options.recompute.fits(scenario.pipeline.pieces())
                                      ? options.recompute
                                      : RecomputeRules(Recompute::Always);
    scenario.pipeline.recompute_timing = options.recompute_timing;
    if (options.recomputes_core) {
        scenario.pipeline.layer_recompute = LayerRecompute::Selective;
    }
    if (workers == options.busy_workers) {
        scenario.pipeline.partition = options.partition;
    }
    return scenario;
}

/// What a layer keeps whole on each device as long as these do not divide the rows, of which
/// `parts` has the bytes where they do: `with_tensor_parallel` makes those of these.
void note_divided_rows(LayerSample& sample, const LayerBytes& parts, int devices) {
    const Bytes whole = sample.saved - parts.saved;  // but for a part
    sample.whole_saved = Bytes{whole.count / (devices - 1) * devices};
    sample.workspace = parts.workspace;
    sample.split = parts.split;
    // W reads the layer's input, which is divided, too; or less, all of which is.
    const Bytes divided = std::min(sample.input, sample.whole_saved);
    const Bytes own = parts.saved - parts.input_saved;
    const bool reads_more = own >= part_of(divided, devices);
    const Bytes for_weight = reads_more ? own + divided - part_of(divided, devices) : devices * own;
    sample.input_saved = sample.saved - for_weight;
}

}  // namespace

void add_shares(Profile& profile,
                const Model& model,
                int devices,
                DividedSequence sequence,
                NumberFormat format) {
    if (devices == 1) {
        return;
    }
    const auto width = static_cast<std::int64_t>(size_of(format.real));
    const Model part = divided_among(model, devices);
    const Model with_parts_of_rows = divided_among(model, devices, sequence);
    for (int index = 0; index < model.layer_count(); ++index) {
        LayerCost& cost = profile.layers[as_index(index)];
        const std::int64_t all = model.layer(index).parameter_count;
        // A layer has P numbers, of which each device has W whole, and so (P - W) / T + W in all.
        cost.whole_bytes =
            Bytes{(devices * part.layer(index).parameter_count - all) * width / (devices - 1)};
        std::vector<LayerSample>& shared = cost.shared[devices];
        for (const LayerSample& sample : cost.samples) {
            const int size = sample.micro_batch_size;
            LayerSample& own =
                shared.emplace_back(with_bytes(sample, layer_bytes(part, index, size, format)));
            for (Duration LayerSample::*const time : times_of_sample) {
                own.*time /= devices;
            }
            if (sequence == DividedSequence::Yes) {
                note_divided_rows(
                    own, layer_bytes(with_parts_of_rows, index, size, format), devices);
            }
        }
    }
}

void add_core(Profile& profile, const Model& model, int devices, NumberFormat format) {
    const Model part = divided_among(model, devices);
    for (int index = 0; index < model.layer_count(); ++index) {
        const auto note = [&](std::vector<LayerSample>& samples, const Model& of) {
            for (LayerSample& sample : samples) {
                const Bytes core = layer_bytes(of, index, sample.micro_batch_size, format).core;
                sample.core_saved = core;
                sample.core_forward = core > Bytes{} ? sample.forward / 4 : Duration{};
            }
        };
        LayerCost& cost = profile.layers[as_index(index)];
        note(cost.samples, model);
        if (devices > 1) {
            note(cost.shared[devices], part);
        }
    }
}

Profile unmeasured_profile(const Model& model, const ProfilerOptions& options) {
    const NumberFormat format = number_format(options.precision, options.backend);
    const auto width = static_cast<std::int64_t>(size_of(format.real));
    const std::set<int> sizes(options.micro_batch_sizes.begin(), options.micro_batch_sizes.end());
    Profile profile;
    profile.source = CostSource::Measured;
    profile.device = this_machine;
    profile.precision = std::string(to_string(options.precision));
    profile.tool_version = program_version();
    profile.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
    // Bytes are of what is kept.
    const Model kept = model_on(options.backend, model, options.tensor_parallel);
    for (int index = 0; index < model.layer_count(); ++index) {
        const Layer& layer = kept.layer(index);
        LayerCost& cost = profile.layers.emplace_back();
        cost.name = layer.spec.name;
        cost.kind = std::string(to_string(layer.spec.type));
        cost.parameter_count = model.layer(index).parameter_count;
        cost.parameter_bytes = Bytes{layer.parameter_count * width};
        cost.running_bytes = running_bytes(layer, format);
        for (const int size : sizes) {
            const std::chrono::milliseconds any(1);
            cost.samples.push_back(with_bytes({.micro_batch_size = size,
                                               .forward = any,
                                               .backward_input = any,
                                               .backward_weight = any},
                                              layer_bytes(kept, index, size, format)));
        }
    }
    const auto sequence = options.sequence_parallel ? DividedSequence::Yes : DividedSequence::No;
    add_shares(profile, kept, options.tensor_parallel, sequence, format);
    if (options.recomputes_core) {
        add_core(profile, kept, options.tensor_parallel, format);
    }
    profile.tied_bytes = Bytes{kept.tied_count() * width};
    profile.layers.back().parameter_count -= model.tied_count();
    profile.links.push_back({.between = "ranks"});
    return profile;
}

namespace {

MeasuredPipeline::Options run_options(const ProfilerOptions& options) {
    return {.backend = options.backend,
            .precision = options.precision,
            .optimizer = options.optimizer,
            .averages_weights = options.averages_weights,
            .gpu_shares = options.gpu_shares,
            .gpu_units = options.gpu_units,
            .seed = options.seed};
}

/// The mean of the calm steps, as of all parts of a step. On a restless machine that would hold
/// what other programs took between two actions, many times what the host spends; there it is what
/// the calmest of them had.
Duration measured_dispatch(const Samples& measured, const Samples& calm) {
    const auto dispatch = [](const StepSample& step) { return step.dispatch; };
    constexpr double calmest = 0.1;
    return p90_over_p10(times_of(measured)) > largest_p90_over_p10
               ? quantile(over_steps(calm, dispatch), calmest)
               : mean_over(calm, dispatch);
}

/// A layer whose times are those of one of several devices: of one that has all of it they would be
/// as many times as long.
void share_out(LayerCost& layer, int size, int devices) {
    LayerSample& whole = *std::ranges::find(layer.samples, size, &LayerSample::micro_batch_size);
    LayerSample& own =
        *std::ranges::find(layer.shared[devices], size, &LayerSample::micro_batch_size);
    own.spread = whole.spread;
    for (Duration LayerSample::*const time : times_of_sample) {
        own.*time = whole.*time;
        whole.*time *= devices;
    }
    layer.optimizer *= devices;
}

/// What a layer's messages took.
void note_messages(LayerSample& sample, const Samples& samples, std::size_t layer) {
    const auto mean = [&](GroupTimes LayerClock::Laps::*part, Duration GroupTimes::*of) {
        return mean_over(samples,
                         [&](const StepSample& step) { return step.layers[layer].*part.*of; });
    };
    sample.devices_forward = mean(&LayerClock::Laps::in_forward, &GroupTimes::devices);
    sample.devices_backward = mean(&LayerClock::Laps::in_backward, &GroupTimes::devices);
    sample.replicas_forward = mean(&LayerClock::Laps::in_forward, &GroupTimes::replicas);
    sample.replicas_backward = mean(&LayerClock::Laps::in_backward, &GroupTimes::replicas);
}

/// Updated weights that replicas show each other behind a step: each layer has its part of the time
/// by its bytes.
void note_updates(Profile& profile, const Samples& samples) {
    const Duration time = mean_over(samples, [](const StepSample& step) { return step.behind; });
    Bytes all;
    for (const LayerCost& layer : profile.layers) {
        all += layer.parameter_bytes;
    }
    for (LayerCost& layer : profile.layers) {
        layer.replicas_update =
            scaled(std::max(Duration{}, time),
                   static_cast<double>(layer.parameter_bytes.count) /
                       static_cast<double>(std::max<std::int64_t>(1, all.count)));
    }
}

/// The link between members of groups with which what they tell one another takes what it took,
/// waits for each other included: for plans of other groups.
void note_sums(Profile& profile,
               std::string_view between,
               int members,
               GroupUse StepSample::*of,
               const Samples& samples) {
    GroupUse use;
    for (const StepSample& step : samples) {
        use += step.*of;
    }
    if (members == 1 || use.time == Duration{}) {
        return;
    }
    // In a ring half a sum of n is n - 1 messages of an n-th (core/costs/collectives/all_reduce.h).
    const double bytes =
        static_cast<double>(use.carried.count) * (members - 1) / static_cast<double>(members);
    std::erase_if(profile.links, [&](const LinkCost& link) { return link.between == between; });
    profile.links.push_back(
        {.between = std::string(between), .bytes_per_second = bytes / to_seconds(use.time)});
}

/// The groups of the pipeline in which layers are measured; none: no layer is divided.
std::optional<MeasuredGroups> groups_of(const Plan& plan) {
    MeasuredGroups groups{.devices = plan->tensor_parallel,
                          .sequence_parallel = plan->sequence_parallel};
    if (plan->gradient_shards > 1) {
        groups.replicas = plan->replicas;
        groups.shard = to_string(plan->weight_shards > 1 ? Shard::Weights : Shard::Gradients);
    }
    return groups.devices > 1 || groups.replicas > 1 ? std::optional(groups) : std::nullopt;
}

/// Writes what was measured at one size into the profile.
/// `groups`: of which the samples are the first member's.
void fill_in(Profile& profile,
             int size,
             const std::optional<MeasuredGroups>& groups,
             const Samples& measured) {
    const int devices = groups ? groups->devices : 1;
    const Samples samples = quiet(measured);
    for (std::size_t index = 0; index < profile.layers.size(); ++index) {
        const auto part = [&](Duration LayerClock::Laps::*member) {
            return mean_over(samples,
                             [&](const StepSample& step) { return step.layers[index].*member; });
        };
        LayerCost& layer = profile.layers[index];
        LayerSample& sample =
            *std::ranges::find(layer.samples, size, &LayerSample::micro_batch_size);
        sample.forward = part(&LayerClock::Laps::any_forward);
        sample.core_forward = part(&LayerClock::Laps::core);
        sample.backward_input = part(&LayerClock::Laps::backward_input);
        sample.backward_weight = part(&LayerClock::Laps::backward_weight);
        layer.optimizer = part(&LayerClock::Laps::optimizer);
        const std::vector<Duration> totals = over_steps(samples, [&](const StepSample& step) {
            const LayerClock::Laps& laps = step.layers[index];
            return laps.any_forward + laps.backward_input + laps.backward_weight;
        });
        const Duration median = quantile(totals, 0.5);
        sample.spread =
            median > Duration{}
                ? to_seconds(quantile(totals, 0.9) - quantile(totals, 0.1)) / to_seconds(median)
                : 0;
        if (devices > 1) {
            share_out(layer, size, devices);
        }
        if (groups) {
            std::vector<LayerSample>& of_one = devices > 1 ? layer.shared[devices] : layer.samples;
            note_messages(
                *std::ranges::find(of_one, size, &LayerSample::micro_batch_size), samples, index);
        }
    }
    profile.groups = groups;
    if (groups && groups->shard == to_string(Shard::Gradients)) {
        note_updates(profile, samples);
    }
    note_sums(profile, "devices", devices, &StepSample::groups, samples);
    note_sums(profile, "replicas", groups ? groups->replicas : 1, &StepSample::shards, samples);
    profile.dispatch = measured_dispatch(measured, samples);
    std::vector<double> host_rates;
    std::ranges::transform(samples, std::back_inserter(host_rates), &StepSample::host_rate);
    std::ranges::sort(host_rates);
    if (const double rate = host_rates[host_rates.size() / 2]; rate > 0) {
        std::erase_if(profile.links, [](const LinkCost& link) { return link.between == "host"; });
        profile.links.push_back({.between = "host", .bytes_per_second = rate});
    }
    std::vector<Duration> hops;
    for (const StepSample& step : samples) {
        hops.insert(hops.end(), step.hops.begin(), step.hops.end());
    }
    if (!hops.empty()) {
        profile.links.front().latency = quantile(hops, 0.5);
    }
}

/// Keeps the worst of all sizes.
void note_noise(Profile& profile, const GateVerdict& verdict) {
    CalibrationNote& note =
        profile.calibration ? *profile.calibration : profile.calibration.emplace();
    const bool first = note.clean_steps + note.dropped_steps == 0;
    note.clean_steps = first ? verdict.clean : std::min(note.clean_steps, verdict.clean);
    note.dropped_steps = std::max(note.dropped_steps, verdict.dropped);
    note.p90_over_p10 = std::max(note.p90_over_p10, verdict.p90_over_p10);
}

/// Half a round trip of an empty message between two threads: the link, where the measured pipeline
/// has none.
Duration hop_between_two_threads() {
    constexpr int trips = 200;
    const std::vector<int> cores = allowed_cores();
    const Spin spin = cores.size() > 1 ? Spin::Briefly : Spin::Never;
    const auto there = make_local_channel(std::nullopt, spin);
    const auto back = make_local_channel(std::nullopt, spin);
    const auto echo = std::async(std::launch::async, [&] {
        for (int trip = 0; trip < trips; ++trip) {
            there->receive();
            back->send({});
        }
    });
    std::vector<Duration> hops;
    for (int trip = 0; trip < trips; ++trip) {
        const TimePoint begin = Clock::now();
        there->send({});
        back->receive();
        hops.push_back((Clock::now() - begin) / 2);
    }
    return quantile(hops, 0.5);
}

void stretch(Profile& profile, double factor) {
    const auto scale = [factor](Duration& duration) {
        duration = Duration(std::llround(static_cast<double>(duration.count()) * factor));
    };
    scale(profile.dispatch);
    for (LayerCost& layer : profile.layers) {
        scale(layer.optimizer);
        for (LayerSample& sample : layer.samples) {
            scale(sample.forward);
            scale(sample.backward_input);
            scale(sample.backward_weight);
        }
    }
}

/// Measures a model, size by size.
class Profiler {
  public:
    Profiler(const Model& model, const ProfilerOptions& options)
        : model_(model),
          options_(options),
          workers_(worker_count(options, model)),
          profile_(unmeasured_profile(model, options)) {}

    Profile run() {
        if (workers_ == 1) {
            profile_.links.front().latency = hop_between_two_threads();
        }
        const std::set<int> sizes(options_.micro_batch_sizes.begin(),
                                  options_.micro_batch_sizes.end());
        for (const int size : sizes) {
            measure(size, static_cast<int>(sizes.size()));
            ++sizes_done_;
        }
        if (options_.stretch != 1) {
            stretch(profile_, options_.stretch);
            profile_.device =
                fmt::format("{}, {:.2f} times slower", this_machine, options_.stretch);
        }
        return profile_;
    }

  private:
    /// A balanced partition needs costs: a short look gives them, and then the pipeline has the
    /// very partition that a plan from this profile will have.
    void measure(int size, int size_count) {
        const Duration budget = share(time_budget) / size_count;
        SettledScenario scenario = scenario_of(options_, size, workers_);
        if (workers_ > 1 && scenario.pipeline.partition.is_auto()) {
            const Plan plan = plan_of(scenario);
            fill_in(profile_,
                    size,
                    groups_of(plan),
                    steps(plan,
                          {.warm_up = 1,
                           .fewest = 2,
                           .most = 5,
                           .budget = budget / 8,
                           .patience = budget / 8},
                          WithInterference::InLayers));
            if (options_.partition_of) {
                scenario.pipeline.partition = options_.partition_of(scenario, profile_);
            }
        }
        const int fixed = options_.repeats;
        constexpr int least = 4;  // of a short look
        const int fewest =
            std::max(least, static_cast<int>(fewest_clean_steps * options_.time_share));
        const Plan plan = plan_of(scenario);
        profile_.whole_backwards =
            traits(options_.backend).needs_gpu && !splits_backward(plan->schedule);
        const Samples samples = steps(plan,
                                      {.warm_up = 2,
                                       .fewest = fixed > 0 ? fixed : fewest,
                                       .most = fixed > 0 ? fixed : 60,
                                       .budget = budget,
                                       .patience = share(patience) / size_count},
                                      WithInterference::Apart);
        fill_in(profile_, size, groups_of(plan), samples);
        note_noise(profile_, evaluate_gate(samples));
        if (options_.measures_halves && profile_.whole_backwards && !profile_.halves_over_whole) {
            scenario.pipeline.partition = plan->partition->layers_per_stage();
            profile_.halves_over_whole = halves_over_whole(scenario, size, fixed);
        }
    }

    /// How long the two halves of a backward take as actions of their own, over the whole: a few
    /// steps of the same stages with zb-h1. None where that has no such order, or does not fit.
    std::optional<double> halves_over_whole(SettledScenario scenario, int size, int repeats) {
        scenario.pipeline.schedule = to_string(ScheduleKind::ZbH1);
        try {
            const Samples samples =
                quiet(steps(plan_of(scenario),
                            {.warm_up = 2,
                             .fewest = repeats > 0 ? repeats : fewest_steps_of_halves,
                             .most = repeats > 0 ? repeats : 2 * fewest_steps_of_halves,
                             .budget = share(time_budget) / 4,
                             .patience = share(patience) / 4},
                            WithInterference::Apart));
            Duration halves{};
            Duration whole{};
            for (std::size_t index = 0; index < profile_.layers.size(); ++index) {
                halves += mean_over(samples, [index](const StepSample& step) {
                    return step.layers[index].backward_input + step.layers[index].backward_weight;
                });
                whole += cost_at(profile_.layers[index], size).backward();
            }
            return std::clamp(
                to_seconds(halves) / to_seconds(whole), 1.0, largest_halves_over_whole);
        } catch (const Error& error) {
            if (error.kind() != ErrorKind::Infeasible && error.kind() != ErrorKind::BadInput) {
                throw;
            }
            return std::nullopt;
        }
    }

    Plan plan_of(const SettledScenario& scenario) const {
        return make_plan(scenario, model_, profile_);
    }

    /// What ranks on one GPU take longer for each other goes from the layers' times to the ranks,
    /// as it depends on when they compute. Of several sizes the first says how much it is.
    void set_apart(const MeasuredPipeline& pipeline, Samples& samples) {
        const std::vector<int>& devices = pipeline.shared_devices();
        if (devices.empty()) {
            return;
        }
        if (profile_.ranks.empty()) {
            std::vector<StepActions> steps;
            std::ranges::transform(quiet(samples), std::back_inserter(steps), &StepSample::actions);
            const std::vector<double> shares = fitted_interference(steps);
            for (std::size_t rank = 0; rank < devices.size(); ++rank) {
                profile_.ranks.push_back({.device = devices[rank], .interference = shares[rank]});
            }
        }
        std::vector<double> shares;
        std::ranges::transform(
            profile_.ranks, std::back_inserter(shares), &RankInterference::interference);
        pipeline.take_out(shares, samples);
    }

    Duration share(Duration time) const {
        return Duration(
            static_cast<std::int64_t>(static_cast<double>(time.count()) * options_.time_share));
    }

    struct HowMany {
        int warm_up;
        int fewest;
        int most;
        Duration budget;
        Duration patience;  ///< takes the place of the budget while the machine is not quiet

        bool enough(const Samples& samples, Duration spent) const {
            if (std::ssize(samples) < fewest) {
                return false;
            }
            const bool restless = p90_over_p10(times_of(samples)) > quiet_p90_over_p10;
            return std::ssize(samples) >= most || spent >= (restless ? patience : budget);
        }
    };
    enum class WithInterference { InLayers, Apart };
    Samples steps(const Plan& plan, const HowMany& how_many, WithInterference interference) {
        MeasuredPipeline pipeline(plan, model_, run_options(options_));
        const TimePoint begin = Clock::now();
        for (int step = 0; step < how_many.warm_up; ++step) {
            pipeline.step();
        }
        Samples samples;
        while (!how_many.enough(samples, Clock::now() - begin)) {
            samples.push_back(pipeline.step());
            report(to_seconds(Clock::now() - begin) / to_seconds(how_many.patience), plan);
        }
        if (interference == WithInterference::Apart) {
            set_apart(pipeline, samples);
        }
        return samples;
    }

    void report(double share_of_size, const Plan& plan) const {
        if (options_.progress) {
            const auto sizes = static_cast<double>(options_.micro_batch_sizes.size());
            options_.progress(std::min(1.0, (sizes_done_ + std::min(1.0, share_of_size)) / sizes),
                              fmt::format("{} of {} on {}",
                                          counted(plan.micro_batches(), "micro-batch"),
                                          counted(plan->micro_batch_sizes.front(), "sample"),
                                          counted(workers_, "worker")));
        }
    }

    const Model& model_;
    const ProfilerOptions& options_;
    const int workers_;
    Profile profile_;
    int sizes_done_ = 0;
};

}  // namespace

Profile profile_model(const Model& model, const ProfilerOptions& options) {
    PIPETWIN_EXPECT(!options.micro_batch_sizes.empty(), "a micro-batch size to measure");
    return Profiler(model, options).run();
}

ProfileRounds::ProfileRounds(const Plan& plan, const Model& model, const ProfilerOptions& options)
    : size_(plan->micro_batch_sizes.front()),
      groups_(groups_of(plan)),
      pipeline_(plan, model, run_options(options)) {
    PIPETWIN_EXPECT(options.micro_batch_sizes.size() == 1, "one size of micro-batch");
}

void ProfileRounds::measure(int steps) {
    pipeline_.step();
    std::vector<Duration> times;
    for (int step = 0; step < steps; ++step) {
        samples_.push_back(pipeline_.step());
        times.push_back(samples_.back().time);
    }
    rounds_.push_back(quantile(times, 0.5));
}

Profile ProfileRounds::profile(Profile base) const {
    PIPETWIN_EXPECT(!samples_.empty(), "a round");
    base.calibration.reset();
    fill_in(base, size_, groups_, samples_);
    note_noise(base, evaluate_gate(samples_));
    return base;
}

void ProfileRounds::forget() {
    samples_.clear();
    rounds_.clear();
}

double ProfileRounds::stolen() const {
    double most = 0;
    for (const StepSample& step : samples_) {
        most = std::max(most, step.stolen);
    }
    return most;
}

double ProfileRounds::apart() const {
    if (rounds_.empty()) {
        return 1;
    }
    const auto [shortest, longest] = std::ranges::minmax(rounds_);
    return shortest > Duration{} ? to_seconds(longest) / to_seconds(shortest) : 1;
}

Plan unmeasured_plan(const SettledScenario& scenario, const Model& model) {
    return make_plan(scenario, model, unmeasured_profile(model, profiler_options(scenario)));
}

ProfilerOptions profiler_options(const SettledScenario& scenario) {
    const auto& pipeline = scenario.pipeline;
    const std::vector<int> sizes =
        micro_batch_sizes(replica_batch(scenario), pipeline.micro_batches);
    const std::set<int> distinct(sizes.begin(), sizes.end());
    ProfilerOptions options;
    options.micro_batch_sizes.assign(distinct.begin(), distinct.end());
    options.micro_batches = static_cast<int>(sizes.size());
    options.busy_workers = pipeline.stages;
    options.tensor_parallel = pipeline.tensor_parallel;
    options.sequence_parallel = pipeline.tensor_parallel > 1 && pipeline.sequence_parallel;
    if (pipeline.data_parallel > 1 && pipeline.shard >= Shard::Gradients &&
        traits(scenario.cluster.backend).groups_share_process) {
        options.replicas = pipeline.data_parallel;
        options.shard = pipeline.shard;
        options.prefetch = pipeline.prefetch;
    }
    options.schedule = pipeline.schedule;
    options.chunks = pipeline.chunks;
    options.group_size = pipeline.group_size;
    options.recompute = pipeline.recompute;
    options.recompute_timing = pipeline.recompute_timing;
    options.recomputes_core = pipeline.layer_recompute == LayerRecompute::Selective;
    options.partition = pipeline.partition.known();
    options.backend = traits(scenario.cluster.backend).measured_on;
    options.offload = traits(options.backend).offloads && pipeline.offload == Offload::Stash;
    options.precision = scenario.training.precision;
    options.optimizer = scenario.training.optimizer;
    options.averages_weights = scenario.training.average_decay > 0;
    options.gpu_shares = scenario.cluster.gpu_shares;
    options.gpu_units = scenario.cluster.gpu_units;
    options.seed = scenario.training.seed;
    if (traits(scenario.cluster.backend).is_emulated) {
        // All ranks share the cores, and an action must be done before its time is over.
        const double cores = static_cast<double>(allowed_cores().size());
        constexpr double slack = 1.5;
        options.stretch = slack * std::max(1.0, options.busy_workers / cores);
    }
    return options;
}

}  // namespace pipetwin::exec
