// SPDX-License-Identifier: Apache-2.0
#include "cli/text/uncertainty.h"

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/text/text_output.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/plan/plan.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::cli {

namespace {

[[noreturn]] void refuse(std::string_view option,
                         const std::string& found,
                         const std::string& hint) {
    throw Error(ErrorKind::Usage, std::string(option), found, hint);
}

/// "0.001:4" as two numbers.
std::pair<double, double> pair_of(const std::string& text,
                                  std::string_view option,
                                  const std::string& hint) {
    const char* const end = text.data() + text.size();
    std::pair<double, double> pair;
    const auto [colon, first] = std::from_chars(text.data(), end, pair.first);
    if (first == std::errc{} && colon != end && *colon == ':') {
        const auto [rest, second] = std::from_chars(colon + 1, end, pair.second);
        if (second == std::errc{} && rest == end) {
            return pair;
        }
    }
    refuse(option, fmt::format("'{}': expected two numbers with a colon between them", text), hint);
}

sim::Jitter jitter_of(const UncertaintyOptions& options) {
    sim::Jitter jitter{.compute = options.jitter.value_or(0),
                       .transfer = options.transfer_jitter.value_or(options.jitter.value_or(0)),
                       .device = options.device_jitter.value_or(0)};
    if (options.spikes) {
        std::tie(jitter.spike_probability, jitter.spike_factor) =
            pair_of(*options.spikes,
                    "--spikes",
                    "--spikes 0.001:4: one action in a thousand lasts four times as long");
    }
    return jitter;
}

/// Throws Error with the option for a value that makes no sense.
void check_parts(const UncertaintyOptions& options, const sim::Jitter& jitter) {
    const auto check = [](std::string_view option, const sim::Jitter& part) {
        try {
            sim::check_jitter(part);
        } catch (const Error& error) {
            throw error.at(option);
        }
    };
    check("--jitter", {.compute = options.jitter.value_or(0)});
    check("--transfer-jitter", {.transfer = jitter.transfer});
    check("--device-jitter", {.device = jitter.device});
    check("--spikes",
          {.spike_probability = jitter.spike_probability, .spike_factor = jitter.spike_factor});
}

std::optional<JitterResult> sampled(const UncertaintyOptions& options,
                                    const Plan& plan,
                                    Duration step,
                                    std::uint64_t seed) {
    const sim::Jitter jitter = jitter_of(options);
    check_parts(options, jitter);
    const int samples = options.samples.value_or(sim::fewest_samples);
    if (!jitter.any()) {
        if (options.samples) {
            refuse("--samples",
                   "nothing varies, so there is nothing to sample",
                   "add a variation: --jitter 0.05");
        }
        return std::nullopt;
    }
    const sim::StepSamples steps =
        sim::sample_steps(plan, sim::planned_conditions(plan), jitter, samples, seed);
    return JitterResult{.jitter = jitter,
                        .samples = samples,
                        .seed = seed,
                        .step = step,
                        .mean = steps.mean(),
                        .ranks = plan.rank_count(),
                        .p50 = steps.quantile(0.5),
                        .p95 = steps.quantile(0.95)};
}

std::optional<StragglerResult> with_straggler(const UncertaintyOptions& options,
                                              const Plan& plan,
                                              Duration step) {
    if (!options.straggler) {
        return std::nullopt;
    }
    constexpr double most = 1000;
    const std::string hint =
        "write it as in --straggler 2:1.5: the work of rank 2 takes 1.5 times as long";
    const auto [number, factor] = pair_of(*options.straggler, "--straggler", hint);
    const int rank = static_cast<int>(std::clamp(number, -1.0, 1e9));
    if (rank != number || rank < 0 || rank >= plan.rank_count()) {
        refuse("--straggler",
               fmt::format("there is no rank {}, expected 0 to {}", number, plan.rank_count() - 1),
               hint);
    }
    if (!(factor >= 1 / most && factor <= most)) {
        refuse("--straggler", fmt::format("a factor of {}: expected up to {}", factor, most), hint);
    }
    return StragglerResult{
        .rank = rank,
        .factor = factor,
        .step = step,
        .slow_step = sim::replayed_step(plan, sim::with_slower_rank(plan, rank, factor))};
}

/// Throws Error(Usage) with the option for a number of failures that makes no sense.
void check_failure_options(const UncertaintyOptions& options) {
    if (!(*options.mtbf_hours > 0 && *options.mtbf_hours <= sim::longest_mtbf_hours)) {
        refuse("--mtbf-hours",
               fmt::format("'{}', expected a number above 0, at most {}",
                           *options.mtbf_hours,
                           sim::longest_mtbf_hours),
               "50000 hours is what large clusters report for one GPU");
    }
    if (options.devices.value_or(1) < 1) {
        refuse("--failing-devices",
               fmt::format("'{}', expected at least 1", *options.devices),
               "count the devices of all replicas");
    }
    if (options.checkpoint_every.value_or(1) < 1) {
        refuse("--checkpoint-every",
               fmt::format("'{}', expected at least 1", *options.checkpoint_every),
               "leave it out to have the best number found");
    }
}

std::optional<FailureResult> with_failures(const UncertaintyOptions& options,
                                           const Plan& plan,
                                           Duration step) {
    if (!options.mtbf_hours) {
        if (options.checkpoint_every || options.checkpoint_s || options.restart_s) {
            refuse(options.checkpoint_every ? "--checkpoint-every"
                   : options.checkpoint_s   ? "--checkpoint-s"
                                            : "--restart-s",
                   "has no effect without failures, and --mtbf-hours is missing",
                   "add --mtbf-hours 50000: the mean time between failures of one device");
        }
        return std::nullopt;
    }
    check_failure_options(options);
    const auto milliseconds = [](double seconds, std::string_view option) {
        return from_milliseconds(1e3 * seconds, option);
    };
    const sim::Failures failures{
        .mtbf_hours = *options.mtbf_hours,
        .devices = options.devices.value_or(plan.rank_count()),
        .step = step,
        .checkpoint = milliseconds(options.checkpoint_s.value_or(0), "--checkpoint-s"),
        .restart = milliseconds(options.restart_s.value_or(0), "--restart-s")};
    return FailureResult{.failures = failures,
                         .goodput = options.checkpoint_every
                                        ? expected_goodput(failures, *options.checkpoint_every)
                                        : best_goodput(failures),
                         .chosen = !options.checkpoint_every};
}

std::string jitter_text(const JitterResult& result) {
    const double longer = 100 * (to_seconds(result.mean) / to_seconds(result.step) - 1);
    return fmt::format(
        "\n  with jitter ({}, seed {})\n"
        "  a step lasts {} on average, {:+.2f} % against {} without jitter{};\n"
        "  half of the steps take at most {}, 95 % at most {}\n",
        counted(result.samples, "sample"),
        result.seed,
        format_duration(result.mean),
        longer,
        format_duration(result.step),
        result.ranks > 1 && longer >= 0.005 ? ", as ranks wait for the slowest one" : "",
        format_duration(result.p50),
        format_duration(result.p95));
}

std::string straggler_text(const StragglerResult& result) {
    const double longer = 100 * (to_seconds(result.slow_step) / to_seconds(result.step) - 1);
    return fmt::format(
        "\n  with a straggler\n"
        "  if rank {} took {} times as long, a step would last {} instead of {} ({:+.1f} %)\n",
        result.rank,
        result.factor,
        format_duration(result.slow_step),
        format_duration(result.step),
        longer);
}

std::string failure_text(const FailureResult& result) {
    const sim::Failures& failures = result.failures;
    const int every = result.goodput.checkpoint_every;
    return fmt::format(
        "\n  with failures\n"
        "  {} fails every {:.1f} hours on average; with a checkpoint after every {}{},\n"
        "  {} of the time goes into steps that are kept: in a long run a step takes {}\n",
        failures.devices == 1 ? "the one device"
                              : fmt::format("one of {} devices", failures.devices),
        failures.mtbf_hours / failures.devices,
        every == 1 ? "step" : counted(every, "step"),
        result.chosen ? " (the best interval)" : "",
        percent_text(result.goodput.share),
        format_duration(result.goodput.time_per_step));
}

}  // namespace

Uncertainty uncertainty(const UncertaintyOptions& options,
                        const Plan& plan,
                        Duration step,
                        std::uint64_t seed) {
    try {
        return {.jitter = sampled(options, plan, step, seed),
                .straggler = with_straggler(options, plan, step),
                .failures = with_failures(options, plan, step)};
    } catch (const Error& error) {
        throw error.with_kind(ErrorKind::Usage);
    }
}

std::string uncertainty_text(const Uncertainty& uncertainty) {
    return (uncertainty.jitter ? jitter_text(*uncertainty.jitter) : "") +
           (uncertainty.straggler ? straggler_text(*uncertainty.straggler) : "") +
           (uncertainty.failures ? failure_text(*uncertainty.failures) : "");
}

void add_uncertainty(const Uncertainty& uncertainty, Json& json) {
    json["uncertainty"] = nullptr;
    json["straggler"] = nullptr;
    json["goodput"] = nullptr;
    if (const auto& result = uncertainty.jitter) {
        json["uncertainty"] = {{"samples", result->samples},
                               {"seed", result->seed},
                               {"jitter",
                                {{"compute", result->jitter.compute},
                                 {"transfer", result->jitter.transfer},
                                 {"device", result->jitter.device},
                                 {"spike_probability", result->jitter.spike_probability},
                                 {"spike_factor", result->jitter.spike_factor}}},
                               {"step_ms",
                                {{"deterministic", to_milliseconds(result->step)},
                                 {"mean", to_milliseconds(result->mean)},
                                 {"p50", to_milliseconds(result->p50)},
                                 {"p95", to_milliseconds(result->p95)}}}};
    }
    if (const auto& result = uncertainty.straggler) {
        json["straggler"] = {{"rank", result->rank},
                             {"factor", result->factor},
                             {"step_ms", to_milliseconds(result->slow_step)}};
    }
    if (const auto& result = uncertainty.failures) {
        json["goodput"] = {{"mtbf_hours", result->failures.mtbf_hours},
                           {"devices", result->failures.devices},
                           {"checkpoint_every", result->goodput.checkpoint_every},
                           {"share", result->goodput.share},
                           {"step_ms", to_milliseconds(result->goodput.time_per_step)}};
    }
}

}  // namespace pipetwin::cli
