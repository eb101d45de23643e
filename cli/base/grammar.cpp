// SPDX-License-Identifier: Apache-2.0
#include "cli/base/grammar.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/base/help_format.h"
#include "cli/base/plan_grammar.h"
#include "core/base/version.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/schedule.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view exit_code_text =
    "Exit codes: 0 success, 1 other failure, 2 usage, 3 bad input file, 4 infeasible, 5 backend "
    "or\n"
    "device missing, 6 I/O or folder in use, 7 a worker failed, 8 hang, 9 NaN or infinity,\n"
    "10 ranks disagree, 129, 130, 141 and 143 stopped by a signal.\n";

void add_common(CLI::App& app, RawCommon& raw) {
    app.add_flag("--json", raw.options.json, "Print the result as one JSON object")
        ->group(general_options);
    app.add_option(
           "--out", raw.options.out, "Folder for the files of the result (default: no files)")
        ->type_name("DIR");
    app.add_option(
           "--set",
           raw.settings,
           "Override a key of the scenario, as in pipeline.stages=4; the value is TOML, or a bare "
           "word for a string; can be repeated")
        ->type_name("KEY=VALUE")
        ->expected(1)
        ->allow_extra_args(false)
        ->take_all();
    app.add_option("--seed", raw.seed, "Seed of weights and data, as --set training.seed=N")
        ->type_name("N")
        ->check(CLI::NonNegativeNumber);
    CLI::Option* const quiet =
        app.add_flag("--quiet", raw.options.quiet, "Print only the result and errors");
    quiet->group(general_options);
    app.add_flag("--verbose", raw.options.verbose, "Also print the critical path")
        ->group(general_options)
        ->excludes(quiet);
    app.add_option("--color", raw.options.color, "Colours: auto (default), always or never")
        ->transform(CLI::CheckedTransformer(std::vector<std::pair<std::string, ColorMode>>{
                                                {"auto", ColorMode::Auto},
                                                {"always", ColorMode::Always},
                                                {"never", ColorMode::Never}})
                        .description(""))
        ->type_name("WHEN")
        ->group(general_options);
    app.add_flag("--force", raw.options.force, "Overwrite existing files")->group(general_options);
}

}  // namespace

void leave_out_of_help(CLI::App& command, std::initializer_list<const char*> options) {
    for (const char* const option : options) {
        command.get_option(option)->group(options_without_effect);
    }
}

void reads_no_scenario(CLI::App& command) {
    leave_out_of_help(command, {"--set", "--seed", "--verbose"});
}

void needs_out_file(CLI::App& app) {
    app.get_option("--out")->description("File to write")->type_name("FILE")->required();
}

void takes_out_file(CLI::App& app) {
    app.get_option("--out")->description("File to write the result to, as JSON")->type_name("FILE");
}

CLI::App& Grammar::add_command(const std::string& name, const std::string& text) {
    CLI::App* const command = app_.add_subcommand(name, text);
    command->group("Commands")->footer(std::string(exit_code_text));
    command
        ->allow_extras();  // told apart after the parse, where the nearest known one can be named
    add_common(*command, raw_);
    return *command;
}

void Grammar::add_training(CLI::App& app, RunOptions& options) {
    app.get_option("--out")->description("Run folder (default: runs/NAME-1, runs/NAME-2, ...)");
    app.add_option("scenario", options.scenario, "Scenario file")
        ->type_name("SCENARIO.toml")
        ->required();
    app.add_option("--profile",
                   options.profile,
                   "Costs of the layers, to predict the step (default: measure them first)")
        ->type_name("FILE");
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

namespace {

/// --sequence, whose k is the 1024 of models' contexts, and whose M is that squared.
void add_sequence(CLI::App& app, std::optional<int>& tokens, const std::string& text) {
    const std::map<std::string, int> units{{"k", 1024}, {"K", 1024}, {"M", 1 << 20}};
    app.add_option("--sequence", tokens, text)
        ->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::CASE_SENSITIVE, "N[k|M]"))
        ->check(CLI::Range(1, 1 << 26))
        ->type_name("N[k|M]");
}

}  // namespace

