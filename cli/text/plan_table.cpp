// SPDX-License-Identifier: Apache-2.0
#include "cli/text/plan_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/text/answer_text.h"
#include "cli/text/evidence_text.h"
#include "cli/text/scale_text.h"
#include "cli/text/sentences.h"
#include "cli/text/text_output.h"
#include "core/base/number_text.h"

namespace pipetwin::cli {

namespace {

/// Time and cost of the rows that have both, with failures; device hours where there is no price.
struct Choices {
    std::vector<std::size_t> rows{};
    std::vector<sim::TimeAndCost> values{};
};

Choices choices_of(const PlanTable& table) {
    Choices choices;
    const bool has_costs = table.has_costs();
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        const std::optional<FoundRow>& found = table.rows[i].found;
        if (found && found->failures.days) {
            choices.rows.push_back(i);
            choices.values.push_back({.days = *found->failures.days,
                                      .cost = has_costs ? found->failures.cost.value_or(0)
                                                        : *found->failures.device_hours});
        }
    }
    return choices;
}

std::string optional_number(const std::optional<double>& number) {
    return number ? bill_number(*number) : "";
}

std::string plus_number(const std::optional<double>& number) {
    return number ? fmt::format("+{}", bill_number(*number)) : "";
}

bool names_stacks(const PlanTable& table) {
    return std::ranges::any_of(table.rows,
                               [](const PlanRow& row) { return row.of.stack.has_value(); });
}

/// A column of the table: its name, and its cell in a row with a plan.
struct TableColumn {
    std::string name;
    std::string (*cell)(const FoundRow& row);
};

std::vector<TableColumn> columns_of(const PlanTable& table) {
    std::vector<TableColumn> columns{
        {"plan", [](const FoundRow& row) { return row.shape; }},
        {"schedule", [](const FoundRow& row) { return row.schedule; }},
        {"tokens/s", [](const FoundRow& row) { return bill_number(row.tokens_per_second); }},
        {"memory left", [](const FoundRow& row) {
             return row.headroom ? rounded_percent(*row.headroom) : std::string("not known");
         }}};
    if (table.tokens) {
        columns.push_back(
            {"days", [](const FoundRow& row) { return optional_number(row.bill.days); }});
        columns.push_back({"device hours", [](const FoundRow& row) {
                               return optional_number(row.bill.device_hours);
                           }});
        if (table.has_costs()) {
            columns.push_back(
                {"cost", [](const FoundRow& row) { return optional_number(row.bill.cost); }});
        }
        columns.push_back({"failures", [](const FoundRow& row) {
                               return optional_number(row.failures.failures);
                           }});
        columns.push_back(
            {"days more", [](const FoundRow& row) { return plus_number(row.failures.more_days); }});
        if (table.has_costs()) {
            columns.push_back({"cost more", [](const FoundRow& row) {
                                   return plus_number(row.failures.more_cost);
                               }});
        }
    } else {
        columns.push_back({"lost by failures", [](const FoundRow& row) {
                               return rounded_percent(1 - row.failures.share);
                           }});
    }
    return columns;
}

/// "8x-h100-sxm, 6 nodes", with the stack where it is named.
std::string row_name(const PlanRow& row) {
    return fmt::format("{}, {}{}",
                       row.of.cluster,
                       counted(row.of.nodes, "node"),
                       row.of.stack ? ", " + *row.of.stack : "");
}

std::vector<std::vector<std::string>> cells_of(const PlanTable& table) {
    const std::vector<TableColumn> columns = columns_of(table);
    std::vector<std::string> head{"", "cluster", "nodes"};
    if (names_stacks(table)) {
        head.emplace_back("stack");
    }
    std::ranges::transform(columns, std::back_inserter(head), &TableColumn::name);
    std::vector<std::vector<std::string>> cells{head};
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        const PlanRow& row = table.rows[i];
        std::vector<std::string> line{
            fmt::to_string(i + 1), row.of.cluster, fmt::to_string(row.of.nodes)};
        if (names_stacks(table)) {
            line.push_back(row.of.stack.value_or(""));
        }
        for (const TableColumn& column : columns) {
            line.push_back(row.found               ? column.cell(*row.found)
                           : column.name == "plan" ? std::string("no plan")
                                                   : std::string("-"));
        }
        cells.push_back(std::move(line));
    }
    return cells;
}

