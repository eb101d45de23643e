#include "cli/text/sweep_text.h"

#include <algorithm>

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

Duration fastest(const std::vector<SweepCell>& cells) {
    Duration least = Duration::max();
    for (const SweepCell& cell : cells) {
        least = cell.prediction ? std::min(least, step_of(cell)) : least;
    }
    return least;
}

}  // namespace

std::string sweep_text(const std::vector<SweepCell>& cells) {
    std::vector<std::vector<std::string>> rows{
        {"schedule", "stages", "micro-batches", "step", "slower", "bubble", "stashes"}};
    const Duration best = fastest(cells);
    std::string missing;
    for (const SweepCell& cell : cells) {
        if (!cell.prediction) {
            missing += fmt::format("  no plan: {}, {}, {}: {}\n",
                                   name_of(cell),
                                   counted(cell.stages, "stage"),
                                   counted(cell.micro_batches, "micro-batch"),
                                   cell.why_not);
            continue;
        }
        const Duration step = step_of(cell);
        rows.push_back(
            {name_of(cell),
             fmt::to_string(cell.stages),
             fmt::to_string(cell.micro_batches),
             format_duration(step),
             step == best ? "fastest" : percent_text(to_seconds(step) / to_seconds(best) - 1),
             percent_text(cell.prediction->metrics.bubble.total),
             fmt::format("{:g}", live_stashes(cell))});
    }
    return text_table(rows) +
           "  bubble: idle share of all device time; stashes: forwards whose results the fullest "
           "rank holds at once\n" +
           missing;
}

std::string sweep_csv(const std::vector<SweepCell>& cells) {
    std::string text = "schedule,stages,chunks,micro_batches,step_ms,bubble_total,live_stashes\n";
    for (const SweepCell& cell : cells) {
        text += fmt::format(
            "{},{},{},{},", cell.schedule, cell.stages, cell.chunks, cell.micro_batches);
        text += cell.prediction ? fmt::format("{},{},{}\n",
                                              to_milliseconds(step_of(cell)),
                                              cell.prediction->metrics.bubble.total,
                                              live_stashes(cell))
                                : ",,\n";
    }
    return text;
}

Json sweep_json(const std::vector<SweepCell>& cells) {
    Json plans = Json::array();
    for (const SweepCell& cell : cells) {
        const bool known = cell.prediction.has_value();
        plans.push_back(
            {{"schedule", cell.schedule},
             {"stages", cell.stages},
             {"chunks", cell.chunks},
             {"micro_batches", cell.micro_batches},
             {"step_ms", known ? Json(to_milliseconds(step_of(cell))) : Json(nullptr)},
             {"bubble_total", known ? Json(cell.prediction->metrics.bubble.total) : Json(nullptr)},
             {"live_stashes", known ? Json(live_stashes(cell)) : Json(nullptr)},
             {"why_not", known ? Json(nullptr) : Json(cell.why_not)}});
    }
    Json json = json_head();
    json["plans"] = std::move(plans);
    return json;
}

std::string sweep_svg(const std::vector<SweepCell>& cells) {
    std::vector<NamedTimeline> timelines;
    for (const SweepCell& cell : cells) {
        if (cell.prediction) {
            timelines.push_back(
                {.name = fmt::format("{}, {}, {}: {}, bubble {}",
                                     name_of(cell),
                                     counted(cell.stages, "stage"),
                                     counted(cell.micro_batches, "micro-batch"),
                                     format_duration(step_of(cell)),
                                     percent_text(cell.prediction->metrics.bubble.total)),
                 .timeline = &cell.prediction->timeline});
        }
    }
    return render_svg_list(timelines, {.row_height = 18, .title = "Plans side by side"});
}

}  // namespace pipetwin::cli
