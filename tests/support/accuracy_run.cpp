#include "tests/support/accuracy_run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <nlohmann/json.hpp>

#include "core/calibration.h"
#include "core/error.h"
#include "core/footprint.h"
#include "core/metrics.h"
#include "exec/calibrate.h"
#include "exec/cores.h"
#include "exec/executor.h"
#include "exec/measured_pipeline.h"
#include "exec/noise_gate.h"
#include "exec/profiler.h"
#include "exec/random_batch.h"
#include "exec/speed_witness.h"
#include "sim/fit_interference.h"
#include "sim/replay_error.h"
#include "sim/simulate.h"

namespace pipetwin::test {

namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr int warm_up_steps = 2;
constexpr double least_passing_share = 0.6;
constexpr std::chrono::milliseconds longest_wait{300};  // for cores that are slow

// --- One run of a plan. ---

struct MeasuredRun {
    TimelineSet timelines;
    exec::GateVerdict verdict;
    double noise_floor = 0;
};

/// The first half of the clean steps against the second.
double floor_of(const std::vector<exec::GatedStep>& steps) {
    std::vector<Duration> clean;
    for (const exec::GatedStep& step : steps) {
        if (step.stolen <= exec::most_stolen) {
            clean.push_back(step.time);
        }
    }
    if (clean.size() < 2) {
        return 0;
    }
    const auto middle = clean.begin() + std::ssize(clean) / 2;
    const double first = to_seconds(exec::quantile({clean.begin(), middle}, 0.5));
    const double second = to_seconds(exec::quantile({middle, clean.end()}, 0.5));
    return 2 * std::abs(first - second) / (first + second);
}

MeasuredRun one_run(const Plan& plan,
                    const Model& model,
                    const Scenario& scenario,
                    int clean_steps,
                    int most_steps) {
    exec::ExecutorOptions options;
    options.precision = scenario.training.precision;
    options.optimizer = exec::optimizer_settings(scenario);
    exec::Executor executor(plan, model, options);
    const exec::Batch batch = exec::random_batch(model, scenario.training.batch, 1);
    std::vector<int> cores = exec::allowed_cores();
    cores.resize(std::min(cores.size(), plan->schedule.ranks.size()));
    exec::SpeedWitness witness(cores);
    exec::NoiseGate gate;
    std::vector<exec::GatedStep> steps;
    for (int step = 0; exec::judged(steps).clean < clean_steps && std::ssize(steps) < most_steps;
         ++step) {
        const double before = witness.wait(longest_wait);
        exec::StepResult result = executor.run_step(batch, step);
        result.stolen = exec::lost_share(result.stolen, before, witness.missing());
        gate.add(result);
        if (step >= warm_up_steps) {
            steps.push_back({.time = step_time(result.timeline), .stolen = result.stolen});
        }
    }
    return {
        .timelines = gate.result(), .verdict = exec::judged(steps), .noise_floor = floor_of(steps)};
}

/// A run that the gate refuses gets a second chance, whatever it says about an error; of two that
/// it refuses the one with more clean steps stands.
MeasuredRun measured_run(const Plan& plan,
                         const Model& model,
                         const Scenario& scenario,
                         int clean_steps,
                         int most_steps) {
    MeasuredRun first = one_run(plan, model, scenario, clean_steps, most_steps);
    if (first.verdict.passes()) {
        return first;
    }
    MeasuredRun second = one_run(plan, model, scenario, clean_steps, most_steps);
    return second.verdict.passes() || second.verdict.clean > first.verdict.clean ? second : first;
}

// --- Calibration. ---

/// Which runs of two ranks the interference is fitted to. Their numbers of micro-batches and their
/// partition are none of the grid's.
struct ShortRun {
    int micro_batches;
    int micro_batch_size;
    const char* schedule;
};
constexpr std::array short_runs{
    ShortRun{6, 2, "1f1b"}, ShortRun{3, 4, "gpipe"}, ShortRun{6, 1, "gpipe"}};

Scenario scenario_of(const ShortRun& run, const GridOptions& options, Precision precision) {
    GridCell cell{.stages = 2,
                  .micro_batches = run.micro_batches,
                  .schedule = run.schedule,
                  .precision = precision};
    Scenario scenario = test::scenario_of(cell, options);
    scenario.training.batch = run.micro_batches * run.micro_batch_size;
    std::vector<int>& layers = *scenario.pipeline.partition;
    ++layers.front();
    --layers.back();
    return scenario;
}

/// A calibration, the fit to it, and what was measured for that.
struct FittedCalibration {
    Calibration calibration;
    double measured_interference = 0;
    std::vector<double> fit_error_percent;
    std::vector<double> leave_one_out_percent;
    Duration hop{};
};

Plan settled(Plan plan) {
    return sim::with_settled_capacity(std::move(plan));
}

void fit(FittedCalibration& fitted,
         const Model& model,
         const GridOptions& options,
         Precision precision) {
    struct Measured {
        Scenario scenario;
        Duration step;
    };
    std::vector<Measured> runs;
    std::vector<Duration> hops;
    for (const ShortRun& run : short_runs) {
        const Scenario scenario = scenario_of(run, options, precision);
        const Plan plan = settled(calibrated_plan(scenario, model, fitted.calibration));
        const MeasuredRun measured =
            measured_run(plan, model, scenario, options.clean_steps, options.most_steps);
        for (const Timeline& step : measured.timelines.steps) {
            std::ranges::copy(exec::hops_of(step), std::back_inserter(hops));
        }
        runs.push_back({.scenario = scenario, .step = step_time(median_step(measured.timelines))});
    }
    // Of messages that were waited for, often so long that the receiver had to be woken.
    fitted.hop = exec::quantile(hops, 0.5);
    LinkCost& link = fitted.calibration.bytes.links.front();
    link.latency = std::max(link.latency, fitted.hop);
    std::vector<sim::FitCase> cases;
    for (const Measured& run : runs) {
        cases.push_back({.plan = settled(calibrated_plan(run.scenario, model, fitted.calibration)),
                         .measured = run.step});
    }
    const sim::InterferenceFit fit = sim::fit_interference(cases);
    fitted.calibration.interference = fit.interference;
    fitted.fit_error_percent = fit.error_percent;
    fitted.leave_one_out_percent = fit.leave_one_out_percent;
}

std::vector<int> sizes_of(const GridOptions& options) {
    std::set<int> sizes;
    for (const int micro_batches : {1, 2, 4, 8, 16}) {
        for (const int size : micro_batch_sizes(options.batch, micro_batches)) {
            sizes.insert(size);
        }
    }
    return {sizes.begin(), sizes.end()};
}

int workers() {
    return exec::allowed_cores().size() > 1 ? 2 : 1;
}

FittedCalibration calibrated(const Model& model, const GridOptions& options, Precision precision) {
    exec::CalibrateOptions how;
    how.settings = exec::calibration_settings(sizes_of(options), options.batch, workers());
    how.fewest_clean = options.calibration_steps;
    how.most_steps = 2 * options.calibration_steps;
    how.precision = precision;
    how.longest_wait = longest_wait;
    how.progress = [](double share, const std::string& what) {
        fmt::print(stderr, "calibration {:3.0f} %: {}\n", 100 * share, what);
    };
    FittedCalibration fitted;
    fitted.calibration = exec::calibrate(model, how);
    fitted.measured_interference = measured_interference(fitted.calibration);
    if (workers() > 1) {
        fit(fitted, model, options, precision);
    }
    return fitted;
}

// --- The store. ---

json layer_json(const LayerTimes& times) {
    return {times.forward.count(),
            times.recompute.count(),
            times.backward_input.count(),
            times.backward_weight.count(),
            times.optimizer.count()};
}

std::string print_calibration(const FittedCalibration& fitted, Precision precision) {
    json runs = json::array();
    for (const CalibrationRun& run : fitted.calibration.runs) {
        json layers = json::array();
        for (const LayerTimes& layer : run.layers) {
            layers.push_back(layer_json(layer));
        }
        runs.push_back({{"micro_batch_size", run.setting.micro_batch_size},
                        {"live_stashes", run.setting.live_stashes},
                        {"recomputes", run.setting.recomputes},
                        {"splits", run.setting.splits},
                        {"workers", run.setting.workers},
                        {"dispatch_ns", run.dispatch.count()},
                        {"clean_steps", run.clean_steps},
                        {"dropped_steps", run.dropped_steps},
                        {"p90_over_p10", run.p90_over_p10},
                        {"layers_ns", layers}});
    }
    const LinkCost& link = fitted.calibration.bytes.links.front();
    return json{{"calibration", std::string(pipetwin::to_string(precision))},
                {"interference", fitted.calibration.interference},
                {"measured_interference", fitted.measured_interference},
                {"fit_error_percent", fitted.fit_error_percent},
                {"leave_one_out_percent", fitted.leave_one_out_percent},
                {"hop_ns", fitted.hop.count()},
                {"link", {link.latency.count(), link.bytes_per_second, link.half_bandwidth.count}},
                {"runs", runs}}
        .dump();
}

FittedCalibration parse_calibration(const json& object,
                                    const Model& model,
                                    const GridOptions& options,
                                    Precision precision) {
    FittedCalibration fitted;
    exec::ProfilerOptions sizes;
    sizes.precision = precision;
    sizes.micro_batch_sizes = sizes_of(options);
    fitted.calibration.bytes = exec::unmeasured_profile(model, sizes);
    fitted.calibration.bytes.links = {
        {.latency = Duration{object.at("link").at(0).get<std::int64_t>()},
         .bytes_per_second = object.at("link").at(1),
         .half_bandwidth = Bytes{object.at("link").at(2).get<std::int64_t>()}}};
    fitted.calibration.interference = object.at("interference");
    fitted.measured_interference = object.at("measured_interference");
    fitted.fit_error_percent = object.at("fit_error_percent").get<std::vector<double>>();
    fitted.leave_one_out_percent = object.at("leave_one_out_percent").get<std::vector<double>>();
    fitted.hop = Duration{object.at("hop_ns").get<std::int64_t>()};
    for (const json& stored : object.at("runs")) {
        CalibrationRun run;
        run.setting = {.micro_batch_size = stored.at("micro_batch_size"),
                       .live_stashes = stored.at("live_stashes"),
                       .recomputes = stored.at("recomputes"),
                       .splits = stored.at("splits"),
                       .workers = stored.at("workers")};
        run.dispatch = Duration{stored.at("dispatch_ns").get<std::int64_t>()};
        run.clean_steps = stored.at("clean_steps");
        run.dropped_steps = stored.at("dropped_steps");
        run.p90_over_p10 = stored.at("p90_over_p10");
        for (const json& layer : stored.at("layers_ns")) {
            const auto time = [&](std::size_t part) {
                return Duration{layer.at(part).get<std::int64_t>()};
            };
            run.layers.push_back({.forward = time(0),
                                  .recompute = time(1),
                                  .backward_input = time(2),
                                  .backward_weight = time(3),
                                  .optimizer = time(4)});
        }
        fitted.calibration.runs.push_back(std::move(run));
    }
    return fitted;
}

/// What was measured before, and the file that it goes on in. A line that was cut off by a kill is
/// forgotten.
class Store {
  public:
    explicit Store(const std::filesystem::path& path) : path_(path) {
        std::ifstream file(path);
        for (std::string line; std::getline(file, line);) {
            const json object = json::parse(line, nullptr, false);
            if (object.is_discarded()) {
                continue;
            }
            if (object.contains("cell")) {
                CellResult cell = parse_cell(line);
                std::erase_if(cells,
                              [&](const CellResult& older) { return older.cell == cell.cell; });
                cells.push_back(std::move(cell));
            } else if (object.contains("calibration")) {
                calibrations[object.at("calibration")] = object;
            }
        }
    }

