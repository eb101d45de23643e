// SPDX-License-Identifier: Apache-2.0
#include "sim/calibration/settled_runs.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/artifacts/model_flops.h"
#include "core/base/error.h"

namespace pipetwin::sim {

namespace {

using std::string_view;

/// Times that a run states in several ways may differ by as much.
constexpr double most_apart = 0.02;

[[noreturn]] void refuse_run(const MeasuredRun& run, std::string text, std::string hint) {
    throw Error(ErrorKind::BadInput, run.place, std::move(text), std::move(hint));
}

/// The error with the row and its key in place of "--set key".
Error at_run(const Error& error, const MeasuredRun& run) {
    const bool is_of_row = std::ranges::count(run.keys, error.key(), &Override::key) > 0;
    return is_of_row ? error.placed(fmt::format("{}, {}", run.place, error.key()))
                     : error.at(run.place);
}

Scenario read_scenario_of(const MeasuredRun& run, const ScenarioSource& source) {
    std::vector<Override> overrides = source.overrides;
    overrides.insert(overrides.end(), run.keys.begin(), run.keys.end());
    try {
        return read_scenario(source.file, overrides, source.unwritten);
    } catch (const Error& error) {
        throw at_run(error, run);
    }
}

/// The costs are those of the scenario's model, so a run of another one says nothing of them.
void expect_own_model(const MeasuredRun& run,
                      const Scenario& scenario,
                      const ScenarioSource& source) {
    const auto key = std::ranges::find_if(
        run.keys, [](const Override& of) { return of.key.starts_with("model."); });
    if (key == run.keys.end()) {
        return;
    }
    const Scenario own = read_scenario(source.file, source.overrides, source.unwritten);
    if (!(own.model == scenario.model)) {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}, {}", run.place, key->key),
                    "not the scenario's model, whose costs are to be corrected",
                    "leave the row out, or calibrate a scenario of that model with it");
    }
}

SettledScenario settle_run(const MeasuredRun& run, Scenario scenario) {
    if (scenario.pipeline.chunks.is_auto()) {
        scenario.pipeline.chunks = 1;
    }
    close_division(scenario);
    try {
        return settle(scenario);
    } catch (const Error& error) {
        refuse_run(run,
                   error.text() + ", expected what the measured run had",
                   fmt::format("write \"{}\" into the row, with its value", error.key()));
    }
}

double device_count(const SettledScenario& scenario) {
    return static_cast<double>(scenario.pipeline.stages) * scenario.pipeline.rank_devices() *
           scenario.pipeline.data_parallel;
}

/// Operations of a sample as the run counts them.
double operations_per_sample(const MeasuredRun& run,
                             const SettledScenario& scenario,
                             const Profile& profile) {
    const std::optional<double> operations = model_flops(run.flops_count, scenario, profile);
    if (!operations) {
        const UnknownFlops why = why_unknown(run.flops_count, profile);
        refuse_run(
            run,
            fmt::format("tflops_per_device with \"tflops_count\": \"{}\", but {}",
                        to_string(run.flops_count),
                        why.reason),
            why.known.empty()
                ? "state step_seconds instead"
                : fmt::format("state step_seconds, or tflops_per_device as {} counts", why.known));
    }
    return *operations;
}

double tokens_per_sample(const MeasuredRun& run,
                         const SettledScenario& scenario,
                         const Profile& profile) {
    if (run.tokens_per_sample && profile.tokens_per_sample > 0 &&
        *run.tokens_per_sample != profile.tokens_per_sample) {
        refuse_run(
            run,
            fmt::format("\"tokens_per_sample\": {}, but the costs are of samples of {} tokens, "
                        "expected the same",
                        *run.tokens_per_sample,
                        profile.tokens_per_sample),
            "estimate the costs for samples of the run's length: import hf --sequence N");
    }
    if (run.tokens_per_sample) {
        return *run.tokens_per_sample;
    }
    if (profile.tokens_per_sample > 0) {
        return profile.tokens_per_sample;
    }
    if (scenario.model.tokens_per_sample() > 0) {
        return scenario.model.tokens_per_sample();
    }
    refuse_run(run,
               "tokens_per_second_per_device, but how many tokens a sample has is not known",
               "write \"tokens_per_sample\" into the row, or state step_seconds");
}

/// A time as a run states it. The step is `per_value` / value, or for step_seconds the value.
struct StatedTime {
    string_view key;
    double value = 0;
    double per_value = 0;  ///< 0: the value is the step

    double step() const { return per_value == 0 ? value : per_value / value; }
    /// The value that goes with a step.
    double at(double step) const { return per_value == 0 ? step : per_value / step; }
};

