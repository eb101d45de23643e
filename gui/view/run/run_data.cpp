// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/run_data.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <numeric>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/artifacts/chrome_trace.h"
#include "core/artifacts/file_kinds.h"
#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/profile_json.h"
#include "core/interop/traces/torch_timeline.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/schedule_csv.h"
#include "core/schedule/validate.h"
#include "core/text/input_file.h"
#include "gui/view/run/planned_run.h"
#include "gui/view/run/scenario_run.h"
#include "sim/explain/breakdown.h"
#include "sim/search/partition_choice.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::gui {

namespace {

namespace fs = std::filesystem;

constexpr const char* predicted_file = "predicted.trace.json";
constexpr const char* measured_file = "measured.trace.json";
constexpr const char* scenario_file = "scenario.toml";
constexpr const char* profile_file = "profile.json";
constexpr const char* report_file = "report.json";
constexpr std::size_t most_violations = 10;

/// Content of the files, before it is drawn.
struct Sides {
    std::optional<Trace> predicted;
    std::optional<Trace> measured;
    std::optional<Plan> plan;              ///< of `predicted`, where that is a schedule file
    std::vector<TorchTrace> ranks;         ///< of PyTorch's profiler, which writes a file per rank
    std::optional<ScenarioRun> simulated;  ///< a scenario, or a profile
    fs::path scenario;                     ///< the file of `simulated`, where it is a scenario
};

void put(Sides& sides, Trace trace) {
    const bool predicted = trace.timelines.steps.front().origin == Origin::Predicted;
    (predicted ? sides.predicted : sides.measured) = std::move(trace);
}

/// The plan of a schedule file at unit costs: a forward takes 1 ms, a backward 2 ms. None where the
/// schedule breaks a rule.
std::optional<Plan> plan_of_file(const fs::path& file, std::vector<std::string>& problems) {
    const Schedule schedule = read_schedule_csv(file);
    const std::vector<Violation> violations = validate(schedule);
    const std::size_t shown = std::min(violations.size(), most_violations);
    for (std::size_t i = 0; i < shown; ++i) {
        problems.push_back(fmt::format("{}: {}", file.string(), line_of(violations[i])));
    }
    if (violations.size() > shown) {
        problems.push_back(
            fmt::format("{}: and {} more", file.string(), violations.size() - shown));
    }
    if (!violations.empty()) {
        return std::nullopt;
    }
    const std::size_t pieces = as_index(model_stage_count(schedule));
    PlainCosts costs;
    costs.schedule_from_file = schedule;
    costs.schedule_name = file.stem().string();
    costs.forward.assign(pieces, std::chrono::milliseconds(1));
    costs.backward.assign(pieces, std::chrono::milliseconds(2));
    return make_plan(costs);
}

void put_simulated(Sides& sides, Plan plan) {
    Trace trace;
    trace.plan_hash = plan.hash();
    trace.schedule_name = plan->schedule_name;
    trace.schedule = plan->schedule;
    trace.timelines.steps.push_back(sim::simulate(plan));
    put(sides, std::move(trace));
    sides.plan = std::move(plan);
}

/// Whether a file begins as a trace of ours does, whose metadata stand first.
bool begins_as_ours(const fs::path& file) {
    return InputFile(file).read_up_to(1U << 12U).find("\"pipetwin\"") != std::string::npos;
}

void read_ours(const fs::path& file, Sides& sides, std::vector<std::string>& problems) {
    TraceSoFar read = read_chrome_trace_so_far(file);
    if (!read.problem.empty()) {
        problems.push_back(std::move(read.problem));
        read.trace.timelines.replayed_step.reset();  // what the head says, it says of all steps
        read.trace.timelines.breakdown.reset();
    }
    if (!read.trace.timelines.steps.empty()) {
        put(sides, std::move(read.trace));
    }
}

void read_trace(const fs::path& file, Sides& sides, std::vector<std::string>& problems) {
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored) || begins_as_ours(file)) {
        read_ours(file, sides, problems);
        return;
    }
    std::vector<TorchTrace> ranks;
    try {
        ranks = read_torch_traces(file);
    } catch (const Error&) {
        read_ours(file, sides, problems);  // or why it is none of ours
        return;
    }
    std::ranges::move(ranks, std::back_inserter(sides.ranks));
}

