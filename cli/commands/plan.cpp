// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/file_kinds.h"
#include "cli/base/memory_left.h"
#include "cli/base/option_hints.h"
#include "cli/base/option_lists.h"
#include "cli/base/output_file.h"
#include "cli/base/plan_grammar.h"
#include "cli/base/progress.h"
#include "cli/base/stop_signal.h"
#include "cli/commands/commands.h"
#include "cli/interop/exchange.h"
#include "cli/interop/export/plan_exports.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/answer_text.h"
#include "cli/text/calibration_text.h"
#include "cli/text/heat_map.h"
#include "cli/text/hybrid_text.h"
#include "cli/text/largest_text.h"
#include "cli/text/plan_text.h"
#include "cli/text/planning.h"
#include "cli/text/ranked_table.h"
#include "cli/text/text_output.h"
#include "core/artifacts/chrome_trace.h"
#include "core/artifacts/plan_json.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/costs/profile_json.h"
#include "core/costs/repeated_layers.h"
#include "core/costs/shipped_profiles.h"
#include "core/model/model.h"
#include "core/partition/layer_order.h"
#include "core/plan/stage_costs.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule_csv.h"
#include "exec/base/retry.h"
#include "sim/questions/measured_costs.h"
#include "sim/questions/model_on_cluster.h"
#include "sim/questions/node_counts.h"
#include "sim/questions/prediction.h"
#include "sim/search/every_shape.h"
#include "sim/search/hybrid.h"
#include "sim/search/largest_model.h"
#include "sim/search/plan_search.h"

namespace pipetwin::cli {

namespace {

/// Options of `plan`.
struct PlanOptions {
    CommonOptions common;
    /// A scenario; or a model: its name, its config.json or folder, or its *.profile.json.
    std::filesystem::path scenario;
    std::string cluster;  ///< of a model: the nodes, as in profiles/clusters; empty: none
    int nodes = 1;
    std::optional<int> sequence;           ///< tokens per sample
    std::optional<double> batch_tokens;    ///< tokens per step
    std::optional<std::string> precision;  ///< of the estimate
    bool whole_blocks = false;             ///< no block is cut in two
    std::optional<double> tokens;          ///< of the whole training
    std::optional<double> price;           ///< of one device for an hour
    std::filesystem::path profile;
    std::filesystem::path calibration;      ///< measured runs; empty: none
    std::optional<FlopsCount> flops_count;  ///< of --mfu
    std::filesystem::path heat_map;         ///< *.svg; empty: not asked for
    std::filesystem::path order_out;        ///< *.profile.json; empty: layers keep their order
    bool hybrid = false;                    ///< what stages of unequal width could do, too
    std::vector<std::string> schedules;     ///< to be searched, as written; empty: not given
    std::optional<std::string> largest;  ///< "layers": how many fit, in place of the fastest plan
};

/// Prints the largest number of layers that fit, in place of the fastest plan.
void show_largest(const Scenario& scenario,
                  const sim::FoundProfile& found,
                  const std::optional<sim::Calibration>& calibration,
                  bool json,
                  Console& console) {
    const RepeatedLayers repeated = repeated_layers(found.profile, found.file.string());
    const sim::LargestModel largest = [&] {
        const StopSignal stop;
        Progress progress(console, "looking for the largest model");
        return sim::largest_model(scenario, found.profile, repeated, [&](double share, int copies) {
            progress.update(share, fmt::format("{} fit", counted(copies, "layer")));
            return StopSignal::received() == 0;
        });
    }();
    const LargestAnswer answer{scenario, found.profile, repeated, largest};
    if (largest.copies == 0) {
        throw nothing_fits(answer);
    }
    if (json) {
        Json result = largest_json(answer);
        result["calibration"] = calibration_json(calibration);
        console.result(json_text(result));
        return;
    }
    console.result(calibration_text(calibration, console) + largest_text(answer, console));
}

/// The search: its profile and model, and its result.
struct Planned {
    Profile profile;
    Model model;
    sim::SearchResult result;

