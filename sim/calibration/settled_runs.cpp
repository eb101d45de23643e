#include "sim/calibration/settled_runs.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

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
    const std::string& place = error.place();
    for (const Override& key : run.keys) {
        if (place == "--set " + key.key) {
            return {error.kind(),
                    fmt::format("{}, {}", run.place, key.key),
                    error.text(),
                    error.hint()};
        }
    }
    return error.at(run.place);
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
    if (!scenario.pipeline.chunks) {
        scenario.pipeline.chunks = 1;
    }
    try {
        return settle(scenario);
    } catch (const Error& error) {
        const std::string& text = error.text();
        const std::size_t key = std::min(text.find("pipeline."), text.size());
        refuse_run(run,
                   text + ", expected what the measured run had",
                   fmt::format("write \"{}\" into the row, with its value",
                               text.substr(key, text.find(',', key) - key)));
    }
}

double device_count(const SettledScenario& scenario) {
    return static_cast<double>(scenario.pipeline.stages) * scenario.pipeline.tensor_parallel *
           scenario.pipeline.data_parallel;
}

/// Whether the forward of every layer but the last is computed again.
bool recomputes_all(const SettledScenario& scenario) {
    return scenario.pipeline.layer_recompute == LayerRecompute::Block ||
           scenario.pipeline.recompute.everywhere() == Recompute::Always;
}

bool recomputes_nothing(const SettledScenario& scenario) {
    return scenario.pipeline.layer_recompute == LayerRecompute::None &&
           scenario.pipeline.recompute.everywhere() == Recompute::None;
}

/// Operations of a sample as the run counts them.
double operations_per_sample(const MeasuredRun& run,
                             const SettledScenario& scenario,
                             const Profile& profile) {
    const std::optional<double> once = model_operations(profile);
    if (!once) {
        refuse_run(run,
                   "tflops_per_device, but the profile does not say how many operations its layers "
                   "do (layers[].operations_per_sample, as 'import hf' writes it)",
                   "state step_seconds instead");
    }
    if (!run.counts_recompute || recomputes_nothing(scenario)) {
        return *once;
    }
    if (!recomputes_all(scenario)) {
        refuse_run(run,
                   "\"tflops_count\": \"hardware\", but the run computes only parts again, whose "
                   "operations are not known",
                   "state step_seconds, or tflops_per_device with \"tflops_count\": \"model\"");
    }
    // Narayanan et al. (2021), section 5.1: logits are not computed again.
    return *once + *once / 3 - profile.layers.back().operations.value_or(0);
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

/// True if TFLOP/s would agree with the step if they counted recompute the other way.
bool agrees_counted_otherwise(const MeasuredRun& run,
                              const SettledScenario& scenario,
                              const Profile& profile,
                              double step) {
    if (!run.tflops_per_device || !(recomputes_all(scenario) || recomputes_nothing(scenario))) {
        return false;
    }
    MeasuredRun otherwise = run;
    otherwise.counts_recompute = !run.counts_recompute;
    return agree(stated_times(otherwise, scenario, profile).back().step(), step);
}

[[noreturn]] void refuse_times(const MeasuredRun& run,
                               const SettledScenario& scenario,
                               const Profile& profile,
                               const StatedTime& first,
                               const StatedTime& time) {
    const bool otherwise = time.key == "tflops_per_device" &&
                           agrees_counted_otherwise(run, scenario, profile, first.step());
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
            ? fmt::format("they agree with \"tflops_count\": \"{}\"",
                          run.counts_recompute ? "model" : "hardware")
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
        pipeline.sequence_parallel_auto = pipeline.scatter_boundaries_auto = false;
    }
    if (pipeline.data_parallel == 1) {
        pipeline.shard_auto = false;
    }
}

}  // namespace

SettledRun settled_run(const MeasuredRun& run,
                       const ScenarioSource& source,
                       const Profile& profile) {
    Scenario scenario = read_scenario_of(run, source);
    close_what_has_no_effect(scenario);
    expect_own_model(run, scenario, source);
    SettledRun settled{.place = run.place, .scenario = settle_run(run, scenario), .peak = run.peak};
    settled.name = run.name;
    settled.step_seconds = measured_step(run, settled.scenario, profile);
    return settled;
}

}  // namespace pipetwin::sim
