// SPDX-License-Identifier: Apache-2.0
#include "bench/published/calibrated_stacks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/median.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/costs/estimate_error.h"
#include "core/model/model.h"
#include "core/scenario/settled_scenario.h"
#include "sim/calibration/step_range.h"
#include "sim/questions/calibrated_stack.h"

namespace pipetwin::published {

namespace {

/// A run as a row of a calibration.
struct Row {
    std::string set;
    std::string model;
    sim::StackRow row{};
    MeasuredLayout layout{};
    double predicted = 0;

    const std::string& stack() const { return row.setup.estimate.stack->name; }
    std::string group() const {
        return fmt::format("{} {} {} {}", stack(), layout.device, layout.precision, model);
    }
};

std::vector<Row> rows_of(const std::vector<Set>& sets) {
    std::vector<Row> rows;
    for (const Set& set : sets) {
        for (const Run& run : set.runs) {
            if (run.stack.empty() || !run.step_seconds) {
                continue;
            }
            try {
                Row row{.set = set.name, .model = run.model_name};
                row.row.setup = setup_of(run, find_stack(run.stack));
                const Scenario scenario = sim::scenario_of(row.row.setup);
                auto costs =
                    std::make_shared<const sim::RunCosts>(sim::costs_of(row.row.setup, scenario));
                row.row.run = {.name = run.name,
                               .place = run.name,
                               .scenario = settle(scenario),
                               .step_seconds = *run.step_seconds,
                               .costs = costs};
                row.layout = sim::layout_of_run(row.row.run.scenario, costs->profile);
                row.row.model = std::to_string(row.layout.parameters);
                row.model = row.model.empty() ? row.row.model : row.model;
                row.predicted = sim::predicted_row(row.row, row.row.setup.estimate.stack).step;
                rows.push_back(std::move(row));
            } catch (const Error&) {
                continue;  // a run that is refused predicts nothing
            }
        }
    }
    return rows;
}

bool is_of_one_kind(const Row& a, const Row& b) {
    return a.stack() == b.stack() && a.layout.device == b.layout.device &&
           a.layout.precision == b.layout.precision;
}

bool is_unusual(const Row* row) {
    return sim::is_unusual(row->row, row->predicted);
}

/// A run predicted with a stack that others corrected.
CorrectedRun corrected_run(const Row& row, const std::vector<const Row*>& by, const Stack& stack) {
    std::vector<MeasuredLayout> layouts;
    Nearness nearest = Nearness::OtherModel;
    for (const Row* const other : by) {
        layouts.push_back(other->layout);
        nearest = std::min(nearest, nearness(other->layout, row.layout));
    }
    const double step = sim::predicted_row(row.row, std::make_shared<Stack>(stack)).step;
    return {.set = row.set,
            .group = row.group(),
            .name = row.row.run.name,
            .corrected_by = by.front()->row.run.name,
            .is_of_one_set = by.front()->set == row.set,
            .nearness = nearest,
            .error = step / row.row.run.step_seconds - 1,
            .uncorrected = row.predicted / row.row.run.step_seconds - 1,
            .is_warned =
                is_far_from_measured(layouts, row.layout) || std::ranges::any_of(by, is_unusual)};
}

/// The runs' measured layouts beside the corrections that follow from them.
Stack corrected_by(const std::vector<const Row*>& by) {
    std::vector<sim::StackRow> rows;
    std::ranges::transform(by, std::back_inserter(rows), &Row::row);
    return sim::corrected_stack(*rows.front().setup.estimate.stack, rows);
}

}  // namespace

std::vector<CorrectedRun> corrected_by_one(const std::vector<Set>& sets) {
    const std::vector<Row> rows = rows_of(sets);
    std::vector<CorrectedRun> all;
    for (const Row& by : rows) {
        const Stack stack = corrected_by({&by});
        for (const Row& row : rows) {
            if (&row != &by && is_of_one_kind(row, by) &&
                nearness(row.layout, by.layout) != Nearness::OtherModel) {
                all.push_back(corrected_run(row, {&by}, stack));
            }
        }
    }
    return all;
}

std::vector<CorrectedRun> corrected_by_other_models(const std::vector<Set>& sets) {
    const std::vector<Row> rows = rows_of(sets);
    std::map<std::string, std::pair<Stack, std::vector<const Row*>>> stacks;
    std::vector<CorrectedRun> all;
    for (const Row& row : rows) {
        std::vector<const Row*> by;
        for (const Row& other : rows) {
            if (is_of_one_kind(row, other) && row.layout.parameters != other.layout.parameters) {
                by.push_back(&other);
            }
        }
        if (by.empty()) {
            continue;
        }
        const auto [known, is_new] = stacks.try_emplace(fmt::format("{} {} {} {}",
                                                                    row.stack(),
                                                                    row.layout.device,
                                                                    row.layout.precision,
                                                                    row.layout.parameters));
        if (is_new) {
            known->second = {corrected_by(by), by};
        }
        all.push_back(corrected_run(row, known->second.second, known->second.first));
    }
    return all;
}

double learned_spread(const std::vector<CorrectedRun>& runs, Nearness nearness) {
    std::vector<Grouped> distances;
    for (const CorrectedRun& run : runs) {
        if (run.nearness == nearness && (run.is_of_one_set || nearness == Nearness::OtherModel)) {
            distances.push_back({std::abs(std::log1p(run.error)), run.set});
        }
    }
    return std::expm1(quantile(distances, 0.9));
}

namespace {

constexpr double large = 0.1;

std::string line(const std::string& name, const std::vector<CorrectedRun>& runs) {
    std::vector<double> errors;
    std::vector<double> uncorrected;
    int warned = 0;
    int far = 0;
    int told = 0;
    for (const CorrectedRun& run : runs) {
        errors.push_back(std::abs(run.error));
        uncorrected.push_back(std::abs(run.uncorrected));
        warned += run.is_warned ? 1 : 0;
        far += std::abs(run.error) > large ? 1 : 0;
        told += std::abs(run.error) > large && run.is_warned ? 1 : 0;
    }
    return runs.empty() ? ""
                        : fmt::format("  {:<62}{:5} {:8.1f} {:8.1f} {:8.1f} {:7.0f} %   {} of {}\n",
                                      name,
                                      runs.size(),
                                      100 * median(uncorrected),
                                      100 * median(errors),
                                      100 * std::ranges::max(errors),
                                      100.0 * warned / static_cast<double>(runs.size()),
                                      told,
                                      far);
}

template <class Name>
std::string lines(const std::vector<CorrectedRun>& runs, const Name& name_of) {
    std::map<std::string, std::vector<CorrectedRun>> groups;
    for (const CorrectedRun& run : runs) {
        groups[name_of(run)].push_back(run);
    }
    std::string text;
    for (const auto& [name, of] : groups) {
        text += line(name, of);
    }
    return text;
}

}  // namespace

std::string corrected_tables(const std::vector<Set>& sets) {
    const std::vector<CorrectedRun> by_one = corrected_by_one(sets);
    std::vector<CorrectedRun> same;
    std::vector<CorrectedRun> other;
    for (const CorrectedRun& run : by_one) {
        (run.nearness == Nearness::SameLayout ? same : other).push_back(run);
    }
    const std::vector<CorrectedRun> by_models = corrected_by_other_models(sets);
    const auto by_set = [](const CorrectedRun& run) { return run.set; };
    std::string text = fmt::format(
        "  errors of steps in per cent, medians{:<28} runs estimated corrected largest  warned   "
        "above 10 %: told\n",
        "");
    text += "one measured run, the same layout\n" + line("all", same) + lines(same, by_set);
    text += "one measured run, another layout\n" + line("all", other) + lines(other, by_set);
    text += "one measured run\n" + line("all", by_one);
    text += "runs of other models\n" + line("all", by_models) +
            lines(by_models, [](const CorrectedRun& run) { return run.group; });
    text += "nine of ten within\n";
    for (const auto& [name, nearness] : {std::pair("the same layout", Nearness::SameLayout),
                                         std::pair("the same stages", Nearness::SameStages),
                                         std::pair("another layout", Nearness::OtherLayout),
                                         std::pair("another model", Nearness::OtherModel)}) {
        const auto& runs = nearness == Nearness::OtherModel ? by_models : by_one;
        std::set<std::string> of_sets;
        std::ptrdiff_t known = 0;
        for (const CorrectedRun& run : runs) {
            if (run.nearness == nearness &&
                (run.is_of_one_set || nearness == Nearness::OtherModel)) {
                of_sets.insert(run.set);
                ++known;
            }
        }
        text += fmt::format("  {:<20} {:.1f} %, {} predictions of {} sets\n",
                            name,
                            100 * (known > 0 ? learned_spread(runs, nearness) : 0),
                            known,
                            of_sets.size());
    }
    text += "above 10 %\n";
    for (const auto* const runs : {&by_one, &by_models}) {
        for (const CorrectedRun& run : *runs) {
            if (std::abs(run.error) > large) {
                text += fmt::format("  {:+6.1f} %  {}, by {}{}\n",
                                    100 * run.error,
                                    run.name,
                                    run.corrected_by,
                                    run.is_warned ? " (warned)" : "");
            }
        }
    }
    return text;
}

}  // namespace pipetwin::published