    const sim::FoundPlan& best() const { return result.ranked.front(); }
};

/// Throws Error(BadInput) for a limit of memory without its unit: the devices together have no room
/// for the weights.
void expect_unit_of_limit(const Scenario& scenario, const Profile& profile) {
    constexpr std::int64_t most_without_unit = 1024;
    const std::optional<Bytes>& limit = scenario.cluster.memory_limit;
    if (!limit || limit->count > most_without_unit) {
        return;
    }
    std::int64_t weights = -profile.tied_bytes.count;
    for (const LayerCost& layer : profile.layers) {
        weights += layer.parameter_bytes.count;
    }
    if (limit->count * std::max(1, scenario.cluster.count) < weights) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"cluster.memory_limit"},
                    fmt::format("{} for each device, but the weights of the model are {}",
                                format_bytes(*limit),
                                format_bytes(Bytes{weights})),
                    {fmt::format("did you mean \"{} GiB\"?", limit->count),
                     {{"cluster.memory_limit", fmt::format("\"{} GiB\"", limit->count)}}});
    }
}

/// What to do where the only schedule that was asked for has a rule that shapes break; empty: there
/// is none.
std::string hint_for_schedule(const Scenario& scenario, const sim::SearchResult& result) {
    const std::optional<std::string>& schedule = scenario.pipeline.schedule.known();
    const bool breaks_rule =
        schedule && std::ranges::any_of(result.infeasible, [&](const sim::Infeasible& entry) {
            return entry.reason == ErrorReason::ScheduleRule;
        });
    return breaks_rule ? fmt::format(
                             "leave the schedule open, or name others: the rule of {} "
                             "leaves too few shapes",
                             *schedule)
                       : "";
}

/// Asks `sim::enough_nodes`, until the user has waited long enough.
std::optional<int> enough_nodes(const sim::NodesOfModel& nodes,
                                const Profile& profile,
                                int first,
                                Console& console) {
    const StopSignal stop;
    Progress progress(console, "looking for a number of nodes that is enough");
    return sim::enough_nodes(nodes, profile, first, [&progress](std::optional<double> share) {
        if (share) {
            progress.update(*share, "");
        }
        return StopSignal::received() == 0;
    });
}

constexpr std::string_view or_less = "or use a smaller model or shorter sequences (--sequence)";

/// What helps, if weights, gradients and optimizer state alone need `least` nodes; the cluster may
/// have more.
std::string hint_for_memory(const sim::NodesOfModel& nodes, int least, std::optional<int> enough) {
    if (enough) {
        return fmt::format(
            "a plan fits on {} (--nodes {}); {}", counted(*enough, "node"), *enough, or_less);
    }
    return least > nodes.count
               ? fmt::format(
                     "use more nodes (--nodes): weights, gradients and optimizer state "
                     "alone need at least {}; {}",
                     least,
                     or_less)
               : fmt::format("use more nodes (--nodes), {}", or_less);
}

/// What helps where no plan of a model by its name can be run.
std::string hint_for_model(const Scenario& scenario,
                           const Model& model,
                           const Profile& profile,
                           const sim::NodesOfModel& nodes,
                           const sim::SearchResult& result,
                           Console& console) {
    const auto is_there = [&](ErrorReason reason) {
        return std::ranges::count(result.infeasible, reason, &sim::Infeasible::reason) > 0;
    };
    constexpr std::string_view name_the_network =
        "name the network between the nodes, as in --set cluster.node_link=ethernet-25";
    const bool lacks_memory = is_there(ErrorReason::Memory);
    const int least =
        lacks_memory ? sim::least_nodes(scenario, model, profile, nodes.count, result) : 1;
    if (least <= nodes.count && is_there(ErrorReason::NoNetwork)) {
        return std::string(name_the_network);
    }
    if (!lacks_memory) {
        return "leave out a --set pipeline.KEY, or use another number of nodes (--nodes)";
    }
    const bool has_network =
        !scenario.cluster.node_link.empty() || scenario.cluster.node_link_gbps > 0;
    if (!has_network) {
        return fmt::format("{}; {}", hint_for_memory(nodes, least, std::nullopt), name_the_network);
    }
    const int first = std::max(least, nodes.count + 1);
    return hint_for_memory(
        nodes,
        least,
        result.complete ? enough_nodes(nodes, profile, first, console) : std::nullopt);
}