std::string days_words(double days) {
    return fmt::format("{} days", bill_number(days));
}

/// Days of a row with failures, as the range of its step allows: "218 days, probably 203 to 227".
std::string days_with_range(const FoundRow& found) {
    const double days = *found.failures.days;
    if (!found.outlook.error) {
        return days_words(days);
    }
    return fmt::format("{}, probably {} to {}",
                       days_words(days),
                       bill_number(days * found.outlook.error->low),
                       bill_number(days * found.outlook.error->high));
}

std::string cost_words(const PlanTable& table, const FoundRow& found) {
    return table.has_costs()
               ? fmt::format("cost {}", bill_number(found.failures.cost.value_or(0)))
               : fmt::format("{} device hours", bill_number(*found.failures.device_hours));
}

/// "within 30 days", or "by 2027-03-31, 120 days from 2026-12-01,".
std::string deadline_words(const Deadline& deadline) {
    return deadline.until.empty() ? fmt::format("within {}", days_words(deadline.days))
                                  : fmt::format("by {}, {} from {},",
                                                deadline.until,
                                                days_words(deadline.days),
                                                deadline.from);
}

/// Which row ends in time for the least cost, or what is missing.
std::vector<std::string> deadline_lines(const PlanTable& table) {
    const Choices choices = choices_of(table);
    if (!table.deadline || choices.rows.empty()) {
        return {};
    }
    const auto fastest = std::ranges::min_element(choices.values, {}, &sim::TimeAndCost::days);
    const std::size_t fastest_row =
        choices.rows[static_cast<std::size_t>(fastest - choices.values.begin())];
    const std::optional<std::size_t> answer = table.answer();
    if (!answer) {
        return {fmt::format("No row ends {}: the fastest is row {}, {}: {}, {} too many",
                            deadline_words(*table.deadline),
                            fastest_row + 1,
                            row_name(table.rows[fastest_row]),
                            days_with_range(*table.rows[fastest_row].found),
                            bill_number(fastest->days - table.deadline->days))};
    }
    const FoundRow& found = *table.rows[*answer].found;
    std::vector<std::string> lines{
        fmt::format("The least {} {} is row {}, {}: {}, {}, with failures",
                    table.has_costs() ? "cost" : "device hours",
                    deadline_words(*table.deadline),
                    *answer + 1,
                    row_name(table.rows[*answer]),
                    days_with_range(found),
                    cost_words(table, found))};
    if (found.outlook.error &&
        *found.failures.days * found.outlook.error->high > table.deadline->days) {
        lines.emplace_back("warning: at the slow end of its likely range it ends too late");
    }
    return lines;
}

std::vector<std::string> front_lines(const PlanTable& table) {
    std::vector<std::string> rows;
    for (const std::size_t i : table.front()) {
        rows.push_back(fmt::format("{} ({}, {})",
                                   i + 1,
                                   days_words(*table.rows[i].found->failures.days),
                                   cost_words(table, *table.rows[i].found)));
    }
    if (rows.empty()) {
        return {};
    }
    return {fmt::format("With failures, no row is both earlier and cheaper than {} {}",
                        rows.size() == 1 ? "row" : "rows",
                        fmt::join(rows, ", "))};
}

std::vector<std::string> reason_lines(const PlanTable& table) {
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        const PlanRow& row = table.rows[i];
        if (!row.found) {
            lines.push_back(fmt::format("{}, {}: no plan: {}", i + 1, row_name(row), row.why_not));
            continue;
        }
        if (!row.found->is_complete) {
            lines.push_back(fmt::format(
                "{}, {}: the search was ended before it was complete", i + 1, row_name(row)));
        }
        if (row.found->devices < row.found->devices_of_cluster) {
            lines.push_back(
                fmt::format("{}, {}: {} of {} devices are used, and counted in its "
                            "device hours and cost",
                            i + 1,
                            row_name(row),
                            row.found->devices,
                            row.found->devices_of_cluster));
        }
    }
    return lines;
}

/// The nearest published run: what it was, what it measured, and what differs.
std::string nearest_words(const sim::Outlook& outlook) {
    if (outlook.nearest.empty()) {
        return "no published run";
    }
    std::vector<std::string> lines = evidence_lines({outlook.nearest.front()});
    return lines.back();
}

