// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/calibrated_stack.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/number_text.h"
#include "core/costs/devices/number_type.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_choice.h"
#include "core/costs/devices/stack_toml.h"
#include "core/costs/devices/usual_cluster.h"
#include "core/costs/kernel_rates.h"
#include "core/model/model.h"
#include "core/text/json_text.h"
#include "sim/calibration/factor_fit.h"
#include "sim/calibration/step_range.h"
#include "sim/questions/estimated_model.h"

namespace pipetwin::sim {

namespace {

/// Factors that a right description of a run has.
constexpr double least_plausible = 0.6;
constexpr double most_plausible = 1.7;

[[noreturn]] void refuse_missing(const MeasuredRun& row, const char* key, const char* example) {
    throw Error(ErrorKind::BadInput,
                row.place,
                fmt::format("no \"{}\", expected what the run had", key),
                fmt::format("write it into the row, as in \"{}\": {}", key, example));
}

/// The row with what `otherwise` says of what it leaves out.
MeasuredRun completed(MeasuredRun row, const MeasuredRun& otherwise) {
    for (const auto word : {&MeasuredRun::model,
                            &MeasuredRun::device,
                            &MeasuredRun::stack,
                            &MeasuredRun::precision}) {
        if ((row.*word).empty()) {
            row.*word = otherwise.*word;
        }
    }
    if (!row.tokens_per_sample) {
        row.tokens_per_sample = otherwise.tokens_per_sample;
    }
    return row;
}

bool names(const MeasuredRun& row, std::string_view key) {
    return std::ranges::count(row.keys, key, &Override::key) > 0;
}

int or_one(const OrAuto<int>& value) {
    return value.is_auto() ? 1 : *value;
}

/// Adds what the keys of a row follow from each other, and sizes of the estimate.
void complete(const MeasuredRun& row, RunSetup& setup) {
    EstimateOptions& estimate = setup.estimate;
    const std::string nodes = usual_cluster(row.device);
    if (!names(row, "cluster.profile") && !nodes.empty()) {
        setup.keys.push_back({"cluster.profile", nodes});
    }
    if (!names(row, "training.gradients") && !estimate.stack->stored.fp32_gradients) {
        setup.keys.push_back({"training.gradients", "same"});
    }
    RunSetup without_cluster = setup;  // which has to have the devices that are counted here
    std::erase_if(without_cluster.keys,
                  [](const Override& of) { return of.key.starts_with("cluster."); });
    const Scenario scenario = scenario_of(without_cluster);
    const int tensor = or_one(scenario.pipeline.tensor_parallel);
    const int parts = or_one(scenario.pipeline.context_parallel);
    const int replicas = or_one(scenario.pipeline.data_parallel);
    if (!names(row, "cluster.count")) {
        const int devices = or_one(scenario.pipeline.stages) * replicas * tensor * parts;
        setup.keys.push_back({"cluster.count", std::to_string(devices)});
    }
    constexpr int of_a_node = 8;
    estimate.most_devices = std::max(of_a_node, tensor);
    estimate.micro_batch_size =
        std::max(1, scenario.training.batch / (replicas * or_one(scenario.pipeline.micro_batches)));
}

/// Model, device and stack of a row, which names them. Errors are at the row.
RunSetup estimated_setup(const MeasuredRun& row) {
    try {
        const std::filesystem::path file = config_file(row.model, "model");
        const ModelConfig config =
            model_config(read_file(file, JsonLimits{}.max_bytes), file.string());
        RunSetup setup{.place = row.place,
                       .model = config.model,
                       .device = find_device(row.device, "device").name,
                       .keys = row.keys};
        setup.estimate.sequence = *row.tokens_per_sample;
        setup.estimate.precision = row.precision.empty() ? "bf16" : row.precision;
        take_stack(find_stack(row.stack, "stack"), setup.estimate);
        product_rate(find_device(row.device), setup.estimate, "name one of these in \"precision\"");
        return setup;
    } catch (const Error& error) {
        throw error.placed(fmt::format("{}, {}", row.place, error.place()));
    }
}

}  // namespace

StackRow stack_row(const MeasuredRun& measured, const MeasuredRun& otherwise) {
    const MeasuredRun row = completed(measured, otherwise);
    if (row.model.empty()) {
        refuse_missing(row, "model", "\"llama-3-8b\"");
    }
    if (row.device.empty()) {
        refuse_missing(row, "device", "\"h100-sxm\"");
    }
    if (row.stack.empty()) {
        const std::string newest = newest_stack("megatron", row.device);
        refuse_missing(
            row,
            "stack",
            fmt::format("\"{}\"", newest.empty() ? stack_names().front() : newest).c_str());
    }
    if (!row.tokens_per_sample) {
        refuse_missing(row, "sequence", "8192");
    }
    StackRow result{.setup = estimated_setup(row), .model = row.model};
    complete(row, result.setup);
    Scenario scenario = scenario_of(result.setup);
    RunCosts costs = costs_of(result.setup, scenario);
    result.run = settled_run(row, std::move(scenario), costs.profile);
    result.run.costs = std::make_shared<const RunCosts>(std::move(costs));
    return result;
}

PredictedRun predicted_row(const StackRow& row, std::shared_ptr<const Stack> stack) {
    RunSetup setup = row.setup;
    setup.estimate.stack = std::move(stack);
    const Profile profile =
        estimated_profile(setup.model, find_device(setup.device), setup.estimate);
    return predicted_run(row.run.place, row.run.scenario, *row.run.costs->model, profile);
}

namespace {

const std::string& precision_of(const StackRow& row) {
    return row.setup.estimate.precision;
}

/// The part of a step that grows with one factor.
double share_of(const StackRow& row, double step, double MeasuredFactors::*factor) {
    constexpr double some = 1.1;
    auto slower = std::make_shared<Stack>(*row.setup.estimate.stack);
    Stack::Calibrated& by = slower->calibrated.emplace_back();
    by = {.device = row.setup.device, .precision = precision_of(row)};
    by.factors.value.*factor = some;
    return std::max(0.0, std::log(predicted_row(row, slower).step / step) / std::log(some));
}

FittedRun fitted_run(const StackRow& row) {
    const double step = predicted_row(row, row.setup.estimate.stack).step;
    const MeasuredLayout layout = layout_of_run(row.run.scenario, row.run.costs->profile);
    return {.model = fmt::format("{} {}", layout.parameters, layout.sequence),
            .layout = fmt::format("{} {} {} {} {} {}",
                                  layout.stages,
                                  layout.chunks,
                                  layout.tensor_parallel,
                                  layout.context_parallel,
                                  layout.expert_parallel,
                                  layout.recompute),
            .precision = precision_of(row),
            .shares = {.products = share_of(row, step, &MeasuredFactors::products),
                       .attention = share_of(row, step, &MeasuredFactors::attention),
                       .passes = share_of(row, step, &MeasuredFactors::passes),
                       .inside = share_of(row, step, &MeasuredFactors::inside),
                       .between = share_of(row, step, &MeasuredFactors::between)},
            .log_ratio = std::log(row.run.step_seconds / step)};
}

/// How much larger than estimated what layers keep is in a run that says its peak.
double memory_factor(const StackRow& row) {
    const RunCosts& costs = *row.run.costs;
    return calibrate_by_runs({row.run}, *costs.model, costs.profile).memory_factor.value_or(1);
}

/// A row as often as fits of several subsets need it.
struct KnownRow {
    const StackRow* row = nullptr;
    FittedRun fitted{};
    std::optional<double> memory{};
};

std::vector<KnownRow> known_rows(const std::vector<StackRow>& rows) {
    std::vector<KnownRow> known;
    for (const StackRow& row : rows) {
        known.push_back(
            {.row = &row,
             .fitted = fitted_run(row),
             .memory = row.run.peak ? std::optional(memory_factor(row)) : std::nullopt});
    }
    return known;
}

/// A kind of kernel whose time a factor corrects.
struct KernelKind {
    double MeasuredFactors::*factor;
    std::string_view kernels;
    std::string_view limit;  ///< of the device, that none of them passes
};
constexpr std::array<KernelKind, 3> kernel_kinds{{
    {&MeasuredFactors::products, "products", "rate of products"},
    {&MeasuredFactors::attention, "attention", "rate of products"},
    {&MeasuredFactors::passes, "kernels that move bytes", "memory rate"},
}};

/// The factors with which the fastest kernel of each kind reaches all of the device's rate.
MeasuredFactors least_factors(const Stack& base,
                              const std::string& device,
                              const std::string& precision) {
    MeasuredFactors least{.products = 0, .attention = 0, .passes = 0};
    for (const std::string_view of : {std::string_view(precision), kept_precision(precision)}) {
        if (const auto reached = base.products_of(device, of)) {
            least.products = std::max(least.products, reached->large);
        }
    }
    for (const Stack::Attention& of : base.attention) {
        if (std::ranges::count(of.devices, device) > 0) {
            least.attention = std::max(
                {least.attention, of.reached.value.forward.share, of.reached.value.backward.share});
        }
    }
    const Stack::Passes& passes = base.passes;
    const CastBytes* const casts = base.casts_of(device, precision);
    least.passes = std::max({passes.copies.value,
                             passes.activations.value,
                             passes.norms_forward.value,
                             passes.norms_backward.value,
                             casts == nullptr ? 0 : casts->memory_share});
    return least;
}

/// The factors, none of which makes a kernel faster than the device is. `warnings`: null, or where
/// the rest of each factor is said.
MeasuredFactors within_device(MeasuredFactors factors,
                              const Stack& base,
                              const std::string& device,
                              const std::string& precision,
                              std::vector<std::string>* warnings) {
    const MeasuredFactors least = least_factors(base, device, precision);
    for (const auto& [factor, kernels, limit] : kernel_kinds) {
        double& fitted = factors.*factor;
        const double bound = least.*factor;
        if (fitted >= bound) {
            continue;
        }
        if (warnings != nullptr) {
            warnings->push_back(fmt::format(
                "by the rows {} on {} in {} take {:.3g} times as long as estimated, at {:.0f} % of "
                "the {}: the factor is {:.3g}, with which they reach all of it, and the rest, "
                "{:.3g}, is left out; check what the rows measured, and their batch and devices",
                kernels,
                device,
                precision,
                fitted,
                100 * bound / fitted,
                limit,
                bound,
                fitted / bound));
        }
        fitted = bound;
    }
    return factors;
}

/// `warnings`: null, or where is said what of the factors no device could do.
Stack corrected(const Stack& base,
                const std::vector<KnownRow>& rows,
                std::vector<std::string>* warnings = nullptr) {
    std::map<std::string, std::vector<KnownRow>> by_device;
    for (const KnownRow& row : rows) {
        by_device[row.row->setup.device].push_back(row);
    }
    Stack stack = base;
    for (const auto& [device, of_device] : by_device) {
        std::vector<FittedRun> runs;
        std::vector<double> memory;
        std::set<std::string> models;
        for (const KnownRow& row : of_device) {
            runs.push_back(row.fitted);
            models.insert(row.row->model);
            if (row.memory) {
                memory.push_back(*row.memory);
            }
        }
        for (const std::string& precision : base.precisions_of(device)) {
            Stack::Calibrated& of = stack.calibrated.emplace_back();
            of = {.device = device, .precision = precision};
            of.factors.value =
                within_device(fitted_factors(runs, precision), base, device, precision, warnings);
            of.factors.value.activations = memory.empty() ? 1 : median(memory);
            of.factors.kind = FactKind::Fitted;
            of.factors.source = source_of_runs;
            of.factors.fitted_to = fmt::format("{} on {} of {}",
                                               counted(std::ssize(of_device), "measured run"),
                                               device,
                                               fmt::join(models, ", "));
        }
    }
    return stack;
}

/// The rows without one.
std::vector<KnownRow> others_of(const std::vector<KnownRow>& rows, std::size_t left_out) {
    std::vector<KnownRow> others = rows;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(left_out));
    std::erase_if(others, [&](const KnownRow& other) {
        return other.row->setup.device != rows[left_out].row->setup.device;
    });
    return others;
}

double share(Bytes predicted, Bytes measured) {
    return static_cast<double>(predicted.count) / static_cast<double>(measured.count) - 1;
}

CalibratedRun calibrated_run(const std::vector<KnownRow>& rows,
                             std::size_t index,
                             const Stack& base,
                             std::shared_ptr<const Stack> stack) {
    const StackRow& row = *rows[index].row;
    const PredictedRun before = predicted_row(row, row.setup.estimate.stack);
    const PredictedRun after = predicted_row(row, std::move(stack));
    const std::string name = row.run.name.empty() ? fmt::format("row {}", index + 1) : row.run.name;
    CalibratedRun run{.name = name,
                      .setup = fmt::format("{} on {} in {}, {}",
                                           row.model,
                                           row.setup.device,
                                           precision_of(row),
                                           setup_text(row.run.scenario)),
                      .layout = layout_of_run(row.run.scenario, row.run.costs->profile),
                      .measured_step = row.run.step_seconds,
                      .predicted_step = before.step,
                      .calibrated_step = after.step,
                      .measured_peak = row.run.peak,
                      .predicted_peak = before.peak,
                      .calibrated_peak = after.peak,
                      .fits = after.fits};
    run.layout.name = name;
    const std::vector<KnownRow> others = others_of(rows, index);
    if (others.empty()) {
        return run;
    }
    const PredictedRun by_others =
        predicted_row(row, std::make_shared<Stack>(corrected(base, others)));
    run.leave_one_out_error = by_others.step / row.run.step_seconds - 1;
    run.layout.left_out = std::abs(*run.leave_one_out_error);
    const bool have_peaks =
        std::ranges::any_of(others, [](const KnownRow& other) { return other.memory.has_value(); });
    if (row.run.peak && have_peaks) {
        run.leave_one_out_peak_error = share(by_others.peak, *row.run.peak);
    }
    return run;
}

/// "row 2 (+14 %), row 5 (-11 %)" of the errors that are large; empty: none is.
template <class Error>
std::string large_errors(const std::vector<CalibratedRun>& runs, Error error) {
    std::vector<std::string> names;
    for (const CalibratedRun& run : runs) {
        const std::optional<double> off = run.*error;
        if (off && std::abs(*off) > large_error) {
            names.push_back(fmt::format("{} ({:+.0f} %)", run.name, 100 * *off));
        }
    }
    return fmt::format("{}", fmt::join(names, ", "));
}

void add_warnings(const std::vector<StackRow>& rows, StackCalibration& found) {
    std::vector<std::string>& warnings = found.warnings;
    for (const StackRow& row : rows) {
        if (!row.run.warning.empty()) {
            warnings.push_back(row.run.warning);
        }
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const CalibratedRun& run = found.runs[i];
        if (is_unusual(rows[i], run.predicted_step)) {
            warnings.push_back(
                fmt::format("{} takes {:.3g} times as long as estimated: predictions of other runs "
                            "by one that is "
                            "so far off are more often wrong, so check what it measured, and its "
                            "batch, devices "
                            "and precision",
                            run.name,
                            run.measured_step / run.predicted_step));
        }
    }
    for (const CalibratedRun& run : found.runs) {
        if (!run.fits) {
            warnings.push_back(fmt::format(
                "{} was measured, but is predicted not to fit into the memory of its devices: {} "
                "per device",
                run.name,
                format_bytes(run.calibrated_peak)));
        }
    }
    if (const auto names = large_errors(found.runs, &CalibratedRun::leave_one_out_error);
        !names.empty()) {
        warnings.push_back(fmt::format(
            "rows contradict each other: by the factors of all others the step of {} is predicted "
            "so far off; check what these rows measured, and their batch, devices and precision",
            names));
    }
    if (const auto names = large_errors(found.runs, &CalibratedRun::leave_one_out_peak_error);
        !names.empty()) {
        warnings.push_back(fmt::format(
            "rows contradict each other: by the factor of all others the peak of {} is predicted "
            "so far off; check whether each peak is what was allocated, not what was reserved",
            names));
    }
    for (const Stack::Calibrated& of : found.stack.calibrated) {
        const MeasuredFactors& by = of.factors.value;
        if (by.products < least_plausible || by.products > most_plausible) {
            warnings.push_back(fmt::format(
                "products on {} in {} that take {:.3g} times as long as estimated are implausible "
                "({} to {} is usual): the runs may have had another model, device or recompute "
                "than their rows say, or training.batch is not the samples of a whole step",
                of.device,
                of.precision,
                by.products,
                least_plausible,
                most_plausible));
        }
    }
}

void expect_one_stack(const std::vector<StackRow>& rows) {
    const Stack& first = *rows.front().setup.estimate.stack;
    for (const StackRow& row : rows) {
        const Stack& stack = *row.setup.estimate.stack;
        if (stack.name != first.name) {
            throw Error(
                ErrorKind::BadInput,
                row.run.place + ", stack",
                fmt::format("'{}', but the rows before are of '{}'", stack.name, first.name),
                "calibrate each stack from a file of its own rows");
        }
        if (!stack.calibrated.empty()) {
            throw Error(ErrorKind::BadInput,
                        row.run.place + ", stack",
                        fmt::format("'{}' was calibrated before", stack.name),
                        "name the stack that it was made from, and give all rows together");
        }
    }
}

}  // namespace

