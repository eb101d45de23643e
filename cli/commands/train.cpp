// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/processes/processes.h"
#include "cli/run_folder/finished_run.h"
#include "cli/text/gpu_text.h"
#include "cli/text/json_output.h"
#include "cli/text/text_output.h"
#include "cli/text/translation_text.h"
#include "cli/training/run_options.h"
#include "cli/training/training_run.h"

namespace pipetwin::cli {

namespace {

void train(const RunOptions& options, Console& console, Processes& processes) {
    const bool json = options.common.json;
    console.keep_results();
    const std::optional<FinishedRun> run = train_and_compare(
        options,
        Open::Refused,
        console,
        [&](const exec::StepReport& step) {
            if (!json && !console.quiet()) {
                console.result(step_text(step) + '\n');
                console.flush();
            }
        },
        processes);
    if (!run) {
        return;  // the first process says it
    }
    if (!json && console.quiet()) {
        console.result(step_text(run->training.steps.back()) + '\n');
    }
    if (json) {
        Json result = json_head();
        result.update(step_json(run->training.steps.back()));
        result["memory_beside"] = memory_beside_json(run->training.memory_beside);
        if (!run->training.translations.empty()) {
            result["translations"] = translations_json(run->training.translations);
        }
        console.result(json_text(result));
    } else {
        console.result(translations_text(run->training.translations));
    }
    if (const std::string beside = memory_beside_text(run->training.memory_beside);
        !beside.empty()) {
        console.note(beside);
    }
    console.note(fmt::format("run folder: {}", run->folder.string()));
}

/// The processes that a launcher has started, or this process alone.
Processes processes_of(const RunOptions& options) {
    const auto launched = one_of_several();
    if (!launched) {
        return {};
    }
    return {*launched, settle(read_scenario(options.scenario, options.common.overrides))};
}

void execute_train(const RunOptions& options, Console& console) {
    Processes processes = processes_of(options);
    processes.run(console, [&] { train(options, console, processes); });
}

Command declare_train(CLI::App& app) {
    leave_out_of_help(app, {"--verbose"});
    const auto options = std::make_shared<RunOptions>();
    add_training(app, *options);
    return scenario_command(options, execute_train);
}

}  // namespace

CommandRow train_command() {
    return {.name = "train",
            .help = "Train the model of a scenario, and write a run folder",
            .declare = declare_train};
}

}  // namespace pipetwin::cli
