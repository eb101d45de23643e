#include "cli/plan_text.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/sentences.h"
#include "cli/text_output.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t most_shown = 10;
constexpr std::size_t most_in_json = 50;

using sim::Candidate;
using sim::FoundPlan;

int micro_batch_size(const Scenario& scenario, const Candidate& candidate) {
    return scenario.training.batch / candidate.shape.data_parallel / candidate.shape.micro_batches;
}

/// "4+4+5", "20 x 4": equal sizes together.
std::string partition_text(const std::vector<int>& sizes) {
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
    constexpr std::size_t most_runs = 6;
    if (runs.size() > most_runs) {
        runs.resize(most_runs - 1);
        runs.emplace_back("...");
    }
    return fmt::format("{}", fmt::join(runs, "+"));
}

std::string rate_text(const FoundPlan& plan) {
    return plan.samples_per_second ? fmt::format("{:.4g}", *plan.samples_per_second) : "-";
}

/// Columns that say the same in every row would only make the table wide.
struct Column {
    std::string head;
    std::vector<std::string> cells;
    bool always = false;
};

std::string ranked_table(const Scenario& scenario, const std::vector<FoundPlan>& ranked) {
    const std::size_t rows = std::min(ranked.size(), most_shown);
    std::vector<Column> columns{{"", {}, true},
                                {"step", {}, true},
                                {"samples/s", {}, true},
                                {"slower", {}, true},
                                {"stages", {}, true},
                                {"replicas", {}, false},
                                {"tensor", {}, false},
                                {"devices", {}, false},
                                {"micro-batches", {}, true},
                                {"of samples", {}, true},
                                {"schedule", {}, true},
                                {"chunks", {}, false},
                                {"recompute", {}, false},
                                {"bubble", {}, true},
                                {"peak memory", {}, true},
                                {"layers per piece", {}, true}};
    for (std::size_t i = 0; i < rows; ++i) {
        const FoundPlan& plan = ranked[i];
        const sim::Shape& shape = plan.candidate.shape;
        const sim::Style& style = plan.candidate.style;
        const double slower = to_seconds(plan.step) / to_seconds(ranked.front().step) - 1;
        const std::vector<std::string> cells{
            fmt::format("{}", i + 1),
            format_duration(plan.step),
            rate_text(plan),
            i == 0 ? "" : fmt::format("{:.2f} %", 100 * slower),
            fmt::to_string(shape.stages),
            fmt::to_string(shape.data_parallel),
            fmt::to_string(shape.tensor_parallel),
            fmt::to_string(shape.devices()),
            fmt::to_string(shape.micro_batches),
            fmt::to_string(micro_batch_size(scenario, plan.candidate)),
            style.schedule,
            fmt::to_string(style.chunks),
            std::string(to_string(style.recompute)),
            percent_text(plan.bubble),
            plan.peak.count > 0 ? format_bytes(plan.peak) : "-",
            partition_text(plan.partition)};
        for (std::size_t column = 0; column < columns.size(); ++column) {
            columns[column].cells.push_back(cells[column]);
        }
    }
    std::vector<std::vector<std::string>> table(rows + 1);
    for (const Column& column : columns) {
        const bool all_one = std::ranges::all_of(
            column.cells, [](const std::string& cell) { return cell == "1" || cell == "none"; });
        if (!column.always && all_one) {
            continue;
        }
        table.front().push_back(column.head);
        for (std::size_t row = 0; row < rows; ++row) {
            table[row + 1].push_back(column.cells[row]);
        }
    }
    return text_table(table);
}

std::string proof_text(const sim::SearchResult& result) {
    const Duration best = result.ranked.front().step;
    if (result.proven_optimal) {
        const std::string words =
            "Proven: no other plan of the searched space is faster. Partitions in it are those "
            "that "
            "bound the step time best, and balanced ones";
        if (result.any_partition_bound == best) {
            return words + "; of schedules with one stage to a rank all partitions are covered.";
        }
        return fmt::format(
            "{}; with any partition whatever, a schedule with one stage to a rank "
            "could save {:.2f} % at the most.",
            words,
            100 * (1 - to_seconds(result.any_partition_bound) / to_seconds(best)));
    }
    return fmt::format(
        "Not proven: the search ended early. No plan of the searched space takes less than {}, "
        "{:.2f} % below the best.",
        format_duration(result.lower_bound),
        100 * (1 - to_seconds(result.lower_bound) / to_seconds(best)));
}

std::vector<std::string> counts_text(const sim::SearchResult& result) {
    std::int64_t infeasible = 0;
    for (const sim::Infeasible& entry : result.infeasible) {
        infeasible += entry.count;
    }
    std::vector<std::string> lines{
        fmt::format("{} plans are open: {} were simulated, {} were left out as no partition makes "
                    "them faster than the best, {} are no plans for these devices.",
                    result.candidates,
                    result.searched,
                    result.pruned,
                    infeasible)};
    constexpr std::size_t most_reasons = 3;
    for (std::size_t i = 0; i < std::min(most_reasons, result.infeasible.size()); ++i) {
        const sim::Infeasible& entry = result.infeasible[i];
        lines.push_back(fmt::format(
            "{}: {}, such as {} stages, {} micro-batches{}",
            entry.count,
            entry.why,
            entry.example.shape.stages,
            entry.example.shape.micro_batches,
            entry.example.style.schedule.empty() ? "" : ", " + entry.example.style.schedule));
    }
    return lines;
}

