// SPDX-License-Identifier: Apache-2.0
#include "bench/support/curve_command.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"
#include "exec/data/batch.h"
#include "exec/executor/executor.h"
#include "exec/profiling/profiler.h"
#include "exec/training/checkpoint.h"

/// The first steps of a GPT's training, for another program that repeats them:
///
///     loss_curve FOLDER SCENARIO.toml [key=value ...]
///
/// leaves in FOLDER the weights before the first step (checkpoints/step-00000000), the tokens of
/// every batch with one more per sample (tokens.bin, int32) and curve.json: sizes and losses.
using namespace pipetwin;

namespace {

namespace fs = std::filesystem;

void append(std::ofstream& file, std::span<const std::int32_t> numbers) {
    const auto bytes = std::as_bytes(numbers);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
}

/// Each sample's tokens, and behind them the target of the last.
void append_samples(std::ofstream& file, const exec::Batch& batch) {
    const auto length = static_cast<std::size_t>(batch.positions);
    for (std::size_t begin = 0; begin < batch.tokens.size(); begin += length) {
        append(file, std::span(batch.tokens).subspan(begin, length));
        append(file, std::span(batch.targets).subspan(begin + length - 1, 1));
    }
}

void write_curve(const fs::path& folder, const SettledScenario& scenario) {
    const Model model = scenario_model(scenario);
    const Plan plan =
        make_plan(scenario, model, exec::profile_model(model, exec::profiler_options(scenario)));
    exec::Executor executor(plan, model, exec::executor_options(scenario));
    exec::Checkpoints(folder / "checkpoints").save({}, executor.trained());
    const auto data = exec::open_data(scenario, model);
    std::ofstream tokens(folder / "tokens.bin", std::ios::binary);
    std::vector<double> losses;
    for (int step = 0; step < scenario.training.steps; ++step) {
        const exec::Batch batch = data->batch(step, scenario.training.batch);
        append_samples(tokens, batch);
        losses.push_back(executor.run_step(batch, step).loss);
        fmt::print(stderr, "step {} loss {:.6f}\n", step, losses.back());
    }
    const nlohmann::json curve{{"layers", scenario.model.gpt.layers},
                               {"heads", scenario.model.gpt.heads},
                               {"context", scenario.model.gpt.context},
                               {"batch", scenario.training.batch},
                               {"learning_rate", scenario.training.learning_rate},
                               {"precision", to_string(scenario.training.precision)},
                               {"losses", losses}};
    std::ofstream(folder / "curve.json") << curve.dump() << '\n';
}

}  // namespace

int main(int argc, char** argv) {
    return bench::run_curve_command(argc, argv, {}, [](const bench::CurveCommand& command) {
        write_curve(command.folder, command.scenario);
    });
}
