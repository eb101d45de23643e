// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/export/plan_exports.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/console.h"
#include "cli/interop/export/exporters.h"
#include "cli/interop/export_source.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/sentences.h"
#include "core/base/error.h"

namespace pipetwin::cli {

namespace {

struct Format {
    std::string_view name;
    std::string_view file;
    Exported (*write)(const ExportSource&, const ExportOptions&, Console&);
};

/// The loader of torch-schedule.csv (docs/formats.md, For PyTorch).
constexpr std::string_view torch_loader_text = R"py(# SPDX-License-Identifier: Apache-2.0
"""Trains stages in PyTorch (2.6 or later) in the order of a schedule file.

    torchrun --nproc-per-node RANKS load_schedule.py torch-schedule.csv

Put your stages in the place of `modules`; docs/python.md has the same as a function.
"""
import re
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

file = sys.argv[1] if len(sys.argv) > 1 else "torch-schedule.csv"
dist.init_process_group("gloo")  # "nccl" on GPUs
with open(file) as rows:
    forwards = [re.findall(r"(\d+)F(\d+)", row) for row in rows]  # of each rank
stages_of = [sorted({int(stage) for stage, _ in row}) for row in forwards]
if len(stages_of) != dist.get_world_size():
    sys.exit(f"{file} has {len(stages_of)} ranks: torchrun --nproc-per-node {len(stages_of)} ...")
here, stages = stages_of[dist.get_rank()], sum(map(len, stages_of))
micro_batches = 1 + max(int(number) for row in forwards for _, number in row)

torch.manual_seed(1)
modules = [nn.Linear(8, 8) for _ in range(stages)]  # FILL IN your stages
mine = [PipelineStage(modules[s], s, stages, torch.device("cpu")) for s in here]
schedule = _PipelineScheduleRuntime(mine, micro_batches, loss_fn=nn.functional.mse_loss)
schedule._load_csv(file)
batch, losses = torch.randn(4 * micro_batches, 8), []  # FILL IN your data
target = {"target": batch, "losses": losses} if stages - 1 in here else {}
schedule.step(*([batch] if 0 in here else []), **target)
if losses:
    print(f"loss {torch.stack(losses).mean():.6f}")
dist.destroy_process_group()
)py";

Exported export_torch_schedule(const ExportSource& source,
                               const ExportOptions& options,
                               Console& console) {
    ExportOptions compute_only = options;
    compute_only.compute_only = true;
    return export_torch_csv(source, compute_only, console);
}

constexpr std::array formats{
    Format{.name = "megatron-flags",
           .file = run_file::megatron_flags,
           .write = &export_megatron_flags},
    Format{.name = "torchtitan", .file = run_file::torchtitan, .write = &export_torchtitan},
    Format{.name = "sbatch", .file = run_file::sbatch, .write = &export_slurm_script},
    Format{.name = "launch", .file = run_file::launch, .write = &export_launch_script},
    Format{.name = "torch-csv", .file = run_file::torch_schedule, .write = &export_torch_schedule}};

bool is_written(const std::vector<PlanExport>& exports, std::string_view file) {
    const auto found = std::ranges::find(exports, file, &PlanExport::file);
    return found != exports.end() && !found->content.empty();
}

/// The files that one reason keeps from being written: "megatron-flags.txt, job.sbatch".
std::string files_without(const std::vector<PlanExport>& exports, std::string_view why_not) {
    std::string files;
    for (const PlanExport& one : exports) {
        if (one.content.empty() && one.why_not == why_not) {
            files += fmt::format("{}{}", files.empty() ? "" : ", ", one.file);
        }
    }
    return files;
}

/// The commands that go on from a plan's folder, each with what it does.
std::string commands_text(const std::vector<PlanExport>& exports, int ranks) {
    std::string text = fmt::format(
        "#!/bin/sh\n# What to do with this plan, in this folder; take a # away.\n\n"
        "# time, bubble and memory of every rank, and what would make it faster:\n"
        "pipetwin simulate {0}\n"
        "# with failures and a checkpoint that takes a minute:\n"
        "# pipetwin simulate {0} --mtbf-hours 50000 --checkpoint-s 60 --restart-s 1200\n"
        "# the timeline as a figure for a paper, and in a window:\n"
        "# pipetwin export pdf {0} --width 84mm --out timeline.pdf\n"
        "# pipetwin view .\n"
        "# corrected by steps that you have measured (docs/tutorials/choose-a-configuration.md):\n"
        "# pipetwin simulate {0} --calibrate log.json\n",
        run_file::scenario);
    if (is_written(exports, run_file::sbatch)) {
        text += fmt::format(
            "# Megatron-LM on Slurm, or by torchrun on each node:\n# sbatch {}\n"
            "# HEAD=first-node NODE=0 bash {}\n",
            run_file::sbatch,
            run_file::launch);
    }
    if (is_written(exports, run_file::torch_schedule)) {
        text += fmt::format(
            "# PyTorch in the order of this schedule:\n# torchrun --nproc-per-node {} {} {}\n",
            ranks,
            run_file::torch_loader,
            run_file::torch_schedule);
    }
    return text;
}

std::vector<std::string> lines_of(std::istream& text) {
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) {
        lines.push_back(line);
    }
    return lines;
}

}  // namespace

