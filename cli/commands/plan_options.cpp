// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/plan_options.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/base/command_row.h"
#include "cli/base/file_kinds.h"
#include "cli/base/grammar.h"
#include "cli/base/input.h"
#include "cli/base/option_hints.h"
#include "cli/base/option_lists.h"
#include "cli/base/output_file.h"
#include "cli/base/plan_grammar.h"
#include "cli/base/value_words.h"
#include "cli/commands/plan_lists.h"
#include "cli/figures/figures.h"
#include "cli/interop/exchange.h"
#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin::cli {

namespace {

/// Throws Error(Usage) for several schedules that are no list of TOML.
void refuse_unquoted_schedules(const std::vector<Override>& overrides) {
    for (const Override& given : overrides) {
        const std::string& value = given.value;
        if (given.key == "pipeline.schedule" && value.find(',') != std::string::npos &&
            value.front() != '[') {
            throw Error(ErrorKind::Usage,
                        "--set pipeline.schedule",
                        fmt::format("'{}' names several schedules, expected one", value),
                        fmt::format("--schedule {} searches these", value));
        }
    }
}

/// Throws Error(Usage) for a word that is not what can be asked for the most of.
void expect_layers(const std::string& word) {
    constexpr std::array known{std::string_view{"layers"}};
    if (word != known.front()) {
        throw Error(ErrorKind::Usage,
                    "--largest",
                    fmt::format("'{}' cannot be asked for the most of, expected layers", word),
                    suggestion_of_listed(word, known));
    }
}

/// The value of pipeline.schedule for lists of names. Throws Error(Usage) for an unknown one.
std::string searched_list(const std::vector<std::string>& lists) {
    std::vector<std::string> quoted;
    for (const std::string& name : list_entries("--schedule", lists)) {
        try {
            quoted.push_back(fmt::format("\"{}\"", to_string(schedule_kind(name))));
        } catch (const Error& error) {
            throw Error(ErrorKind::Usage, "--schedule", error.text(), error.hint());
        }
    }
    return fmt::format("[{}]", fmt::join(quoted, ", "));
}

/// The first option that says something of a model by its name; empty: none is given.
std::string_view option_of_question(const PlanOptions& plan) {
    return !plan.node_list.empty()           ? "--nodes"
           : plan.sequence                   ? "--sequence"
           : plan.batch_tokens               ? "--batch-tokens"
           : plan.precision                  ? "--precision"
           : plan.stack && names_model(plan) ? "--stack"
           : plan.whole_blocks               ? "--whole-blocks"
           : plan.tokens                     ? "--tokens"
                                             : option_of_table(plan);
}

/// What to do with an option of a model beside a scenario.
std::string hint_beside_scenario(const PlanOptions& plan, std::string_view option) {
    if (option == "--tokens") {
        return fmt::format("leave {} out: days and cost are for a model with --cluster",
                           plan.price() ? "--tokens and --price" : "--tokens");
    }
    if (option == option_of_table(plan)) {
        return fmt::format(
            "leave {} out: it belongs to a table of a model on clusters (docs/planning.md)",
            option);
    }
    if (option == "--whole-blocks") {
        return "leave --whole-blocks out: pipetwin import hf --whole-blocks writes costs of whole "
               "blocks";
    }
    return fmt::format("leave {} out: {} says it in a scenario",
                       option,
                       option == "--nodes"          ? "cluster.count"
                       : option == "--batch-tokens" ? "training.batch"
                       : option == "--precision"    ? "training.precision"
                                                    : "[model]");
}

/// Throws Error(Usage) for options of a model without the cluster that it is to be trained on.
void refuse_question_without_cluster(const PlanOptions& plan) {
    const std::string_view option = plan.cluster.empty() ? option_of_question(plan) : "";
    if (option.empty()) {
        return;
    }
    if (plan.scenario.extension() == ".toml" || plan.scenario == "-") {
        throw Error(ErrorKind::Usage,
                    std::string(option),
                    fmt::format("goes with a model and --cluster, but '{}' is a scenario",
                                plan.scenario.string()),
                    hint_beside_scenario(plan, option));
    }
    throw Error(ErrorKind::Usage,
                std::string(option),
                "needs --cluster, which is missing",
                "add --cluster 8x-h100-sxm, or another name that 'pipetwin devices' lists");
}

/// Refuses a model, which `plan` takes together with the name of a cluster.
void expect_no_model(const std::filesystem::path& file) {
    const FileKind kind = kind_of_file(file);
    if (kind == FileKind::HfConfig || kind == FileKind::Profile) {
        throw Error(
            ErrorKind::BadInput,
            file.string(),
            fmt::format("this is {}, expected a scenario, or a model together with --cluster",
                        words(kind)),
            cluster_hint());
    }
}

/// Options that say what a scenario would say of a model by its name.
void add_question(CLI::App& app, PlanOptions& options) {
    const std::map<std::string, double> units{
        {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1e9}, {"T", 1e12}};
    const auto tokens =
        [&](const std::string& name, std::optional<double>& number, const std::string& text) {
            app.add_option(name, number, text)
                ->transform(CLI::AsNumberWithUnit(
                    units, CLI::AsNumberWithUnit::CASE_SENSITIVE, "N[k|M|G|B|T]"))
                ->check(finite_in(CLI::PositiveNumber))
                ->type_name("N[k|M|G|B|T]");
        };
    app.add_option(
           "--cluster",
           options.cluster,
           "Kind of node in the cluster to plan for: a name that 'pipetwin devices' lists, or a "
           "file; several make a table")
        ->check(suggests(NameList::Clusters))
        ->type_name("NAME[,NAME...]");
    app.add_option("--nodes",
                   options.node_list,
                   "Number of nodes in the cluster (default 1); several make a table")
        ->check([](const std::string& text) { return text.empty() ? "empty" : ""; })
        ->type_name("N[,N...]");
    add_sequence(app, options.sequence, "Tokens per sample; 8k is 8192 (default 4096)");
    tokens("--batch-tokens",
           options.batch_tokens,
           "Tokens per step (default 4M; k is 1,000); rounded by up to 5 % to a number of samples "
           "with many divisors");
    app.add_option(
           "--precision",
           options.precision,
           "Number type: bf16 (default), fp16, fp32 or fp8; with --stack also fp8-block, mxfp8 "
           "and nvfp4")
        ->check(suggests(NameList::Precisions))
        ->type_name("NAME");
    add_stack(app,
              options.stack,
              "Training software whose rates the costs of a model have, as 'pipetwin devices' "
              "names it, or a stack's file (default: the newest of Megatron that knows the "
              "device; none: rates of the device alone); several make a table; of a scenario: "
              "cluster.stack");
    app.add_option("--schedule",
                   options.schedules,
                   "Search only these schedules, as in 1f1b,interleaved-1f1b (default: those that "
                   "docs/planning.md lists)")
        ->type_name("NAME[,NAME...]")
        ->check(suggests(NameList::Schedules));
    take_one_word(*app.get_option("--schedule"));
    app.add_flag("--whole-blocks",
                 options.whole_blocks,
                 "Keep every transformer block on one stage, as Megatron and torchtitan do");
    tokens(
        "--tokens",
        options.tokens,
        "Tokens of the whole training run (k is 1,000): adds days and device hours to the answer");
    app.add_option("--price",
                   options.prices,
                   "Price of one device hour, in any currency: adds the cost to the answer; of "
                   "several clusters one for each")
        ->check(finite_in(CLI::PositiveNumber))
        ->delimiter(',')
        ->type_name("X[,X...]")
        ->needs("--tokens");
    take_one_word(*app.get_option("--price"));
}

}  // namespace