Planned planned(const Scenario& scenario,
                Profile profile,
                const sim::NodesOfModel& nodes,
                bool every_cell,
                Console& console) {
    expect_unit_of_limit(scenario, profile);
    Model model = scenario_model(scenario, &profile);
    sim::SearchResult result = search_with_progress(scenario, model, profile, every_cell, console);
    if (result.ranked.empty()) {
        const Error lacking = nothing_fits(scenario, profile, result);
        if (const std::string hint = hint_for_schedule(scenario, result); !hint.empty()) {
            throw lacking.with_hint(hint);
        }
        if (nodes.count == 0) {
            throw lacking;
        }
        throw lacking
            .with_text(fmt::format(
                "on {} x {} {}", scenario.cluster.count, scenario.cluster.device, lacking.text()))
            .with_hint(lacking.reason() == ErrorReason::SharingFits
                           ? lacking.advice()
                           : hint_for_model(scenario, model, profile, nodes, result, console));
    }
    return {.profile = std::move(profile), .model = std::move(model), .result = std::move(result)};
}

struct NamedOrder {
    BetterOrder order;
    int stages = 1;  ///< that it suits
};

/// An order of the layers that suits the best plan's pieces better than the model's own, or as many
/// stages as it has ranks.
std::optional<NamedOrder> better_order_for(const Scenario& scenario, const Planned& first) {
    const sim::Candidate& candidate = first.best().candidate;
    if (scenario.model.kind != ModelKind::Profile || !scenario.pipeline.partition.is_auto()) {
        return std::nullopt;
    }
    const int samples = scenario.training.batch / candidate.shape.data_parallel;
    const int size = std::max(1, samples / candidate.shape.micro_batches);
    const int stages = candidate.shape.stages;
    for (const int pieces : {stages * candidate.choice.chunks, stages}) {
        if (auto order = better_order(first.profile, first.model, pieces, size)) {
            return NamedOrder{.order = *std::move(order), .stages = pieces};
        }
    }
    return std::nullopt;
}

/// Takes the other order where the user asked for it and it is faster; else says that there is one.
Planned in_the_better_order(const Scenario& scenario,
                            Planned first,
                            const sim::NodesOfModel& nodes,
                            const PlanOptions& options,
                            Console& console) {
    const std::optional<NamedOrder> found = better_order_for(scenario, first);
    if (!found) {
        if (!options.order_out.empty()) {
            console.note("no other order of the layers makes the largest stage smaller");
        }
        return first;
    }
    const BetterOrder& order = found->order;
    const std::string smaller = fmt::format(
        "the largest of {} stages can take {} in place of {} per micro-batch with the layers in "
        "another order",
        found->stages,
        format_duration(order.largest),
        format_duration(order.largest_before));
    if (options.order_out.empty()) {
        console.note(smaller + "; --order-out FILE.profile.json plans with it");
        return first;
    }
    Planned second = planned(scenario, order.profile, nodes, !options.heat_map.empty(), console);
    const bool is_faster = second.best().step < first.best().step;
    console.note(fmt::format("{}: a step takes {}, {} in the model's own",
                             smaller,
                             format_duration(second.best().step),
                             format_duration(first.best().step)));
    if (!is_faster) {
        return first;
    }
    write_output(options.order_out, print_profile(second.profile), console);
    console.note(fmt::format("costs in that order: {}, for model.file in a scenario",
                             options.order_out.string()));
    return second;
}

