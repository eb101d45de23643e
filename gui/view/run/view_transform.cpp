// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/view_transform.h"

#include <algorithm>
#include <cstdint>

namespace pipetwin::gui {

namespace {

constexpr double margin_share = 0.02;
constexpr double min_ns_per_pixel = 1;

/// To whole nanoseconds; far outside any run (30 years) where the place is, so that no sum
/// overflows.
Duration rounded(double nanoseconds) {
    const double inside = std::clamp(nanoseconds, -1e18, 1e18);
    return Duration{static_cast<std::int64_t>(inside < 0 ? inside - 0.5 : inside + 0.5)};
}

double count(Duration duration) {
    return static_cast<double>(duration.count());
}

}  // namespace

Duration ViewTransform::time_at(double x) const {
    return origin + rounded(x * ns_per_pixel);
}

ViewTransform ViewTransform::zoomed(double factor, double x) const {
    const double finer = ns_per_pixel / factor;
    return {.origin = origin + rounded(x * (ns_per_pixel - finer)), .ns_per_pixel = finer};
}

ViewTransform ViewTransform::panned(double pixels) const {
    return {.origin = time_at(pixels), .ns_per_pixel = ns_per_pixel};
}

ViewTransform fitted(Duration begin, Duration end, double width) {
    const Duration length = end > begin ? end - begin : Duration{1000};
    const double ns_per_pixel = count(length) * (1 + 2 * margin_share) / std::max(1.0, width);
    return {.origin = begin - rounded(count(length) * margin_share), .ns_per_pixel = ns_per_pixel};
}

ViewTransform clamped(const ViewTransform& view, Duration length, double width) {
    const double run = std::max(1.0, count(length));
    const double pixels = std::max(1.0, width);
    const double coarsest = std::max(min_ns_per_pixel, 2 * run / pixels);
    const double scale = std::clamp(view.ns_per_pixel, min_ns_per_pixel, coarsest);
    const double half = scale * pixels / 2;
    const double middle = std::clamp(count(view.origin) + half, 0.0, run);
    return {.origin = rounded(middle - half), .ns_per_pixel = scale};
}

}  // namespace pipetwin::gui
