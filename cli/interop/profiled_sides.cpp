// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/profiled_sides.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "cli/base/input.h"
#include "cli/base/memory_left.h"
#include "cli/run_folder/run_folder.h"
#include "core/artifacts/file_kinds.h"
#include "core/base/error.h"
#include "core/interop/traces/beside_plan.h"
#include "core/interop/traces/torch_trace.h"
#include "core/model/model.h"
#include "core/scenario/scenario.h"
#include "core/scenario/settled_scenario.h"
#include "sim/questions/found_profile.h"
#include "sim/questions/prediction.h"

namespace pipetwin::cli {

namespace {

/// The prediction of a scenario, a run folder or a trace of ours.
Trace predicted_side(const std::filesystem::path& file, Console& console) {
    if (kind_of_file(file) != FileKind::Scenario) {
        return read_chrome_trace(is_folder(file) ? file / run_file::predicted : file);
    }
    const SettledScenario scenario = settle(read_scenario(file));
    const sim::FoundProfile found = sim::find_profile(scenario, {}, {});
    console.note(fmt::format("costs: {}", found.file.string()));
    return sim::predicted_trace(sim::predict(
        scenario, sim::model_with_costs(scenario, found), found.profile, memory_left()));
}

/// `file`: that shows it.
[[noreturn]] void refuse_predictions(std::size_t count, const std::filesystem::path& file) {
    throw Error(
        ErrorKind::Usage,
        file.string(),
        count == 0 ? "these are traces of a profiler alone: there is no prediction to "
                     "compare them with"
                   : fmt::format("{} predictions beside traces of a profiler, expected one", count),
        "pipetwin compare PREDICTED rank0.json rank1.json ...; PREDICTED is a scenario, or a "
        "folder that 'pipetwin simulate' or 'pipetwin plan' has written with --out");
}

}  // namespace

bool is_profiled(const std::filesystem::path& file) {
    const FileKind kind = kind_of_file(file);
    return kind == FileKind::TorchTrace || kind == FileKind::Nsys || kind == FileKind::Otlp;
}

ProfiledSides profiled_sides(const std::vector<std::filesystem::path>& files,
                             const RangeNameOptions& ranges,
                             Console& console) {
    std::vector<std::filesystem::path> predictions;
    std::vector<std::filesystem::path> profiled;
    std::ranges::partition_copy(
        files,
        std::back_inserter(profiled),
        std::back_inserter(predictions),
        [](const std::filesystem::path& file) { return is_profiled(file); });
    if (predictions.size() != 1) {
        refuse_predictions(predictions.size(),
                           predictions.empty() ? profiled.front() : predictions[1]);
    }
    const RangeNames names = range_names(ranges);
    Trace predicted = predicted_side(predictions.front(), console);
    std::vector<TorchTrace> ranks;
    for (const std::filesystem::path& file : profiled) {
        std::ranges::move(read_torch_traces(file, names), std::back_inserter(ranks));
    }
    BesidePlan both =
        beside_plan(std::move(predicted), std::move(ranks), profiled.front().string());
    for (const std::string& note : both.notes) {
        console.note(note);
    }
    const std::filesystem::path& source = predictions.front();
    return {.predicted = std::move(both.predicted),
            .measured = std::move(both.measured),
            .folder = is_folder(source) ? source : std::filesystem::path()};
}

}  // namespace pipetwin::cli