    void add(const std::string& line) const {
        std::ofstream file(path_, std::ios::app);
        file << '\n' << line << '\n' << std::flush;  // begins a line, whatever a kill left behind
        if (!file) {
            throw Error(ErrorKind::Io, path_.string(), "the store could not be written");
        }
    }

    const CellResult* find(const std::string& cell) const {
        const auto found = std::ranges::find(cells, cell, &CellResult::cell);
        return found == cells.end() ? nullptr : &*found;
    }

    std::vector<CellResult> cells;
    std::map<std::string, json> calibrations;

  private:
    std::filesystem::path path_;
};

// --- Cells. ---

CellResult measured_cell(const GridCell& cell,
                         const Model& model,
                         const FittedCalibration& fitted,
                         const GridOptions& options) {
    const Scenario scenario = test::scenario_of(cell, options);
    const Plan plan = settled(calibrated_plan(scenario, model, fitted.calibration));
    const Timeline predicted = sim::simulate(plan);
    const MeasuredRun run =
        measured_run(plan, model, scenario, options.clean_steps, options.most_steps);
    const Comparison comparison = compare(
        {.steps = {predicted}, .peak_bytes = {}, .breakdown = {}, .replayed_step = {}, .noise = {}},
        run.timelines);
    CellResult result{.cell = to_string(cell),
                      .predicted = comparison.step.predicted,
                      .measured = comparison.step.measured,
                      .replayed = sim::replay_of_own_durations(plan, median_step(run.timelines)),
                      .noise_floor = run.noise_floor,
                      .predicted_bubble = comparison.predicted_bubble_total,
                      .measured_bubble = comparison.measured_bubble_total,
                      .verdict = run.verdict,
                      .parts = {}};
    const std::vector<MemoryUse> peaks = peak_memory(plan);
    for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
        const std::int64_t difference =
            std::abs(peaks[rank].total().count - run.timelines.peak_bytes[rank].count);
        result.memory_difference = std::max(result.memory_difference, difference);
    }
    for (const ActionDelta& delta : comparison.actions) {
        if (!is_send(delta.action.op) && !is_receive(delta.action.op)) {
            Pair& part =
                result.parts[fmt::format("{}{}", delta.action.stage, op_text(delta.action.op))];
            part.predicted += delta.duration.predicted;
            part.measured += delta.duration.measured;
        }
    }
    return result;
}

