// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/plan_combinations.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/calendar.h"
#include "cli/base/listener.h"
#include "cli/base/memory_left.h"
#include "cli/base/output_file.h"
#include "cli/base/progress.h"
#include "cli/base/stop_wish.h"
#include "cli/commands/no_plan.h"
#include "cli/commands/plan_question.h"
#include "cli/figures/figures.h"
#include "cli/text/plan_table.h"
#include "cli/text/plan_text.h"
#include "cli/text/planning.h"
#include "core/base/error.h"
#include "core/base/freed_memory.h"
#include "core/base/number_text.h"
#include "sim/questions/measured_costs.h"
#include "sim/questions/whole_plan.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view stopped_before = "the search was ended before this combination";

/// The lines of a reason in one: "none of 54 plans can be run: 54: more memory than ...".
std::string in_one_line(const std::string& text) {
    std::string line;
    bool is_at_begin = false;
    for (const char c : text) {
        if (c == '\n') {
            line += is_at_begin || line.ends_with(':') ? "" : ";";
            is_at_begin = true;
        } else if (c != ' ' || !is_at_begin) {
            line += is_at_begin && !line.empty() ? " " : "";
            line += c;
            is_at_begin = false;
        }
    }
    return line;
}

/// The options of one combination: those of `plan` for it alone.
PlanOptions options_of(const PlanOptions& options, const Combination& combination) {
    PlanOptions one = options;
    one.cluster = combination.cluster;
    one.nodes = combination.nodes;
    one.stack = combination.stack;
    one.prices.clear();
    if (combination.price) {
        one.prices.push_back(*combination.price);
    }
    return one;
}

FoundRow found_row(const PlanOptions& options,
                   const Asked& question,
                   const Planned& plan,
                   const sim::Prediction& prediction,
                   const sim::EveryShape& shapes,
                   const sim::FailureAssumptions& failures,
                   const Tell& tell) {
    const sim::FoundPlan& best = plan.best();
    std::ranges::for_each(prediction.plan->notes, tell);
    const AnswerParts parts = answer_parts(options, question, plan, prediction, shapes);
    const sim::Answer answer = answer_of(parts);
    const sim::BillQuestion bill{.step = best.step,
                                 .tokens_per_second = answer.tokens_per_second,
                                 .devices = answer.devices,
                                 .tokens = options.tokens,
                                 .price = options.price()};
    const sim::Candidate& candidate = best.candidate;
    const int samples = question.scenario.training.batch / candidate.shape.data_parallel /
                        candidate.shape.micro_batches;
    FoundRow row{
        .device = answer.device,
        .devices = answer.devices,
        .devices_of_cluster = question.scenario.cluster.count,
        .shape = plan_name(best),
        .schedule = candidate.choice.chunks > 1
                        ? fmt::format("{} x{}", candidate.choice.schedule, candidate.choice.chunks)
                        : candidate.choice.schedule,
        .micro_batches = fmt::format("{} of {}", candidate.shape.micro_batches, samples),
        .sentence = candidate_text(question.scenario, candidate, best.recompute, best.modules),
        .step = best.step,
        .tokens_per_second = answer.tokens_per_second,
        .headroom = answer.headroom(),
        .bill = {.days = answer.days, .device_hours = answer.device_hours, .cost = answer.cost},
        .failures = sim::bill_with_failures(bill, failures),
        .outlook = prediction.outlook,
        .is_complete = plan.result.complete,
        .plan = found_plan_json(best),
        .answer = answer_json(parts)};
    row.answer.erase("shapes");
    row.answer.erase("front");
    return row;
}

/// Searches for a combination; says why it has no plan where it has none.
void fill_row(PlanRow& row,
              std::string& head,
              const PlanOptions& options,
              const sim::FailureAssumptions& failures,
              const PartOfTask& part,
              const Tell& tell) {
    const Asked question = asked(options, tell);
    const Scenario& scenario = question.scenario;
    static_cast<void>(sim::model_with_costs(scenario, question.found));
    expect_unit_of_limit(scenario, question.found.profile);
    const Profile& profile = question.found.profile;
    Model model = scenario_model(scenario, &profile);
    constexpr double of_search = 0.5;
    sim::SearchResult result = search_in_part(scenario, model, profile, part.between(0, of_search));
    if (result.ranked.empty()) {
        row.why_not =
            part.stop.is_asked()
                ? std::string(stopped_before)
                : fmt::format("on {} x {} {}",
                              scenario.cluster.count,
                              scenario.cluster.device,
                              in_one_line(nothing_fits(scenario, profile, result).text()));
        return;
    }
    const PartOfTask rest = part.between(of_search, 1);
    Planned plan{.profile = profile, .model = std::move(model), .result = std::move(result)};
    sim::WholePlan whole = sim::whole_plan(
        scenario,
        plan.model,
        plan.profile,
        std::move(plan.result),
        {.every_shape = true,
         .progress = [&rest](double share) { return rest.goes_on(share, "every shape"); },
         .memory_left = memory_left(),
         .flops_count = options.flops_count.value_or(default_flops_count)});
    plan.result = std::move(whole.search);
    row.found = found_row(options, question, plan, whole.prediction, whole.shapes, failures, tell);
    row.found->is_complete = row.found->is_complete && !part.stop.is_asked();
    const std::string own = fmt::format(
        "{} tokens per step ({} of {})",
        with_separators(std::int64_t{scenario.training.batch} * profile.tokens_per_sample),
        counted(scenario.training.batch, "sample"),
        with_separators(profile.tokens_per_sample));
    head = head.empty() || head == own
               ? own
               : fmt::format(
                     "about {} tokens per step (samples that each number of nodes can "
                     "share out)",
                     with_separators(std::int64_t{scenario.training.batch} *
                                     profile.tokens_per_sample));
}

