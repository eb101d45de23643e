// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/file_kinds.h"
#include "cli/base/grammar.h"
#include "cli/base/input.h"
#include "cli/base/output_file.h"
#include "cli/base/schedule_file.h"
#include "cli/base/value_words.h"
#include "cli/commands/commands.h"
#include "cli/interop/exchange.h"
#include "cli/interop/import/beside_log.h"
#include "cli/interop/import/importers.h"
#include "cli/interop/import/known_format.h"
#include "cli/interop/import/launch_tables.h"
#include "cli/interop/import/nodes_of_run.h"
#include "core/base/error.h"
#include "core/schedule/lower.h"
#include "core/schedule/schedule_csv.h"
#include "sim/questions/schedule_rows.h"

namespace pipetwin::cli {

namespace {

/// True if some stage's gradients would stay undivided in PyTorch.
bool lacks_a_reduction(const Schedule& schedule) {
    std::size_t reductions = 0;
    for (const auto& row : schedule.ranks) {
        reductions +=
            static_cast<std::size_t>(std::ranges::count(row, Op::ReduceGradient, &Action::op));
    }
    return has_communication(schedule) && !is_forward_only(schedule) &&
           reductions < schedule.rank_of_stage.size();
}

/// Refuses what `check` refuses, and messages that `check --one-queue-per-ranks` refuses; the file
/// itself stays as it is, with or without communication.
Imported torch_csv(const ImportOptions& options) {
    const Schedule schedule = read_schedule_file(options.file);
    const std::string place = input_name(options.file);
    if (has_communication(schedule)) {
        static_cast<void>(
            sim::runnable(schedule, sim::timing_of_files(), place, MessageQueues::PerRanks));
    }
    static_cast<void>(sim::runnable(schedule, sim::timing_of_files(), place));
    Imported imported{.content = print_schedule_csv(schedule), .result = {}};
    imported.result.ranks = schedule.rank_count();
    imported.result.stages = schedule.stage_count();
    imported.result.micro_batches = schedule.micro_batches;
    if (lacks_a_reduction(schedule)) {
        imported.notes.emplace_back(
            "not every stage has REDUCE_GRAD, where PyTorch divides gradients by the number of "
            "micro-batches: in PyTorch these rows train with gradients as many times too large; "
            "'pipetwin export torch-csv' adds it");
    }
    return imported;
}

/// One format, and which options mean something to it.
struct Importer {
    std::string_view name;
    Imported (*read)(const ImportOptions& options);
    std::array<FileKind, 3> kinds{};  ///< of files that it takes
    std::string_view expected;        ///< these in words
    bool chunks = false;
    bool micro_batch_size = false;
    bool hf = false;
    bool stack = false;    ///< options of costs, but for what the file says or cannot have
    bool traces = false;   ///< a file per rank, with named ranges
    bool unknown = false;  ///< --ignore-unknown and --insist
    bool words = false;    ///< --vocabulary and --variable
    bool blanks = false;   ///< --variable
    bool log = false;      ///< --rows-out and --log
    bool model = false;    ///< --model
};

constexpr std::array importers{
    Importer{.name = "torch-csv",
             .read = &torch_csv,
             .kinds = {FileKind::Schedule},
             .expected = "a schedule as CSV"},
    Importer{.name = "megatron",
             .read = &import_megatron,
             .kinds = {FileKind::Megatron},
             .expected = "Megatron's layout or flags",
             .chunks = true,
             .hf = true,
             .unknown = true,
             .words = true,
             .log = true,
             .model = true},
    Importer{.name = "swift",
             .read = &import_megatron,
             .kinds = {FileKind::Unknown, FileKind::Megatron},
             .expected = "a command of ms-swift, or its args.json",
             .hf = true,
             .unknown = true,
             .words = true,
             .log = true,
             .model = true},
    Importer{.name = "nemo",
             .read = &import_nemo,
             .kinds = {FileKind::Unknown, FileKind::Megatron},
             .expected = "NeMo's YAML",
             .hf = true,
             .unknown = true,
             .words = true,
             .log = true},
    Importer{.name = "nanotron",
             .read = &import_nanotron,
             .kinds = {FileKind::Unknown},
             .expected = "nanotron's YAML",
             .hf = true,
             .unknown = true,
             .words = true,
             .log = true},
    Importer{.name = "neox",
             .read = &import_neox,
             .kinds = {FileKind::Unknown, FileKind::DeepSpeed},
             .expected = "GPT-NeoX's YAML",
             .hf = true,
             .unknown = true,
             .words = true,
             .log = true},
    Importer{.name = "torchtitan",
             .read = &import_torchtitan,
             .kinds = {FileKind::Torchtitan},
             .expected = "torchtitan's TOML",
             .micro_batch_size = true,
             .stack = true,
             .unknown = true,
             .log = true,
             .model = true},
    Importer{.name = "maxtext",
             .read = &import_maxtext,
             .kinds = {FileKind::Unknown},
             .expected = "MaxText's YAML",
             .micro_batch_size = true,
             .stack = true,
             .unknown = true,
             .log = true,
             .model = true},
    Importer{.name = "trainer",
             .read = &import_trainer,
             .kinds = {FileKind::Unknown},
             .expected = "arguments of Hugging Face's Trainer",
             .micro_batch_size = true,
             .stack = true,
             .unknown = true,
             .log = true,
             .model = true},
    Importer{.name = "deepspeed",
             .read = &import_deepspeed,
             .kinds = {FileKind::DeepSpeed},
             .expected = "DeepSpeed's JSON",
             .micro_batch_size = true,
             .stack = true,
             .unknown = true,
             .blanks = true,
             .log = true,
             .model = true},
    Importer{.name = "csv",
             .read = &import_csv,
             .kinds = {FileKind::CostTable},
             .expected = "a table of costs as CSV"},
    Importer{.name = "hf",
             .read = &import_hf,
             .kinds = {FileKind::HfConfig},
             .expected = "a config.json of Hugging Face",
             .micro_batch_size = true,
             .hf = true},
    Importer{.name = "pipedream",
             .read = &import_pipedream,
             .kinds = {FileKind::Graph},
             .expected = "a graph of PipeDream's profiler",
             .micro_batch_size = true},
    Importer{.name = "torch-trace",
             .read = &import_torch_trace,
             .kinds = {FileKind::TorchTrace, FileKind::Nsys, FileKind::Otlp},
             .expected = "a trace of PyTorch's profiler",
             .micro_batch_size = true,
             .traces = true},
    Importer{.name = "nsys",
             .read = &import_torch_trace,
             .kinds = {FileKind::TorchTrace, FileKind::Nsys, FileKind::Otlp},
             .expected = "an export of nsys",
             .micro_batch_size = true,
             .traces = true},
    Importer{.name = "otlp",
             .read = &import_torch_trace,
             .kinds = {FileKind::TorchTrace, FileKind::Nsys, FileKind::Otlp},
             .expected = "spans of OpenTelemetry (OTLP)",
             .micro_batch_size = true,
             .traces = true},
    Importer{.name = "chrome-trace",
             .read = &import_chrome_trace,
             .kinds = {FileKind::OurTrace},
             .expected = "a trace that pipetwin wrote",
             .micro_batch_size = true},
};

constexpr std::string_view by_content = "auto";

constexpr auto names = [] {
    std::array<std::string_view, importers.size() + 1> all;
    std::ranges::transform(importers, all.begin(), &Importer::name);
    all.back() = by_content;
    return all;
}();

/// Throws Error(BadInput) for files of other kinds than the format has.
void expect_kinds(const ImportOptions& options) {
    const auto* const importer = std::ranges::find(importers, options.format, &Importer::name);
    if (importer == importers.end() || is_folder(options.file)) {
        return;
    }
    std::vector<std::filesystem::path> files = options.more_files;
    files.insert(files.begin(), options.file);
    for (const std::filesystem::path& file : files) {
        expect_kind(
            file, {importer->kinds[0], importer->kinds[1], importer->kinds[2]}, importer->expected);
    }
}

/// Throws Error(Usage) for an option that means nothing to the format.
void expect_options(const Importer& importer, const ImportOptions& options) {
    const auto refuse = [](std::string_view option, std::string why) {
        throw Error(ErrorKind::Usage, std::string(option), std::move(why), "leave it out");
    };
    if (options.chunks && !importer.chunks) {
        refuse("--chunks",
               fmt::format("a file of format '{}' says itself which rank holds which stage",
                           importer.name));
    }
    HfOptions costs = options.hf;
    if (importer.stack) {  // the rest is of costs, where they are estimated
        HfOptions rest;
        rest.precision = costs.precision;
        rest.calibration = costs.calibration;
        rest.weights = costs.weights;
        rest.trainable = costs.trainable;
        costs = std::move(rest);
    }
    if (!costs.given().empty() && !importer.hf) {
        refuse(costs.given(),
               fmt::format("a file of format '{}' has its costs, or none", importer.name));
    }
    if (options.micro_batch_size && !importer.micro_batch_size) {
        refuse("--micro-batch-size",
               fmt::format("format '{}' does not use a number of samples", importer.name));
    }
    if (!options.ranges.given().empty() && !importer.traces) {
        refuse(options.ranges.given(),
               fmt::format("a file of format '{}' has no named ranges", importer.name));
    }
    if ((options.ignore_unknown || options.insist) && !importer.unknown) {
        refuse(options.insist ? "--insist" : "--ignore-unknown",
               fmt::format("'import {}' understands a file or refuses it", importer.name));
    }
    if (options.vocabulary && !importer.words) {
        refuse("--vocabulary",
               fmt::format("a file of format '{}' says it, or needs none", importer.name));
    }
    if (!options.variables.empty() && !importer.words && !importer.blanks) {
        refuse("--variable", fmt::format("a file of format '{}' has none", importer.name));
    }
    if (!options.model.empty() && !importer.model) {
        refuse("--model",
               fmt::format("a file of format '{}' has its model, or none", importer.name));
    }
    if (options.devices && !importer.log) {
        refuse("--devices",
               fmt::format("a file of format '{}' says it, or needs none", importer.name));
    }
    if (!options.cluster.empty() && !importer.log) {
        refuse("--cluster",
               fmt::format("a file of format '{}' is of no run on a cluster", importer.name));
    }
    if (!(options.rows_out.empty() && options.log.empty()) && !importer.log) {
        refuse(options.log.empty() ? "--rows-out" : "--log",
               fmt::format("'import {}' reads no log with measured steps", importer.name));
    }
    if (!options.more_files.empty() && !importer.traces) {
        refuse(options.more_files.front().string(),
               fmt::format("'import {}' reads one file, but {} is given, too",
                           importer.name,
                           input_name(options.file)));
    }
}

}  // namespace

int required_micro_batch_size(const ImportOptions& options, std::string why) {
    if (!options.micro_batch_size) {
        throw Error(ErrorKind::Usage,
                    "",
                    fmt::format("'import {}' needs --micro-batch-size N", options.format),
                    std::move(why));
    }
    return *options.micro_batch_size;
}

namespace {

/// Throws Error(Usage) where --rows-out names a file that the command reads, or writes something
/// else into.
void expect_own_file_of_rows(const ImportOptions& options) {
    const auto plain = [](const std::filesystem::path& file) {
        std::error_code ignored;
        return std::filesystem::weakly_canonical(file, ignored);
    };
    const auto refuse = [&options](std::string why) {
        throw Error(ErrorKind::Usage,
                    "--rows-out",
                    fmt::format("'{}' {}", options.rows_out.string(), why),
                    "write the row into a file of its own, as in --rows-out rows.json");
    };
    if (options.rows_out == "-") {
        refuse("is no file");
    }
    const std::filesystem::path rows = plain(options.rows_out);
    if (rows == plain(options.file)) {
        refuse("is the file that is imported");
    }
    if (!options.log.empty() && rows == plain(options.log)) {
        refuse("is the log of --log");
    }
    if (rows == plain(options.common.out)) {
        refuse("is the file of --out");
    }
    if (rows == plain(profile_beside(options.common.out))) {
        refuse("is where the costs of the model go");
    }
}

void execute_import(const ImportOptions& given, Console& console) {
    ImportOptions options = given;
    if (options.format == by_content) {
        const KnownFormat known = known_format(options.file);
        console.note(fmt::format(
            "{}: {}, read as by 'import {}'", input_name(options.file), known.words, known.format));
        options.format = known.format;
    }
    const std::size_t index = format_index("import", options.format, options.file.string(), names);
    const Importer& importer = importers.at(index);
    expect_options(importer, options);
    take_device_of_cluster(options);
    require_free(options.common.out, options.common.force);
    if (!options.rows_out.empty()) {
        expect_own_file_of_rows(options);
        require_free(options.rows_out, options.common.force, "--rows-out");
    }
    Imported imported = importer.read(options);
    if (importer.log) {
        add_nodes(imported, options);
    }
    write_output(options.common.out, imported.content, console);
    if (imported.profile) {
        const std::filesystem::path file = profile_beside(options.common.out);
        write_output(file, *imported.profile, console);
        imported.notes.push_back(fmt::format("the costs of the model are in {}", file.string()));
    }
    if (imported.rows) {
        write_output(options.rows_out, *imported.rows, console);
        imported.notes.push_back(
            fmt::format("a row for --calibrate is in {}", options.rows_out.string()));
    }
    imported.result.format = options.format;
    imported.result.source = input_name(options.file);
    imported.result.out = options.common.out;
    const std::optional<BesideLog> beside = beside_log(imported, options);
    for (const std::string& note : imported.notes) {
        console.note(note);
    }
    Json keys = Json::object();
    if (importer.log) {
        keys["log"] = beside ? beside_json(*beside) : Json(nullptr);
    }
    report(imported.result,
           options.common,
           console,
           beside ? beside_text(*beside, options) : std::string(),
           keys);
}

/// Options for what a config.json leaves open.
void add_hf_options(CLI::App& app, HfOptions& hf) {
    app.add_option(
           "--device",
           hf.device,
           "hf, megatron, torchtitan, maxtext, trainer, deepspeed: device to estimate the costs "
           "for, as 'pipetwin "
           "devices' names it")
        ->check(suggests(NameList::Devices))
        ->type_name("NAME");
    add_sequence(app, hf.sequence, "hf: tokens per sample; 8k is 8192");
    app.add_option(
           "--precision",
           hf.precision,
           "hf: number type: bf16, fp16, fp32, or fp8 (matrix products of blocks in fp8, the "
           "rest in bf16); with --stack also fp8-block, mxfp8 and nvfp4; default: that of the "
           "file")
        ->check(suggests(NameList::Precisions))
        ->type_name("NAME");
    add_stack(
        app,
        hf.stack,
        "hf, megatron: training software whose rates the costs have, as 'pipetwin devices' "
        "names it, or a stack's file; torchtitan, maxtext, trainer, deepspeed: also cluster.stack "
        "(default: the "
        "newest of the program that knows the device; none: rates of the device alone)");
    app.add_option(
           "--efficiency",
           hf.efficiency,
           "hf, megatron: share of the device's peak FLOP/s that every matrix product reaches, "
           "0.001 to 1 (default: estimated from the product's sizes)")
        ->type_name("X")
        ->check(finite_in(CLI::Range(0.001, 1.0)));
    app.add_option("--memory-efficiency",
                   hf.memory_efficiency,
                   "hf, megatron: share of the device's memory bandwidth that all other kernels "
                   "reach, 0.001 to 1 (default: depends on the kind of kernel)")
        ->type_name("X")
        ->check(finite_in(CLI::Range(0.001, 1.0)));
    app.add_option_function<std::string>(
           "--attention",
           [&hf](const std::string& word) {
               hf.attention = word;
               hf.has_attention = true;
           },
           "hf, megatron: flash (default), or standard (separate kernels that store all attention "
           "scores)")
        ->type_name("KIND")
        ->check(CLI::IsMember({"flash", "standard"}));
    app.add_option(
           "--loss",
           hf.loss,
           "hf, megatron: fused (default), or standard (the cross-entropy as separate kernels "
           "that read and write all logits)")
        ->type_name("KIND")
        ->check(CLI::IsMember({"fused", "standard"}));
    app.add_option(
           "--kernels",
           hf.kernels,
           "hf, megatron: kernels of the operators other than matrix products, attention and loss: "
           "fused (default, as in training "
           "libraries), compiled (by torch.compile) or eager (one for each PyTorch operator)")
        ->type_name("KIND")
        ->check(CLI::IsMember({"fused", "compiled", "eager"}));
    app.add_option("--weights",
                   hf.weights,
                   "hf: safetensors files, or their index.json, to read exact sizes from; "
                   "can be repeated")
        ->type_name("FILE")
        ->take_all()
        ->expected(1);
    app.add_option(
           "--calibrate",
           hf.calibration,
           "hf: file that 'pipetwin calibrate' wrote; its measured layers correct the estimate")
        ->type_name("FILE");
    app.add_flag("--whole-blocks",
                 hf.whole_blocks,
                 "hf, megatron: one layer per transformer block, for systems that cannot split a "
                 "block between stages (default: two)");
    app.add_flag("--trainable",
                 hf.trainable,
                 "hf: write a scenario that trains the model, and its costs beside it");
}

Command declare_import(CLI::App& app) {
    const auto options = std::make_shared<ImportOptions>();
    app.add_option(
           "format",
           options->format,
           "Format of the file: torch-csv, megatron, swift, nemo, nanotron, neox, torchtitan, "
           "maxtext, "
           "trainer, deepspeed, csv, hf, pipedream, torch-trace, nsys, otlp, chrome-trace, or "
           "auto, "
           "which looks at the content")
        ->check(suggests(names))
        ->type_name("FORMAT")
        ->required();
    app.add_option(
           "file",
           options->file,
           "File to convert, or - for standard input; hf also takes the name of a model that "
           "'pipetwin devices' lists")
        ->check(suggests(NameList::Models))
        ->type_name("FILE")
        ->required();
    app.add_option(
           "more", options->more_files, "torch-trace, nsys, otlp: one file for each further rank")
        ->type_name("FILE...");
    app.add_option("--micro-batch-size",
                   options->micro_batch_size,
                   "hf, pipedream and traces: samples in the micro-batch whose costs are written "
                   "(hf) or were measured (pipedream, traces)")
        ->type_name("N")
        ->check(CLI::Range(1, 1 << 16));
    app.add_option(
           "--chunks", options->chunks, "megatron: stages per rank (virtual stages), default 1")
        ->type_name("V")
        ->check(CLI::Range(1, 64));
    app.add_flag(
        "--ignore-unknown",
        options->ignore_unknown,
        "megatron, swift, nemo, nanotron, neox, torchtitan, maxtext, trainer, deepspeed: leave "
        "out names that "
        "are not known "
        "though they look like a slip of one that is (default: refuse them; other "
        "unknown names are left out with a warning)");
    app.add_flag(
        "--insist",
        options->insist,
        "megatron, swift, nemo, nanotron, neox, torchtitan, maxtext, trainer, deepspeed: leave "
        "out all that a "
        "scenario cannot "
        "express; the result then says that it is of another run");
    app.add_option(
           "--vocabulary",
           options->vocabulary,
           "megatron, swift, nemo, nanotron, neox: words of the tokenizer, where the file does "
           "not say them")
        ->type_name("N")
        ->check(CLI::Range(1, 1 << 24));
    app.add_option(
           "--variable",
           options->variables,
           "megatron, swift, nemo, nanotron, neox, deepspeed: a value for a variable of the "
           "file, which comes from outside; 3=4 for $3; repeatable")
        ->type_name("NAME=VALUE")
        ->take_all()
        ->expected(1);
    app.add_option(
           "--model",
           options->model,
           "a model by its name or its config.json; megatron, swift: for sizes that the file does "
           "not say; torchtitan, maxtext, trainer, deepspeed: whose costs are estimated")
        ->check(suggests(NameList::Models))
        ->type_name("NAME");
    app.add_option("--devices",
                   options->devices,
                   "megatron, swift, nemo, nanotron, neox, torchtitan, maxtext, trainer, "
                   "deepspeed: devices "
                   "of the run, where the file leaves them open")
        ->type_name("N")
        ->check(CLI::Range(1, 1 << 22));
    app.add_option(
           "--cluster",
           options->cluster,
           "megatron, swift, nemo, nanotron, neox, torchtitan, maxtext, trainer, deepspeed: nodes "
           "of the run, as 'pipetwin devices' names them (default: those that --device "
           "usually comes in)")
        ->check(suggests(NameList::Clusters))
        ->type_name("NAME");
    app.add_option("--log",
                   options->log,
                   "megatron, swift, nemo, nanotron, neox, torchtitan, maxtext, trainer, "
                   "deepspeed: log of the "
                   "run, where the "
                   "file has only its configuration: its steps are compared and go to --rows-out")
        ->type_name("FILE");
    app.add_option(
           "--rows-out",
           options->rows_out,
           "megatron, swift, nemo, nanotron, neox, torchtitan, maxtext, trainer, deepspeed: file "
           "for the steps "
           "that a log "
           "measured, as a row for --calibrate")
        ->type_name("FILE");
    add_hf_options(app, options->hf);
    add_range_names(app, options->ranges, "torch-trace, nsys, otlp: ");
    needs_out_file(app);
    reads_no_scenario(app);
    Command command = command_with(options, execute_import);
    command.expect_files = [options] { expect_kinds(*options); };
    return command;
}

}  // namespace

CommandRow import_command() {
    return {.name = "import",
            .help = "Convert a file of another program into a scenario, a profile or a schedule",
            .declare = declare_import};
}

}  // namespace pipetwin::cli
