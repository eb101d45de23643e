#include "core/costs/calibrate.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace pipetwin {

namespace {

/// The mean times of a profile's layers of one kind; none: there is no such layer.
std::optional<CalibrationPoint> mean_of(const Profile& profile,
                                        std::string_view kind,
                                        int micro_batch_size) {
    CalibrationPoint mean{.kind = std::string(kind), .micro_batch_size = micro_batch_size};
    int layers = 0;
    for (const LayerCost& layer : profile.layers) {
        if (layer.kind == kind) {
            const LayerSample sample = cost_at(layer, micro_batch_size);
            mean.forward += sample.forward;
            mean.backward += sample.backward();
            ++layers;
        }
    }
    if (layers == 0) {
        return std::nullopt;
    }
    mean.forward /= layers;
    mean.backward /= layers;
    return mean;
}

/// Every kind of a profile, in the order of its layers.
std::vector<std::string> kinds_of(const Profile& profile) {
    std::vector<std::string> kinds;
    for (const LayerCost& layer : profile.layers) {
        if (!layer.kind.empty() && std::ranges::find(kinds, layer.kind) == kinds.end()) {
            kinds.push_back(layer.kind);
        }
    }
    return kinds;
}

double factor(Duration measured, Duration estimated, const std::string& what) {
    if (measured <= Duration{} || estimated <= Duration{}) {
        throw Error(ErrorKind::BadInput,
                    what,
                    fmt::format("measured {} ns, estimated {} ns, expected both above 0",
                                measured.count(),
                                estimated.count()),
                    "measure one layer of that kind, forward and backward");
    }
    return to_seconds(measured) / to_seconds(estimated);
}

}  // namespace

std::vector<CalibrationFactor> calibrate(Profile& profile,
                                         const std::vector<CalibrationPoint>& points,
                                         std::string_view place) {
    std::vector<CalibrationFactor> factors;
    for (const CalibrationPoint& point : points) {
        const std::string what = fmt::format("{}: kind '{}'", place, point.kind);
        const auto estimate = mean_of(profile, point.kind, point.micro_batch_size);
        if (!estimate) {
            throw Error(ErrorKind::BadInput,
                        what,
                        fmt::format("no layer of that kind, expected one of {}",
                                    fmt::join(kinds_of(profile), ", ")),
                        "leave the point out");
        }
        factors.push_back(
            {.kind = point.kind,
             .forward = factor(point.forward, estimate->forward, what + ", forward"),
             .backward = factor(point.backward, estimate->backward, what + ", backward")});
        for (LayerCost& layer : profile.layers) {
            if (layer.kind != point.kind) {
                continue;
            }
            layer.change_samples([&factors](LayerSample& sample) {
                const CalibrationFactor& by = factors.back();
                for (Duration* const time :
                     {&sample.forward, &sample.core_forward, &sample.whole_forward}) {
                    *time = scaled(*time, by.forward);
                }
                for (Duration* const time :
                     {&sample.backward_input, &sample.backward_weight, &sample.whole_backward}) {
                    *time = scaled(*time, by.backward);
                }
            });
        }
    }
    return factors;
}

std::vector<CalibrationPoint> points_of(const Profile& measured, int micro_batch_size) {
    std::vector<CalibrationPoint> points;
    for (const std::string& kind : kinds_of(measured)) {
        if (const auto point = mean_of(measured, kind, micro_batch_size)) {
            points.push_back(*point);
        }
    }
    return points;
}

}  // namespace pipetwin
