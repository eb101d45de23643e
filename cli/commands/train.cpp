#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/gpu_text.h"
#include "cli/json_output.h"
#include "cli/text_output.h"
#include "cli/training_run.h"

namespace pipetwin::cli {

void execute(const TrainOptions& options, Console& console) {
    const bool json = options.run.common.json;
    const FinishedRun run =
        train_and_compare(options.run, Open::Refused, console, [&](const exec::StepReport& step) {
            if (!json) {
                console.result(step_text(step) + '\n');
                console.flush();
            }
        });
    if (json) {
        Json result = json_head();
        result.update(step_json(run.training.steps.back()));
        result["memory_beside"] = memory_beside_json(run.training.memory_beside);
        console.result(json_text(result));
    }
    if (const std::string beside = memory_beside_text(run.training.memory_beside);
        !beside.empty()) {
        console.note(beside);
    }
    console.note(fmt::format("run folder: {}", run.folder.string()));
}

}  // namespace pipetwin::cli