std::string range_words(const FoundRow& found) {
    const auto& error = found.outlook.error;
    if (!error) {
        return found.outlook.lacks_runs ? fmt::format("no range, as {}", no_runs_with_experts)
                                        : std::string("no range");
    }
    const auto tokens = [&found](double factor) {
        return bill_number(found.tokens_per_second / factor);
    };
    return fmt::format("{} to {} tokens/s: 90 % of the {}{}",
                       tokens(error->high),
                       tokens(error->low),
                       error->of,
                       unseen_text(*error));
}

/// Range, nearest published run and loss by scale of every row; what two rows share stands once.
std::vector<std::string> evidence_of_rows(const PlanTable& table, bool with_sources) {
    std::vector<std::string> lines;
    std::vector<std::string> told;
    const auto tell_once = [&](const std::string& line) {
        if (std::ranges::count(told, line) == 0) {
            told.push_back(line);
            lines.push_back("- " + line);
        }
    };
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        const PlanRow& row = table.rows[i];
        if (!row.found) {
            continue;
        }
        lines.push_back(fmt::format("{}, {}: {}", i + 1, row_name(row), range_words(*row.found)));
        tell_once("nearest: " + nearest_words(row.found->outlook));
        for (const std::string& line : scale_lines(row.found->outlook)) {
            tell_once(line);
        }
        if (with_sources) {
            lines.push_back(fmt::format("- plan: {}", row.found->sentence));
            for (const std::string& line : outlook_sources(row.found->outlook)) {
                tell_once(line);
            }
        }
    }
    return lines;
}

std::vector<std::string> assumption_lines(const PlanTable& table) {
    const sim::FailureAssumptions& failures = table.failures;
    const sim::FailureAssumptions usual;
    const auto given = [](bool is_usual, std::string_view option) {
        return is_usual ? fmt::format("assumed; {} sets it", option) : fmt::format("{}", option);
    };
    std::vector<std::string> lines{
        fmt::format("a device fails every {} hours on average ({})",
                    bill_number(failures.mtbf_hours),
                    failures.mtbf_hours == usual.mtbf_hours
                        ? "419 interruptions of 16,384 H100 in 54 days, The Llama 3 Herd of "
                          "Models, section 3.3.4; --mtbf-hours sets it"
                        : "--mtbf-hours"),
        fmt::format("a checkpoint takes {} ({}), a restart {} ({}); checkpoints are as far apart "
                    "as costs least",
                    fmt::format("{:g} s", to_seconds(failures.checkpoint)),
                    given(failures.checkpoint == usual.checkpoint, "--checkpoint-s"),
                    fmt::format("{:g} s", to_seconds(failures.restart)),
                    given(failures.restart == usual.restart, "--restart-s"))};
    if (table.has_costs()) {
        std::vector<std::string> prices;
        for (const PlanRow& row : table.rows) {
            std::string price =
                row.of.price ? fmt::format("{:g} on {}", *row.of.price, row.of.cluster) : "";
            if (!price.empty() && std::ranges::count(prices, price) == 0) {
                prices.push_back(std::move(price));
            }
        }
        lines.push_back(fmt::format("a device hour costs {} (--price)", fmt::join(prices, ", ")));
    }
    if (!table.tokens) {
        lines.emplace_back(
            "--tokens N, such as 15T, adds days, device hours and, with --price, the cost");
    }
    return lines;
}

std::vector<std::string> meaning_lines(const PlanTable& table) {
    std::vector<std::string> lines{
        "plan: ranks x replicas x devices per rank, s: sequence parallel; schedule x4: 4 stages on "
        "each rank; memory left: on the fullest device"};
    if (table.tokens) {
        lines.push_back(fmt::format(
            "days, device hours{}: without failures, as 'plan' gives them for one row; failures: "
            "their mean number over the run, and the days{} that they and checkpoints add",
            table.has_costs() ? ", cost" : "",
            table.has_costs() ? " and the cost" : ""));
    }
    return lines;
}

/// A cell of Markdown: its bars would end the cell.
std::string markdown_cell(const std::string& text) {
    std::string cell;
    for (const char c : text) {
        cell += c == '|' ? "\\|" : std::string(1, c == '\n' ? ' ' : c);
    }
    return cell;
}

}  // namespace

