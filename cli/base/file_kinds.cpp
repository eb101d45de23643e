// SPDX-License-Identifier: Apache-2.0
#include "cli/base/file_kinds.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "cli/base/command_row.h"
#include "cli/base/input.h"
#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/interop/program_flags.h"
#include "core/scenario/scenario.h"
#include "core/schedule/action.h"
#include "core/schedule/schedule.h"
#include "core/text/file_damage.h"
#include "core/text/input_file.h"

namespace pipetwin::cli {

namespace {

using std::string_view;

/// What to name in place of a run folder.
std::string use_of_folder(const std::filesystem::path& folder) {
    const std::filesystem::path scenario = folder / "scenario.toml";
    std::error_code ignored;
    return std::filesystem::exists(scenario, ignored)
               ? fmt::format("name its scenario: {}", scenario.string())
               : fmt::format("pipetwin view {} shows it", folder.string());
}

/// Says which file or folder to name in place of a result.
std::string use_of_result(const std::string& file) {
    std::filesystem::path folder = std::filesystem::path(file).parent_path();
    folder = folder.empty() ? "." : folder;
    return kind_of_file(folder) == FileKind::RunFolder
               ? use_of_folder(folder) + "; export, compare and view take the folder"
               : "name the scenario or the schedule that it is about";
}

/// Whether a file with Megatron's names is one of NeMo, which another format of `import` reads.
bool is_file_of_nemo(const std::string& file) {
    constexpr std::uintmax_t largest = 1 << 20;
    std::error_code error;
    const std::uintmax_t bytes = std::filesystem::file_size(file, error);
    return !error && bytes <= largest && is_nemo(read_input(file, largest));
}

/// What to do with a file of a kind.
std::string use_of(FileKind kind, const std::string& file) {
    switch (kind) {
        case FileKind::Scenario:
            return fmt::format(
                "a scenario is for simulate, plan, run, train, profile, check and export, as in "
                "pipetwin simulate {}{}",
                file,
                file.ends_with(".toml") ? "" : " (check and export need a name *.toml)");
        case FileKind::Schedule:
            return fmt::format(
                "pipetwin check {0} checks it; pipetwin simulate --schedule-file {0} "
                "--forward-ms 1 --backward-ms 2 simulates it",
                file);
        case FileKind::Profile:
        case FileKind::CostTable:
            return fmt::format(
                "costs are the model of a scenario, model = {{kind = \"profile\", "
                "file = \"{0}\"}}, or go with one: --profile {0}",
                file);
        case FileKind::OurTrace:
            return fmt::format(
                "pipetwin compare PREDICTED MEASURED, pipetwin view {0}, or pipetwin "
                "import chrome-trace {0} --micro-batch-size N --out x.profile.json",
                file);
        case FileKind::TorchTrace:
            return fmt::format(
                "pipetwin compare PLAN {0}, or pipetwin import torch-trace {0} --micro-batch-size "
                "N "
                "--out x.profile.json",
                file);
        case FileKind::Nsys:
            return fmt::format("pipetwin import nsys {} --micro-batch-size N --out x.profile.json",
                               file);
        case FileKind::Otlp:
            return fmt::format("pipetwin import otlp {} --micro-batch-size N --out x.profile.json",
                               file);
        case FileKind::Plan:
            return fmt::format(
                "the rows are in the file beside it: pipetwin check {}; the folder is for export, "
                "compare and view",
                (std::filesystem::path(file).parent_path() / "schedule.csv").string());
        case FileKind::HfConfig:
            return fmt::format(
                "pipetwin import hf {} --device NAME --sequence N --micro-batch-size "
                "N --out x.profile.json",
                file);
        case FileKind::WeightIndex:
            return fmt::format("pipetwin import hf config.json --weights {}", file);
        case FileKind::Device:
            return "a scenario names it: cluster.device; PIPETWIN_PROFILES names its folder";
        case FileKind::Graph:
            return fmt::format(
                "pipetwin import pipedream {} --micro-batch-size N --out x.profile.json", file);
        case FileKind::Cluster:
            return fmt::format(
                "a scenario names it, by its path from the scenario's folder: cluster = {{profile "
                "= "
                "\"{}\"}}",
                file);
        case FileKind::Torchtitan:
            return fmt::format("pipetwin import torchtitan {} --out x.toml", file);
        case FileKind::DeepSpeed:
            return fmt::format("pipetwin import deepspeed {} --out x.toml", file);
        case FileKind::Megatron:
            return fmt::format("pipetwin import {} {} --out x.toml",
                               is_file_of_nemo(file) ? "nemo" : "megatron",
                               file);
        case FileKind::Picture:
            return "a browser shows it; pipetwin export torch-csv SOURCE --out FILE.csv writes a "
                   "schedule";
        case FileKind::PlanTable:
            return "a spreadsheet shows it; pipetwin export torch-csv SOURCE --out FILE.csv writes "
                   "a schedule";
        case FileKind::Result:
            return use_of_result(file);
        case FileKind::RunFolder:
            return use_of_folder(file);
        case FileKind::Unknown:
            break;
    }
    return {};
}

}  // namespace

void expect_kind(const std::filesystem::path& file,
                 std::initializer_list<FileKind> kinds,
                 std::string_view expected) {
    const FileKind kind = file.empty() ? FileKind::Unknown : kind_of_file(file);
    if (kind != FileKind::Unknown && std::ranges::find(kinds, kind) == kinds.end()) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    fmt::format("this is {}, expected {}", words(kind), expected),
                    use_of(kind, file.string()));
    }
}

void expect_scenario(const std::filesystem::path& file) {
    std::error_code ignored;
    const std::filesystem::path shipped =
        profiles_folder().parent_path() / "scenarios" / file.filename();
    if (file.has_filename() && !std::filesystem::exists(file, ignored) &&
        std::filesystem::is_regular_file(shipped, ignored)) {
        throw Error(ErrorKind::Io,
                    file.string(),
                    "cannot open: No such file or directory",
                    fmt::format("the example of this name is {}", shipped.string()));
    }
    expect_kind(file, {FileKind::Scenario}, "a scenario");
}

std::filesystem::path if_scenario(const std::filesystem::path& file) {
    return file.extension() == ".toml" ? file : std::filesystem::path();
}

void expect_costs(const std::filesystem::path& file) {
    expect_kind(file,
                {FileKind::Profile, FileKind::CostTable},
                "the costs of layers, *.profile.json or *.csv");
}

void expect_measured_runs(const std::filesystem::path& file) {
    expect_kind(file, {}, "a JSON file of measured runs");
}

}  // namespace pipetwin::cli