sim::FailureAssumptions failures_of(const PlanOptions& options) {
    sim::FailureAssumptions failures;
    const auto duration = [](double seconds, std::string_view option) {
        return from_milliseconds(1e3 * seconds, option);
    };
    failures.mtbf_hours = options.mtbf_hours.value_or(failures.mtbf_hours);
    if (options.checkpoint_s) {
        failures.checkpoint = duration(*options.checkpoint_s, "--checkpoint-s");
    }
    if (options.restart_s) {
        failures.restart = duration(*options.restart_s, "--restart-s");
    }
    return failures;
}

std::optional<Deadline> deadline_of(const PlanOptions& options) {
    if (options.days) {
        return Deadline{.days = *options.days};
    }
    if (!options.until) {
        return std::nullopt;
    }
    const auto until = read_day(*options.until, "--until");
    const auto from = options.from ? read_day(*options.from, "--from") : today();
    return Deadline{.days = static_cast<double>(days_between(from, until)),
                    .from = day_text(from),
                    .until = day_text(until)};
}

PlanTable searched_table(const PlanOptions& options, Console& console) {
    PlanTable table{.model = options.scenario.filename().string(),
                    .tokens = options.tokens,
                    .failures = failures_of(options),
                    .deadline = deadline_of(options)};
    const StopWish stop(console);
    if (console.listener() == nullptr) {  // the process is another program's
        keep_freed_memory();
    }
    Progress progress(console, "planning");
    std::set<std::string> told;
    const Tell tell_once = [&](const std::string& note) {
        if (told.insert(note).second) {
            console.note(note);
        }
    };
    const auto count = static_cast<double>(options.combinations.size());
    std::optional<Error> first;  // of the question, not of a combination, where all rows have one
    for (const Combination& combination : options.combinations) {
        PlanRow& row = table.rows.emplace_back(PlanRow{.of = combination});
        if (stop.is_asked()) {
            row.why_not = stopped_before;
            continue;
        }
        const PartOfTask part{.progress = progress,
                              .stop = stop,
                              .what = fmt::format("{} of {}: {}, {}",
                                                  table.rows.size(),
                                                  count,
                                                  combination.cluster,
                                                  counted(combination.nodes, "node")),
                              .begin = static_cast<double>(table.rows.size() - 1) / count,
                              .length = 1 / count};
        try {
            fill_row(
                row, table.head, options_of(options, combination), table.failures, part, tell_once);
        } catch (const Error& error) {
            if (error.kind() != ErrorKind::Infeasible && error.kind() != ErrorKind::BadInput &&
                error.kind() != ErrorKind::Usage) {
                throw;
            }
            row.why_not = in_one_line(error.text());
            if (error.kind() != ErrorKind::Infeasible && !first) {
                first = error;
            }
        }
    }
    stop.expect_wanted(table.has_any_plan());
    if (first && !table.has_any_plan()) {
        throw *first;
    }
    return table;
}

}  // namespace

void plan_combinations(const PlanOptions& options, Console& console) {
    require_pictures(options.pictures, options.common.force);
    if (!options.csv.empty()) {
        require_free(options.csv, options.common.force, "--csv");
    }
    const PlanTable table = searched_table(options, console);
    if (!options.csv.empty()) {
        write_output(options.csv, plan_table_csv(table), console);
    }
    if (options.pictures.any() && table.has_any_plan()) {
        write_pictures(
            options.pictures,
            [&table](const FigureLook& look) { return plan_table_svg(table, look); },
            console);
    }
    console.result(options.common.json ? json_text(plan_table_json(table))
                   : options.markdown  ? plan_table_markdown(table, options.evidence)
                                       : plan_table_text(table, options.evidence, console));
    if (!table.has_any_plan()) {
        throw Error(ErrorKind::Infeasible,
                    table.model,
                    "no combination has a plan",
                    fmt::format("plan one alone to see what helps: pipetwin plan {} --cluster {} "
                                "--nodes {}",
                                options.scenario.string(),
                                table.rows.front().of.cluster,
                                table.rows.front().of.nodes));
    }
}

}  // namespace pipetwin::cli
