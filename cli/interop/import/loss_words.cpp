// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/loss_words.h"

#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/number_text.h"
#include "core/base/word_list.h"

namespace pipetwin::cli {

namespace {

/// "at iteration 10", or "in line 512" where the program does not say the iteration.
std::string place_of(const LoggedLoss& loss) {
    return loss.iteration > 0 ? fmt::format("at iteration {}", loss.iteration)
                              : fmt::format("in line {}", loss.line);
}

Json report_json(const std::optional<LoggedLoss>& report, bool is_number) {
    if (!report) {
        return nullptr;
    }
    Json json = Json::object();
    if (is_number) {
        json["loss"] = report->loss;
    }
    json["iteration"] = report->iteration > 0 ? Json(report->iteration) : Json(nullptr);
    json["line"] = report->line;
    return json;
}

}  // namespace

std::string loss_text(const LossCourse& course) {
    if (!course.first) {
        return fmt::format("no number in {}", counted(course.reports, "report"));
    }
    return fmt::format("{:.4g} {}, {:.4g} {} ({})",
                       course.first->loss,
                       place_of(*course.first),
                       course.last->loss,
                       place_of(*course.last),
                       counted(course.reports, "report"));
}

std::vector<std::string> loss_warnings(const LossCourse& course) {
    std::vector<std::string> warnings;
    if (course.first_not_finite) {
        const LoggedLoss& first = *course.first_not_finite;
        warnings.push_back(
            fmt::format("the loss is no number in {} of {}, the first {}{}",
                        course.not_finite,
                        counted(course.reports, "report"),
                        place_of(first),
                        first.iteration > 0 ? fmt::format(" (line {})", first.line) : ""));
    }
    if (course.spike) {
        const LossSpike& spike = *course.spike;
        warnings.push_back(fmt::format(
            "the loss rises to {:.4g} {}, from a median of {:.4g} in the reports before",
            spike.at.loss,
            place_of(spike.at),
            spike.before));
    }
    return warnings;
}

Json loss_json(const LossCourse& course) {
    Json json = Json::object();
    json["reports"] = course.reports;
    json["first"] = report_json(course.first, true);
    json["last"] = report_json(course.last, true);
    json["not_finite"] = course.not_finite;
    json["first_not_finite"] = report_json(course.first_not_finite, false);
    json["spike"] = nullptr;
    if (course.spike) {
        json["spike"] = report_json(course.spike->at, true);
        json["spike"]["median_before"] = course.spike->before;
    }
    return json;
}

}  // namespace pipetwin::cli