void Grammar::add_hf_options(CLI::App& app) {
    HfOptions& hf = import_.hf;
    app.add_option("--device",
                   hf.device,
                   "hf, megatron: device to estimate the costs for, as 'pipetwin devices' names it")
        ->type_name("NAME");
    add_sequence(app, hf.sequence, "hf: tokens per sample; 8k is 8192");
    app.add_option(
           "--precision",
           hf.precision,
           "hf: number type: bf16, fp16, fp32, or fp8 (matrix products of blocks in fp8, the "
           "rest in bf16); default: that of the file")
        ->type_name("NAME");
    app.add_option(
           "--efficiency",
           hf.efficiency,
           "hf, megatron: share of the device's peak FLOP/s that every matrix product reaches, "
           "0.001 to 1 (default: estimated from the product's sizes)")
        ->type_name("X")
        ->check(CLI::Range(0.001, 1.0));
    app.add_option("--memory-efficiency",
                   hf.memory_efficiency,
                   "hf, megatron: share of the device's memory bandwidth that all other kernels "
                   "reach, 0.001 to 1 (default: depends on the kind of kernel)")
        ->type_name("X")
        ->check(CLI::Range(0.001, 1.0));
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

void Grammar::add_range_names(CLI::App& app) {
    RangeNameOptions& ranges = import_.ranges;
    const std::string which = "torch-trace, nsys: pattern for the names of the profiler ranges of ";
    app.add_option("--forward",
                   ranges.forward,
                   which + "a forward; * is any text, {stage} and {micro_batch} are numbers")
        ->type_name("PATTERN");
    app.add_option("--backward", ranges.backward, which + "a backward")->type_name("PATTERN");
    app.add_option("--backward-input", ranges.backward_input, which + "an input gradient")
        ->type_name("PATTERN");
    app.add_option("--backward-weight", ranges.backward_weight, which + "a weight gradient")
        ->type_name("PATTERN");
}

void Grammar::add_exchange() {
    CLI::App& import = add_command(
        "import", "Convert a file of another program into a scenario, a profile or a schedule");
    import
        .add_option(
            "format",
            import_.format,
            "Format of the file: torch-csv, megatron, torchtitan, deepspeed, csv, hf, pipedream, "
            "torch-trace, nsys or chrome-trace")
        ->type_name("FORMAT")
        ->required();
    import
        .add_option(
            "file",
            import_.file,
            "File to convert, or - for standard input; hf also takes the name of a model that "
            "'pipetwin devices' lists")
        ->type_name("FILE")
        ->required();
    import
        .add_option("more", import_.more_files, "torch-trace, nsys: one file for each further rank")
        ->type_name("FILE...");
    import
        .add_option("--micro-batch-size",
                    import_.micro_batch_size,
                    "hf, pipedream and traces: samples in the micro-batch whose costs are written "
                    "(hf) or were measured (pipedream, traces)")
        ->type_name("N")
        ->check(CLI::Range(1, 1 << 16));
    import
        .add_option(
            "--chunks", import_.chunks, "megatron: stages per rank (virtual stages), default 1")
        ->type_name("V")
        ->check(CLI::Range(1, 64));
    import.add_flag("--ignore-unknown",
                    import_.ignore_unknown,
                    "megatron, torchtitan, deepspeed: leave out settings that are not known, with "
                    "a warning for each (default: refuse them); what changes the model, the split "
                    "or the batch stays refused");
    import.add_flag("--insist",
                    import_.insist,
                    "megatron, torchtitan, deepspeed: leave out all that a scenario cannot "
                    "express; the result then says that it is of another run");
    add_hf_options(import);
    add_range_names(import);
    needs_out_file(import);
    reads_no_scenario(import);

    CLI::App& exporter = add_command("export",
                                     "Convert a scenario, a run or a schedule into a file of "
                                     "another program, or into a picture");
    exporter
        .add_option("format",
                    export_.format,
                    "Format to write: torch-csv, chrome-trace, megatron-layout, megatron-flags, "
                    "torchtitan, "
                    "json, svg or hf")
        ->type_name("FORMAT")
        ->required();
    exporter
        .add_option("source",
                    export_.source,
                    "What to convert: a scenario, a schedule file, a folder of a plan or run, or "
                    "for svg a trace")
        ->type_name("SOURCE")
        ->required();
    exporter
        .add_option(
            "--profile", export_.profile, "Costs of the scenario's layers: *.profile.json or CSV")
        ->type_name("FILE");
    exporter.add_flag("--compute-only",
                      export_.compute_only,
                      "torch-csv: write only F, B, I and W; PyTorch adds the communication");
    exporter
        .add_option("--shard-size",
                    export_.shard_size,
                    "hf: largest size of one file of weights (default 5 GB)")
        ->type_name("SIZE");
    needs_out_file(exporter);
    leave_out_of_help(exporter, {"--seed", "--verbose"});
}

namespace {

/// --calibrate of `simulate` and `plan`; `import hf` has another one.
void add_run_calibration(CLI::App& app, std::filesystem::path& file) {
    app.add_option(
           "--calibrate",
           file,
           "JSON file of measured runs that correct the costs. Each run has its step time, "
           "tokens/s or TFLOP/s, and the keys whose values differ from the scenario; optional: its "
           "peak memory")
        ->type_name("FILE");
}

void add_flops_count(CLI::App& app, std::optional<FlopsCount>& count) {
    std::vector<std::pair<std::string, FlopsCount>> words;
    for (const FlopsCount known : flops_counts) {
        words.emplace_back(to_string(known), known);
    }
    app.add_option("--mfu",
                   count,
                   "What counts as an operation of the model in its MFU: palm (all pairs of "
                   "attention), megatron (half of causal attention; default) or hardware (as palm, "
                   "and recompute)")
        ->transform(CLI::CheckedTransformer(words).description(""))
        ->type_name("COUNT");
}

}  // namespace

void Grammar::add_simulate() {
    CLI::App& simulate = add_command(
        "simulate",
        "Predict the time, bubble, memory and throughput of a plan, or compare several");
    simulate
        .add_option("scenario",
                    simulate_.scenario,
                    "Scenario file; leave it out to give costs on the command line")
        ->type_name("SCENARIO.toml");
    simulate
        .add_option("--profile", simulate_.profile, "Costs of the layers: *.profile.json or CSV")
        ->type_name("FILE");
    simulate.get_option("--seed")->description(
        "Seed of the random steps of --jitter and similar options (default 1, or training.seed)");
    add_run_calibration(simulate, simulate_.calibration);
    add_flops_count(simulate, simulate_.flops_count);
    add_plans(simulate, costs_group, default_schedule, simulate_.plain, simulate_.sweep, raw_);
    add_costs(simulate, simulate_.plain);
    add_uncertain(simulate, simulate_.uncertainty);
}

void Grammar::add_sweep() {
    CLI::App& sweep = add_command(
        "sweep",
        "Predict many combinations of schedule, stages and micro-batches, or several scenarios");
    sweep
        .add_option("scenarios",
                    sweep_.scenarios,
                    "Scenario files; leave them out to give costs on the command line")
        ->type_name("SCENARIO.toml...");
    sweep.add_option("--profile", sweep_.profile, "Costs of the layers: *.profile.json or CSV")
        ->type_name("FILE");
    add_plans(sweep,
              "Plans to compare",
              fmt::format("that of the scenario, or else {}", default_schedule),
              sweep_.plain,
              sweep_.lists,
              raw_);
    add_costs(sweep, sweep_.plain);
    leave_out_of_help(sweep, {"--out", "--seed", "--verbose"});
}

/// The options of `plan` that say what a scenario would say of a model by its name.
void Grammar::add_question(CLI::App& plan) {
    const std::map<std::string, double> units{
        {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1e9}, {"T", 1e12}};
    const auto tokens =
        [&](const std::string& name, std::optional<double>& number, const std::string& text) {
            plan.add_option(name, number, text)
                ->transform(CLI::AsNumberWithUnit(
                    units, CLI::AsNumberWithUnit::CASE_SENSITIVE, "N[k|M|G|B|T]"))
                ->check(CLI::PositiveNumber)
                ->type_name("N[k|M|G|B|T]");
        };
    plan.add_option(
            "--cluster",
            plan_.cluster,
            "Kind of node in the cluster to plan for: a name that 'pipetwin devices' lists, or a "
            "file")
        ->type_name("NAME");
    plan.add_option("--nodes", plan_.nodes, "Number of nodes in the cluster (default 1)")
        ->check(CLI::Range(1, 1 << 16))
        ->type_name("N");
    add_sequence(plan, plan_.sequence, "Tokens per sample; 8k is 8192 (default 4096)");
    tokens("--batch-tokens",
           plan_.batch_tokens,
           "Tokens per step (default 4M; k is 1,000); rounded by up to 5 % to a number of samples "
           "with many divisors");
    plan.add_option(
            "--precision", plan_.precision, "Number type: bf16 (default), fp16, fp32 or fp8")
        ->type_name("NAME");
    plan.add_option("--schedule",
                    raw_.schedules,
                    "Search only these schedules, as in 1f1b,interleaved-1f1b (default: those that "
                    "docs/planning.md lists)")
        ->type_name("NAME[,NAME...]");
    take_one_word(*plan.get_option("--schedule"));
    plan.add_flag("--whole-blocks",
                  plan_.whole_blocks,
                  "Keep every transformer block on one stage, as Megatron and torchtitan do");
    tokens(
        "--tokens",
        plan_.tokens,
        "Tokens of the whole training run (k is 1,000): adds days and device hours to the answer");
    plan.add_option("--price",
                    plan_.price,
                    "Price of one device hour, in any currency: adds the cost to the answer")
        ->check(CLI::PositiveNumber)
        ->type_name("X")
        ->needs("--tokens");
}

void Grammar::add_plan() {
    CLI::App& plan =
        add_command("plan",
                    "Find the fastest plan for a model on a cluster, or for the settings "
                    "that a scenario leaves open");
    plan.add_option(
            "scenario",
            plan_.scenario,
            "Scenario file; or, with --cluster, a model: a name that 'pipetwin devices' lists, "
            "a config.json or a *.profile.json")
        ->type_name("SCENARIO.toml|MODEL")
        ->required();
    plan.footer(
        "Ctrl-C ends the search. The answer is then the best plan so far, which need not be "
        "optimal.\n" +
        std::string(exit_code_text));
    add_question(plan);
    leave_out_of_help(plan, {"--seed"});
    plan.add_option("--profile", plan_.profile, "Costs of the layers: *.profile.json or CSV")
        ->type_name("FILE");
    add_run_calibration(plan, plan_.calibration);
    add_flops_count(plan, plan_.flops_count);
    plan.add_option(
            "--heatmap",
            plan_.heat_map,
            "Draw a heat map of the fastest plan for each number of stages and micro-batches")
        ->type_name("FILE.svg");
    plan.add_option(
            "--order-out",
            plan_.order_out,
            "Model with branches: also try another order of its layers, and write the costs "
            "in that order if it is faster")
        ->type_name("FILE.profile.json");
    plan.add_flag(
        "--hybrid",
        plan_.hybrid,
        "Also show stages with different numbers of devices, as PipeDream would choose them");
    plan.add_option("--largest",
                    largest_,
                    "Find how many layers fit into memory, instead of the fastest plan")
        ->type_name("layers")
        ->excludes("--heatmap")
        ->excludes("--hybrid")
        ->excludes("--mfu")
        ->excludes("--order-out")
        ->excludes("--cluster");
}

void Grammar::add_model() {
    CLI::App& model =
        add_command("model", "List the layers from which stages are made, and draw their graph");
    takes_out_file(model);
    leave_out_of_help(model, {"--seed", "--verbose"});
    model.add_option("scenario", model_.scenario, "Scenario file")
        ->type_name("SCENARIO.toml")
        ->required();
    model
        .add_option(
            "--profile",
            model_.profile,
            "Costs of the layers, which decide where the model is cut: *.profile.json or CSV")
        ->type_name("FILE");
    model.add_option("--svg", model_.svg, "Draw the graph and the stages that it is cut into")
        ->type_name("FILE.svg");
    model
        .add_option(
            "--device",
            model_.device,
            "Estimate the costs of the layers on this device, as 'pipetwin devices' names it")
        ->type_name("NAME")
        ->needs(model
                    .add_option("--costs-out",
                                model_.costs_out,
                                "Write the estimated costs, for the --profile of simulate and plan")
                    ->type_name("FILE.profile.json"));
    model.get_option("--costs-out")->needs("--device");
}

void Grammar::add_launch() {
    CLI::App& launch = add_command("launch", "Train on this machine, with one process per rank");
    add_training(launch, run_);
    leave_out_of_help(launch, {"--verbose"});
    launch
        .add_option("--ranks",
                    launch_.ranks,
                    "Number of processes, one for each rank of each replica: pipeline.stages times "
                    "pipeline.data_parallel")
        ->type_name("N")
        ->required()
        ->check(CLI::Range(1, 4096));
}

void Grammar::add_compare() {
    CLI::App& compare = add_command("compare",
                                    "Compare a predicted and a measured timeline: the step, its "
                                    "parts, and the peak memory of each "
                                    "rank");
    takes_out_file(compare);
    reads_no_scenario(compare);
    compare
        .add_option(
            "predicted", compare_.predicted, "Predicted trace, or a run folder with both traces")
        ->type_name("PREDICTED")
        ->required();
    compare
        .add_option("measured", compare_.measured, "Measured trace; leave it out for a run folder")
        ->type_name("MEASURED");
}

void Grammar::add_check() {
    CLI::App& check = add_command(
        "check", "Prove that a schedule is complete and free of deadlock, or list what is wrong");
    takes_out_file(check);
    leave_out_of_help(check, {"--seed", "--verbose"});
    check.add_option("file", check_.file, "Schedule file (CSV) or scenario")
        ->type_name("FILE")
        ->required();
    check
        .add_option(
            "--capacity",
            check_.capacity,
            "Number of messages that a channel holds before its sender waits (default: unlimited)")
        ->type_name("N")
        ->check(CLI::NonNegativeNumber);
    check
        .add_flag("--preposted-receives,--begun-receives",
                  check_.preposted_receives,
                  "Assume that channels hold no message, and that each rank posts all its receives "
                  "before its first action, as MPI and NCCL allow")
        ->excludes("--capacity");
    check.add_flag("--one-queue-per-ranks",
                   check_.one_queue_per_ranks,
                   "Assume that all messages from one rank to another are received in the order in "
                   "which they are sent, as in PyTorch's runtime (default: those of each pair of "
                   "stages)");
}

/// Adds the commands in the order in which --help lists them.
Grammar::Grammar(std::span<const OwnCommand> own) {
    app_.formatter(std::make_shared<HelpFormat>());
    app_.require_subcommand(1);
    app_.set_version_flag("--version", fmt::format("pipetwin {}", program_version()));
    app_.footer("'pipetwin COMMAND --help' lists a command's options.\n" +
                std::string(exit_code_text));

    add_training(
        add_command("run",
                    "Measure costs, plan, predict, train and compare, and write a run folder"),
        run_);
    add_simulate();
    add_sweep();
    add_plan();
    CLI::App& profile = add_command(
        "profile", "Measure the costs of every layer on this machine, and write NAME.profile.json");
    profile.get_option("--out")->description(
        "Folder for NAME.profile.json, or a file that ends in .json (default: the current folder)");
    leave_out_of_help(profile, {"--verbose"});
    profile.add_option("scenario", profile_.scenario, "Scenario file")
        ->type_name("SCENARIO.toml")
        ->required();
    add_model();
    CLI::App& train = add_command("train", "Train the model of a scenario, and write a run folder");
    add_training(train, run_);
    leave_out_of_help(train, {"--verbose"});
    add_launch();
    add_compare();
    add_check();
    add_exchange();
    for (const OwnCommand& command : own) {
        CLI::App& app = add_command(std::string(command.name), std::string(command.help));
        own_.emplace(command.name, command.declare(app));
    }
}

}  // namespace pipetwin::cli
