// SPDX-License-Identifier: Apache-2.0
#include "gui/view/planning/planning.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/freed_memory.h"
#include "core/base/number_text.h"
#include "gui/view/run/planned_run.h"
#include "sim/questions/found_profile.h"
#include "sim/questions/model_on_cluster.h"
#include "sim/questions/node_counts.h"
#include "sim/questions/prediction.h"

namespace pipetwin::gui {

namespace {

constexpr std::string_view search_part = "search";
constexpr std::string_view shapes_part = "every shape";
constexpr std::string_view nodes_part = "number of nodes that is enough";

/// The scenario and the costs of a question.
struct Asked {
    Scenario scenario;
    sim::FoundProfile found;
    std::string config{};
    sim::NodesOfModel nodes{};
};

Asked asked(const PlanningQuestion& question, PlanningAnswer& answer) {
    if (question.is_scenario()) {
        Scenario scenario = read_scenario(question.model, {}, Unwritten::Auto);
        sim::FoundProfile found = sim::find_profile(scenario, {}, {});
        answer.name = question.model.filename().string();
        answer.notes.push_back(fmt::format("costs: {}", found.file.string()));
        sim::open_division(scenario, found.profile);
        return {.scenario = std::move(scenario), .found = std::move(found)};
    }
    const std::string costs = question.model.filename().string() + ".profile.json";
    sim::ModelOnCluster model = sim::model_on_cluster({.model = question.model,
                                                       .cluster = question.cluster,
                                                       .nodes = question.nodes,
                                                       .sequence = question.sequence,
                                                       .batch_tokens = question.batch_tokens,
                                                       .costs_file = costs});
    answer.notes = std::move(model.notes);
    return {.scenario = std::move(model.scenario),
            .found = std::move(model.found),
            .config = std::move(model.config),
            .nodes = std::move(model.nodes)};
}

/// Says why no plan fits, and on how many nodes one does.
void say_why_none(const sim::SearchResult& result,
                  const sim::NodesOfModel& nodes,
                  const PlanningListener& listener,
                  PlanningAnswer& answer) {
    answer.problem = fmt::format("None of {} plans can be run", with_separators(result.candidates));
    bool lacks_memory = false;
    for (const sim::Infeasible& one : result.infeasible) {
        answer.problem += fmt::format("\n{}: {}", with_separators(one.count), one.why);
        lacks_memory = lacks_memory || one.reason == ErrorReason::Memory;
    }
    if (const auto& closest = result.closest) {
        answer.problem += fmt::format(
            "\nClosest to fitting: a plan of {}, which needs {} of {} on "
            "rank {}",
            counted(closest->candidate.shape.stages, "stage"),
            format_bytes(closest->peak),
            format_bytes(closest->limit),
            closest->rank);
    }
    if (nodes.count == 0 || !lacks_memory) {
        answer.hint = result.infeasible.empty() ? "" : result.infeasible.front().hint;
        return;
    }
    const int least =
        sim::least_nodes(answer.scenario, *answer.model, answer.profile, nodes.count, result);
    const std::optional<int> enough = sim::enough_nodes(
        nodes, answer.profile, std::max(least, nodes.count + 1), [&](std::optional<double> share) {
            return !listener || listener({.part = nodes_part, .share = share.value_or(0)});
        });
    answer.hint = enough ? fmt::format("A plan fits on {}.", counted(*enough, "node"))
                         : "Use more nodes, a smaller model or shorter sequences.";
}

void fill_rows(PlanningAnswer& answer) {
    const sim::WholePlan& whole = *answer.whole;
    const sim::Training training{.sequence = static_cast<int>(answer.profile.tokens_per_sample),
                                 .tokens = answer.question.tokens,
                                 .price = answer.question.price};
    const std::vector<sim::FoundPlan> plans =
        whole.shapes.plans.empty() ? sim::fastest_of_each_candidate(whole.search.ranked)
                                   : whole.shapes.plans;
    for (const sim::FoundPlan& plan : plans) {
        answer.rows.push_back(
            {.plan = plan,
             .answer = sim::answer_of(answer.scenario, answer.profile, plan, training)});
    }
}

void plan(PlanningAnswer& answer, const PlanningListener& listener) {
    const PlanningQuestion& question = answer.question;
    Asked asked_for = asked(question, answer);
    answer.model = sim::model_with_costs(asked_for.scenario, asked_for.found);
    answer.scenario = std::move(asked_for.scenario);
    answer.profile = std::move(asked_for.found.profile);
    answer.sizes = sim::model_sizes(asked_for.config, answer.profile);
    const auto goes_on = [&](const PlanningProgress& now) {
        const bool wanted = !listener || listener(now);
        answer.ended_early = answer.ended_early || !wanted;
        return wanted;
    };
    keep_freed_memory();
    sim::SearchOptions options;
    options.progress = [&](const sim::SearchProgress& now) {
        return goes_on({.part = search_part, .share = now.share, .best = now.best});
    };
    sim::SearchResult result =
        sim::search_plans(answer.scenario, *answer.model, answer.profile, options);
    if (result.ranked.empty()) {
        if (answer.ended_early) {
            answer.problem = "Cancelled before a plan was found.";
        } else {
            say_why_none(result, asked_for.nodes, listener, answer);
        }
        return;
    }
    sim::WholePlanOptions rest{.every_shape = !question.is_scenario() && !answer.ended_early};
    rest.progress = [&, best = result.ranked.front().step](double share) {
        return goes_on({.part = shapes_part, .share = share, .best = best});
    };
    answer.whole =
        sim::whole_plan(answer.scenario, *answer.model, answer.profile, std::move(result), rest);
    for (const std::string& note : answer.whole->prediction.plan->notes) {
        answer.notes.push_back(note);
    }
    fill_rows(answer);
}

}  // namespace

bool PlanningQuestion::is_scenario() const {
    return model.extension() == ".toml";
}

PlanningAnswer answer_of(const PlanningQuestion& question, const PlanningListener& listener) {
    PlanningAnswer answer{.question = question,
                          .name = sim::question_name(question.model, question.cluster)};
    try {
        plan(answer, listener);
    } catch (const Error& error) {
        answer.whole.reset();
        answer.problem = fmt::format("{}: {}", error.place(), error.text());
        answer.hint = error.hint();
    } catch (const std::exception& error) {
        answer.whole.reset();
        answer.problem = error.what();
    }
    return answer;
}

PlanInSight plan_in_sight(const PlanningAnswer& answer, std::size_t row) {
    PlanInSight seen;
    try {
        const sim::FoundPlan& found = answer.rows.at(row).plan;
        SettledScenario scenario = sim::with_plan(answer.scenario, found);
        const sim::Prediction prediction =
            sim::predict(scenario, *answer.model, answer.profile, std::nullopt);
        const sim::Shape& shape = found.candidate.shape;
        const std::string title = fmt::format("{}: {}x{}x{} {}",
                                              answer.name,
                                              shape.stages,
                                              shape.data_parallel,
                                              shape.tensor_parallel,
                                              found.candidate.choice.schedule);
        seen.outlook = prediction.outlook;
        seen.run = std::make_shared<const RunData>(
            run_of_trace(std::make_shared<const PlannedRun>(
                             std::move(scenario), *answer.model, answer.profile, prediction.plan),
                         sim::predicted_trace(prediction),
                         title));
    } catch (const std::exception& error) {
        seen.problem = error.what();
    }
    return seen;
}

namespace {

/// A number with one of the units behind it.
std::optional<double> number_with(std::string_view text,
                                  std::initializer_list<std::pair<char, double>> units) {
    while (!text.empty() && text.back() == ' ') {
        text.remove_suffix(1);
    }
    double unit = 1;
    for (const auto& [letter, factor] : units) {
        if (!text.empty() && text.back() == letter) {
            unit = factor;
            text.remove_suffix(1);
            break;
        }
    }
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, number);
    const double whole = number * unit;
    return status == std::errc{} && rest == end && std::isfinite(whole) && whole > 0
               ? std::optional(whole)
               : std::nullopt;
}

}  // namespace

std::optional<double> written_number(std::string_view text) {
    return number_with(text,
                       {{'k', 1e3}, {'K', 1e3}, {'M', 1e6}, {'G', 1e9}, {'B', 1e9}, {'T', 1e12}});
}

std::optional<int> written_sequence(std::string_view text) {
    const std::optional<double> tokens = number_with(text, {{'k', 1024}, {'K', 1024}});
    const bool is_whole =
        tokens && *tokens <= std::numeric_limits<int>::max() && std::floor(*tokens) == *tokens;
    return is_whole ? std::optional(static_cast<int>(*tokens)) : std::nullopt;
}

}  // namespace pipetwin::gui
