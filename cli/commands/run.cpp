// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include <fmt/format.h>

#include "cli/base/progress.h"
#include "cli/commands/commands.h"
#include "cli/processes/processes.h"
#include "cli/run_folder/finished_run.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/gpu_text.h"
#include "cli/text/text_output.h"
#include "cli/text/translation_text.h"
#include "cli/training/run_options.h"
#include "cli/training/training_run.h"

namespace pipetwin::cli {

namespace {

void execute_run(const RunOptions& options, Console& console) {
    const int steps = read_scenario(options.scenario, options.common.overrides).training.steps;
    Processes alone;
    const FinishedRun run = [&] {
        Progress progress(console, "training");
        const auto on_step = [&](const exec::StepReport& step) {
            progress.update((step.step + 1.0) / steps, step_text(step));
        };
        return train_and_compare(options, Open::Planned, console, on_step, alone).value();
    }();
    if (options.common.json) {
        console.result(report_json_text(run));
        return;
    }
    const auto& training = run.training.steps;
    console.result(prediction_text(run.prediction, console) + '\n' +
                   comparison_text(run.comparison, console, run.prediction.outlook.error));
    if (const std::string beside = memory_beside_text(run.training.memory_beside);
        !beside.empty()) {
        console.result("  " + beside + '\n');
    }
    for (const std::string& note : notes_of(run)) {
        console.result("  " + note + '\n');
    }
    console.result(fmt::format("  loss {:.4f} at the first step, {:.4f} at the last of {}\n",
                               training.front().loss,
                               training.back().loss,
                               training.size()));
    if (training.back().accuracy && training.front().accuracy) {
        console.result(fmt::format(
            "  {} of the samples classified correctly at the first step, {} at the last\n",
            percent_text(*training.front().accuracy),
            percent_text(*training.back().accuracy)));
    }
    console.result(translations_text(run.training.translations));
    console.result("\n");
    console.result(fmt::format("report: {}\n", (run.folder / run_file::report_html).string()));
}

Command declare_run(CLI::App& app) {
    const auto options = std::make_shared<RunOptions>();
    add_training(app, *options);
    return scenario_command(options, execute_run);
}

}  // namespace

CommandRow run_command() {
    return {.name = "run",
            .help = "Measure costs, plan, predict, train and compare, and write a run folder",
            .declare = declare_run};
}

}  // namespace pipetwin::cli
