// SPDX-License-Identifier: Apache-2.0
#include "cli/text/calibration_text.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/text/sentences.h"
#include "core/base/number_text.h"

namespace pipetwin::cli {

namespace {

std::string factor_text(const sim::Calibration& calibration) {
    std::string text =
        fmt::format("Calibrated by {}: layers take {:.3g} times as long as estimated",
                    counted(std::ssize(calibration.runs), "measured run"),
                    calibration.compute_factor);
    if (calibration.memory_factor) {
        text += fmt::format(", and keep {:.3g} times the estimated bytes of activations",
                            *calibration.memory_factor);
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

std::optional<LeaveOneOut> leave_one_out(const sim::Calibration& calibration) {
    if (calibration.runs.size() < 2) {
        return std::nullopt;
    }
    LeaveOneOut errors;
    for (const sim::CalibratedRun& run : calibration.runs) {
        const double size = std::abs(run.leave_one_out_error.value_or(0));
        errors.mean += size / static_cast<double>(calibration.runs.size());
        errors.largest = std::max(errors.largest, size);
    }
    return errors;
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

}  // namespace

std::string calibration_text(const std::optional<sim::Calibration>& calibration,
                             const Console& console) {
    if (!calibration) {
        return "";
    }
    Paragraph paragraph{.heading = "Calibration", .lines = {factor_text(*calibration)}};
    for (const sim::CalibratedRun& run : calibration->runs) {
        paragraph.lines.push_back(run_text(run));
    }
    if (const std::optional<LeaveOneOut> errors = leave_one_out(*calibration)) {
        paragraph.lines.push_back(fmt::format(
            "A run predicted by the factor of all others is {:.1f} % off in the mean, {:.1f} % at "
            "most.",
            100 * errors->mean,
            100 * errors->largest));
    }
    return paragraph_text(paragraph, console.width()) + '\n';
}

Json calibration_json(const std::optional<sim::Calibration>& calibration) {
    if (!calibration) {
        return nullptr;
    }
    Json json{{"compute_factor", calibration->compute_factor},
              {"memory_factor", value_or_null(calibration->memory_factor)},
              {"rows", Json::array()},
              {"leave_one_out_mean_percent", nullptr},
              {"leave_one_out_largest_percent", nullptr},
              {"warnings", calibration->warnings}};
    for (const sim::CalibratedRun& run : calibration->runs) {
        json["rows"].push_back(run_json(run));
    }
    if (const std::optional<LeaveOneOut> errors = leave_one_out(*calibration)) {
        json["leave_one_out_mean_percent"] = 100 * errors->mean;
        json["leave_one_out_largest_percent"] = 100 * errors->largest;
    }
    return json;
}

}  // namespace pipetwin::cli
