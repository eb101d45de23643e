// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/compare.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/exit.h"
#include "cli/base/file_kinds.h"
#include "cli/base/grammar.h"
#include "cli/base/input.h"
#include "cli/base/shell_word.h"
#include "cli/commands/commands.h"
#include "cli/interop/exchange.h"
#include "cli/interop/import/importers.h"
#include "cli/interop/profiled_sides.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/json_output.h"
#include "cli/text/text_output.h"
#include "core/artifacts/chrome_trace.h"
#include "core/base/error.h"
#include "core/base/io_hint.h"
#include "core/costs/profile_json.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/scenario.h"
#include "sim/calibration/step_range.h"
#include "sim/search/partition_choice.h"

namespace pipetwin::cli {

namespace {

/// Options of `compare`.
struct CompareOptions {
    CommonOptions common;
    std::filesystem::path predicted;  ///< a trace, a run folder, or a scenario beside profilers'
    std::filesystem::path measured;   ///< empty: the run folder's own
    std::vector<std::filesystem::path> more;  ///< traces of a profiler, of further ranks
    RangeNameOptions ranges;
    std::optional<double> gate;  ///< per cent

    std::vector<std::filesystem::path> files() const {
        std::vector<std::filesystem::path> all{predicted};
        if (!measured.empty()) {
            all.push_back(measured);
        }
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    bool has_profiled() const { return std::ranges::any_of(files(), &is_profiled); }
};

bool is_predicted(const Trace& trace) {
    return trace.timelines.steps.empty() ||
           trace.timelines.steps.front().origin == Origin::Predicted;
}

/// Both timelines, and where they come from.
struct BothSides {
    Trace predicted;
    Trace measured;
    std::filesystem::path folder{};  ///< of the predicted one
};

/// Throws Error(BadInput) for the folder of a plan that was not trained.
void expect_trained(const std::filesystem::path& folder, std::string hint) {
    std::error_code ignored;
    if (std::filesystem::exists(folder / run_file::predicted, ignored) &&
        !std::filesystem::exists(folder / run_file::measured, ignored)) {
        throw Error(ErrorKind::BadInput,
                    folder.string(),
                    "nothing was trained here, so there is no measured timeline to compare with",
                    std::move(hint));
    }
}

/// The traces of one run folder.
BothSides sides_of_run(const std::filesystem::path& folder) {
    expect_trained(folder, "compare a folder that 'pipetwin run' or 'pipetwin train' has written");
    std::error_code ignored;
    if (!std::filesystem::exists(folder / run_file::predicted, ignored)) {
        throw Error(ErrorKind::BadInput,
                    folder.string(),
                    fmt::format("there is no run here, expected {} and {}",
                                run_file::predicted,
                                run_file::measured),
                    "name a folder that 'pipetwin run' or 'pipetwin train' has written");
    }
    return {.predicted = read_chrome_trace(folder / run_file::predicted),
            .measured = read_chrome_trace(folder / run_file::measured),
            .folder = folder};
}

/// Where the measured step was to be expected beside a predicted one; none where costs were
/// measured, or the folder of the prediction does not say what it was planned from.
std::optional<ErrorRange> expected_range(const BothSides& sides, Duration step) {
    const std::filesystem::path& folder = sides.folder;
    try {
        const Profile profile = read_profile(folder / run_file::profile);
        const Scenario scenario = read_scenario(folder / run_file::scenario);
        const SettledScenario settled = settle(scenario);
        const Plan plan =
            sim::make_settled_plan(settled, scenario_model(scenario, &profile), profile);
        const bool is_of_trace = plan.hash() == sides.predicted.plan_hash;
        return is_of_trace ? sim::step_range(plan, settled, profile, step) : std::nullopt;
    } catch (const Error&) {
        return std::nullopt;
    }
}

/// The trace of a file; that of a folder is the one that `other` is not, if there is one.
Trace trace_of_path(const std::filesystem::path& path, const Trace* other, bool is_first) {
    if (!is_folder(path)) {
        return read_chrome_trace(path);
    }
    const bool predicted = other == nullptr ? is_first : !is_predicted(*other);
    return read_chrome_trace(path / (predicted ? run_file::predicted : run_file::measured));
}

/// The traces say themselves which of them is predicted: their order on the command line says it
/// only of two alike.
BothSides sides_of_two(const CompareOptions& options, Console& console) {
    const bool folder_first = is_folder(options.predicted);
    const bool folder_second = is_folder(options.measured);
    if (folder_first && folder_second) {
        expect_trained(options.measured,
                       fmt::format("compare two plans with 'pipetwin sweep {} {}'",
                                   shell_word((options.predicted / run_file::scenario).string()),
                                   shell_word((options.measured / run_file::scenario).string())));
    }
    std::optional<Trace> first;
    std::optional<Trace> second;
    if (folder_first && !folder_second) {
        second = trace_of_path(options.measured, nullptr, false);
        first = trace_of_path(options.predicted, &*second, true);
    } else {
        first = trace_of_path(options.predicted, nullptr, true);
        second = trace_of_path(
            options.measured, folder_first == folder_second ? nullptr : &*first, false);
    }
    const bool turned = !is_predicted(*first) && is_predicted(*second);
    if (turned) {
        console.note(
            fmt::format("{} is the predicted trace and {} the measured one: compared in that order",
                        options.measured.string(),
                        options.predicted.string()));
        std::swap(first, second);
    } else if (is_predicted(*first) == is_predicted(*second)) {
        console.note(
            fmt::format("both traces are {}: {} is shown as \"predicted\", {} as "
                        "\"measured\"",
                        is_predicted(*first) ? "predicted" : "measured",
                        options.predicted.string(),
                        options.measured.string()));
    }
    const std::filesystem::path& predicted = turned ? options.measured : options.predicted;
    return {.predicted = *std::move(first),
            .measured = *std::move(second),
            .folder = is_folder(predicted) ? predicted : predicted.parent_path()};
}

/// Two plans have no twins of actions to compare; they have a time axis, and a table of sweep.
Comparison compared(const BothSides& sides, const CompareOptions& options) {
    try {
        return compare(sides.predicted.timelines, sides.measured.timelines);
    } catch (const Error& error) {
        if (options.measured.empty()) {
            throw;
        }
        throw error.with_hint(
            fmt::format("these are two plans; 'pipetwin-gui {} {} --view side-by-side' shows both "
                        "on one time axis",
                        shell_word(options.predicted.string()),
                        shell_word(options.measured.string())));
    }
}

BothSides sides_of(const CompareOptions& options, Console& console) {
    if (options.has_profiled()) {
        ProfiledSides sides = profiled_sides(options.files(), options.ranges, console);
        return {.predicted = std::move(sides.predicted),
                .measured = std::move(sides.measured),
                .folder = std::move(sides.folder)};
    }
    if (!options.more.empty() || !options.ranges.given().empty()) {
        throw Error(ErrorKind::Usage,
                    options.more.empty() ? std::string(options.ranges.given())
                                         : options.more.front().string(),
                    "it is for traces of a profiler, and no file is one",
                    "two timelines of pipetwin are compared: pipetwin compare PREDICTED MEASURED");
    }
    return options.measured.empty() ? sides_of_run(options.predicted)
                                    : sides_of_two(options, console);
}

/// Throws GateError where the predicted step is not within `percent` of the measured one, or
/// nothing can be said of that.
void pass_gate(const Comparison& comparison, double percent, const std::string& place) {
    if (const std::optional<std::string> why = comparison.noise.not_measurable()) {
        throw GateError(
            GateError::Finding::NoVerdict,
            place,
            fmt::format("no verdict of --gate {:g}: {}", percent, noise_sentence(comparison.noise)),
            "measure again, with more steps and nothing else on the machine");
    }
    const double error = comparison.step.error_percent();
    if (!(std::abs(error) <= percent)) {  // NaN is beyond any gate
        throw GateError(
            GateError::Finding::Beyond,
            place,
            fmt::format(
                "the predicted step is off by {:+.2f} %, beyond --gate {:g}", error, percent),
            "the table above says which actions are; or raise the gate");
    }
}

void execute_compare(const CompareOptions& options, Console& console) {
    if (options.gate && std::isnan(*options.gate)) {  // the range of the option refuses infinity
        throw Error(ErrorKind::Usage,
                    "--gate",
                    "'nan', expected a number from 0 to 1e+06",
                    "give per cent, as in --gate 5");
    }
    std::error_code ignored;
    if (options.measured.empty() && !std::filesystem::exists(options.predicted, ignored)) {
        throw Error(ErrorKind::Io,
                    options.predicted.string(),
                    "cannot open: No such file or directory",
                    io_hint(ENOENT));
    }
    if (options.measured.empty() && !is_folder(options.predicted) && !options.has_profiled()) {
        throw Error(
            ErrorKind::Usage,
            options.predicted.string(),
            "no second timeline to compare with",
            "pipetwin compare PREDICTED MEASURED, or pipetwin compare RUN with a run folder");
    }
    const BothSides sides = sides_of(options, console);
    const Comparison comparison = compared(sides, options);
    const std::optional<ErrorRange> expected = expected_range(sides, comparison.step.predicted);
    const std::string json = json_text(comparison_json(comparison, expected));
    write_result(json, options.common, console);
    console.result(options.common.json ? json : comparison_text(comparison, console, expected));
    if (options.gate) {
        pass_gate(comparison, *options.gate, options.predicted.string());
    }
}

Command declare_compare(CLI::App& app) {
    const auto options = std::make_shared<CompareOptions>();
    takes_out_file(app);
    reads_no_scenario(app);
    app.add_option("predicted",
                   options->predicted,
                   "Predicted trace, or a run folder with both traces; beside traces of a "
                   "profiler a scenario, too")
        ->type_name("PREDICTED")
        ->required();
    app.add_option(
           "measured",
           options->measured,
           "Measured trace, of pipetwin or of a profiler (PyTorch's, nsys, OTLP); leave it out for "
           "a run folder")
        ->type_name("MEASURED");
    app.add_option("more", options->more, "Traces of a profiler: one file for each further rank")
        ->type_name("FILE...");
    app.add_option("--gate",
                   options->gate,
                   "Fail (exit code 11) where the predicted step is off by more than so many per "
                   "cent of the measured one, or (12) where noise leaves no verdict")
        ->type_name("PERCENT")
        ->check(finite_in(CLI::Range(0.0, 1e6)));
    add_range_names(app, options->ranges, "traces of a profiler: ");
    Command command = command_with(options, execute_compare);
    command.input = [options] { return options->predicted; };
    command.saved_as = "measured.trace.json";
    command.expect_files = [options] {
        const bool is_profiled = options->has_profiled();
        for (const std::filesystem::path& file : options->files()) {
            is_profiled ? expect_kind(file,
                                      {FileKind::OurTrace,
                                       FileKind::RunFolder,
                                       FileKind::Scenario,
                                       FileKind::TorchTrace,
                                       FileKind::Nsys,
                                       FileKind::Otlp},
                                      "a prediction (a scenario, a run folder or a trace that "
                                      "pipetwin wrote) or a trace of a profiler")
                        : expect_kind(file,
                                      {FileKind::OurTrace, FileKind::RunFolder},
                                      "a trace that pipetwin wrote, or a run folder");
        }
    };
    return command;
}

}  // namespace

CommandRow compare_command() {
    return {.name = "compare",
            .help =
                "Compare a predicted and a measured timeline: the step, its parts, and the peak "
                "memory of each rank",
            .declare = declare_compare};
}

}  // namespace pipetwin::cli