std::vector<std::size_t> PlanTable::front() const {
    const Choices choices = choices_of(*this);
    std::vector<std::size_t> front;
    for (const std::size_t i : sim::time_cost_front(choices.values)) {
        front.push_back(choices.rows[i]);
    }
    return front;
}

std::optional<std::size_t> PlanTable::answer() const {
    const Choices choices = choices_of(*this);
    const double days = deadline ? deadline->days : std::numeric_limits<double>::infinity();
    const std::optional<std::size_t> found = sim::cheapest_in_time(choices.values, days);
    return found ? std::optional(choices.rows[*found]) : std::nullopt;
}

bool PlanTable::has_costs() const {
    return std::ranges::any_of(rows, [](const PlanRow& row) { return row.of.price.has_value(); });
}

bool PlanTable::has_any_plan() const {
    return std::ranges::any_of(rows, [](const PlanRow& row) { return row.found.has_value(); });
}

std::string plan_table_text(const PlanTable& table, bool with_sources, const Console& console) {
    const int width = console.width();
    std::string text = fmt::format(
        "{}, {}{}\n\nEvery combination\n",
        table.model,
        table.head,
        table.tokens ? fmt::format(", {} tokens in all", bill_number(*table.tokens)) : "");
    text += text_table(cells_of(table));
    const auto add = [&](std::string_view heading, const std::vector<std::string>& lines) {
        if (!lines.empty()) {
            text += '\n' + paragraph_text({.heading = heading, .lines = lines}, width);
        }
    };
    std::vector<std::string> below = reason_lines(table);
    for (const auto& more : {deadline_lines(table), front_lines(table), meaning_lines(table)}) {
        below.insert(below.end(), more.begin(), more.end());
    }
    add("What it says", below);
    add("Evidence", evidence_of_rows(table, with_sources));
    std::vector<std::string> assumed = assumption_lines(table);
    if (!with_sources) {
        assumed.emplace_back("--evidence adds the source of each number");
    }
    add("Assumed", assumed);
    return text;
}

std::string plan_table_markdown(const PlanTable& table, bool with_sources) {
    std::string text = fmt::format(
        "**{}**, {}{}\n\n",
        table.model,
        table.head,
        table.tokens ? fmt::format(", {} tokens in all", bill_number(*table.tokens)) : "");
    std::vector<std::vector<std::string>> cells = cells_of(table);
    cells.front().front() = "row";
    cells.front().emplace_back("likely tokens/s");
    cells.front().emplace_back("nearest published run");
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        const std::optional<FoundRow>& found = table.rows[i].found;
        cells[i + 1].push_back(found ? range_words(*found) : "-");
        cells[i + 1].push_back(found ? nearest_words(found->outlook)
                                     : "no plan: " + table.rows[i].why_not);
    }
    for (std::size_t i = 0; i < cells.size(); ++i) {
        text += '|';
        for (const std::string& cell : cells[i]) {
            text += fmt::format(" {} |", markdown_cell(cell));
        }
        text += '\n';
        if (i == 0) {
            text += '|';
            for (std::size_t column = 0; column < cells[i].size(); ++column) {
                constexpr std::size_t of_words = 2;  // the row and the cluster
                const bool is_number = column == 0 || column == of_words ||
                                       (column > of_words + 2 && column + 2 < cells[i].size());
                text += is_number ? " ---: |" : " --- |";
            }
            text += '\n';
        }
    }
    text += '\n';
    std::vector<std::string> below = deadline_lines(table);
    for (const auto& more : {front_lines(table), meaning_lines(table), assumption_lines(table)}) {
        below.insert(below.end(), more.begin(), more.end());
    }
    std::vector<std::string> told;
    for (const PlanRow& row : table.rows) {
        for (const std::string& line :
             row.found ? scale_lines(row.found->outlook) : std::vector<std::string>{}) {
            if (std::ranges::count(told, line) == 0) {
                told.push_back(line);
            }
        }
        if (with_sources && row.found) {
            for (const std::string& line : outlook_sources(row.found->outlook)) {
                if (std::ranges::count(told, line) == 0) {
                    told.push_back(line);
                }
            }
        }
    }
    below.insert(below.end(), told.begin(), told.end());
    for (const std::string& line : below) {
        text += fmt::format("- {}\n", line);
    }
    return text;
}

}  // namespace pipetwin::cli