/// Writes the best plan as `simulate` would, and the search that found it.
void write_best(RunFolder& folder,
                const Scenario& scenario,
                const Planned& plan,
                const sim::Prediction& prediction,
                Console& console) {
    folder.write_scenario(sim::with_plan(scenario, plan.best()).as_scenario());
    folder.write(run_file::profile, print_profile(plan.profile));
    folder.write(run_file::search,
                 json_text(search_json(scenario, plan.result, prediction_json(prediction))));
    folder.write(run_file::plan, print_plan(prediction.plan));
    folder.write(run_file::schedule, print_schedule_csv(prediction.plan->schedule));
    folder.write(run_file::predicted, print_chrome_trace(sim::predicted_trace(prediction)));
    folder.keep_on(exec::disk_patience, [&](const std::string& line) { console.note(line); });
    folder.finish(exec::disk_patience);
}

/// What a search plans for: a scenario, or what follows from a model's name.
struct Asked {
    Scenario scenario;
    sim::FoundProfile found;
    bool is_model = false;
    std::string config{};  ///< the model's config.json, or empty
    sim::NodesOfModel nodes{};
};

/// Writes the plan in the words of other systems beside it.
std::vector<PlanExport> write_exports(RunFolder& folder, const Asked& question) {
    if (!question.config.empty()) {  // `export` reads the sizes of the model there
        folder.write(run_file::config, question.config);
    }
    std::vector<PlanExport> exports = plan_exports(folder.path(), question.config);
    for (const PlanExport& one : exports) {
        if (!one.content.empty()) {
            folder.write(one.file, one.content);
        }
    }
    folder.finish(exec::disk_patience);
    return exports;
}

/// Whether the positional names a model, and not a scenario.
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

sim::ModelQuestion question_of(const PlanOptions& options) {
    const std::string name = options.scenario.filename().string();
    const std::filesystem::path costs =
        options.common.out.empty()
            ? std::filesystem::path(name + ".profile.json")
            : std::filesystem::absolute(options.common.out) / run_file::profile;
    return {.model = options.scenario,
            .cluster = options.cluster,
            .nodes = options.nodes,
            .sequence = options.sequence,
            .batch_tokens = options.batch_tokens,
            .precision = options.precision,
            .whole_blocks = options.whole_blocks,
            .overrides = options.common.overrides,
            .costs_file = costs};
}

Asked asked(const PlanOptions& options, Console& console) {
    if (!names_model(options)) {
        Scenario scenario =
            read_scenario(options.scenario, options.common.overrides, Unwritten::Auto);
        sim::FoundProfile found = sim::find_profile(scenario, options.profile, options.common.out);
        console.note(fmt::format("costs: {}", found.file.string()));
        return {.scenario = std::move(scenario), .found = std::move(found)};
    }
    if (!options.profile.empty()) {
        throw Error(ErrorKind::Usage,
                    "--profile",
                    fmt::format("the costs of the model '{}' are estimated for the devices of "
                                "--cluster, expected a scenario beside other costs",
                                options.scenario.string()),
                    fmt::format("plan with the costs in place of the model: pipetwin plan {} "
                                "--cluster NAME",
                                options.profile.string()));
    }
    if (!options.calibration.empty()) {
        throw Error(ErrorKind::Usage,
                    "--calibrate",
                    fmt::format("measured runs have a batch and devices of their own, expected a "
                                "scenario in place of the model '{}'",
                                options.scenario.string()),
                    "write its costs with 'pipetwin import hf', and name them in a scenario "
                    "(docs/tutorials/choose-a-configuration.md)");
    }
    sim::expect_model_file(options.scenario);
    if (options.cluster.empty()) {
        throw Error(ErrorKind::Usage,
                    "plan",
                    fmt::format("'{}' is a model, not a scenario, and --cluster is missing",
                                options.scenario.string()),
                    cluster_hint());
    }
    sim::ModelOnCluster model = sim::model_on_cluster(question_of(options));
    for (const std::string& note : model.notes) {
        console.note(note);
    }
    return {.scenario = std::move(model.scenario),
            .found = std::move(model.found),
            .is_model = true,
            .config = std::move(model.config),
            .nodes = std::move(model.nodes)};
}

