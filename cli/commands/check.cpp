// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/base/file_kinds.h"
#include "cli/base/schedule_file.h"
#include "cli/commands/commands.h"
#include "cli/interop/exchange.h"
#include "cli/text/json_output.h"
#include "cli/text/text_output.h"
#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/validate.h"
#include "core/timeline/footprint.h"
#include "sim/questions/schedule_rows.h"
#include "sim/questions/unit_costs.h"

namespace pipetwin::cli {

namespace {

/// Options of `check`.
struct CheckOptions {
    CommonOptions common;
    std::filesystem::path file;
    std::optional<int> capacity;
    bool preposted_receives = false;
    bool one_queue_per_ranks = false;
};

MessageQueues queues_of(const CheckOptions& options) {
    return options.one_queue_per_ranks ? MessageQueues::PerRanks : MessageQueues::PerStages;
}

Schedule read_schedule(const CheckOptions& options, Console& console) {
    if (options.file.extension() == ".toml") {
        const SettledScenario scenario =
            settle(read_scenario(options.file, options.common.overrides));
        const std::optional<sim::FoundProfile> found = sim::profile_for_rows(scenario);
        const Profile* const profile = found ? &found->profile : nullptr;
        for (const std::string& note : sim::notes_on_rows(scenario, profile)) {
            console.note(note);
        }
        return sim::scenario_rows(scenario, profile, queues_of(options));
    }
    if (!options.common.overrides.empty()) {
        throw Error(
            ErrorKind::Usage,
            "--set " + options.common.overrides.front().key,
            fmt::format("'{}' is not a scenario, so it has no keys to set", options.file.string()),
            "leave --set and --seed out, or check a scenario *.toml");
    }
    return read_schedule_file(options.file);
}

/// Tries a valid schedule for deadlock.
void try_for_deadlock(const Schedule& lowered, const CheckOptions& options, CheckResult& result) {
    const MessageQueues queues = queues_of(options);
    DeadlockReport begun = find_deadlock_with_preposted_receives(lowered, queues);
    result.runs_with_preposted_receives = begun.deadlock_free;
    result.deadlock = options.preposted_receives ? std::move(begun)
                                                 : find_deadlock(lowered, result.capacity, queues);
    const int smallest = smallest_capacity(lowered, queues);
    result.smallest_capacity = smallest >= 0 ? std::optional(smallest) : std::nullopt;
}

std::string capacity_text(const std::optional<int>& capacity) {
    return capacity ? fmt::format("with channel capacity {}", *capacity)
                    : "with any channel capacity";
}

std::string fine_text(const Schedule& schedule, const CheckResult& result) {
    return fmt::format(
        "valid and free of deadlock: {}, {}, {}; smallest channel capacity "
        "{}{}\n"
        "{}"
        "most stashes held at once, per rank: {}\n",
        counted(schedule.rank_count(), "rank"),
        counted(schedule.stage_count(), "stage"),
        counted(schedule.micro_batches, "micro-batch"),
        *result.smallest_capacity,
        *result.smallest_capacity > 0 && *result.runs_with_preposted_receives
            ? " (0 with pre-posted receives, as between processes)"
            : "",
        is_forward_only(schedule) ? "there is no backward: the schedule can be simulated, but not "
                                    "trained with\n"
                                  : "",
        fmt::join(result.peak_live_activations, " "));
}

/// Small enough to be simulated for a picture alone, and its recomputes follow a mode, as a plan's
/// must.
bool can_be_drawn(const Schedule& schedule) {
    constexpr std::int64_t most_actions = 1'000'000;
    std::int64_t actions = 0;
    for (const auto& row : schedule.ranks) {
        actions += std::ssize(row);
    }
    return actions <= most_actions && recompute_of(schedule).has_value();
}

/// The rows at unit costs, a column per unit where they fit; nothing for those who want no more
/// than the verdict. A message whose receive was begun leaves as one that has room.
std::string grid_text(const Schedule& schedule,
                      const CheckResult& result,
                      bool preposted_receives,
                      const Console& console) {
    if (console.quiet() || !can_be_drawn(schedule)) {
        return {};
    }
    return fmt::format(
        "\ndrawn with {:g} ms for a forward, {:g} ms for a backward ({:g} ms for each half), and "
        "no "
        "time for a message\n{}",
        to_milliseconds(sim::cost_unit),
        to_milliseconds(2 * sim::cost_unit),
        to_milliseconds(sim::cost_unit),
        timeline_text(
            sim::unit_timeline(schedule, preposted_receives ? std::nullopt : result.capacity),
            console.width()));
}

/// A word on a file of messages that this program runs and PyTorch would mix up.
void note_queues_of_torch(const Schedule& written, const CheckOptions& options, Console& console) {
    if (!options.one_queue_per_ranks && has_communication(written) &&
        !validate(written, MessageQueues::PerRanks).empty()) {
        console.note(
            "PyTorch has one queue from each rank to each other, and would mix these messages up: "
            "--one-queue-per-ranks shows where, and 'pipetwin export torch-csv' orders them anew");
    }
}

Error deadlock_error(const std::string& place, const CheckResult& result) {
    return {ErrorKind::Infeasible,
            place,
            fmt::format("deadlock {}: the actions above wait for each other",
                        capacity_text(result.capacity)),
            result.smallest_capacity
                ? fmt::format("the smallest capacity that works is {}", *result.smallest_capacity)
                : "change the order of the actions: no capacity helps"};
}

void execute_check(const CheckOptions& options, Console& console) {
    const std::string place = options.file.string();
    const Schedule written = read_schedule(options, console);
    Schedule schedule = written;
    CheckResult result;
    result.capacity = options.preposted_receives ? std::optional(0) : options.capacity;
    const MessageQueues queues = queues_of(options);
    result.violations = validate(schedule, queues);
    if (result.violations.empty()) {
        schedule = sim::with_communication(std::move(schedule), sim::timing_of_files(), queues);
        result.violations = validate(schedule, queues);  // and the order of the messages
    }
    const bool valid = result.violations.empty();
    const Schedule* const file = options.file.extension() != ".toml" ? &written : nullptr;
    if (file != nullptr) {
        name_cells_of_file(*file, schedule, result.violations);
    }
    if (valid) {
        try_for_deadlock(schedule, options, result);
        if (file != nullptr) {
            name_cells_of_file(*file, schedule, result.deadlock->waiting);
        }
        result.peak_live_activations = peak_live_activations(schedule);
        if (file != nullptr) {
            note_queues_of_torch(written, options, console);
        }
    }
    const bool deadlock = valid && !result.deadlock->deadlock_free;
    write_result(json_text(check_json(result)), options.common, console);
    if (options.common.json) {
        console.result(json_text(check_json(result)));
    } else if (valid && !deadlock) {
        console.result(fine_text(schedule, result) +
                       grid_text(schedule, result, options.preposted_receives, console));
    } else {
        const auto& problems = valid ? result.deadlock->waiting : result.violations;
        console.result(explain(schedule, problems, problems.size(), &written) + '\n');
    }
    if (!valid) {
        throw Error(ErrorKind::Infeasible,
                    place,
                    fmt::format("not a valid schedule, {} broken",
                                counted(result.violations.size(), "rule")),
                    hint_for(result.violations));
    }
    if (deadlock) {
        throw deadlock_error(place, result);
    }
}

Command declare_check(CLI::App& app) {
    const auto options = std::make_shared<CheckOptions>();
    takes_out_file(app);
    leave_out_of_help(app, {"--seed", "--verbose"});
    app.add_option("file", options->file, "Schedule file (CSV) or scenario")
        ->type_name("FILE")
        ->required();
    app.add_option(
           "--capacity",
           options->capacity,
           "Number of messages that a channel holds before its sender waits (default: unlimited)")
        ->type_name("N")
        ->check(CLI::NonNegativeNumber);
    app.add_flag("--preposted-receives,--begun-receives",
                 options->preposted_receives,
                 "Assume that channels hold no message, and that each rank posts all its receives "
                 "before its first action, as MPI and NCCL allow")
        ->excludes("--capacity");
    app.add_flag("--one-queue-per-ranks",
                 options->one_queue_per_ranks,
                 "Assume that all messages from one rank to another are received in the order in "
                 "which they are sent, as in PyTorch's runtime (default: those of each pair of "
                 "stages)");
    Command command = command_with(options, execute_check);
    command.input = [options] { return options->file; };
    command.saved_as = "schedule.csv";
    command.scenario = [options] { return if_scenario(options->file); };
    command.expect_files = [options] {
        if (if_scenario(options->file).empty()) {
            expect_kind(
                options->file, {FileKind::Schedule}, "a schedule as CSV, or a scenario *.toml");
        } else {
            expect_scenario(options->file);
        }
    };
    return command;
}

}  // namespace

CommandRow check_command() {
    return {.name = "check",
            .help = "Prove that a schedule is complete and free of deadlock, or list what is wrong",
            .declare = declare_check};
}

}  // namespace pipetwin::cli
