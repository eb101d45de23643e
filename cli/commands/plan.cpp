#include <fmt/format.h>

#include "cli/commands/commands.h"
#include "cli/exchange.h"
#include "cli/heat_map.h"
#include "cli/plan_text.h"
#include "cli/prediction.h"
#include "cli/progress.h"
#include "cli/stop_signal.h"
#include "cli/text_output.h"
#include "core/formats/json_text.h"
#include "sim/search/plan_search.h"

namespace pipetwin::cli {

namespace {

/// Until it is done, or the user has waited long enough: then with what it has by then.
sim::SearchResult search(const Scenario& scenario,
                         const Model& model,
                         const Profile& profile,
                         bool every_cell,
                         Console& console) {
    const StopSignal stop;
    Progress progress(console, "planning");
    sim::SearchOptions options{.every_cell = every_cell};
    options.progress = [&](const sim::SearchProgress& now) {
        progress.update(now.share,
                        now.best ? fmt::format("best {}, at least {}",
                                               format_duration(*now.best),
                                               format_duration(std::min(now.bound, *now.best)))
                                 : "nothing fits yet");
        return StopSignal::received() == 0;
    };
    return sim::search_plans(scenario, model, profile, options);
}

}  // namespace

void execute(const PlanOptions& options, Console& console) {
    const Scenario scenario =
        read_scenario(options.scenario, options.common.overrides, Unwritten::Auto);
    const FoundProfile found = find_profile(scenario, options.profile, options.common.out);
    console.note(fmt::format("costs: {}", found.file.string()));
    const Model model = scenario_model(scenario, &found.profile);
    const bool heat = !options.heat_map.empty();
    if (heat) {
        require_free(options.heat_map, options.common.force);
    }
    const sim::SearchResult result = search(scenario, model, found.profile, heat, console);
    if (result.ranked.empty()) {
        throw nothing_fits(scenario, result);
    }
    const sim::FoundPlan& best = result.ranked.front();
    Scenario settled = with_candidate(scenario, best.candidate);
    settled.pipeline.partition = best.partition;
    const Prediction prediction = predict(settled_plan(settled, model, found.profile));
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
                   prediction_text(prediction, console) + '\n' + pipeline_keys(best));
    if (heat) {
        console.note(fmt::format("heat map: {}", options.heat_map.string()));
    }
}

}  // namespace pipetwin::cli