std::vector<StatedTime> stated_times(const MeasuredRun& run,
                                     const SettledScenario& scenario,
                                     const Profile& profile) {
    const double samples = scenario.training.batch / device_count(scenario);
    std::vector<StatedTime> times;
    if (run.step_seconds) {
        times.push_back({.key = "step_seconds", .value = *run.step_seconds});
    }
    if (run.tokens_per_second_per_device) {
        times.push_back({.key = "tokens_per_second_per_device",
                         .value = *run.tokens_per_second_per_device,
                         .per_value = samples * tokens_per_sample(run, scenario, profile)});
    }
    if (run.samples_per_second_per_device) {
        times.push_back({.key = "samples_per_second_per_device",
                         .value = *run.samples_per_second_per_device,
                         .per_value = samples});
    }
    if (run.tflops_per_device) {
        times.push_back(
            {.key = "tflops_per_device",
             .value = *run.tflops_per_device,
             .per_value = 1e-12 * samples * operations_per_sample(run, scenario, profile)});
    }
    return times;
}

/// Steps that agree as times of one run do.
bool agree(double a, double b) {
    return std::abs(a / b - 1) <= most_apart;
}

/// The count with which TFLOP/s would agree with the step; none where none does.
std::optional<FlopsCount> count_that_agrees(const MeasuredRun& run,
                                            const SettledScenario& scenario,
                                            const Profile& profile,
                                            double step) {
    for (const FlopsCount count : flops_counts) {
        MeasuredRun otherwise = run;
        otherwise.flops_count = count;
        if (model_flops(count, scenario, profile) &&
            agree(stated_times(otherwise, scenario, profile).back().step(), step)) {
            return count;
        }
    }
    return std::nullopt;
}

[[noreturn]] void refuse_times(const MeasuredRun& run,
                               const SettledScenario& scenario,
                               const Profile& profile,
                               const StatedTime& first,
                               const StatedTime& time) {
    const std::optional<FlopsCount> otherwise =
        time.key == "tflops_per_device" ? count_that_agrees(run, scenario, profile, first.step())
                                        : std::nullopt;
    refuse_run(
        run,
        fmt::format("{} = {:.6g} is a step of {:.4g} s with {} samples on {} devices, but {} "
                    "= {:.6g} is one of {:.4g} s, expected both within 2 %",
                    time.key,
                    time.value,
                    time.step(),
                    scenario.training.batch,
                    device_count(scenario),
                    first.key,
                    first.value,
                    first.step()),
        otherwise
            ? fmt::format("they agree with \"tflops_count\": \"{}\"", to_string(*otherwise))
            : fmt::format("{} = {:.4g} goes with {}, or {} = {:.4g} with {}; is training.batch "
                          "the samples of a whole step?",
                          time.key,
                          time.at(first.step()),
                          first.key,
                          first.key,
                          first.at(time.step()),
                          time.key));
}

/// The step of a run, in seconds.
double measured_step(const MeasuredRun& run,
                     const SettledScenario& scenario,
                     const Profile& profile) {
    const std::vector<StatedTime> times = stated_times(run, scenario, profile);
    for (std::size_t i = 0; i < times.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            if (!agree(times[i].step(), times[j].step())) {
                refuse_times(run, scenario, profile, times[j], times[i]);
            }
        }
    }
    return times.front().step();
}

/// A run need not say what has no effect on it: what devices of a rank divide where it has one, and
/// what replicas share where there are none.
void close_what_has_no_effect(Scenario& scenario) {
    Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (pipeline.tensor_parallel == 1) {
        pipeline.sequence_parallel = pipeline.sequence_parallel.value_or(false);
        pipeline.scatter_boundaries = pipeline.scatter_boundaries.value_or(false);
    }
    if (pipeline.data_parallel == 1) {
        pipeline.shard = pipeline.shard.value_or(Shard::None);
    }
}

/// Warns of TFLOP/s alone whose count the row does not name, where the counts are far apart.
std::string warning_of_count(const MeasuredRun& run,
                             const SettledScenario& scenario,
                             const Profile& profile) {
    const bool has_other_time =
        run.step_seconds || run.tokens_per_second_per_device || run.samples_per_second_per_device;
    const std::optional<double> palm = model_flops(FlopsCount::Palm, scenario, profile);
    const std::optional<double> megatron = model_flops(FlopsCount::Megatron, scenario, profile);
    if (!run.tflops_per_device || run.names_flops_count || has_other_time || !megatron ||
        agree(*palm, *megatron)) {
        return "";
    }
    return fmt::format(
        "{}: tflops_per_device is taken to count all pairs of attention; if it is from a log of "
        "Megatron-LM, which counts half of causal attention, the step is {:.1f} % shorter: say "
        "which with \"tflops_count\": \"palm\" or \"megatron\"",
        run.place,
        100 * (1 - *megatron / *palm));
}

}  // namespace

SettledRun settled_run(const MeasuredRun& run,
                       const ScenarioSource& source,
                       const Profile& profile) {
    Scenario scenario = read_scenario_of(run, source);
    expect_own_model(run, scenario, source);
    return settled_run(run, std::move(scenario), profile);
}

SettledRun settled_run(const MeasuredRun& run, Scenario scenario, const Profile& profile) {
    close_what_has_no_effect(scenario);
    SettledRun settled{.place = run.place, .scenario = settle_run(run, scenario), .peak = run.peak};
    settled.name = run.name;
    settled.timers = run.timers;
    settled.step_seconds = measured_step(run, settled.scenario, profile);
    settled.warning = warning_of_count(run, settled.scenario, profile);
    return settled;
}

}  // namespace pipetwin::sim