sim::EveryShape shapes_with_progress(const Scenario& scenario,
                                     const Planned& plan,
                                     Console& console) {
    const StopSignal stop;
    Progress progress(console, "every shape");
    return sim::best_of_every_shape(
        scenario, plan.model, plan.profile, plan.result, most_ranked, [&progress](double share) {
            progress.update(share, "");
            return StopSignal::received() == 0;
        });
}

/// Throws Error(Io) for a file that stands where one is to be written.
void require_free_files(const PlanOptions& options) {
    if (!options.heat_map.empty()) {
        require_free(options.heat_map, options.common.force, "--heatmap");
    }
    if (!options.order_out.empty()) {
        require_free(options.order_out, options.common.force, "--order-out");
    }
}

/// Everything that a search has found, to be shown.
struct Findings {
    const PlanOptions& options;
    const Asked& question;
    const Planned& plan;
    const sim::Prediction& prediction;
    std::optional<sim::Calibration> calibration;
    std::optional<sim::Hybrid> hybrid{};
    HeatMapPicture picture{};
    sim::EveryShape shapes{};
    std::vector<PlanExport> exports{};  ///< of a model, with --out

    bool has_heat_map() const { return !options.heat_map.empty(); }
    bool has_exports() const { return question.is_model && !options.common.out.empty(); }
    AnswerParts answer() const;
};

AnswerParts Findings::answer() const {
    return {.model = options.scenario.filename().string(),
            .cluster = options.cluster,
            .nodes = options.nodes,
            .sequence = static_cast<int>(plan.profile.tokens_per_sample),
            .tokens = options.tokens,
            .price = options.price,
            .sizes = model_sizes(question.config, plan.profile),
            .scenario = question.scenario,
            .profile = plan.profile,
            .best = prediction,
            .plan = plan.best(),
            .shapes = shapes,
            .search = plan.result};
}

Json findings_json(const Findings& found) {
    Json json =
        search_json(found.question.scenario, found.plan.result, prediction_json(found.prediction));
    if (found.has_heat_map()) {
        json["heat_map"] = heat_map_json(found.plan.result);
    }
    if (found.hybrid) {
        json["hybrid"] = hybrid_json(*found.hybrid);
    }
    json["calibration"] = calibration_json(found.calibration);
    json["answer"] = nullptr;
    if (found.question.is_model) {
        json["answer"] = answer_json(found.answer());
        json["answer"]["written"] = found.has_exports()
                                        ? written_json(found.options.common.out, found.exports)
                                        : Json(nullptr);
    }
    return json;
}

std::string findings_text(const Findings& found, const Console& console) {
    const Scenario& scenario = found.question.scenario;
    const sim::FoundPlan& best = found.plan.best();
    std::string text;
    if (found.question.is_model) {
        text += answer_text(found.answer(), console) + "\nThe fastest plans\n";
    }
    text += calibration_text(found.calibration, console) +
            search_text(scenario, found.plan.result, console) + '\n';
    if (found.has_heat_map()) {
        text += heat_map_text(found.picture, found.plan.result) + '\n';
    }
    if (found.hybrid) {
        text += hybrid_text(*found.hybrid, best, found.plan.profile, console) + '\n';
    }
    text += "The best plan\n" + prediction_text(found.prediction, console) + '\n' +
            pipeline_keys(scenario, best.candidate, best.partition, best.recompute);
    if (found.has_exports()) {
        text += '\n' + written_text(found.options.common.out, found.exports, console.width());
    }
    return text;
}

