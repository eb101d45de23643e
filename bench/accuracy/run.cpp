// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/run.h"

#include "bench/accuracy/store.h"
#include "bench/accuracy/table.h"

#include <chrono>
#include <map>
#include <optional>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "exec/executor/executor.h"

namespace pipetwin::accuracy {

namespace {

using Clock = std::chrono::steady_clock;

/// Why the executor refuses the precision here; none: it does not.
std::optional<std::string> why_refused(const GridOptions& options,
                                       const Model& model,
                                       Precision precision) {
    const SettledScenario scenario = accuracy::scenario_of({.precision = precision}, options);
    exec::ExecutorOptions executor;
    executor.precision = precision;
    try {
        const exec::Executor one(
            make_plan(scenario, model, grid_sizes(model, options, precision)), model, executor);
        return std::nullopt;
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::Unavailable) {
            throw;
        }
        return error.text();
    }
}

/// The scalars of every precision that passes the gate; stored, where they were not yet. Cells of
/// one rank, as all are whose layers are divided, need none.
std::map<Precision, Scalars> scalars_of(const GridOptions& options,
                                        const Model& model,
                                        const AccuracyStore& store,
                                        std::ostream& out) {
    std::map<Precision, Scalars> all;
    for (const Precision precision : options.precisions) {
        if (options.divided) {
            all.emplace(precision, Scalars{});
            continue;
        }
        const std::string_view name = pipetwin::to_string(precision);
        const std::optional<Scalars> known =
            store.scalars(precision, grid_sizes(model, options, precision));
        const auto say = [&](const std::string& what) {
            fmt::print(stderr, "{}: {}\n", name, what);
        };
        Scalars scalars = known ? *known : measured_scalars(model, options, precision, say);
        print_scalars(scalars, precision, out);
        if (options.insists_on_gate && !scalars.passes()) {
            fmt::print(out, "{} is left out: the gate refuses its short runs\n", name);
            continue;
        }
        if (!known) {
            store.add(scalars, precision);
        }
        all.emplace(precision, std::move(scalars));
    }
    return all;
}

}  // namespace

bool run_grid(const GridOptions& options, std::ostream& out) {
    const Model model = gpt_model(options.model);
    const auto begin = Clock::now();
    GridOptions possible = options;
    std::erase_if(possible.precisions, [&](Precision precision) {
        const std::optional<std::string> why = why_refused(options, model, precision);
        if (why) {
            fmt::print(out, "{} is left out: {}\n", pipetwin::to_string(precision), *why);
            out << std::flush;
        }
        return why.has_value();
    });
    Grid grid = options.divided ? divided_grid(possible) : accuracy_grid(possible);
    if (grid_workers() == 1) {
        out << "plans of two ranks or devices are left out: there is one core\n" << std::flush;
        std::erase_if(grid.cells,
                      [](const GridCell& cell) { return cell.stages > 1 || cell.is_divided(); });
    }
    const AccuracyStore store(options.store);
    const std::map<Precision, Scalars> scalars = scalars_of(possible, model, store, out);
    std::vector<CellResult> results;
    print_head(out);
    for (const GridCell& cell : in_seeded_order(grid.cells, possible)) {
        const auto of_precision = scalars.find(cell.precision);
        const CellResult* const known = store.find(to_string(cell));
        const bool is_done =
            known != nullptr && (known->verdict.passes() || !options.insists_on_gate);
        const bool late =
            options.minutes > 0 && to_seconds(Clock::now() - begin) > 60 * options.minutes;
        if (is_done || ((late || of_precision == scalars.end()) && known != nullptr)) {
            results.push_back(*known);
        } else if (late || of_precision == scalars.end()) {
            continue;
        } else {
            results.push_back(measured_cell(cell, model, of_precision->second.base, options));
            store.add(results.back());
        }
        print_row(results.back(), out);
        out << std::flush;
    }
    return print_summary(results, grid, out);
}

}  // namespace pipetwin::accuracy
