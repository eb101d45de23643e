// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/base/console.h"
#include "cli/text/json_output.h"
#include "sim/search/plan_search.h"

namespace pipetwin {

struct Scenario;

}  // namespace pipetwin

/// Results of a plan search, as text and as JSON.
namespace pipetwin::cli {

/// A ranked table, what was searched and what is proven, in words.
std::string search_text(const Scenario& scenario,
                        const sim::SearchResult& result,
                        const Console& console);

/// One line: what a scenario can say and the search did not try, what it could save at most, and
/// how many of the plans that are open were not simulated, with the reasons.
std::string not_tried_text(const Scenario& scenario, const sim::SearchResult& result);

/// Results of a search; `best` is the prediction of the best plan, as of `simulate`.
Json search_json(const Scenario& scenario, const sim::SearchResult& result, Json best);

/// "8 stages, 8 micro-batches of 4 samples, gpipe, recompute always".
std::string candidate_text(const Scenario& scenario,
                           const sim::Candidate& candidate,
                           const RecomputeRules& recompute,
                           const ModuleLists& modules = {});

/// The keys of [pipeline] that a candidate settles; recompute is "by rank" where each has its own.
Json candidate_json(const sim::Candidate& candidate);

/// One plan, without its timeline.
Json found_plan_json(const sim::FoundPlan& plan);

/// "closest to fitting: 2 stages, 8 micro-batches of 4 samples, 1f1b, recompute always: rank 0
/// needs
/// ...".
std::string closest_text(const Scenario& scenario, const sim::ClosestPlan& closest);

/// The error where no plan fits, with the one that misses by the least and what it lacks.
Error nothing_fits(const Scenario& scenario,
                   const Profile& profile,
                   const sim::SearchResult& result);

/// "stages = 4, micro_batches = 8, ...": to paste into [pipeline].
std::string pipeline_keys(const Scenario& scenario,
                          const sim::Candidate& candidate,
                          const std::vector<int>& partition,
                          const RecomputeRules& recompute,
                          const ModuleLists& modules = {});

}  // namespace pipetwin::cli