/// What someone who came for a pipeline should know first.
std::optional<std::string> without_pipeline(const sim::SearchResult& result) {
    const FoundPlan& best = result.ranked.front();
    if (best.candidate.shape.stages == 1) {
        return std::string("Pipelining does not help here: one stage is the fastest plan.");
    }
    const auto alone = std::ranges::find(
        result.ranked, 1, [](const FoundPlan& plan) { return plan.candidate.shape.stages; });
    if (alone == result.ranked.end()) {
        return std::nullopt;
    }
    return fmt::format(
        "Without a pipeline the best of those simulated takes {}, {:.2f} times as "
        "long, on {}.",
        format_duration(alone->step),
        to_seconds(alone->step) / to_seconds(best.step),
        counted(alone->candidate.shape.devices(), "device"));
}

Json candidate_json(const Candidate& candidate) {
    return {{"stages", candidate.shape.stages},
            {"chunks", candidate.style.chunks},
            {"micro_batches", candidate.shape.micro_batches},
            {"schedule", candidate.style.schedule},
            {"recompute", to_string(candidate.style.recompute)},
            {"data_parallel", candidate.shape.data_parallel},
            {"tensor_parallel", candidate.shape.tensor_parallel}};
}

}  // namespace

Json found_plan_json(const FoundPlan& plan) {
    Json json = candidate_json(plan.candidate);
    json["partition"] = plan.partition;
    json["step_ms"] = to_milliseconds(plan.step);
    json["samples_per_second"] =
        plan.samples_per_second ? Json(*plan.samples_per_second) : Json(nullptr);
    json["bubble_total"] = plan.bubble;
    json["peak_bytes"] = plan.peak.count;
    return json;
}

std::string pipeline_keys(const FoundPlan& plan) {
    const sim::Shape& shape = plan.candidate.shape;
    const sim::Style& style = plan.candidate.style;
    std::string text = fmt::format(
        "[pipeline]\nstages = {}\nmicro_batches = {}\nschedule = \"{}\"\nchunks = {}\n"
        "recompute = \"{}\"\npartition = [{}]\n",
        shape.stages,
        shape.micro_batches,
        style.schedule,
        style.chunks,
        to_string(style.recompute),
        fmt::join(plan.partition, ", "));
    if (shape.data_parallel > 1) {
        text += fmt::format("data_parallel = {}\n", shape.data_parallel);
    }
    if (shape.tensor_parallel > 1) {
        text += fmt::format("tensor_parallel = {}\n", shape.tensor_parallel);
    }
    return text;
}

std::string search_text(const Scenario& scenario,
                        const sim::SearchResult& result,
                        const Console& console) {
    std::string text = ranked_table(scenario, result.ranked);
    if (result.ranked.size() > most_shown) {
        text += fmt::format("  not shown: {} plans more; --json lists {}\n",
                            result.ranked.size() - most_shown,
                            std::min(result.ranked.size(), most_in_json));
    }
    Paragraph proof{.heading = "What is proven", .lines = {proof_text(result)}};
    std::ranges::move(counts_text(result), std::back_inserter(proof.lines));
    if (auto line = without_pipeline(result)) {
        proof.lines.push_back(*std::move(line));
    }
    return text + '\n' + paragraph_text(proof, console.width());
}

Json search_json(const sim::SearchResult& result, Json best) {
    const FoundPlan& first = result.ranked.front();
    best["partition"] = first.partition;
    best["recompute"] = to_string(first.candidate.style.recompute);
    Json json = json_head();
    json["best"] = std::move(best);
    json["candidates"] = Json::array();
    for (std::size_t i = 0; i < std::min(result.ranked.size(), most_in_json); ++i) {
        json["candidates"].push_back(found_plan_json(result.ranked[i]));
    }
    json["lower_bound_ms"] = to_milliseconds(result.lower_bound);
    json["proven_optimal"] = result.proven_optimal;
    json["any_partition_bound_ms"] = to_milliseconds(result.any_partition_bound);
    json["open"] = result.candidates;
    json["searched"] = result.searched;
    json["pruned"] = result.pruned;
    json["infeasible"] = Json::array();
    for (const sim::Infeasible& entry : result.infeasible) {
        Json one{{"why", entry.why}, {"count", entry.count}};
        one["example"] = candidate_json(entry.example);
        json["infeasible"].push_back(std::move(one));
    }
    return json;
}

Error nothing_fits(const Scenario& scenario, const sim::SearchResult& result) {
    std::string text = fmt::format("none of {} plans can be run", result.candidates);
    for (const sim::Infeasible& entry : result.infeasible) {
        text += fmt::format("\n  {}: {}", entry.count, entry.why);
    }
    if (!result.closest) {
        return {ErrorKind::Infeasible,
                scenario.file.string(),
                text,
                "leave more of [pipeline] open, or set cluster.count to more devices"};
    }
    const sim::ClosestPlan& closest = *result.closest;
    const sim::Shape& shape = closest.candidate.shape;
    text += fmt::format(
        "\nthe closest: {}, {}, {}, recompute {}: rank {} needs {}, {} more than the {} that it "
        "has",
        counted(shape.stages, "stage"),
        counted(shape.micro_batches, "micro-batch"),
        closest.candidate.style.schedule,
        to_string(closest.candidate.style.recompute),
        closest.rank,
        format_bytes(closest.peak),
        format_bytes(closest.peak - closest.limit),
        format_bytes(closest.limit));
    return {ErrorKind::Infeasible,
            scenario.file.string(),
            text,
            "more devices (cluster.count), devices with more memory, or a smaller model or "
            "micro-batch"};
}

}  // namespace pipetwin::cli
