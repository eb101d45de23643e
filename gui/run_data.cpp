#include "gui/run_data.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/formats/chrome_trace.h"

namespace pipetwin::gui {

namespace {

namespace fs = std::filesystem;

constexpr const char* predicted_file = "predicted.trace.json";
constexpr const char* measured_file = "measured.trace.json";

/// Anything a reader throws is something to show: a broken file must not take the window with it.
std::optional<Trace> read_or_note(const fs::path& file, std::vector<std::string>& problems) {
    try {
        Trace trace = read_chrome_trace(file);
        if (trace.timelines.steps.empty()) {
            problems.push_back(fmt::format("{}: holds no step", file.string()));
            return std::nullopt;
        }
        return trace;
    } catch (const std::exception& error) {
        problems.emplace_back(error.what());
    }
    return std::nullopt;
}

void take_side(RunData& run, const Trace& trace, Side side) {
    Timeline step = aligned(median_step(trace.timelines));
    const SideData data = summarize(step, static_cast<int>(trace.timelines.steps.size()));
    run.schedule_name = trace.schedule_name;
    run.micro_batches = trace.schedule.micro_batches;
    if (side == Side::Predicted) {
        run.twin.predicted = std::move(step);
        run.predicted = data;
    } else {
        run.twin.measured = std::move(step);
        run.measured = data;
    }
}

void compare_or_note(RunData& run, const Trace& predicted, const Trace& measured) {
    try {
        run.comparison = compare(predicted.timelines, measured.timelines);
    } catch (const std::exception& error) {
        run.problems.push_back(fmt::format("cannot compare the two sides: {}", error.what()));
    }
}

void load_folder(RunData& run) {
    const fs::path predicted_path = run.path / predicted_file;
    const fs::path measured_path = run.path / measured_file;
    std::error_code ignored;
    const bool has_predicted = fs::exists(predicted_path, ignored);
    const bool has_measured = fs::exists(measured_path, ignored);
    if (!has_predicted && !has_measured) {
        run.problems.push_back(
            fmt::format("{}: neither {} nor {} is there, expected a folder written by "
                        "`pipetwin run` or `pipetwin train`",
                        run.path.string(),
                        predicted_file,
                        measured_file));
        return;
    }
    const auto read = [&](bool there, const fs::path& file) {
        return there ? read_or_note(file, run.problems) : std::nullopt;
    };
    const std::optional<Trace> predicted = read(has_predicted, predicted_path);
    const std::optional<Trace> measured = read(has_measured, measured_path);
    if (predicted) {
        take_side(run, *predicted, Side::Predicted);
    }
    if (measured) {
        take_side(run, *measured, Side::Measured);
    }
    if (predicted && measured) {
        compare_or_note(run, *predicted, *measured);
    }
}

}  // namespace

const std::optional<SideData>& RunData::side(Side wanted) const {
    return wanted == Side::Predicted ? predicted : measured;
}

RunData load_run(const fs::path& path) {
    RunData run;
    run.path = path;
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
        load_folder(run);
    } else if (const std::optional<Trace> trace = read_or_note(path, run.problems)) {
        const bool predicted = trace->timelines.steps.front().origin == Origin::Predicted;
        take_side(run, *trace, predicted ? Side::Predicted : Side::Measured);
    }
    return run;
}

std::string side_name(const RunData& run, Side side) {
    const std::optional<SideData>& data = run.side(side);
    return data ? std::string(to_string(data->origin)) : "";
}

SideData summarize(const Timeline& step, int steps) {
    SideData data{.origin = step.origin,
                  .steps = steps,
                  .step = step_time(step),
                  .pipeline = pipeline_time(step),
                  .ranks = {}};
    for (const std::vector<Span>& row : step.ranks) {
        RankSummary summary;
        for (const Span& span : row) {
            summary.busy += is_compute(span.action.op) ? span.end - span.ready : Duration{0};
        }
        if (data.pipeline > Duration{0}) {
            summary.utilisation = to_seconds(summary.busy) / to_seconds(data.pipeline);
        }
        data.ranks.push_back(summary);
    }
    return data;
}

}  // namespace pipetwin::gui