void execute_plan(const PlanOptions& options, Console& console) {
    Asked question = asked(options, console);
    const Scenario& scenario = question.scenario;
    std::optional<sim::Calibration> calibration =
        sim::calibrate_by_file(options.calibration,
                               {.file = options.scenario,
                                .overrides = options.common.overrides,
                                .unwritten = Unwritten::Auto},
                               question.found,
                               [&](const std::string& note) { console.note(note); });
    static_cast<void>(sim::model_with_costs(scenario, question.found));
    if (options.largest) {
        show_largest(scenario, question.found, calibration, options.common.json, console);
        return;
    }
    require_free_files(options);
    std::optional<RunFolder> folder;
    if (!options.common.out.empty()) {
        folder.emplace(options.common.out, unless_forced(options.common.force));
    }
    const bool heat = !options.heat_map.empty();
    Planned plan = in_the_better_order(
        scenario,
        planned(scenario, question.found.profile, question.nodes, heat, console),
        question.nodes,
        options,
        console);
    sim::EveryShape shapes;
    if (question.is_model) {
        shapes = shapes_with_progress(scenario, plan, console);
        sim::add_simulated(shapes, plan.result);
    }
    const sim::Prediction prediction =
        sim::predict(sim::with_plan(scenario, plan.best()),
                     plan.model,
                     plan.profile,
                     memory_left(),
                     options.flops_count.value_or(default_flops_count));
    // Costs of other devices than the profile's are estimated, too.
    plan.result.cost_source = prediction.plan->cost_source.value_or(plan.profile.source);
    for (const std::string& note : prediction.plan->notes) {
        console.note(note);
    }
    Findings found{.options = options,
                   .question = question,
                   .plan = plan,
                   .prediction = prediction,
                   .calibration = std::move(calibration),
                   .hybrid = {},
                   .picture = {},
                   .shapes = std::move(shapes)};
    if (folder) {
        write_best(*folder, scenario, plan, prediction, console);
        if (question.is_model) {
            found.exports = write_exports(*folder, question);
        }
    }
    if (options.hybrid) {
        found.hybrid = sim::hybrid_like(scenario, plan.model, plan.profile, plan.best());
    }
    if (heat) {
        found.picture =
            heat_map(scenario,
                     question.is_model ? sim::question_name(options.scenario, options.cluster)
                                       : scenario.file.filename().string(),
                     plan.result);
        write_output(options.heat_map, render_heat_map(found.picture), console);
    }
    if (options.common.json) {
        console.result(json_text(findings_json(found)));
        return;
    }
    console.result(findings_text(found, console));
    if (heat) {
        console.note(fmt::format("heat map: {}", options.heat_map.string()));
    }
}

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
    return plan.nodes != 1     ? "--nodes"
           : plan.sequence     ? "--sequence"
           : plan.batch_tokens ? "--batch-tokens"
           : plan.precision    ? "--precision"
           : plan.whole_blocks ? "--whole-blocks"
           : plan.tokens       ? "--tokens"
                               : "";
}