std::vector<PlanExport> plan_exports(const std::filesystem::path& folder,
                                     const std::string& config) {
    ExportSource source(folder, {}, {});
    source.know_config(config);
    std::vector<PlanExport> exports;
    for (const Format& format : formats) {
        PlanExport& one =
            exports.emplace_back(PlanExport{.format = format.name, .file = format.file});
        std::ostringstream ignored;
        std::stringstream notes;
        Console console(ignored, notes, Terminal{});
        try {
            one.content = format.write(source, {}, console).content;
            one.notes = lines_of(notes);
        } catch (const Error& error) {
            if (error.kind() != ErrorKind::Infeasible && error.kind() != ErrorKind::BadInput) {
                throw;
            }
            one.why_not = error.text();
            one.hint = error.hint();
        }
    }
    if (is_written(exports, run_file::torch_schedule)) {
        exports.push_back({.format = "torch-loader",
                           .file = run_file::torch_loader,
                           .content = std::string(torch_loader_text)});
    }
    exports.push_back({.format = "commands",
                       .file = run_file::commands,
                       .content = commands_text(exports, source.order().rank_count())});
    return exports;
}

std::string written_text(const std::filesystem::path& folder,
                         const std::vector<PlanExport>& exports,
                         int width) {
    const std::string name = folder.string();
    const std::string heading = "Written to " + name;
    Paragraph text{
        .heading = heading,
        .lines = {
            fmt::format("{}, {}: the best plan as a scenario, and its costs",
                        run_file::scenario,
                        run_file::profile),
            fmt::format("{}, {}, {}, {}: the plan, its schedule, its timeline, and the search",
                        run_file::plan,
                        run_file::schedule,
                        run_file::predicted,
                        run_file::search)}};
    std::error_code ignored;
    if (std::filesystem::exists(folder / run_file::config, ignored)) {
        text.lines.push_back(fmt::format(
            "{}: the model's config.json, from which export reads the sizes", run_file::config));
    }
    std::vector<std::string> reasons;
    for (const PlanExport& one : exports) {
        if (one.content.empty()) {
            if (std::ranges::count(reasons, one.why_not) == 0) {
                reasons.push_back(one.why_not);
                text.lines.push_back(fmt::format(
                    "no {}: {} ({})", files_without(exports, one.why_not), one.why_not, one.hint));
            }
            continue;
        }
        text.lines.push_back(
            fmt::format("{}, for {}{}", one.file, one.format, one.notes.empty() ? "" : ":"));
        for (const std::string& note : one.notes) {
            text.lines.push_back("- " + note);
        }
    }
    text.lines.push_back(fmt::format(
        "next: pipetwin simulate {0}/{1}, or pipetwin view {0}", name, run_file::scenario));
    return paragraph_text(text, width);
}

Json written_json(const std::filesystem::path& folder, const std::vector<PlanExport>& exports) {
    Json list = Json::array();
    for (const PlanExport& one : exports) {
        const bool is_there = !one.content.empty();
        list.push_back({{"format", one.format},
                        {"file", is_there ? Json(one.file) : Json(nullptr)},
                        {"notes", one.notes},
                        {"why_not", is_there ? Json(nullptr) : Json(one.why_not)}});
    }
    return {{"folder", folder.string()}, {"exports", std::move(list)}};
}

}  // namespace pipetwin::cli
