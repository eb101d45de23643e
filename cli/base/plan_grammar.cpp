// SPDX-License-Identifier: Apache-2.0
#include "cli/base/plan_grammar.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/ascii.h"
#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/schedule/schedule.h"
#include "sim/variation/jitter.h"

namespace pipetwin::cli {

namespace {

/// Lists all names of schedules, at the end those that cannot be trained.
std::string schedule_help(std::string_view default_text) {
    std::string trained;
    std::string stale;
    for (const ScheduleName& known : known_schedules()) {
        std::string& list = schedule_traits(known.kind).stale_gradients ? stale : trained;
        list += fmt::format("{}{}", list.empty() ? "" : ", ", known.name);
    }
    return fmt::format(
        "Schedule, schedule file (FILE.csv), or a list of them to compare (default: {}):\n{}; "
        "simulated only, because their gradients are stale: {}",
        default_text,
        trained,
        stale);
}

/// Adds options that the help lists together.
struct GroupedOptions {
    CLI::App& app;
    std::string group;

    template <class Value>
    CLI::Option* operator()(const std::string& name,
                            Value& value,
                            const std::string& text,
                            const std::string& type) const {
        return app.add_option(name, value, text)->group(group)->type_name(type);
    }

    /// An option that is a key of [pipeline] under another spelling: help and range are the key's.
    template <class Value>
    void key(std::string_view name, Value& value, const std::string& type) const {
        const ScenarioKey& key = key_named(pipeline_keys(), name);
        std::string option = fmt::format("--{}", name);
        std::ranges::replace(option, '_', '-');
        std::string text = plain_text(key.meaning);
        text.front() = ascii::upper(text.front());
        text += fmt::format(" (default: {})", plain_text(default_text(key)));
        CLI::Option* const added = (*this)(option, value, text, type);
        if (key.range.high > key.range.low) {
            added->check(CLI::Range(key.range.low, key.range.high));
        }
    }
};

}  // namespace

void take_one_word(CLI::Option& list) {
    list.expected(1)->allow_extra_args(false)->take_all();
}

void add_plans(CLI::App& app,
               const std::string& group,
               std::string_view default_schedules,
               PlainOptions& plain,
               SweepOptions& sweep,
               RawCommon& raw) {
    const GroupedOptions add{app, group};
    add("--schedule", raw.schedules, schedule_help(default_schedules), "NAME[,NAME...]");
    add("--stages",
        raw.stages,
        "Number P of ranks (devices) in the pipeline; a list compares several numbers",
        "P[,P...]");
    add("--chunks",
        plain.chunks,
        "Number V of stages per rank (chunks, virtual stages; default 1, or 2 for schedules that "
        "are "
        "meant for several)",
        "V");
    add("--micro-batches",
        raw.micro_batches,
        "Number M of micro-batches per step; a list compares several numbers",
        "M[,M...]");
    add("--svg", sweep.svg, "Draw the compared plans as one picture", "FILE.svg");
    add("--csv", sweep.csv, "Write the table of the compared plans as CSV", "FILE.csv");
    for (const char* const list : {"--schedule", "--stages", "--micro-batches"}) {
        take_one_word(*app.get_option(list));
    }
}

void add_costs(CLI::App& app, PlainOptions& plain) {
    const GroupedOptions add{app, costs_group};
    add("--schedule-file", plain.schedule_file, "Read the schedule from a CSV file", "FILE.csv");
    add.key("receives", plain.receives, "HOW");
    add.key("group_size", plain.group_size, "G");
    add.key("deferred_weights", plain.deferred_weights, "N");
    add.key("message_order", plain.message_order, "HOW");
    add("--forward-ms",
        plain.forward_ms,
        "Forward time of one stage: one X that every stage takes, or X,X,... for each of the P x V "
        "stages",
        "X[,X...]");
    add("--backward-ms",
        plain.backward_ms,
        "Backward time, in the same form as --forward-ms",
        "X[,X...]");
    add("--backward-input-ms",
        plain.backward_input_ms,
        "Time of the input gradient alone; replaces --backward-ms, together with "
        "--backward-weight-ms",
        "X[,X...]");
    add("--backward-weight-ms",
        plain.backward_weight_ms,
        "Time of the weight gradient alone",
        "X[,X...]");
    add("--recompute",
        plain.recompute,
        "none (default), always, or except-last (recompute every micro-batch but the last); give "
        "one "
        "mode for all stages, or one for each stage",
        "MODE[,MODE...]");
    add("--recompute-ms",
        plain.recompute_ms,
        "Recompute time, in the same form as --forward-ms (default: the forward time)",
        "X[,X...]");
    add("--rank-forward-ms",
        plain.rank_forward_ms,
        "Forward time of all stages of a rank together, in place of --forward-ms: one X for every "
        "rank, or X,X,... for each; plans with more stages on a rank then do the same work",
        "X[,X...]");
    add("--rank-backward-ms",
        plain.rank_backward_ms,
        "Backward time, in the same form as --rank-forward-ms",
        "X[,X...]");
    add("--rank-backward-input-ms",
        plain.rank_backward_input_ms,
        "Time of the input gradient alone, in the same form",
        "X[,X...]");
    add("--rank-backward-weight-ms",
        plain.rank_backward_weight_ms,
        "Time of the weight gradient alone, in the same form",
        "X[,X...]");
    add("--rank-recompute-ms",
        plain.rank_recompute_ms,
        "Recompute time, in the same form",
        "X[,X...]");
    add.key("recompute_timing", plain.recompute_timing, "WHEN");
    add("--latency-ms",
        plain.latency_ms,
        "Latency of a message between two ranks (default 0)",
        "X");
    add("--bandwidth-gbps",
        plain.bandwidth_gbps,
        "Bandwidth between two ranks in Gbit/s (default: unlimited)",
        "X");
    add("--boundary-bytes",
        plain.boundary_bytes,
        "Bytes that one stage sends to the next (default 0)",
        "N");
    add("--skips",
        plain.skips,
        "Skip connections: stage B also reads the output of stage A, as in 0:3,1:2",
        "A:B[,A:B...]");
}

void add_uncertain(CLI::App& app, UncertaintyOptions& options) {
    const GroupedOptions add{app, "Variation and failures"};
    add("--jitter", options.jitter, "Random variation of computing times: 0.05 is about 5 %", "X");
    add("--transfer-jitter",
        options.transfer_jitter,
        "Random variation of message times (default: that of --jitter)",
        "X");
    add("--device-jitter",
        options.device_jitter,
        "Random variation between devices: each has one factor per step",
        "X");
    add("--spikes", options.spikes, "A share P of all actions takes F times as long", "P:F");
    add("--samples", options.samples, "Number of random steps to simulate (default 256)", "N")
        ->check(CLI::Range(1, sim::most_samples));
    add("--straggler", options.straggler, "All work of rank R takes F times as long", "R:F");
    add("--mtbf-hours",
        options.mtbf_hours,
        "Mean time between failures of one device, in hours",
        "X");
    add("--failing-devices",
        options.devices,
        "Number of devices that can fail (default: one per rank)",
        "N");
    add("--checkpoint-every",
        options.checkpoint_every,
        "Steps between two checkpoints (default: the best interval)",
        "N");
    add("--checkpoint-s", options.checkpoint_s, "Seconds to write a checkpoint (default 0)", "X");
    add("--restart-s", options.restart_s, "Seconds to restart after a failure (default 0)", "X");
}

}  // namespace pipetwin::cli