/// The simulated step of a scenario or a profile becomes the predicted side.
void read_simulated(const fs::path& file, FileKind kind, Sides& sides) {
    sides.simulated = kind == FileKind::Scenario ? simulate_scenario(file) : simulate_profile(file);
    sides.scenario = kind == FileKind::Scenario ? file : fs::path();
    sides.predicted = std::move(sides.simulated->trace);
    sides.plan = sides.simulated->plan;
}

/// Throws Error(BadInput) for a file of a kind that has no step to show.
void refuse_other_kinds(const fs::path& file, FileKind kind) {
    switch (kind) {
        case FileKind::HfConfig:
        case FileKind::WeightIndex:
        case FileKind::Device:
        case FileKind::Graph:
        case FileKind::Cluster:
        case FileKind::Torchtitan:
        case FileKind::DeepSpeed:
        case FileKind::Megatron:
        case FileKind::Nsys:
        case FileKind::Otlp:
            throw Error(ErrorKind::BadInput,
                        file.string(),
                        fmt::format("this is {}, expected a scenario, a schedule, a trace, a "
                                    "profile or a run folder",
                                    pipetwin::words(kind)),
                        "'pipetwin import' converts files of other programs");
        case FileKind::Picture:
        case FileKind::PlanTable:
        case FileKind::Result:
            throw Error(ErrorKind::BadInput,
                        file.string(),
                        fmt::format("this is {}, expected a scenario, a schedule, a trace, a "
                                    "profile or a run folder",
                                    pipetwin::words(kind)),
                        "open the scenario, schedule or run folder that it is about");
        default:
            return;
    }
}

/// Anything a reader throws is something to show: a broken file must not take the window with it.
void read_or_note(const fs::path& file, Sides& sides, std::vector<std::string>& problems) {
    try {
        const FileKind known = kind_of_file(file);
        refuse_other_kinds(file, known);
        // The reader of scenarios says what is wrong with a file that is called one.
        const bool is_called_scenario = known == FileKind::Unknown && file.extension() == ".toml";
        const FileKind kind = is_called_scenario ? FileKind::Scenario : known;
        if (kind == FileKind::Scenario || kind == FileKind::Profile ||
            kind == FileKind::CostTable) {
            read_simulated(file, kind, sides);
        } else if (kind != FileKind::Schedule && !is_schedule_file(file.string())) {
            read_trace(file, sides, problems);
        } else if (std::optional<Plan> plan = plan_of_file(file, problems)) {
            put_simulated(sides, std::move(*plan));
        }
    } catch (const std::exception& error) {
        problems.emplace_back(error.what());
    }
}

/// Place at which a step's times are impossible, as a rank does one thing at a time. Empty if they
/// are possible.
std::string impossible_place(const Trace& trace) {
    for (std::size_t step = 0; step < trace.timelines.steps.size(); ++step) {
        const auto& ranks = trace.timelines.steps[step].ranks;
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            for (std::size_t cell = 0; cell < ranks[rank].size(); ++cell) {
                const Span& span = ranks[rank][cell];
                const bool follows = cell == 0 || span.begin >= ranks[rank][cell - 1].end;
                if (!follows || span.ready < span.begin || span.end < span.ready) {
                    return fmt::format("step {}, rank {}, {}: {}",
                                       step,
                                       rank,
                                       to_string(span.action),
                                       follows
                                           ? "its wait does not end between its start and its end"
                                           : "it begins before the previous action ends");
                }
            }
        }
    }
    return "";
}

/// Whether the side can be drawn; if not, a problem says why.
bool take_side(RunData& run, const Trace& trace, Side side) {
    const std::string impossible = impossible_place(trace);
    if (!impossible.empty()) {
        run.problems.push_back(fmt::format("the {} side cannot be drawn: {}",
                                           to_string(trace.timelines.steps.front().origin),
                                           impossible));
        return false;
    }
    DrawnSide drawn = drawn_side(trace.timelines, trace.memory);
    drawn.data.form = form_of(trace.schedule);
    drawn.data.channel_capacity = trace.channel_capacity;
    run.schedule_name = trace.schedule_name;
    run.micro_batches = trace.schedule.micro_batches;
    if (side == Side::Predicted) {
        run.twin.predicted = std::move(drawn.steps);
        run.predicted = std::move(drawn.data);
    } else {
        run.twin.measured = std::move(drawn.steps);
        run.measured = std::move(drawn.data);
    }
    return true;
}