// --- What is printed. ---

double percentile(std::vector<double> values, double share) {
    if (values.empty()) {
        return 0;
    }
    std::ranges::sort(values);
    return values[static_cast<std::size_t>(
        std::lround(share * static_cast<double>(values.size() - 1)))];
}

void print_head(std::ostream& out) {
    fmt::print(out,
               "{:<44} {:>10} {:>10} {:>8} {:>7} {:>8} {:>8} {:>7} {:>8} {:>7}  {}\n",
               "cell",
               "predicted",
               "measured",
               "error",
               "floor",
               "dropped",
               "p90/p10",
               "replay",
               "bubble",
               "memory",
               "gate");
}

void print_row(const CellResult& cell, std::ostream& out) {
    fmt::print(out,
               "{:<44} {:>7.2f} ms {:>7.2f} ms {:>+7.2f}% {:>6.2f}% {:>7.1f}% {:>8.3f} "
               "{:>+6.2f}% {:>+6.2f}pp {:>5} B  {}\n",
               cell.cell,
               to_milliseconds(cell.predicted),
               to_milliseconds(cell.measured),
               100 * cell.error(),
               100 * cell.noise_floor,
               100 * cell.verdict.dropped_share(),
               cell.verdict.p90_over_p10,
               100 * cell.replay_error(),
               100 * (cell.predicted_bubble - cell.measured_bubble),
               cell.memory_difference,
               cell.verdict.passes() ? "passes" : "-");
}