void add_plan_options(CLI::App& app, PlanOptions& options) {
    app.add_option(
           "scenario",
           options.scenario,
           "Scenario file; or, with --cluster, a model: a name that 'pipetwin devices' lists, "
           "a config.json or a *.profile.json")
        ->check(suggests(NameList::Models))
        ->type_name("SCENARIO.toml|MODEL")
        ->required();
    app.footer(
        "Ctrl-C ends the search. The answer is then the best plan so far, which need not be "
        "optimal.\n" +
        app.get_footer());
    add_question(app, options);
    leave_out_of_help(app, {"--seed"});
    add_profile(app, options.profile);
    add_run_calibration(app, options.calibration);
    add_flops_count(app, options.flops_count);
    app.add_option(
           "--heatmap",
           options.heat_map,
           "Draw a heat map of the fastest plan for each number of stages and micro-batches, as "
           "*.svg, *.pdf or *.png")
        ->type_name("FILE.svg");
    app.add_option("--order-out",
                   options.order_out,
                   "Model with branches: also try another order of its layers, and write the costs "
                   "in that order if it is faster")
        ->type_name("FILE.profile.json");
    app.add_flag(
        "--hybrid",
        options.hybrid,
        "Also show stages with different numbers of devices, as PipeDream would choose them");
    app.add_option("--largest",
                   options.largest,
                   "Find how many layers fit into memory, instead of the fastest plan")
        ->type_name("layers")
        ->excludes("--heatmap")
        ->excludes("--hybrid")
        ->excludes("--mfu")
        ->excludes("--order-out")
        ->excludes("--cluster");
}