/// Reads the scenario and profile that the folder was planned from. A run without a scenario is
/// fine: it has no what-ifs.
void take_plan(RunData& run, const fs::path& folder, const std::string& plan_hash) {
    const fs::path scenario_path = folder / scenario_file;
    const fs::path profile_path = folder / profile_file;
    std::error_code ignored;
    if (!fs::exists(scenario_path, ignored) || !fs::exists(profile_path, ignored)) {
        return;
    }
    try {
        const Scenario written = read_scenario(scenario_path);
        Profile profile = read_profile(profile_path);
        Model model = scenario_model(written, &profile);
        SettledScenario scenario = settle(written);
        Plan plan = sim::make_settled_plan(scenario, model, profile);
        if (plan.hash() != plan_hash) {
            run.problems.push_back(
                fmt::format("{}: its plan differs from that of the traces; what-ifs start from the "
                            "plan of the scenario",
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
        const std::string nothing = says_nothing(run);
        if (!nothing.empty()) {
            run.notes.push_back(nothing);
        }
    } catch (const std::exception& error) {
        run.problems.push_back(
            fmt::format("The prediction and the measurement cannot be compared: {}", error.what()));
    }
}

/// The first of the actions that only one side has, and how many they are.
void note_alone(RunData& run) {
    constexpr std::size_t named = 3;
    std::vector<std::string> names;
    std::size_t count = 0;
    for (int step = 0; step < run.twin.step_count(); ++step) {
        for (const SpanRef& ref : alone(run.twin, step)) {
            if (++count <= named) {
                names.push_back(fmt::format("{} of rank {} in step {} ({} only)",
                                            to_string(run.twin.span(ref)->action),
                                            ref.rank,
                                            run.step_number(ref.step),
                                            side_name(run, ref.side)));
            }
        }
    }
    if (count > 0) {
        run.problems.push_back(fmt::format("{} on one side only, drawn hatched: {}{}",
                                           counted(count, "compute action"),
                                           fmt::join(names, ", "),
                                           count > named ? ", ..." : ""));
    }
}

/// Files of PyTorch's profiler, as they are named in examples: rank0.json, rank1.json.gz.
std::vector<fs::path> json_files(const fs::path& folder) {
    std::vector<fs::path> files;
    std::error_code stop;
    for (fs::directory_iterator at(folder, stop), end; !stop && at != end; at.increment(stop)) {
        const std::string name = at->path().filename().string();
        if (name.ends_with(".json") || name.ends_with(".json.gz")) {
            files.push_back(at->path());
        }
    }
    std::ranges::sort(files);
    return files;
}

void read_folder(const fs::path& folder, Sides& sides, std::vector<std::string>& problems) {
    std::error_code denied;
    fs::directory_iterator(folder, denied);
    if (denied) {
        problems.push_back(fmt::format("{}: cannot read: {}", folder.string(), denied.message()));
        return;
    }
    bool is_run = false;
    for (const char* const name : {predicted_file, measured_file}) {
        std::error_code ignored;
        if (fs::exists(folder / name, ignored)) {
            is_run = true;
            read_or_note(folder / name, sides, problems);
        }
    }
    if (is_run) {
        return;
    }
    for (const fs::path& file : json_files(folder)) {
        std::vector<std::string> not_shown;  // what is no trace belongs to something else
        Sides there;
        read_or_note(file, there, not_shown);
        std::ranges::move(there.ranks, std::back_inserter(sides.ranks));
    }
    if (sides.ranks.empty()) {
        problems.push_back(
            fmt::format("{}: neither {} nor {} is there, expected a folder written by "
                        "`pipetwin run` or `pipetwin train`",
                        folder.string(),
                        predicted_file,
                        measured_file));
    }
}

/// Whether two files each have a predicted or each a measured side, so that one would hide the
/// other. Files of PyTorch's profiler have one together if they are of different ranks.
bool hide_each_other(const Sides& a, const Sides& b) {
    const bool same_rank = std::ranges::any_of(a.ranks, [&b](const TorchTrace& trace) {
        return trace.rank &&
               std::ranges::find(b.ranks, trace.rank, &TorchTrace::rank) != b.ranks.end();
    });
    const auto is_measured = [](const Sides& sides) {
        return sides.measured || !sides.ranks.empty();
    };
    const bool two_measured = (a.measured && is_measured(b)) || (is_measured(a) && b.measured);
    return (a.predicted && b.predicted) || two_measured || same_rank;
}

void lay_over(Sides& sides, Sides there) {
    if (there.predicted) {
        sides.predicted = std::move(there.predicted);
        sides.plan = std::move(there.plan);
        sides.simulated = std::move(there.simulated);
        sides.scenario = std::move(there.scenario);
    }
    if (there.measured) {
        sides.measured = std::move(there.measured);
    }
    std::ranges::move(there.ranks, std::back_inserter(sides.ranks));
}

/// The files of PyTorch's profiler become the measured side, in the rows of the prediction where
/// they have the same actions.
void merge_ranks(Sides& sides, std::vector<std::string>& problems) {
    if (sides.ranks.empty()) {
        return;
    }
    try {
        TorchTimeline merged = torch_timeline(
            std::move(sides.ranks), sides.predicted ? &sides.predicted->schedule : nullptr);
        std::ranges::move(merged.problems, std::back_inserter(problems));
        std::ranges::move(merged.differences, std::back_inserter(problems));
        sides.measured = std::move(merged.trace);
    } catch (const std::exception& error) {
        problems.emplace_back(error.what());
    }
}

/// What a simulated scenario knows beside its step.
void take_simulated(RunData& run, Sides& sides) {
    if (sides.simulated) {
        run.scenario = sides.scenario;
        run.planned = sides.simulated->planned;
        run.notes = std::move(sides.simulated->notes);
    }
}

/// What the groups of devices send. Costs that were measured long ago may lack what this needs.
void take_groups(RunData& run) {
    if (!run.planned) {
        return;
    }
    const PlannedRun& of = *run.planned;
    try {
        run.groups = group_table(of.plan, of.scenario, of.model, of.profile);
    } catch (const std::exception& error) {
        run.problems.push_back(fmt::format("groups of devices: {}", error.what()));
    }
}

void take_translations(RunData& run, const fs::path& folder) {
    try {
        run.translations = read_translations(folder / report_file);
    } catch (const std::exception& error) {
        run.problems.emplace_back(error.what());
    }
}

/// From here on the trace is that of one replica.
void choose_replica(RunData& run, Trace& trace, int replica) {
    std::vector<Timeline>& steps = trace.timelines.steps;
    run.replicas = 1 + static_cast<int>(steps.front().replicas.size());
    if (replica < 0 || replica >= run.replicas) {
        run.problems.push_back(
            fmt::format("--replica: there is no replica {}, expected {}",
                        replica,
                        run.replicas == 1 ? "0" : fmt::format("0 to {}", run.replicas - 1)));
        replica = 0;
    }
    run.replica = replica;
    for (Timeline& step : steps) {
        if (replica > 0) {
            step.ranks = std::move(step.replicas.at(as_index(replica) - 1));
        }
        step.replicas.clear();
    }
    if (replica == 0) {
        return;
    }
    // What else the trace says is said of replica 0.
    trace.memory.clear();
    trace.timelines.peak_bytes.clear();
    trace.timelines.replayed_step.reset();
    trace.timelines.breakdown.reset();
}

/// Finds what the actions of a side include, where the plan of its trace is known.
void take_dispatch(RunData& run, const Trace& trace, SideData& side) {
    if (const Plan* const plan = run.plan(); plan != nullptr && plan->hash() == trace.plan_hash) {
        side.dispatch = sim::dispatch_in_actions(*plan, median_step(trace.timelines));
    }
}

/// Computes the breakdown of the step that is drawn, where the trace has none.
void break_down(RunData& run, Trace& trace) {
    if (trace.timelines.breakdown || !run.planned || run.planned->plan.hash() != trace.plan_hash) {
        return;
    }
    try {
        trace.timelines.breakdown = sim::breakdown(run.planned->plan, median_step(trace.timelines));
    } catch (const std::exception& error) {
        run.problems.push_back(fmt::format("no breakdown of the step: {}", error.what()));
    }
}

}  // namespace

const Plan* RunData::plan() const {
    return planned ? &planned->plan : own_plan.get();
}

int RunData::step_number(int step) const {
    const bool is_known = measured && std::cmp_less(step, measured->step_numbers.size());
    return is_known ? measured->step_numbers[as_index(step)] : step;
}

const std::optional<SideData>& RunData::side(Side wanted) const {
    return wanted == Side::Predicted ? predicted : measured;
}

RunData load_run(const fs::path& path, int replica) {
    return load_runs({path}, replica);
}

RunData load_runs(const std::vector<fs::path>& paths, int replica) {
    RunData run;
    if (!paths.empty()) {
        run.path = paths.front();
        run.over.assign(paths.begin() + 1, paths.end());
    }
    Sides sides;
    fs::path planned_in;
    for (const fs::path& named : paths) {
        // A plan has no rows: these stand beside it.
        const fs::path path = kind_of_file(named) == FileKind::Plan ? named.parent_path() : named;
        Sides there;
        std::error_code ignored;
        if (fs::is_directory(path, ignored)) {
            read_folder(path, there, run.problems);
            planned_in = planned_in.empty() ? path : planned_in;
        } else {
            read_or_note(path, there, run.problems);
        }
        if (hide_each_other(sides, there)) {
            run.problems.clear();
            run.hide_each_other = true;
            run.replica = replica;
            return run;
        }
        lay_over(sides, std::move(there));
    }
    take_simulated(run, sides);
    merge_ranks(sides, run.problems);
    if (!planned_in.empty() && (sides.predicted || sides.measured)) {
        take_plan(run, planned_in, (sides.predicted ? sides.predicted : sides.measured)->plan_hash);
    }
    if (!planned_in.empty()) {
        take_translations(run, planned_in);
    }
    take_groups(run);
    if (sides.measured) {
        choose_replica(run, *sides.measured, replica);
        break_down(run, *sides.measured);
    } else if (sides.predicted && replica != 0) {
        run.problems.push_back(fmt::format(
            "--replica {}: a prediction is the same for every replica, expected 0", replica));
    }
    const std::optional<Trace>& predicted = sides.predicted;
    const std::optional<Trace>& measured = sides.measured;
    const bool has_predicted = predicted && take_side(run, *predicted, Side::Predicted);
    const bool has_measured = measured && take_side(run, *measured, Side::Measured);
    if (has_predicted && has_measured) {
        run.twin.match();
        compare_or_note(run, *predicted, *measured);
        note_alone(run);
    }
    if (has_predicted && sides.plan) {
        if (!sides.simulated) {
            run.notes.emplace_back(
                "A schedule file contains no times. Here a forward takes 1 ms, a backward 2 ms, "
                "and a message no time.");
        }
        if (sides.plan) {
            run.own_plan = std::make_shared<const Plan>(*std::move(sides.plan));
        }
    }
    if (has_predicted) {
        take_dispatch(run, *predicted, *run.predicted);
    }
    if (has_measured) {
        take_dispatch(run, *measured, *run.measured);
    }
    return run;
}

RunData run_of_trace(std::shared_ptr<const PlannedRun> planned,
                     const Trace& predicted,
                     std::string title) {
    RunData run;
    run.title = std::move(title);
    run.planned = std::move(planned);
    take_groups(run);
    if (take_side(run, predicted, Side::Predicted)) {
        take_dispatch(run, predicted, *run.predicted);
    }
    return run;
}

Schedule form_of(const Schedule& schedule) {
    return {.micro_batches = schedule.micro_batches,
            .rank_of_stage = schedule.rank_of_stage,
            .weights_of_stage = schedule.weights_of_stage,
            .ranks = {},
            .tied_ends = schedule.tied_ends,
            .skips = schedule.skips};
}

Duration compared_dispatch(const RunData& run, Side side) {
    const bool are_known =
        run.predicted && run.measured && run.predicted->dispatch && run.measured->dispatch;
    return are_known ? *run.side(side)->dispatch : Duration{};
}

Duration compared_length(const RunData& run, const SpanRef& ref) {
    const RowIndex& row = *run.twin.row(ref);
    const Duration length = row.end(ref.cell) - row.ready(ref.cell);
    const Duration dispatch =
        is_compute(row.op(ref.cell)) ? compared_dispatch(run, ref.side) : Duration{};
    return length - std::min(dispatch, length);
}

Throughput throughput_of(const Plan& plan, Duration step) {
    const std::optional<std::int64_t> samples = plan.samples();
    const auto work = static_cast<double>(samples.value_or(plan.micro_batches()));
    return {.per_second = step > Duration{} ? work / to_seconds(step) : 0,
            .counts_samples = samples.has_value()};
}

std::optional<Throughput> throughput_of(const RunData& run, Side side) {
    const std::optional<SideData>& data = run.side(side);
    if (!data) {
        return std::nullopt;
    }
    if (run.plan() != nullptr) {
        return throughput_of(*run.plan(), data->step);
    }
    return Throughput{.per_second =
                          data->step > Duration{} ? run.micro_batches / to_seconds(data->step) : 0};
}

bool have_same_model(const PlannedRun* a, const PlannedRun* b) {
    if (a == nullptr || b == nullptr) {
        return true;
    }
    const Scenario::ModelPart& mine = a->scenario.model;
    const Scenario::ModelPart& its = b->scenario.model;
    if (mine.kind != ModelKind::Profile && its.kind != ModelKind::Profile) {
        return mine == its;
    }
    const auto parameters_of = [](const Profile& profile) {
        return std::accumulate(
            profile.layers.begin(),
            profile.layers.end(),
            std::int64_t{0},
            [](std::int64_t sum, const LayerCost& layer) { return sum + layer.parameter_count; });
    };
    const std::int64_t my_parameters = parameters_of(a->profile);
    const std::int64_t its_parameters = parameters_of(b->profile);
    return my_parameters == 0 || its_parameters == 0 || my_parameters == its_parameters;
}

std::string cost_source(const RunData& run) {
    if (run.measured) {
        return "";
    }
    if (run.planned) {
        const Profile& profile = run.planned->profile;
        return profile.source == CostSource::Estimated
                   ? fmt::format("costs estimated for {}", profile.device)
                   : "";
    }
    return run.own_plan && !run.is_what_if && !run.path.empty() ? "unit costs" : "";
}

std::string says_nothing(const RunData& run) {
    return run.comparison ? noise_sentence(run.comparison->noise) : "";
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

namespace {

/// All but the memory.
SideData data_of(const std::vector<StepRows>& steps, int median) {
    const StepRows& step = steps[as_index(median)];
    return {.origin = step.origin,
            .steps = static_cast<int>(steps.size()),
            .median_step = median,
            .step = step.length,
            .pipeline = step.pipeline,
            .ranks = summaries_of(step)};
}

}  // namespace

DrawnSide drawn_side(const TimelineSet& timelines, const std::vector<MemoryCurve>& memory) {
    DrawnSide side;
    const auto median = &median_step(timelines) - timelines.steps.data();
    for (const Timeline& step : timelines.steps) {
        side.steps.emplace_back(step);
    }
    side.data = data_of(side.steps, static_cast<int>(median));
    side.data.noise = timelines.noise;
    side.data.step_numbers = timelines.numbers;
    const StepRows& step = side.steps[as_index(side.data.median_step)];
    for (std::size_t rank = 0; rank < memory.size() && rank < step.ranks.size(); ++rank) {
        side.data.memory.emplace_back(memory[rank], step.ranks[rank].size());
    }
    return side;
}

DrawnSide drawn_side(StepRows step) {
    DrawnSide side;
    side.steps.push_back(std::move(step));
    side.data = data_of(side.steps, 0);
    return side;
}

}  // namespace pipetwin::gui