/// What to do with an option of a model beside a scenario.
std::string hint_beside_scenario(const PlanOptions& plan, std::string_view option) {
    if (option == "--tokens") {
        return fmt::format("leave {} out: days and cost are for a model with --cluster",
                           plan.price ? "--tokens and --price" : "--tokens");
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

/// Refuses what the options do not allow together, and adds the schedules that were listed.
void complete(const PlanOptions& options, CommonOptions& common) {
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
    refuse_other_picture("--heatmap", options.heat_map);
    refuse_question_without_cluster(options);
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

/// Refuses files of other kinds than the options take.
void expect_files(const PlanOptions& options) {
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

/// Options that say what a scenario would say of a model by its name.
void add_question(CLI::App& app, PlanOptions& options) {
    const std::map<std::string, double> units{
        {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1e9}, {"T", 1e12}};
    const auto tokens =
        [&](const std::string& name, std::optional<double>& number, const std::string& text) {
            app.add_option(name, number, text)
                ->transform(CLI::AsNumberWithUnit(
                    units, CLI::AsNumberWithUnit::CASE_SENSITIVE, "N[k|M|G|B|T]"))
                ->check(CLI::PositiveNumber)
                ->type_name("N[k|M|G|B|T]");
        };
    app.add_option(
           "--cluster",
           options.cluster,
           "Kind of node in the cluster to plan for: a name that 'pipetwin devices' lists, or a "
           "file")
        ->type_name("NAME");
    app.add_option("--nodes", options.nodes, "Number of nodes in the cluster (default 1)")
        ->check(CLI::Range(1, 1 << 16))
        ->type_name("N");
    add_sequence(app, options.sequence, "Tokens per sample; 8k is 8192 (default 4096)");
    tokens("--batch-tokens",
           options.batch_tokens,
           "Tokens per step (default 4M; k is 1,000); rounded by up to 5 % to a number of samples "
           "with many divisors");
    app.add_option(
           "--precision", options.precision, "Number type: bf16 (default), fp16, fp32 or fp8")
        ->type_name("NAME");
    app.add_option("--schedule",
                   options.schedules,
                   "Search only these schedules, as in 1f1b,interleaved-1f1b (default: those that "
                   "docs/planning.md lists)")
        ->type_name("NAME[,NAME...]");
    take_one_word(*app.get_option("--schedule"));
    app.add_flag("--whole-blocks",
                 options.whole_blocks,
                 "Keep every transformer block on one stage, as Megatron and torchtitan do");
    tokens(
        "--tokens",
        options.tokens,
        "Tokens of the whole training run (k is 1,000): adds days and device hours to the answer");
    app.add_option("--price",
                   options.price,
                   "Price of one device hour, in any currency: adds the cost to the answer")
        ->check(CLI::PositiveNumber)
        ->type_name("X")
        ->needs("--tokens");
}

Command declare_plan(CLI::App& app) {
    const auto options = std::make_shared<PlanOptions>();
    app.add_option(
           "scenario",
           options->scenario,
           "Scenario file; or, with --cluster, a model: a name that 'pipetwin devices' lists, "
           "a config.json or a *.profile.json")
        ->type_name("SCENARIO.toml|MODEL")
        ->required();
    app.footer(
        "Ctrl-C ends the search. The answer is then the best plan so far, which need not be "
        "optimal.\n" +
        app.get_footer());
    add_question(app, *options);
    leave_out_of_help(app, {"--seed"});
    add_profile(app, options->profile);
    add_run_calibration(app, options->calibration);
    add_flops_count(app, options->flops_count);
    app.add_option(
           "--heatmap",
           options->heat_map,
           "Draw a heat map of the fastest plan for each number of stages and micro-batches")
        ->type_name("FILE.svg");
    app.add_option("--order-out",
                   options->order_out,
                   "Model with branches: also try another order of its layers, and write the costs "
                   "in that order if it is faster")
        ->type_name("FILE.profile.json");
    app.add_flag(
        "--hybrid",
        options->hybrid,
        "Also show stages with different numbers of devices, as PipeDream would choose them");
    app.add_option("--largest",
                   options->largest,
                   "Find how many layers fit into memory, instead of the fastest plan")
        ->type_name("layers")
        ->excludes("--heatmap")
        ->excludes("--hybrid")
        ->excludes("--mfu")
        ->excludes("--order-out")
        ->excludes("--cluster");
    Command command = scenario_command(options, execute_plan);
    command.complete = [options](const std::vector<std::string>&, CommonOptions& common) {
        complete(*options, common);
    };
    command.expect_files = [options] { expect_files(*options); };
    command.takes_model_names = true;
    return command;
}

}  // namespace

CommandRow plan_command() {
    return {.name = "plan",
            .help =
                "Find the fastest plan for a model on a cluster, or for the settings that a "
                "scenario leaves open",
            .declare = declare_plan};
}

}  // namespace pipetwin::cli
