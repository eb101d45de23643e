// SPDX-License-Identifier: Apache-2.0
#include "cli/text/sweep_text.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/text/text_output.h"
#include "core/base/number_text.h"
#include "core/svg/svg.h"

namespace pipetwin::cli {

namespace {

/// Shares of the model whose stashes the fullest rank holds at once, each a rank's.
double live_stashes(const SweepCell& cell) {
    int most = 0;
    for (const DeviceMetrics& device : cell.prediction->metrics.devices) {
        most = std::max(most, device.peak_live_activations);
    }
    return static_cast<double>(most) / cell.chunks;
}

Duration step_of(const SweepCell& cell) {
    return cell.prediction->metrics.step;
}

/// "interleaved-1f1b x2".
std::string name_of(const SweepCell& cell) {
    return cell.chunks > 1 ? fmt::format("{} x{}", cell.schedule, cell.chunks) : cell.schedule;
}

bool is_of_scenarios(const std::vector<SweepCell>& cells) {
    return !cells.front().scenario.empty();
}

/// Whether the plans with a prediction have the same value of something.
template <class Value>
bool have_equal(const std::vector<SweepCell>& cells, Value value) {
    const SweepCell* first = nullptr;
    for (const SweepCell& cell : cells) {
        if (!cell.prediction) {
            continue;
        }
        first = first == nullptr ? &cell : first;
        if (value(cell) != value(*first)) {
            return false;
        }
    }
    return true;
}

bool have_equal_batches(const std::vector<SweepCell>& cells) {
    return is_of_scenarios(cells)
               ? have_equal(cells,
                            [](const SweepCell& cell) { return cell.prediction->plan.samples(); })
               : have_equal(cells, [](const SweepCell& cell) { return cell.micro_batches; });
}

bool have_equal_ranks(const std::vector<SweepCell>& cells) {
    return have_equal(cells, [](const SweepCell& cell) { return cell.stages; });
}

/// All plans have backwards, or none has.
bool have_equal_passes(const std::vector<SweepCell>& cells) {
    return have_equal(cells, [](const SweepCell& cell) {
        return is_forward_only(cell.prediction->plan->schedule);
    });
}

/// Computing time of a micro-batch on all ranks together.
double work_of(const SweepCell& cell) {
    Duration busy{};
    for (const DeviceMetrics& device : cell.prediction->metrics.devices) {
        busy += device.busy;
    }
    return to_seconds(busy) / cell.micro_batches;
}

/// Whether the models of the plans take the same time. Parts of a time are rounded to nanoseconds.
bool have_equal_models(const std::vector<SweepCell>& cells) {
    double least = std::numeric_limits<double>::infinity();
    double most = 0;
    for (const SweepCell& cell : cells) {
        if (cell.prediction) {
            least = std::min(least, work_of(cell));
            most = std::max(most, work_of(cell));
        }
    }
    return most <= least * (1 + 1e-4);
}

/// Whether a step does the same work in each plan.
bool do_equal_work(const std::vector<SweepCell>& cells) {
    return have_equal_batches(cells) && have_equal_passes(cells) &&
           (is_of_scenarios(cells) || have_equal_models(cells));
}

/// The shortest step, if all do the same work.
std::optional<Duration> fastest(const std::vector<SweepCell>& cells) {
    std::optional<Duration> least;
    for (const SweepCell& cell : cells) {
        if (cell.prediction) {
            least = std::min(least.value_or(Duration::max()), step_of(cell));
        }
    }
    return do_equal_work(cells) ? least : std::nullopt;
}

/// Peak of the fullest rank.
Bytes peak_of(const SweepCell& cell) {
    Bytes most{};
    for (const DeviceMetrics& device : cell.prediction->metrics.devices) {
        most = std::max(most, device.peak.use.total());
    }
    return most;
}

/// Plans whose layers are known have samples and bytes; plain numbers have none.
bool knows_layers(const SweepCell& cell) {
    return cell.prediction && cell.prediction->plan->partition.has_value();
}

std::string samples_text(const SweepCell& cell) {
    const std::optional<double> rate = cell.prediction->metrics.samples_per_second;
    return rate ? fmt::format("{:.4g}", *rate) : "";
}

/// "llama-8b, pipeline.stages = 2: ", or nothing for plain numbers.
std::string lead_of(const SweepCell& cell) {
    std::string lead = cell.scenario;
    for (const Override& swept : cell.swept) {
        lead += fmt::format(", {} = {}", swept.key, swept.value);
    }
    return lead.empty() ? "" : lead + ": ";
}

/// What stands in front of a row: keys, or their values.
std::vector<std::string> swept_of(const SweepCell& cell, std::string Override::*part) {
    std::vector<std::string> texts;
    std::ranges::transform(cell.swept, std::back_inserter(texts), part);
    return texts;
}

/// `best` is the shortest step of plans that do the same work.
std::vector<std::string> row_of(const SweepCell& cell,
                                const std::optional<Duration>& best,
                                bool per_micro_batch) {
    const Duration step = step_of(cell);
    std::vector<std::string> row{name_of(cell),
                                 fmt::to_string(cell.stages),
                                 fmt::to_string(cell.micro_batches),
                                 format_duration(step)};
    if (best) {
        row.push_back(step == *best ? "fastest"
                                    : percent_text(to_seconds(step) / to_seconds(*best) - 1));
    }
    if (per_micro_batch) {
        row.push_back(format_duration(step / cell.micro_batches));
    }
    row.push_back(percent_text(cell.prediction->metrics.bubble.total));
    row.push_back(fmt::format("{:g}", live_stashes(cell)));
    if (!cell.scenario.empty()) {
        const std::vector<std::string> swept = swept_of(cell, &Override::value);
        row.insert(row.begin(), swept.begin(), swept.end());
        row.insert(row.begin(), cell.scenario);
        row.push_back(to_string(cell.prediction->plan->recompute));
        row.push_back(samples_text(cell));
        row.push_back(format_bytes(peak_of(cell)));
    }
    return row;
}

/// A column about steps that vary: its name in the table and in CSV, the plan's value in both, and
/// what it is.
struct VariedColumn {
    std::string_view name;
    std::string_view key;
    std::string (*text)(const Uncertainty& varied);
    double (*value)(const Uncertainty& varied);
    bool (*occurs)(const Uncertainty& varied);
    std::string (*meaning)(const Uncertainty& varied);
};

constexpr std::array varied_columns{
    VariedColumn{"straggler",
                 "straggler_step_ms",
                 [](const Uncertainty& all) { return format_duration(all.straggler->slow_step); },
                 [](const Uncertainty& all) { return to_milliseconds(all.straggler->slow_step); },
                 [](const Uncertainty& all) { return all.straggler.has_value(); },
                 [](const Uncertainty& all) {
                     return fmt::format("step if rank {} takes {} times as long",
                                        all.straggler->rank,
                                        all.straggler->factor);
                 }},
    VariedColumn{"jitter",
                 "jitter_step_ms",
                 [](const Uncertainty& all) { return format_duration(all.jitter->mean); },
                 [](const Uncertainty& all) { return to_milliseconds(all.jitter->mean); },
                 [](const Uncertainty& all) { return all.jitter.has_value(); },
                 [](const Uncertainty& all) {
                     return fmt::format("mean step of {}, seed {}",
                                        counted(all.jitter->samples, "sample"),
                                        all.jitter->seed);
                 }},
    VariedColumn{"goodput",
                 "goodput_share",
                 [](const Uncertainty& all) { return percent_text(all.failures->goodput.share); },
                 [](const Uncertainty& all) { return all.failures->goodput.share; },
                 [](const Uncertainty& all) { return all.failures.has_value(); },
                 [](const Uncertainty&) {
                     return std::string("share of the time that goes into steps which are kept");
                 }}};

/// The first entry that has the column; null where none was asked for.
const Uncertainty* first_with(const VariedColumn& column, const std::vector<Uncertainty>& varied) {
    const auto found = std::ranges::find_if(varied, column.occurs);
    return found == varied.end() ? nullptr : &*found;
}

std::string missing_text(const SweepCell& cell) {
    if (cell.stages == 0 || cell.micro_batches == 0) {
        return fmt::format("  no plan: {}{}: {}\n", lead_of(cell), name_of(cell), cell.why_not);
    }
    return fmt::format("  no plan: {}{}, {}, {}: {}\n",
                       lead_of(cell),
                       name_of(cell),
                       counted(cell.stages, "rank"),
                       counted(cell.micro_batches, "micro-batch"),
                       cell.why_not);
}

/// Why the table does not say which plan is the fastest; empty if it does.
std::string unequal_work_text(const std::vector<SweepCell>& cells) {
    if (do_equal_work(cells)) {
        return "";
    }
    if (!have_equal_passes(cells)) {
        return "  schedules without backwards do less work than those that train: their steps "
               "cannot be compared\n";
    }
    if (is_of_scenarios(cells)) {
        return "  the plans have different numbers of samples per step: compare samples/s, not "
               "steps\n";
    }
    std::string text;
    if (!have_equal_models(cells) && !have_equal_ranks(cells)) {
        text +=
            "  more ranks are a larger model, because each has the same times: compare bubbles\n";
    } else if (!have_equal_models(cells)) {
        text +=
            "  more stages on a rank are a larger model, because --forward-ms and the other times "
            "are of one stage: --rank-forward-ms and --rank-backward-ms give all plans the same "
            "work\n";
    }
    if (!have_equal_batches(cells)) {
        text +=
            "  more micro-batches are a larger batch: compare the times per "
            "micro-batch, or the bubbles\n";
    }
    return text;
}

/// What the plans' own notes say, each once.
std::string notes_text(const std::vector<SweepCell>& cells) {
    std::vector<std::string> notes;
    for (const SweepCell& cell : cells) {
        for (const std::string& note :
             cell.prediction ? cell.prediction->plan->notes : std::vector<std::string>{}) {
            if (std::ranges::find(notes, note) == notes.end()) {
                notes.push_back(note);
            }
        }
    }
    std::string text;
    for (const std::string& note : notes) {
        text += fmt::format("  note: {}\n", note);
    }
    return text;
}

/// ", one of 8 replicas, 4 devices per rank"; empty for one replica of ranks with one device.
std::string devices_of_rank(const PlanParts& plan) {
    return (plan.replicas > 1 ? fmt::format(", one of {} replicas", plan.replicas) : "") +
           (plan.tensor_parallel > 1 ? fmt::format(", {} devices per rank", plan.tensor_parallel)
                                     : "");
}

}  // namespace

std::string sweep_text(const std::vector<SweepCell>& cells,
                       const std::vector<Uncertainty>& varied) {
    const std::optional<Duration> best = fastest(cells);
    const bool per_micro_batch = !is_of_scenarios(cells) && !have_equal_batches(cells);
    std::vector<std::string> head{"schedule", "ranks", "micro-batches", "step"};
    if (best) {
        head.emplace_back("slower");
    }
    if (per_micro_batch) {
        head.emplace_back("per micro-batch");
    }
    head.insert(head.end(), {"bubble", "stashed"});
    if (is_of_scenarios(cells)) {
        const std::vector<std::string> swept = swept_of(cells.front(), &Override::key);
        head.insert(head.begin(), swept.begin(), swept.end());
        head.insert(head.begin(), "scenario");
        head.insert(head.end(), {"recompute", "samples/s", "memory"});
    }
    std::string meanings;
    for (const VariedColumn& column : varied_columns) {
        if (const Uncertainty* const first = first_with(column, varied)) {
            head.emplace_back(column.name);
            meanings += fmt::format("  {}: {}\n", column.name, column.meaning(*first));
        }
    }
    std::vector<std::vector<std::string>> rows{std::move(head)};
    std::string missing;
    for (std::size_t i = 0; i < cells.size(); ++i) {
        if (!cells[i].prediction) {
            missing += missing_text(cells[i]);
            continue;
        }
        rows.push_back(row_of(cells[i], best, per_micro_batch));
        for (const VariedColumn& column : varied_columns) {
            if (column.occurs(varied[i])) {
                rows.back().push_back(column.text(varied[i]));
            }
        }
    }
    const bool has_chunks =
        std::ranges::any_of(cells, [](const SweepCell& cell) { return cell.chunks > 1; });
    return text_table(rows) +
           "  bubble: idle share of all device time; stashed: the largest number of stashes that "
           "a rank holds at once\n" +
           (has_chunks ? "  xV: V stages (chunks) on each rank; the stash of one of them counts as "
                         "1/V of a stash\n"
                       : "") +
           meanings + (is_of_scenarios(cells) ? "  memory: peak of the fullest rank\n" : "") +
           unequal_work_text(cells) + notes_text(cells) + missing;
}

std::string sweep_csv(const std::vector<SweepCell>& cells, const std::vector<Uncertainty>& varied) {
    const bool of_scenarios = is_of_scenarios(cells);
    std::string text = of_scenarios ? "scenario," : "";
    for (const std::string& key : swept_of(cells.front(), &Override::key)) {
        text += csv_field(key) + ',';
    }
    text += "schedule,stages,chunks,micro_batches,step_ms,bubble_total,live_stashes";
    text += of_scenarios ? ",recompute,samples_per_second,peak_bytes" : "";
    for (const VariedColumn& column : varied_columns) {
        text += first_with(column, varied) ? fmt::format(",{}", column.key) : "";
    }
    text += '\n';
    for (std::size_t i = 0; i < cells.size(); ++i) {
        const SweepCell& cell = cells[i];
        text += of_scenarios ? csv_field(cell.scenario) + ',' : "";
        for (const std::string& value : swept_of(cell, &Override::value)) {
            text += csv_field(value) + ',';
        }
        text += fmt::format(
            "{},{},{},{},", csv_field(cell.schedule), cell.stages, cell.chunks, cell.micro_batches);
        text += cell.prediction ? fmt::format("{},{},{}",
                                              to_milliseconds(step_of(cell)),
                                              cell.prediction->metrics.bubble.total,
                                              live_stashes(cell))
                                : ",,";
        if (of_scenarios && cell.prediction) {
            const std::optional<double> rate = cell.prediction->metrics.samples_per_second;
            text += fmt::format(",{},{},{}",
                                csv_field(to_string(cell.prediction->plan->recompute)),
                                rate ? fmt::to_string(*rate) : "",
                                peak_of(cell).count);
        } else if (of_scenarios) {
            text += ",,,";
        }
        for (const VariedColumn& column : varied_columns) {
            if (first_with(column, varied)) {
                text +=
                    column.occurs(varied[i]) ? fmt::format(",{}", column.value(varied[i])) : ",";
            }
        }
        text += '\n';
    }
    return text;
}

Json sweep_json(const std::vector<SweepCell>& cells, const std::vector<Uncertainty>& varied) {
    Json plans = Json::array();
    for (std::size_t i = 0; i < cells.size(); ++i) {
        const SweepCell& cell = cells[i];
        const bool known = cell.prediction.has_value();
        const bool layers = knows_layers(cell);
        Json rate;
        if (known && cell.prediction->metrics.samples_per_second) {
            rate = *cell.prediction->metrics.samples_per_second;
        }
        plans.push_back(
            {{"scenario", cell.scenario.empty() ? Json(nullptr) : Json(cell.scenario)},
             {"schedule", cell.schedule},
             {"stages", cell.stages},
             {"chunks", cell.chunks},
             {"micro_batches", cell.micro_batches},
             {"recompute", layers ? Json(to_string(cell.prediction->plan->recompute)) : Json()},
             {"step_ms", known ? Json(to_milliseconds(step_of(cell))) : Json(nullptr)},
             {"bubble_total", known ? Json(cell.prediction->metrics.bubble.total) : Json(nullptr)},
             {"live_stashes", known ? Json(live_stashes(cell)) : Json(nullptr)},
             {"samples_per_second", std::move(rate)},
             {"peak_bytes", layers ? Json(peak_of(cell).count) : Json(nullptr)},
             {"why_not", known ? Json(nullptr) : Json(cell.why_not)}});
        for (const Override& swept : cell.swept) {
            plans.back()["settings"][swept.key] = swept.value;
        }
        add_uncertainty(varied[i], plans.back());
    }
    Json json = json_head();
    json["plans"] = std::move(plans);
    return json;
}

std::string sweep_svg(const std::vector<SweepCell>& cells,
                      const std::string& costs,
                      const FigureLook& look) {
    std::vector<NamedTimeline> timelines;
    for (const SweepCell& cell : cells) {
        if (cell.prediction) {
            timelines.push_back(
                {.name = fmt::format("{}{}, {}, {}{}: {}, bubble {}",
                                     lead_of(cell),
                                     name_of(cell),
                                     counted(cell.stages, "rank"),
                                     counted(cell.micro_batches, "micro-batch"),
                                     devices_of_rank(cell.prediction->plan.parts()),
                                     format_duration(step_of(cell)),
                                     percent_text(cell.prediction->metrics.bubble.total)),
                 .timeline = &cell.prediction->timeline});
        }
    }
    return render_svg_list(
        timelines,
        {.row_height = 18,
         .title = costs.empty() ? "Plans side by side" : "Plans side by side; " + costs,
         .figure = look});
}

}  // namespace pipetwin::cli
