// SPDX-License-Identifier: Apache-2.0
#include "cli/text/planning.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/text/plan_text.h"
#include "cli/text/ranked_table.h"
#include "cli/text/text_output.h"
#include "core/base/freed_memory.h"
#include "core/base/number_text.h"

namespace pipetwin::cli {

sim::SearchResult search_with_progress(const Scenario& scenario,
                                       const Model& model,
                                       const Profile& profile,
                                       bool every_cell,
                                       Console& console) {
    const StopWish stop(console);
    if (console.listener() == nullptr) {  // the process is another program's
        keep_freed_memory();
    }
    Progress progress(console, "planning");
    sim::SearchOptions options{.every_cell = every_cell};
    options.progress = [&](const sim::SearchProgress& now) {
        constexpr double most = 0.99;  // the best plan is known when the search has ended
        progress.update(
            std::min(now.share, most),
            now.best
                ? fmt::format("best {}, plans left take at least {}; Ctrl-C ends with the best",
                              format_duration(*now.best),
                              format_duration(std::min(now.bound, *now.best)))
                : "nothing fits yet");
        return !stop.is_asked();
    };
    sim::SearchResult result = sim::search_plans(scenario, model, profile, options);
    stop.expect_wanted(!result.ranked.empty());
    progress.update(1.0,
                    result.ranked.empty()
                        ? "nothing fits"
                        : fmt::format("best {}", format_duration(result.ranked.front().step)));
    return result;
}

bool PartOfTask::goes_on(double share, std::string_view detail) const {
    progress.update(begin + length * share,
                    detail.empty() ? what : fmt::format("{}, {}", what, detail));
    return !stop.is_asked();
}

PartOfTask PartOfTask::between(double from, double to) const {
    return {.progress = progress,
            .stop = stop,
            .what = what,
            .begin = begin + length * from,
            .length = length * (to - from)};
}

sim::SearchResult search_in_part(const Scenario& scenario,
                                 const Model& model,
                                 const Profile& profile,
                                 const PartOfTask& part) {
    sim::SearchOptions options;
    options.progress = [&part](const sim::SearchProgress& now) {
        return part.goes_on(now.share,
                            now.best ? fmt::format("best {}; Ctrl-C ends with what is found",
                                                   format_duration(*now.best))
                                     : "nothing fits yet");
    };
    return sim::search_plans(scenario, model, profile, options);
}

std::string planned_text(const Scenario& scenario, const sim::SearchResult& result) {
    const sim::FoundPlan& best = result.ranked.front();
    const std::string why = result.proven_optimal
                                ? fmt::format("within the model proven to be the fastest of {}",
                                              counted(result.candidates, "plan"))
                                : fmt::format("the fastest that was found among {}",
                                              counted(result.candidates, "plan"));
    const std::vector<sim::FoundPlan> plans = sim::fastest_of_each_candidate(result.ranked);
    return fmt::format("planned: {}, layers {}; predicted step {}, {}{}",
                       candidate_text(scenario, best.candidate, best.recompute, best.modules),
                       partition_text(best.partition),
                       format_duration(best.step),
                       why,
                       plans.size() == 1
                           ? ""
                           : fmt::format(", the next takes {}", format_duration(plans[1].step)));
}

}  // namespace pipetwin::cli