int refused_settings(const FittedCalibration& fitted) {
    return static_cast<int>(
        std::ranges::count_if(fitted.calibration.runs, [](const CalibrationRun& run) {
            const exec::GateVerdict verdict{.clean = run.clean_steps,
                                            .dropped = run.dropped_steps,
                                            .p90_over_p10 = run.p90_over_p10};
            return !verdict.passes();
        }));
}

bool passes_gate(const FittedCalibration& fitted) {
    const auto settings = static_cast<double>(fitted.calibration.runs.size());
    return settings - refused_settings(fitted) >= least_passing_share * settings;
}

void print_calibration_row(const FittedCalibration& fitted,
                           Precision precision,
                           std::ostream& out) {
    const Duration dispatch = fitted.calibration.runs.front().dispatch;
    fmt::print(out,
               "calibration {}: {} settings, {} of them beyond the gate; interference {:.1f} % "
               "fitted, {:.1f} % measured; dispatch {}, link {}\n",
               pipetwin::to_string(precision),
               fitted.calibration.runs.size(),
               refused_settings(fitted),
               100 * fitted.calibration.interference,
               100 * fitted.measured_interference,
               format_duration(dispatch),
               format_duration(fitted.calibration.bytes.links.front().latency));
    for (std::size_t run = 0; run < fitted.fit_error_percent.size(); ++run) {
        fmt::print(out,
                   "  short run {} ({} x {}): {:+.2f} % with the fit, {:+.2f} % left out of it\n",
                   short_runs.at(run).schedule,
                   short_runs.at(run).micro_batches,
                   short_runs.at(run).micro_batch_size,
                   fitted.fit_error_percent[run],
                   fitted.leave_one_out_percent.at(run));
    }
    out << std::flush;
}