bool is_unusual(const StackRow& row, double predicted_step) {
    return std::abs(std::log(row.run.step_seconds / predicted_step)) > std::log1p(large_error);
}

Stack corrected_stack(const Stack& base, const std::vector<StackRow>& rows) {
    return corrected(base, known_rows(rows));
}

StackCalibration calibrated_stack(const std::vector<StackRow>& rows, const std::string& file) {
    PIPETWIN_EXPECT(!rows.empty(), "a calibration needs a row");
    expect_one_stack(rows);
    const Stack& base = *rows.front().setup.estimate.stack;
    const std::vector<KnownRow> known = known_rows(rows);
    StackCalibration found;
    found.stack = corrected(base, known, &found.warnings);
    const auto stack = std::make_shared<const Stack>(found.stack);
    std::map<std::pair<std::string, std::string>, std::vector<double>> errors;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        CalibratedRun run = calibrated_run(known, i, base, stack);
        if (run.layout.left_out) {
            for (const std::string& precision : base.precisions_of(run.layout.device)) {
                errors[{run.layout.device, precision}].push_back(100 * *run.layout.left_out);
            }
        }
        found.stack.measured.push_back(run.layout);
        found.runs.push_back(std::move(run));
    }
    for (Stack::Calibrated& of : found.stack.calibrated) {
        if (const auto& known_errors = errors[{of.device, of.precision}]; !known_errors.empty()) {
            of.factors.leave_one_out_percent = std::min(100.0, median(known_errors));
        }
    }
    found.stack.description = fmt::format(
        "{}, corrected by {}", base.description, counted(std::ssize(rows), "measured run"));
    found.stack.name = std::filesystem::path(file).stem().string();
    add_warnings(rows, found);
    return found;
}

}  // namespace pipetwin::sim
