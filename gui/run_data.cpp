#include "gui/run_data.h"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/formats/chrome_trace.h"
#include "core/formats/profile_json.h"
#include "sim/simulate.h"

namespace pipetwin::gui {

namespace {

namespace fs = std::filesystem;

constexpr const char* predicted_file = "predicted.trace.json";
constexpr const char* measured_file = "measured.trace.json";
constexpr const char* scenario_file = "scenario.toml";
constexpr const char* profile_file = "profile.json";

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
    DrawnSide drawn = drawn_side(trace.timelines, trace.memory);
    run.schedule_name = trace.schedule_name;
    run.micro_batches = trace.schedule.micro_batches;
    if (side == Side::Predicted) {
        run.twin.predicted = std::move(drawn.steps);
        run.predicted = std::move(drawn.data);
    } else {
        run.twin.measured = std::move(drawn.steps);
        run.measured = std::move(drawn.data);
    }
}

/// What the folder was planned from. A run without a scenario is fine: it has no what-ifs.
void take_plan(RunData& run, const std::string& plan_hash) {
    const fs::path scenario_path = run.path / scenario_file;
    const fs::path profile_path = run.path / profile_file;
    std::error_code ignored;
    if (!fs::exists(scenario_path, ignored) || !fs::exists(profile_path, ignored)) {
        return;
    }
    try {
        Scenario scenario = read_scenario(scenario_path);
        Profile profile = read_profile(profile_path);
        Model model = scenario_model(scenario, &profile);
        Plan plan = sim::with_settled_capacity(make_plan(scenario, model, profile));
        if (plan.hash() != plan_hash) {
            run.problems.push_back(
                fmt::format("{}: its plan is not the one of the traces, so what-ifs begin with "
                            "another plan than the one that is drawn",
                            scenario_path.string()));
        }
        run.planned = std::make_shared<const PlannedRun>(
            std::move(scenario), std::move(model), std::move(profile), std::move(plan));
    } catch (const std::exception& error) {
        run.problems.push_back(fmt::format("no what-ifs: {}", error.what()));
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
    if (predicted || measured) {
        take_plan(run, (predicted ? predicted : measured)->plan_hash);
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

namespace {

std::vector<RankSummary> summaries_of(const StepRows& step) {
    std::vector<RankSummary> summaries;
    for (const RowIndex& row : step.ranks) {
        RankSummary& summary = summaries.emplace_back();
        summary.busy = compute_of(row.between(Duration{0}, row.last_end()));
        if (step.pipeline > Duration{0}) {
            summary.utilisation = to_seconds(summary.busy) / to_seconds(step.pipeline);
        }
    }
    return summaries;
}

}  // namespace

DrawnSide drawn_side(const TimelineSet& timelines, const std::vector<MemoryCurve>& memory) {
    DrawnSide side;
    const Timeline* const median = &median_step(timelines);
    for (const Timeline& step : timelines.steps) {
        if (&step == median) {
            side.data.median_step = static_cast<int>(side.steps.size());
        }
        side.steps.emplace_back(step);
    }
    const StepRows& step = side.steps[static_cast<std::size_t>(side.data.median_step)];
    side.data.origin = step.origin;
    side.data.steps = static_cast<int>(side.steps.size());
    side.data.step = step.length;
    side.data.pipeline = step.pipeline;
    side.data.ranks = summaries_of(step);
    for (std::size_t rank = 0; rank < memory.size() && rank < step.ranks.size(); ++rank) {
        side.data.memory.emplace_back(memory[rank], step.ranks[rank].size());
    }
    return side;
}

}  // namespace pipetwin::gui
