// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/text/answer_text.h"
#include "cli/text/evidence_text.h"
#include "cli/text/plan_table.h"
#include "cli/text/text_output.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/svg/front_svg.h"

namespace pipetwin::cli {

namespace {

Json known_json(const std::optional<double>& number) {
    return number ? Json(*number) : Json(nullptr);
}

Json text_or_null(const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

Json failures_json(const sim::BillWithFailures& bill) {
    return {{"share", bill.share},
            {"checkpoint_every", bill.checkpoint_every},
            {"failures", known_json(bill.failures)},
            {"more_days", known_json(bill.more_days)},
            {"more_cost", known_json(bill.more_cost)},
            {"days", known_json(bill.days)},
            {"device_hours", known_json(bill.device_hours)},
            {"cost", known_json(bill.cost)}};
}

Json row_json(const PlanRow& row, const PlanTable& table) {
    Json json{{"cluster", row.of.cluster},
              {"nodes", row.of.nodes},
              {"stack", row.of.stack ? Json(*row.of.stack) : Json(nullptr)},
              {"price", known_json(row.of.price)},
              {"plan", nullptr},
              {"answer", nullptr},
              {"interval", nullptr},
              {"costs_stack", nullptr},
              {"evidence", Json::array()},
              {"failures", nullptr},
              {"complete", nullptr},
              {"in_time", nullptr},
              {"why_not", text_or_null(row.why_not)}};
    if (!row.found) {
        return json;
    }
    const FoundRow& found = *row.found;
    json["plan"] = found.plan;
    json["answer"] = found.answer;
    json["interval"] = interval_json(found.outlook.error, found.step);
    json["costs_stack"] = text_or_null(found.outlook.stack);
    json["evidence"] = evidence_json(found.outlook.nearest);
    json["failures"] = failures_json(found.failures);
    json["complete"] = found.is_complete;
    if (table.deadline && found.failures.days) {
        json["in_time"] = *found.failures.days <= table.deadline->days;
    }
    return json;
}

std::string csv_number(const std::optional<double>& number) {
    return number ? fmt::to_string(*number) : "";
}

}  // namespace

std::string plan_table_csv(const PlanTable& table) {
    std::string text =
        "cluster,nodes,stack,device,devices,plan,schedule,micro_batches,step_ms,tokens_per_second,"
        "tokens_per_second_low,tokens_per_second_high,headroom,price,days,device_hours,cost,"
        "failures,days_with_failures,cost_with_failures,in_time,on_front,nearest_run,nearest_"
        "measured,nearest_predicted,why_not\n";
    const std::vector<std::size_t> front = table.front();
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        const PlanRow& row = table.rows[i];
        std::vector<std::string> cells{row.of.cluster, fmt::to_string(row.of.nodes)};
        if (!row.found) {
            cells.push_back(row.of.stack.value_or(""));
            constexpr std::size_t empty = 22;
            cells.resize(cells.size() + empty);
            cells.push_back(row.why_not);
        } else {
            const FoundRow& found = *row.found;
            const auto& error = found.outlook.error;
            const std::optional<double>& days = found.failures.days;
            const bool has_run = !found.outlook.nearest.empty();
            for (std::string& cell : std::vector<std::string>{
                     found.outlook.stack,
                     found.device,
                     fmt::to_string(found.devices),
                     found.shape,
                     found.schedule,
                     found.micro_batches,
                     fmt::to_string(to_milliseconds(found.step)),
                     fmt::to_string(found.tokens_per_second),
                     error ? fmt::to_string(found.tokens_per_second / error->high) : "",
                     error ? fmt::to_string(found.tokens_per_second / error->low) : "",
                     csv_number(found.headroom),
                     csv_number(row.of.price),
                     csv_number(found.bill.days),
                     csv_number(found.bill.device_hours),
                     csv_number(found.bill.cost),
                     csv_number(found.failures.failures),
                     csv_number(days),
                     csv_number(found.failures.cost),
                     table.deadline && days ? (*days <= table.deadline->days ? "true" : "false")
                                            : "",
                     days ? (std::ranges::count(front, i) > 0 ? "true" : "false") : "",
                     has_run ? found.outlook.nearest.front().run.model : "",
                     has_run ? fmt::to_string(found.outlook.nearest.front().run.measured) : "",
                     has_run ? fmt::to_string(found.outlook.nearest.front().run.predicted) : "",
                     ""}) {
                cells.push_back(std::move(cell));
            }
        }
        std::ranges::transform(cells, cells.begin(), csv_field);
        text += fmt::format("{}\n", fmt::join(cells, ","));
    }
    return text;
}

Json plan_table_json(const PlanTable& table) {
    Json json = json_head();
    json["model"] = table.model;
    json["tokens"] = known_json(table.tokens);
    json["assumptions"] = {{"mtbf_hours", table.failures.mtbf_hours},
                           {"checkpoint_s", to_seconds(table.failures.checkpoint)},
                           {"restart_s", to_seconds(table.failures.restart)}};
    json["deadline"] = nullptr;
    if (table.deadline) {
        json["deadline"] = {{"days", table.deadline->days},
                            {"from", text_or_null(table.deadline->from)},
                            {"until", text_or_null(table.deadline->until)}};
    }
    const std::optional<std::size_t> answer = table.answer();
    json["best"] = answer ? Json(*answer) : Json(nullptr);
    json["front"] = table.front();
    json["rows"] = Json::array();
    for (const PlanRow& row : table.rows) {
        json["rows"].push_back(row_json(row, table));
    }
    return json;
}

std::string plan_table_svg(const PlanTable& table, const FigureLook& look) {
    const bool has_costs = table.has_costs();
    FrontPicture picture{
        .title = fmt::format("{}, {} tokens: {} over days, with failures",
                             table.model,
                             bill_number(table.tokens.value_or(0)),
                             has_costs ? "cost" : "device hours"),
        .x_axis = "days, with failures",
        .y_axis = has_costs ? "cost, with failures" : "device hours, with failures"};
    if (table.deadline) {
        picture.limit = table.deadline->days;
        picture.limit_name = table.deadline->until.empty()
                                 ? fmt::format("{} days", bill_number(table.deadline->days))
                                 : table.deadline->until;
    }
    const std::optional<std::size_t> answer = table.answer();
    std::vector<std::size_t> points(table.rows.size());
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        const PlanRow& row = table.rows[i];
        if (!row.found || !row.found->failures.days) {
            continue;
        }
        const std::string group =
            row.of.stack ? fmt::format("{}, {}", row.of.cluster, *row.of.stack) : row.of.cluster;
        auto place = std::ranges::find(picture.groups, group);
        if (place == picture.groups.end()) {
            picture.groups.push_back(group);
            place = picture.groups.end() - 1;
        }
        const auto& error = row.found->outlook.error;
        const double days = *row.found->failures.days;
        points[i] = picture.points.size();
        picture.points.push_back(
            {.x = days,
             .y = has_costs ? row.found->failures.cost.value_or(0)
                            : *row.found->failures.device_hours,
             .least_x = days * (error ? error->low : 1),
             .most_x = days * (error ? error->high : 1),
             .label = counted(row.of.nodes, "node"),
             .tooltip = fmt::format(
                 "{}, {}: {}", group, counted(row.of.nodes, "node"), row.found->sentence),
             .group = static_cast<std::size_t>(place - picture.groups.begin()),
             .is_answer = table.deadline && answer == i});
    }
    if (picture.points.empty()) {
        throw Error(ErrorKind::Infeasible,
                    "plan",
                    "no combination has a plan that could be drawn",
                    "use more nodes (--nodes), or a smaller model");
    }
    for (const std::size_t row : table.front()) {
        picture.front.push_back(points[row]);
    }
    return render_front(picture, look);
}

}  // namespace pipetwin::cli
