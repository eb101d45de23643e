// SPDX-License-Identifier: Apache-2.0
#include "cli/text/calibration_text.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/text/sentences.h"
#include "core/base/number_text.h"

namespace pipetwin::cli {

namespace {

std::string factor_text(const sim::Calibration& calibration) {
    std::string text = fmt::format("Calibrated by {}: {}",
                                   counted(std::ssize(calibration.runs), "measured run"),
                                   times_over_estimates(calibration));
    if (calibration.memory_factor) {
        text += fmt::format(", and keep {:.3g} times the estimated bytes of activations",
                            *calibration.memory_factor);
    }
    if (calibration.messages_factor || calibration.update_factor) {
        return text + ".";
    }
    return text + "; transfers, sums over devices and the optimizer's update keep their estimates.";
}

std::string run_text(const sim::CalibratedRun& run) {
    std::string text =
        fmt::format("{} ({}): step measured {:.4g} s, estimated {:.4g} s, calibrated {:.4g} s",
                    run.name,
                    run.setup,
                    run.measured_step,
                    run.predicted_step,
                    run.calibrated_step);
    if (run.leave_one_out_error) {
        text += fmt::format(", predicted by the other runs alone {:+.1f} % off",
                            100 * *run.leave_one_out_error);
    }
    if (run.measured_peak) {
        text += fmt::format("; largest peak measured {}, estimated {}, calibrated {}",
                            format_bytes(*run.measured_peak),
                            format_bytes(run.predicted_peak),
                            format_bytes(run.calibrated_peak));
    }
    if (run.leave_one_out_peak_error) {
        text += fmt::format(", predicted by the other runs alone {:+.1f} % off",
                            100 * *run.leave_one_out_peak_error);
    }
    return text;
}

/// Mean and largest size of the errors of runs that are predicted by the others.
struct LeaveOneOut {
    double mean = 0;
    double largest = 0;
};

std::optional<LeaveOneOut> leave_one_out(const std::vector<sim::CalibratedRun>& runs) {
    std::vector<double> sizes;
    for (const sim::CalibratedRun& run : runs) {
        if (run.leave_one_out_error) {
            sizes.push_back(std::abs(*run.leave_one_out_error));
        }
    }
    if (sizes.empty()) {
        return std::nullopt;
    }
    LeaveOneOut errors{.largest = std::ranges::max(sizes)};
    for (const double size : sizes) {
        errors.mean += size / static_cast<double>(sizes.size());
    }
    return errors;
}

std::string leave_one_out_text(const LeaveOneOut& errors) {
    return fmt::format(
        "A run predicted by the factor of all others is {:.1f} % off in the mean, {:.1f} % at "
        "most.",
        100 * errors.mean,
        100 * errors.largest);
}

template <class Value>
Json value_or_null(const std::optional<Value>& value) {
    return value ? Json(*value) : Json(nullptr);
}

Json percent_or_null(const std::optional<double>& share) {
    return share ? Json(100 * *share) : Json(nullptr);
}

Json run_json(const sim::CalibratedRun& run) {
    constexpr double ms = 1e3;
    return {
        {"name", run.name},
        {"measured_step_ms", ms * run.measured_step},
        {"predicted_step_ms", ms * run.predicted_step},
        {"calibrated_step_ms", ms * run.calibrated_step},
        {"measured_peak_bytes", run.measured_peak ? Json(run.measured_peak->count) : Json(nullptr)},
        {"predicted_peak_bytes", run.predicted_peak.count},
        {"calibrated_peak_bytes", run.calibrated_peak.count},
        {"leave_one_out_error_percent", percent_or_null(run.leave_one_out_error)},
        {"leave_one_out_peak_error_percent", percent_or_null(run.leave_one_out_peak_error)}};
}

void add_runs(const std::vector<sim::CalibratedRun>& runs,
              const std::vector<std::string>& warnings,
              Json& json) {
    json["rows"] = Json::array();
    std::ranges::transform(runs, std::back_inserter(json["rows"]), run_json);
    const std::optional<LeaveOneOut> errors = leave_one_out(runs);
    json["leave_one_out_mean_percent"] = errors ? Json(100 * errors->mean) : Json(nullptr);
    json["leave_one_out_largest_percent"] = errors ? Json(100 * errors->largest) : Json(nullptr);
    json["warnings"] = warnings;
}

}  // namespace

std::string times_over_estimates(const sim::Calibration& calibration) {
    std::string text;
    if (calibration.messages_factor) {
        text += fmt::format("messages take {:.3g} times as long as estimated, ",
                            *calibration.messages_factor);
    }
    if (calibration.update_factor) {
        text += fmt::format("the optimizer's update {:.3g} times, ", *calibration.update_factor);
    }
    return text +
           fmt::format("layers take {:.3g} times as long as estimated", calibration.compute_factor);
}

std::string calibration_text(const std::optional<sim::Calibration>& calibration,
                             const Console& console) {
    if (!calibration) {
        return "";
    }
    Paragraph paragraph{.heading = "Calibration", .lines = {factor_text(*calibration)}};
    for (const sim::CalibratedRun& run : calibration->runs) {
        paragraph.lines.push_back(run_text(run));
    }
    if (const auto errors = leave_one_out(calibration->runs)) {
        paragraph.lines.push_back(leave_one_out_text(*errors));
    }
    return paragraph_text(paragraph, console.width()) + '\n';
}

std::string stack_calibration_text(const sim::StackCalibration& calibration,
                                   const Console& console) {
    Paragraph paragraph{.heading = "Times over those that the stack estimates", .lines = {}};
    for (const Stack::Calibrated& of : calibration.stack.calibrated) {
        const MeasuredFactors& by = of.factors.value;
        paragraph.lines.push_back(fmt::format(
            "{} in {}: products {:.3f}, attention {:.3f}, passes {:.3f}, messages inside a node "
            "{:.3f}, between nodes {:.3f}; bytes of activations {:.3f}",
            of.device,
            of.precision,
            by.products,
            by.attention,
            by.passes,
            by.inside,
            by.between,
            by.activations));
    }
    std::string text = paragraph_text(paragraph, console.width());
    paragraph = {.heading = "Runs", .lines = {}};
    std::ranges::transform(calibration.runs, std::back_inserter(paragraph.lines), run_text);
    if (const auto errors = leave_one_out(calibration.runs)) {
        paragraph.lines.push_back(leave_one_out_text(*errors));
    }
    return text + paragraph_text(paragraph, console.width());
}

Json calibration_json(const std::optional<sim::Calibration>& calibration) {
    if (!calibration) {
        return nullptr;
    }
    Json json{{"compute_factor", calibration->compute_factor},
              {"memory_factor", value_or_null(calibration->memory_factor)},
              {"messages_factor", value_or_null(calibration->messages_factor)},
              {"update_factor", value_or_null(calibration->update_factor)}};
    add_runs(calibration->runs, calibration->warnings, json);
    return json;
}

void add_stack_calibration(const sim::StackCalibration& calibration, Json& json) {
    json["calibrated"] = Json::array();
    for (const Stack::Calibrated& of : calibration.stack.calibrated) {
        const MeasuredFactors& by = of.factors.value;
        json["calibrated"].push_back({{"device", of.device},
                                      {"precision", of.precision},
                                      {"products", by.products},
                                      {"attention", by.attention},
                                      {"passes", by.passes},
                                      {"inside", by.inside},
                                      {"between", by.between},
                                      {"activations", by.activations}});
    }
    add_runs(calibration.runs, calibration.warnings, json);
}

}  // namespace pipetwin::cli
