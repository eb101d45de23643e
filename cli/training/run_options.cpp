// SPDX-License-Identifier: Apache-2.0
#include "cli/training/run_options.h"

#include "cli/base/command_row.h"

namespace pipetwin::cli {

void add_training(CLI::App& app, RunOptions& options) {
    app.get_option("--out")->description("Run folder (default: runs/NAME-1, runs/NAME-2, ...)");
    add_scenario(app, options.scenario);
    add_profile(app,
                options.profile,
                "Costs of the layers, to predict the step (default: measure them first)");
    app.add_flag(
        "--resume", options.resume, "Continue from the newest checkpoint in the folder of --out");
    app.add_option("--weights",
                   options.weights,
                   "Start from the weights in a Hugging Face folder (safetensors)")
        ->type_name("FOLDER");
    app.add_flag("--live",
                 options.live,
                 "Also write live.jsonl, with which pipetwin-gui follows the training");
}

}  // namespace pipetwin::cli