/// What the gated cells have in common that is predicted too long or too short: medians by each
/// word of their names, and the sums of each kind of action by the number of ranks.
void print_where_errors_lie(const std::vector<const CellResult*>& gated, std::ostream& out) {
    std::map<std::string, std::vector<double>> by_word;
    std::map<std::string, Pair> by_op;
    for (const CellResult* const cell : gated) {
        std::istringstream words(cell->cell);
        std::string ranks;
        for (std::string word; words >> word;) {
            ranks = ranks.empty() ? word : ranks;
            by_word[word].push_back(cell->error());
        }
        for (const auto& [name, pair] : cell->parts) {
            Pair& sum = by_op[ranks + " " + name.substr(name.find_first_not_of("0123456789"))];
            sum.predicted += pair.predicted;
            sum.measured += pair.measured;
        }
    }
    out << "  error with its sign, median by dimension:";
    for (const auto& [word, errors] : by_word) {
        fmt::print(out, "  {} {:+.2f} %", word, 100 * percentile(errors, 0.5));
    }
    out << "\n  actions, sums:";
    for (const auto& [name, pair] : by_op) {
        fmt::print(out, "  {} {:+.2f} %", name, pair.error_percent());
    }
    out << '\n';
}

/// True if enough cells passed the gate.
bool print_summary(const std::vector<CellResult>& cells, const Grid& grid, std::ostream& out) {
    std::vector<const CellResult*> gated;
    std::int64_t memory = 0;
    for (const CellResult& cell : cells) {
        memory = std::max(memory, cell.memory_difference);
        if (cell.verdict.passes()) {
            gated.push_back(&cell);
        }
    }
    const double passing =
        cells.empty() ? 0 : static_cast<double>(gated.size()) / static_cast<double>(cells.size());
    fmt::print(out,
               "\n{} of {} cells measured ({} void ones left out); {} pass the gate ({:.0f} %)\n",
               cells.size(),
               grid.cells.size(),
               grid.void_cells,
               gated.size(),
               100 * passing);
    const auto sizes_of = [&](const auto& value) {
        std::vector<double> sizes;
        for (const CellResult* const cell : gated) {
            sizes.push_back(100 * std::abs(value(*cell)));
        }
        return sizes;
    };
    const auto goal = [&](const char* what, double value, double limit, const char* unit) {
        fmt::print(out,
                   "  {:<24} {:>6.2f} {:<2}  goal {} {:<2}  {}\n",
                   what,
                   value,
                   unit,
                   limit,
                   unit,
                   value <= limit ? "reached" : "missed");
    };
    if (!gated.empty()) {
        const auto errors = sizes_of([](const CellResult& cell) { return cell.error(); });
        const auto replays = sizes_of([](const CellResult& cell) { return cell.replay_error(); });
        const auto bubbles = sizes_of(
            [](const CellResult& cell) { return cell.predicted_bubble - cell.measured_bubble; });
        goal("error, median", percentile(errors, 0.5), 2, "%");
        goal("error, largest", percentile(errors, 1), 5, "%");
        goal("replay, median", percentile(replays, 0.5), 0.5, "%");
        goal("replay, largest", percentile(replays, 1), 1, "%");
        goal("bubble, median", percentile(bubbles, 0.5), 1, "pp");
        goal("bubble, largest", percentile(bubbles, 1), 1, "pp");
    }
    if (!cells.empty()) {
        goal("memory, largest", static_cast<double>(memory), 0, "B");
    }
    print_where_errors_lie(gated, out);
    const bool measurable = passing >= least_passing_share;
    if (!measurable) {
        out << "not measurable on this machine today: fewer than 60 % of the cells pass the gate\n";
    }
    return measurable;
}

