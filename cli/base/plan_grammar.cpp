// SPDX-License-Identifier: Apache-2.0
#include "cli/base/plan_grammar.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/base/value_words.h"
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

    /// An option whose text is written down: an optional value, or lists.
    template <class Values>
    CLI::Option* written(const std::string& name,
                         PlainOptions& plain,
                         const std::string& text,
                         std::string_view type) const {
        const auto write = [&plain, name](const Values& values) {
            if constexpr (requires { values.has_value(); }) {
                if (values) {
                    plain.written.push_back({name, fmt::to_string(*values)});
                }
            } else {
                for (const std::string& list : values) {
                    plain.written.push_back({name, list});
                }
            }
        };
        return app.add_option_function<Values>(name, write, text)
            ->group(group)
            ->type_name(std::string(type));
    }

    /// An option that is a key of [pipeline] under another spelling.
    CLI::Option* key(const ScenarioKey& key, PlainOptions& plain, std::string text) const {
        if (text.empty()) {
            text = fmt::format(
                "{} (default: {})", plain_text(key.meaning), plain_text(default_text(key)));
            text.front() = ascii::upper(text.front());
        }
        const std::string name = option_of_key(key.name);
        CLI::Option* const option =
            key.may_be(Form::Integer)
                ? written<std::optional<int>>(name, plain, text, key.option_value)
                : written<std::optional<std::string>>(name, plain, text, key.option_value);
        return key.words.empty() ? option : option->check(suggests(key.words));
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
               SweepFiles& files) {
    const GroupedOptions add{app, group};
    for (const std::string_view option : plan_options) {
        const ScenarioKey& key = pipeline_key(option);
        const std::string text = key.option_help.empty() ? schedule_help(default_schedules)
                                                         : std::string(key.option_help);
        if (std::ranges::count(list_options, option) == 0) {
            add.key(key, plain, text);
        } else {
            CLI::Option* const list = add.written<std::vector<std::string>>(
                std::string(option), plain, text, key.option_value);
            take_one_word(*list);
            if (key.option_help.empty()) {
                list->check(suggests(NameList::Schedules));
            }
        }
    }
    add_pictures(app, files.pictures, "Draw the plan, or compared plans as one picture", group);
    add("--csv", files.csv, "Write the table of the compared plans as CSV", "FILE.csv");
}

void add_costs(CLI::App& app, PlainOptions& plain) {
    const GroupedOptions add{app, costs_group};
    for (const ScenarioKey& key : pipeline_keys()) {
        if (key.option_value.empty() ||
            std::ranges::count(plan_options, option_of_key(key.name)) > 0) {
            continue;
        }
        CLI::Option* const option = add.key(key, plain, std::string(key.option_help));
        if (key.range.high > key.range.low) {
            option->check(CLI::Range(key.range.low, key.range.high));
        }
    }
    for (const CostOption& cost : cost_options()) {
        add.written<std::optional<std::string>>(
            std::string(cost.name), plain, std::string(cost.help), cost.value);
    }
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
