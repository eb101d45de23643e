// SPDX-License-Identifier: Apache-2.0
#include "core/costs/calibrate.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace pipetwin {

namespace {

constexpr std::string_view whole_block = "block";

bool has_kind(const Profile& profile, std::string_view kind) {
    return std::ranges::find(profile.layers, kind, &LayerCost::kind) != profile.layers.end();
}

/// Whether a layer is half of a block of a model that is cut into halves: "block3.attention".
bool is_half_of_block(const LayerCost& layer) {
    return layer.name.starts_with(whole_block) && layer.name.find('.') != std::string::npos;
}

/// Layers that a point speaks of: those of its kind, or the halves of all blocks.
struct PointLayers {
    std::string_view kind;
    bool are_halves = false;

    PointLayers(const Profile& profile, std::string_view of_kind)
        : kind(of_kind), are_halves(of_kind == whole_block && !has_kind(profile, of_kind)) {}

    bool has(const LayerCost& layer) const {
        return are_halves ? is_half_of_block(layer) : layer.kind == kind;
    }
    /// Whether a layer stands for a new one of those that were measured.
    bool begins(const LayerCost& layer) const {
        return !are_halves || layer.name.ends_with(".feed_forward");
    }
};

/// The mean times of layers of one kind; none: there is no such layer.
std::optional<CalibrationPoint> mean_of(const Profile& profile,
                                        std::string_view kind,
                                        int micro_batch_size) {
    CalibrationPoint mean{.kind = std::string(kind), .micro_batch_size = micro_batch_size};
    const PointLayers of_point(profile, kind);
    int layers = 0;
    for (const LayerCost& layer : profile.layers) {
        if (of_point.has(layer)) {
            const LayerSample sample = cost_at(layer, micro_batch_size);
            mean.forward += sample.forward;
            mean.backward += sample.backward();
            layers += of_point.begins(layer) ? 1 : 0;
        }
    }
    if (layers == 0) {
        return std::nullopt;
    }
    mean.forward /= layers;
    mean.backward /= layers;
    return mean;
}

/// A point for whole blocks and one for their halves would correct the same times twice.
void expect_no_half_beside_block(const Profile& profile,
                                 const std::vector<CalibrationPoint>& points,
                                 std::string_view place) {
    const bool has_block =
        std::ranges::find(points, whole_block, &CalibrationPoint::kind) != points.end();
    const PointLayers block(profile, whole_block);
    if (!has_block || !block.are_halves) {
        return;
    }
    for (const CalibrationPoint& point : points) {
        const auto half = std::ranges::find_if(profile.layers, [&](const LayerCost& layer) {
            return layer.kind == point.kind && is_half_of_block(layer);
        });
        if (half != profile.layers.end()) {
            throw Error(ErrorKind::BadInput,
                        fmt::format("{}: kind '{}'", place, point.kind),
                        "beside kind 'block', whose times include it",
                        "leave one of them out");
        }
    }
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
    expect_no_half_beside_block(profile, points, place);
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
        const PointLayers of_point(profile, point.kind);
        for (LayerCost& layer : profile.layers) {
            if (!of_point.has(layer)) {
                continue;
            }
            layer.change_samples([&factors](LayerSample& sample) {
                const CalibrationFactor& by = factors.back();
                for (Duration* const time : {&sample.forward,
                                             &sample.core_forward,
                                             &sample.tail_forward,
                                             &sample.whole_forward,
                                             &sample.first_forward,
                                             &sample.last_forward}) {
                    *time = scaled(*time, by.forward);
                }
                for (Duration* const time : {&sample.backward_input,
                                             &sample.backward_weight,
                                             &sample.accumulation,
                                             &sample.whole_backward,
                                             &sample.first_input,
                                             &sample.first_weight,
                                             &sample.last_input}) {
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