void add_sweep_of_plans(CLI::App& app, PlanOptions& options, std::vector<std::string>& swept) {
    add_swept_keys(app, swept);
    for (const char* other :
         {"--heatmap", "--order-out", "--hybrid", "--largest", "--calibrate", "--mfu"}) {
        app.get_option("--sweep")->excludes(other);
    }
    app.add_option("--csv", options.csv, "Write the table of combinations, or of --sweep, as CSV")
        ->type_name("FILE.csv");
}

void complete_plan(PlanOptions& options, CommonOptions& common) {
    refuse_unquoted_schedules(common.overrides);
    if (options.batch_tokens) {
        refuse_key_of_option("--batch-tokens", "training.batch", common.overrides);
    }
    if (!options.schedules.empty()) {
        refuse_key_of_option("--schedule", "pipeline.schedule", common.overrides);
        common.overrides.push_back(
            {.key = "pipeline.schedule", .value = searched_list(options.schedules)});
    }
    if (options.largest) {
        expect_layers(*options.largest);
        if (!common.out.empty()) {
            throw Error(ErrorKind::Usage,
                        "--out",
                        "with --largest there is no plan to write",
                        "leave --out out, or redirect the result: --json > largest.json");
        }
    }
    static_cast<void>(format_of_picture("--heatmap", options.heat_map));
    refuse_question_without_cluster(options);
    if (options.cluster.empty() && !names_model(options)) {
        set_stack_key(options.stack, common.overrides);
    }
}

void expect_plan_files(const PlanOptions& options) {
    if (options.cluster.empty()) {
        expect_no_model(options.scenario);
        expect_scenario(options.scenario);
    } else {
        expect_kind(options.scenario,
                    {FileKind::HfConfig, FileKind::Profile, FileKind::Scenario},
                    "a model's config.json or its *.profile.json");
    }
    expect_costs(options.profile);
    expect_measured_runs(options.calibration);
}

bool names_model(const PlanOptions& options) {
    const std::filesystem::path& file = options.scenario;
    const bool is_scenario = file == "-" || file.extension() == ".toml";
    if (!options.cluster.empty() && is_scenario) {
        throw Error(
            ErrorKind::Usage,
            "--cluster",
            fmt::format("goes with a model, but '{}' is a scenario", file.string()),
            fmt::format("--set cluster.profile={} sets it in the scenario", options.cluster));
    }
    std::error_code ignored;
    return !is_scenario && (!options.cluster.empty() || file.extension() == ".json" ||
                            std::filesystem::is_directory(file, ignored) ||
                            std::ranges::count(model_names(), file.string()) > 0);
}

void require_free_files(const PlanOptions& options) {
    if (!options.heat_map.empty()) {
        require_figures(format_of_picture("--heatmap", options.heat_map));
        require_free(options.heat_map, options.common.force, "--heatmap");
    }
    if (!options.order_out.empty()) {
        require_free(options.order_out, options.common.force, "--order-out");
    }
}

}  // namespace pipetwin::cli