/// Why the executor refuses the precision here; none: it does not.
std::optional<std::string> why_refused(const GridOptions& options,
                                       const Model& model,
                                       Precision precision) {
    exec::ProfilerOptions sizes;
    sizes.precision = precision;
    sizes.micro_batch_sizes = {options.batch};
    const Scenario scenario = test::scenario_of({.precision = precision}, options);
    exec::ExecutorOptions executor;
    executor.precision = precision;
    try {
        const exec::Executor one(
            make_plan(scenario, model, exec::unmeasured_profile(model, sizes)), model, executor);
        return std::nullopt;
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::Unavailable) {
            throw;
        }
        return error.text();
    }
}

}  // namespace

bool run_grid(const GridOptions& options, std::ostream& out) {
    const Model model = gpt_model(options.model);
    const auto begin = Clock::now();
    GridOptions possible = options;
    std::erase_if(possible.precisions, [&](Precision precision) {
        const std::optional<std::string> why = why_refused(options, model, precision);
        if (why) {
            fmt::print(out, "{} is left out: {}\n", pipetwin::to_string(precision), *why);
            out << std::flush;
        }
        return why.has_value();
    });
    Grid grid = accuracy_grid(possible);
    if (workers() == 1) {
        out << "plans of two ranks are left out: there is one core\n" << std::flush;
        std::erase_if(grid.cells, [](const GridCell& cell) { return cell.stages > 1; });
    }
    Store store(options.store);
    std::map<Precision, FittedCalibration> calibrations;
    for (const Precision precision : possible.precisions) {
        const std::string name(pipetwin::to_string(precision));
        const auto stored = store.calibrations.find(name);
        const bool known = stored != store.calibrations.end();
        FittedCalibration fitted =
            known ? parse_calibration(stored->second, model, options, precision)
                  : calibrated(model, options, precision);
        print_calibration_row(fitted, precision, out);
        if (options.insists_on_gate && !passes_gate(fitted)) {
            fmt::print(out, "{} is left out: the gate refuses its calibration\n", name);
            continue;
        }
        if (!known) {
            store.add(print_calibration(fitted, precision));
        }
        calibrations.emplace(precision, std::move(fitted));
    }
    std::vector<CellResult> results;
    print_head(out);
    for (const GridCell& cell : in_seeded_order(grid.cells, possible)) {
        const auto calibration = calibrations.find(cell.precision);
        const CellResult* const known = store.find(to_string(cell));
        const bool is_done =
            known != nullptr && (known->verdict.passes() || !options.insists_on_gate);
        const bool late =
            options.minutes > 0 && to_seconds(Clock::now() - begin) > 60 * options.minutes;
        if (is_done || ((late || calibration == calibrations.end()) && known != nullptr)) {
            results.push_back(*known);
        } else if (late || calibration == calibrations.end()) {
            continue;
        } else {
            results.push_back(measured_cell(cell, model, calibration->second, options));
            store.add(print_cell(results.back()));
        }
        print_row(results.back(), out);
        out << std::flush;
    }
    return print_summary(results, grid, out);
}

}  // namespace pipetwin::test
