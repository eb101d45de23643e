// SPDX-License-Identifier: Apache-2.0
#include "core/costs/calibration_json.h"

#include <algorithm>
#include <array>
#include <limits>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/costs/profile_json.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using std::string_view;

CalibrationPoint read_point(const JsonObject& object) {
    object.expect_keys(
        std::array<string_view, 4>{"kind", "micro_batch_size", "forward_ns", "backward_ns"});
    const std::int64_t size = object.whole("micro_batch_size");
    if (size < 1 || size > std::numeric_limits<int>::max()) {
        object.refuse("micro_batch_size", "a number of samples, at least 1");
    }
    return {.kind = object.text("kind"),
            .micro_batch_size = static_cast<int>(size),
            .forward = Duration{object.whole("forward_ns")},
            .backward = Duration{object.whole("backward_ns")}};
}

}  // namespace

std::vector<CalibrationPoint> parse_calibration(string_view text,
                                                string_view place,
                                                int micro_batch_size) {
    const nlohmann::json root = parse_json(text, place);
    const JsonObject object(root, place, "");
    if (object.has("layers")) {
        return points_of(parse_profile(text, place), micro_batch_size);
    }
    object.expect_keys(std::array<string_view, 2>{"schema_version", "points"});
    if (object.whole("schema_version") != 1) {
        object.refuse("schema_version", "1");
    }
    if (!object.has("points")) {
        object.missing("points", "a list of measured points, or the layers of a profile");
    }
    std::vector<CalibrationPoint> points;
    for (const JsonObject& entry : object.objects("points")) {
        const CalibrationPoint point = read_point(entry);
        if (std::ranges::find(points, point.kind, &CalibrationPoint::kind) != points.end()) {
            entry.refuse("kind", "each kind once", "one point fixes one factor");
        }
        points.push_back(point);
    }
    return points;
}

std::string print_calibration(const std::vector<CalibrationPoint>& points) {
    nlohmann::ordered_json root{{"schema_version", 1}, {"points", nlohmann::ordered_json::array()}};
    for (const CalibrationPoint& point : points) {
        root["points"].push_back({{"kind", point.kind},
                                  {"micro_batch_size", point.micro_batch_size},
                                  {"forward_ns", point.forward.count()},
                                  {"backward_ns", point.backward.count()}});
    }
    return root.dump(1) + "\n";
}

}  // namespace pipetwin
