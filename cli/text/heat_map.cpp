// SPDX-License-Identifier: Apache-2.0
#include "cli/text/heat_map.h"

#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/text/plan_text.h"
#include "cli/text/text_output.h"

namespace pipetwin::cli {

namespace {

using Cell = std::pair<int, int>;  ///< stages, micro-batches

/// Ranked is best first, so the first of a cell is its best.
std::map<Cell, const sim::FoundPlan*> best_of_cells(const sim::SearchResult& result) {
    std::map<Cell, const sim::FoundPlan*> best;
    for (const sim::FoundPlan& plan : result.ranked) {
        const sim::Shape& shape = plan.candidate.shape;
        best.try_emplace({shape.stages, shape.micro_batches}, &plan);
    }
    return best;
}

double per_second(const sim::FoundPlan& plan) {
    return plan.samples_per_second.value_or(1 / to_seconds(plan.step));
}

HeatMapPicture::Cell cell_of(const Scenario& scenario, const sim::FoundPlan& plan) {
    return {
        .value = per_second(plan),
        .lines = {fmt::format("{:.4g}", per_second(plan)),
                  percent_text(plan.bubble),
                  plan.peak.count > 0 ? format_bytes(plan.peak) : ""},
        .tooltip = fmt::format(
            "{}\nstep {}",
            pipeline_keys(scenario, plan.candidate, plan.partition, plan.recompute, plan.modules),
            format_duration(plan.step))};
}

}  // namespace

HeatMapPicture heat_map(const Scenario& scenario,
                        const std::string& name,
                        const sim::SearchResult& result) {
    const std::map<Cell, const sim::FoundPlan*> best = best_of_cells(result);
    HeatMapPicture picture{
        .title = fmt::format("{}: the best plan of every number of stages and micro-batches", name),
        .row_axis = "stages",
        .column_axis = "micro-batches",
        .legend =
            "Darker is faster. In each cell: samples per second, bubble, peak memory of the "
            "fullest rank. Framed: the fastest. Hatched: nothing fits" +
            std::string(result.complete ? "." : ", or the search did not come to it.")};
    std::set<int> stages(result.cell_stages.begin(), result.cell_stages.end());
    stages.insert(result.ranked.front().candidate.shape.stages);
    std::set<int> micro_batches;
    for (const sim::Shape& shape : result.shapes) {
        micro_batches.insert(shape.micro_batches);
    }
    for (const int count : micro_batches) {
        picture.columns.push_back(fmt::to_string(count));
    }
    for (const int count : stages) {
        picture.rows.push_back(fmt::to_string(count));
        auto& row = picture.cells.emplace_back();
        for (const int parts : micro_batches) {
            const auto plan = best.find({count, parts});
            row.push_back(plan == best.end() ? HeatMapPicture::Cell{.lines = {"-"}}
                                             : cell_of(scenario, *plan->second));
            row.back().best = plan != best.end() && plan->second == &result.ranked.front();
        }
    }
    return picture;
}

std::string heat_map_text(const HeatMapPicture& picture, const sim::SearchResult& result) {
    std::vector<std::vector<std::string>> rows{{"stages"}};
    for (const std::string& column : picture.columns) {
        rows.front().push_back("M = " + column);
    }
    for (std::size_t row = 0; row < picture.rows.size(); ++row) {
        rows.push_back({picture.rows[row]});
        for (const HeatMapPicture::Cell& cell : picture.cells[row]) {
            rows.back().push_back((cell.best ? "*" : "") + cell.lines.front());
        }
    }
    return "Samples per second of the best plan of every number of stages and micro-batches (M)\n" +
           text_table(rows) + "  *: the fastest, -: nothing fits" +
           (result.complete ? "\n" : ", or the search did not come to it\n");
}

Json heat_map_json(const sim::SearchResult& result) {
    Json cells = Json::array();
    for (const auto& [cell, plan] : best_of_cells(result)) {
        cells.push_back(found_plan_json(*plan));
    }
    return cells;
}

}  // namespace pipetwin::cli
