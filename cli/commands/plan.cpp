#include <fmt/format.h>

#include "cli/commands/commands.h"
#include "cli/exchange.h"
#include "cli/heat_map.h"
#include "cli/largest_text.h"
#include "cli/plan_text.h"
#include "cli/planning.h"
#include "cli/prediction.h"
#include "cli/progress.h"
#include "cli/stop_signal.h"
#include "cli/text_output.h"
#include "core/formats/json_text.h"
#include "core/repeated_layers.h"
#include "sim/largest_model.h"
#include "sim/search/plan_search.h"

namespace pipetwin::cli {

namespace {

/// How many layers fit, in place of the fastest plan.
void show_largest(const Scenario& scenario,
                  const FoundProfile& found,
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
    console.result(json ? json_text(largest_json(answer)) : largest_text(answer, console));
}

}  // namespace

void execute(const PlanOptions& options, Console& console) {
    const Scenario scenario =
        read_scenario(options.scenario, options.common.overrides, Unwritten::Auto);
    const FoundProfile found = find_profile(scenario, options.profile, options.common.out);
    console.note(fmt::format("costs: {}", found.file.string()));
    if (options.largest_layers) {
        show_largest(scenario, found, options.common.json, console);
        return;
    }
    const Model model = scenario_model(scenario, &found.profile);
    const bool heat = !options.heat_map.empty();
    if (heat) {
        require_free(options.heat_map, options.common.force);
    }
    const sim::SearchResult result =
        search_with_progress(scenario, model, found.profile, heat, console);
    if (result.ranked.empty()) {
        throw nothing_fits(scenario, found.profile, result);
    }
    const sim::FoundPlan& best = result.ranked.front();
    const Prediction prediction =
        predict(settled_plan(sim::with_plan(scenario, best), model, found.profile));
    for (const std::string& note : prediction.plan->notes) {
        console.note(note);
    }
    const HeatMapPicture picture = heat ? heat_map(scenario, result) : HeatMapPicture{};
    if (heat) {
        write_file(options.heat_map, render_heat_map(picture));
    }
    if (options.common.json) {
        Json json = search_json(result, prediction_json(prediction));
        if (heat) {
            json["heat_map"] = heat_map_json(result);
        }
        console.result(json_text(json));
        return;
    }
    console.result(search_text(scenario, result, console) + '\n' +
                   (heat ? heat_map_text(picture) + '\n' : "") + "The best plan\n" +
                   prediction_text(prediction, console) + '\n' +
                   pipeline_keys(best.candidate, best.partition, best.recompute));
    if (heat) {
        console.note(fmt::format("heat map: {}", options.heat_map.string()));
    }
}

}  // namespace pipetwin::cli
