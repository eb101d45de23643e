// SPDX-License-Identifier: Apache-2.0
#include "core/model/model.h"

#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/memory_left.h"
#include "cli/base/output_file.h"
#include "cli/base/value_words.h"
#include "cli/commands/commands.h"
#include "cli/figures/figures.h"
#include "cli/interop/exchange.h"
#include "cli/predict/layer_costs.h"
#include "cli/text/json_output.h"
#include "cli/text/model_text.h"
#include "core/costs/profile_json.h"
#include "core/scenario/settled_scenario.h"
#include "core/svg/model_svg.h"
#include "sim/questions/found_profile.h"
#include "sim/questions/prediction.h"

namespace pipetwin::cli {

namespace {

/// Options of `model`.
struct ModelOptions {
    CommonOptions common;
    std::filesystem::path scenario;
    std::filesystem::path profile;  ///< costs that decide the cuts; empty: where simulate looks
    PictureOptions pictures;
    /// Costs estimated for a device, to be written; both are given, or none.
    std::string device{};
    std::filesystem::path costs_out{};  ///< *.profile.json
};

/// The partition that the scenario writes down, or that `simulate` would find; none, with a note
/// that says why, where there is no such plan.
std::optional<Partition> found_partition(const Scenario& scenario,
                                         const Model& model,
                                         const std::optional<sim::FoundProfile>& costs,
                                         Console& console) {
    try {
        if (std::optional<Partition> written = scenario_partition(scenario, model)) {
            return written;
        }
        if (scenario.pipeline.pieces() == 1) {
            return std::nullopt;
        }
        const SettledScenario settled = settle(scenario);
        if (!costs) {
            console.note(
                "stages are not shown: they follow from the costs of the layers, which are not "
                "known; name costs with --profile FILE, or set pipeline.partition");
            return std::nullopt;
        }
        return sim::settled_plan(settled, model, costs->profile, memory_left())->partition;
    } catch (const Error& error) {
        console.note(fmt::format("stages are not shown: {}", error.what()));
        return std::nullopt;
    }
}

void execute_model(const ModelOptions& options, Console& console) {
    require_pictures(options.pictures, options.common.force);
    if (!options.costs_out.empty()) {
        require_free(options.costs_out, options.common.force, "--costs-out");
    }
    const Scenario scenario = read_scenario(options.scenario, options.common.overrides);
    std::optional<sim::FoundProfile> costs = sim::known_profile(scenario, options.profile, {});
    const Model model = scenario_model(scenario, costs ? &costs->profile : nullptr);
    if (!options.costs_out.empty()) {
        costs = sim::FoundProfile{.profile = estimated_costs(scenario, model, options.device),
                                  .file = options.costs_out};
        write_output(options.costs_out, print_profile(costs->profile), console);
        console.note(fmt::format("estimated costs: {}", options.costs_out.string()));
    }
    const Profile* const profile = costs ? &costs->profile : nullptr;
    ModelUnits units = model_units(scenario, model, profile);
    if (const std::optional<Partition> partition =
            found_partition(scenario, model, costs, console)) {
        cut(units, *partition);
    }
    const std::string json = json_text(model_json(units));
    write_result(json, options.common, console);
    write_pictures(
        options.pictures,
        [&units](const FigureLook& look) { return render_model(model_picture(units), look); },
        console);
    console.result(options.common.json ? json : model_text(units));
}

Command declare_model(CLI::App& app) {
    const auto options = std::make_shared<ModelOptions>();
    takes_out_file(app);
    leave_out_of_help(app, {"--seed", "--verbose"});
    add_scenario(app, options->scenario);
    app.add_option(
           "--profile",
           options->profile,
           "Costs of the layers, which decide where the model is cut: *.profile.json or CSV")
        ->type_name("FILE");
    add_pictures(app, options->pictures, "Draw the graph and the stages that it is cut into");
    app.add_option(
           "--device",
           options->device,
           "Estimate the costs of the layers on this device, as 'pipetwin devices' names it")
        ->check(suggests(NameList::Devices))
        ->type_name("NAME")
        ->needs(app.add_option("--costs-out",
                               options->costs_out,
                               "Write the estimated costs, for the --profile of simulate and plan")
                    ->type_name("FILE.profile.json"));
    app.get_option("--costs-out")->needs("--device");
    Command command = scenario_command(options, execute_model);
    command.complete = [options](const std::vector<std::string>&, CommonOptions&) {
        check_pictures(options->pictures);
    };
    return command;
}

}  // namespace

CommandRow model_command() {
    return {.name = "model",
            .help = "List the layers from which stages are made, and draw their graph",
            .declare = declare_model};
}

}  // namespace pipetwin::cli
