// SPDX-License-Identifier: Apache-2.0
#include "cli/text/ranked_table.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/text/text_output.h"
#include "core/base/number_text.h"

namespace pipetwin::cli {

namespace {

using sim::FoundPlan;

/// A column of the table. A value that all rows share is said once above it, as `alone` puts it;
/// not at all where that is empty.
struct Column {
    std::string head;
    std::function<std::string(const FoundPlan&)> cell;
    std::function<std::string(const std::string&)> alone{};
};

std::vector<std::string> runs_of(const std::vector<int>& sizes) {
    std::vector<std::string> runs;
    for (std::size_t first = 0; first < sizes.size();) {
        std::size_t end = first;
        while (end < sizes.size() && sizes[end] == sizes[first]) {
            ++end;
        }
        runs.push_back(end - first > 1 ? fmt::format("{}x{}", end - first, sizes[first])
                                       : fmt::to_string(sizes[first]));
        first = end;
    }
    return runs;
}

/// Runs of equal sizes, from the front, as many as there is room for.
std::string shortened(const std::vector<int>& sizes, std::size_t room) {
    std::vector<std::string> runs = runs_of(sizes);
    std::string text = fmt::format("{}", fmt::join(runs, "+"));
    while (text.size() > room && runs.size() > 1) {
        runs.pop_back();
        text = fmt::format("{}+...", fmt::join(runs, "+"));
    }
    return text.size() > room ? "..." : text;
}

/// "always", "block", or "5 of 32 stages" where they differ.
std::string recompute_text(const FoundPlan& plan) {
    const RecomputeRules& rules = plan.recompute;
    if (plan.candidate.choice.costs.layer_recompute != LayerRecompute::None) {
        return std::string(to_string(plan.candidate.choice.costs.layer_recompute));
    }
    if (!plan.modules.empty()) {
        return "by module";
    }
    if (const auto everywhere = rules.everywhere()) {
        return std::string(to_string(*everywhere));
    }
    const auto kept = std::ranges::count(rules.modes(), Recompute::None);
    return fmt::format(
        "{} of {} stages", std::ssize(rules.modes()) - kept, std::ssize(rules.modes()));
}

Shard shard_of(const FoundPlan& plan) {
    return plan.candidate.shape.has_replicas() ? plan.candidate.choice.costs.shard : Shard::None;
}

bool scatters_boundaries(const FoundPlan& plan) {
    return plan.candidate.shape.tensor_parallel > 1 &&
           plan.candidate.choice.costs.scatter_boundaries;
}

/// Adds columns of what replicas and devices of a rank share, where a plan shares any of it.
void add_columns_of_shares(const std::vector<FoundPlan>& plans, std::vector<Column>& columns) {
    const auto shards = [](const FoundPlan& plan) { return shard_of(plan) != Shard::None; };
    if (std::ranges::any_of(plans, shards)) {
        columns.push_back(
            {"shard",
             [](const FoundPlan& plan) { return std::string(to_string(shard_of(plan))); },
             [](const std::string& cell) { return "shard " + cell; }});
    }
    if (std::ranges::any_of(plans, scatters_boundaries)) {
        columns.push_back({"boundaries",
                           [](const FoundPlan& plan) {
                               return std::string(scatters_boundaries(plan) ? "scattered"
                                                                            : "whole");
                           },
                           [](const std::string& cell) { return "boundaries " + cell; }});
    }
}

/// Adds a column for each degree that divides samples or experts, where a plan has it.
void add_columns_of_division(const std::vector<FoundPlan>& plans, std::vector<Column>& columns) {
    const auto add = [&](const std::string& head, const auto& degree_of) {
        if (std::ranges::any_of(plans, [&](const FoundPlan& plan) {
                return degree_of(plan.candidate.shape) > 1;
            })) {
            columns.push_back({head,
                               [degree_of](const FoundPlan& plan) {
                                   return fmt::to_string(degree_of(plan.candidate.shape));
                               },
                               [head](const std::string& cell) { return head + ' ' + cell; }});
        }
    };
    add("CP", [](const sim::Shape& shape) { return shape.context_parallel; });
    add("EP", [](const sim::Shape& shape) { return shape.expert_parallel; });
    add("ETP", [](const sim::Shape& shape) {
        return shape.expert_parallel > 1 ? shape.expert_tensor_devices() : 1;
    });
}

bool is_unfinished(const FoundPlan& plan) {
    return !plan.finished;
}

/// What the first number of "devices" counts: stages, or ranks if a rank can have several stages.
std::string place_in_pipeline(const std::vector<FoundPlan>& plans) {
    const bool has_chunks = std::ranges::any_of(
        plans, [](const FoundPlan& plan) { return plan.candidate.choice.chunks > 1; });
    return has_chunks ? "rank" : "stage";
}

std::vector<Column> columns_of(const Scenario& scenario, const std::vector<FoundPlan>& plans) {
    const FoundPlan& best = plans.front();
    const auto any = [&plans](auto differs) { return std::ranges::any_of(plans, differs); };
    const bool replicas =
        any([](const FoundPlan& plan) { return plan.candidate.shape.data_parallel > 1; });
    const bool tensor =
        any([](const FoundPlan& plan) { return plan.candidate.shape.tensor_parallel > 1; });
    const auto devices = [replicas, tensor](const FoundPlan& plan) {
        const sim::Shape& shape = plan.candidate.shape;
        return fmt::to_string(shape.stages) +
               (replicas ? fmt::format("x{}", shape.data_parallel) : "") +
               (tensor ? fmt::format("x{}", shape.tensor_parallel) : "") +
               (divides_sequence(plan) ? "s" : "");
    };
    const auto batches = [&scenario](const FoundPlan& plan) {
        const sim::Shape& shape = plan.candidate.shape;
        const int samples = scenario.training.batch / shape.data_parallel;
        const int count = std::min(shape.micro_batches, samples);
        const int smallest = samples / count;
        return samples % count == 0 ? fmt::format("{} of {}", count, smallest)
                                    : fmt::format("{} of {}-{}", count, smallest, smallest + 1);
    };
    const auto schedule = [](const FoundPlan& plan) {
        const sim::ScheduleChoice& choice = plan.candidate.choice;
        return choice.schedule + (choice.chunks > 1 ? fmt::format(" x{}", choice.chunks) : "");
    };
    std::vector<Column> columns{
        {"step", [](const FoundPlan& plan) { return format_duration(plan.step); }},
        {"slower",
         [&best](const FoundPlan& plan) {
             const double slower = to_seconds(plan.step) / to_seconds(best.step) - 1;
             return &plan == &best ? "" : fmt::format("{:.2f} %", 100 * slower);
         }},
        {replicas || tensor ? "devices" : place_in_pipeline(plans) + 's',
         devices,
         [replicas, tensor, place = place_in_pipeline(plans)](const std::string& cell) {
             if (cell.ends_with('s')) {
                 return fmt::format("{} devices, sequence parallel",
                                    cell.substr(0, cell.size() - 1));
             }
             return replicas || tensor ? fmt::format("{} devices", cell)
                                       : counted(std::stoi(cell), place);
         }},
        {"micro-batches",
         batches,
         [](const std::string& cell) {
             const char* const noun = cell.starts_with("1 ") ? " micro-batch" : " micro-batches";
             return std::string(cell).insert(cell.find(' '), noun);
         }},
        {"schedule", schedule, [](const std::string& cell) { return cell; }},
        {"recompute",
         [](const FoundPlan& plan) { return recompute_text(plan); },
         [](const std::string& cell) { return "recompute " + cell; }}};
    add_columns_of_division(plans, columns);
    add_columns_of_shares(plans, columns);
    if (any(is_unfinished)) {
        columns.push_back({"",
                           [](const FoundPlan& plan) {
                               return is_unfinished(plan) ? "not finished" : std::string();
                           },
                           [](const std::string& cell) { return cell; }});
    }
    columns.push_back({"bubble", [](const FoundPlan& plan) { return percent_text(plan.bubble); }});
    columns.push_back(
        {"memory",
         [](const FoundPlan& plan) { return plan.peak.count > 0 ? format_bytes(plan.peak) : ""; },
         [](const std::string&) { return std::string(); }});
    return columns;
}

/// Legend of those words of the table that do not explain themselves.
std::string legend(const std::vector<std::string>& heads, const std::vector<FoundPlan>& plans) {
    const auto any = [&plans](auto differs) { return std::ranges::any_of(plans, differs); };
    std::vector<std::string> parts;
    if (std::ranges::find(heads, "devices") != heads.end()) {
        const bool replicas =
            any([](const FoundPlan& plan) { return plan.candidate.shape.data_parallel > 1; });
        const bool tensor =
            any([](const FoundPlan& plan) { return plan.candidate.shape.tensor_parallel > 1; });
        parts.push_back(fmt::format("devices: {}s{}{}",
                                    place_in_pipeline(plans),
                                    replicas ? " x replicas" : "",
                                    tensor ? " x tensor parallel" : ""));
        if (any(divides_sequence)) {
            parts.emplace_back("s: sequence parallel");
        }
    }
    if (std::ranges::find(heads, "micro-batches") != heads.end()) {
        parts.emplace_back("micro-batches: their number, and the samples in each");
    }
    if (any([](const FoundPlan& plan) { return plan.candidate.choice.chunks > 1; })) {
        parts.emplace_back("schedule x2: 2 stages on each rank");
    }
    for (const auto& [head, words] : {std::pair("CP", "CP: parts of a sample (context_parallel)"),
                                      std::pair("EP", "EP: parts of a layer's experts"),
                                      std::pair("ETP", "ETP: devices that share an expert")}) {
        if (std::ranges::find(heads, head) != heads.end()) {
            parts.emplace_back(words);
        }
    }
    if (std::ranges::find(heads, "recompute") != heads.end() &&
        any([](const FoundPlan& plan) { return plan.candidate.choice.recompute_by_rank; })) {
        parts.emplace_back(
            "recompute 2 of 4 stages: these stages recompute, each as much as it needs to fit");
    }
    const auto has_pieces = [](const FoundPlan& plan) { return plan.partition.size() > 1; };
    if (heads.back().starts_with("layers") && any(has_pieces)) {
        parts.emplace_back(
            "11+5x10: a stage of 11 layers, then five stages of 10; ...: too long for this table");
    }
    if (any(is_unfinished)) {
        parts.emplace_back(
            "not finished: alone (--set), such a plan is searched further, and may be faster");
    }
    if (std::ranges::find(heads, "memory") != heads.end()) {
        parts.emplace_back("memory: peak of the fullest rank");
    }
    std::string text;
    std::string line;
    for (const std::string& part : parts) {
        constexpr std::size_t longest = 80;
        if (!line.empty() && line.size() + part.size() + 4 > longest) {
            text += "  " + line + ";\n";
            line.clear();
        }
        line += (line.empty() ? "" : "; ") + part;
    }
    return text + (line.empty() ? "" : "  " + line + '\n');
}

}  // namespace

bool divides_sequence(const FoundPlan& plan) {
    return plan.candidate.shape.tensor_parallel > 1 &&
           plan.candidate.choice.costs.sequence_parallel;
}

std::string partition_text(const std::vector<int>& sizes) {
    return fmt::format("{}", fmt::join(runs_of(sizes), "+"));
}

std::string ranked_table(const Scenario& scenario,
                         const std::vector<FoundPlan>& ranked,
                         int width) {
    const std::vector<FoundPlan> plans(
        ranked.begin(),
        ranked.begin() + static_cast<std::ptrdiff_t>(std::min(ranked.size(), most_ranked)));
    std::vector<std::vector<std::string>> table(plans.size() + 1);
    std::vector<std::string> same;
    std::size_t used = 0;
    const auto add = [&](const std::string& head, const std::vector<std::string>& cells) {
        std::size_t widest = head.size();
        table.front().push_back(head);
        for (std::size_t row = 0; row < cells.size(); ++row) {
            widest = std::max(widest, cells[row].size());
            table[row + 1].push_back(cells[row]);
        }
        used += 2 + widest;
    };
    std::vector<std::string> numbers;
    for (std::size_t row = 0; row < plans.size(); ++row) {
        numbers.push_back(fmt::to_string(row + 1));
    }
    add("", numbers);
    for (const Column& column : columns_of(scenario, plans)) {
        std::vector<std::string> cells;
        std::ranges::transform(plans, std::back_inserter(cells), column.cell);
        const bool all_same = std::ranges::all_of(
            cells, [&cells](const std::string& cell) { return cell == cells.front(); });
        if (plans.size() > 1 && column.alone && all_same) {
            same.push_back(column.alone(cells.front()));
        } else {
            add(column.head, cells);
        }
    }
    std::erase(same, "");
    const std::string head = "layers per stage";
    const std::size_t most = static_cast<std::size_t>(std::max(width, 80));
    const std::size_t room = std::max(std::size_t{3}, most - std::min(most, used + 2));
    std::vector<std::string> cells;
    for (const FoundPlan& plan : plans) {
        cells.push_back(shortened(plan.partition, room));
    }
    const bool says_nothing =
        std::ranges::all_of(cells, [](const std::string& cell) { return cell == "..."; });
    if (!says_nothing) {
        add(head.size() <= room ? head : "layers", cells);
    }
    std::string text;
    if (!same.empty()) {
        text = fmt::format("  All of these plans: {}\n\n", fmt::join(same, ", "));
    }
    text += text_table(table) + legend(table.front(), plans);
    return text;
}

}  // namespace pipetwin::cli
