// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder/learning_curve.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view faint = "var(--faint, #646b75)";
constexpr std::string_view line_colour = "var(--line, #dcdfe4)";
constexpr std::string_view of_training = "var(--accent, #0072b2)";
constexpr std::string_view of_validation = "var(--second, #b45309)";

struct Point {
    double step = 0;
    double value = 0;
};

/// What one of the two pictures shows.
struct Panel {
    std::string title;
    std::vector<Point> training;
    std::vector<Point> validation;
    double lowest = 0;
    double highest = 1;
    double tick = 0.5;
    bool is_share = false;  ///< written in percent
};

using Value = std::function<std::optional<double>(const exec::StepReport&)>;

/// Values that there are and are finite.
std::vector<Point> points_of(std::span<const exec::StepReport> steps, const Value& value) {
    std::vector<Point> points;
    for (const exec::StepReport& step : steps) {
        const std::optional<double> number = value(step);
        if (number && std::isfinite(*number)) {
            points.push_back({.step = static_cast<double>(step.step), .value = *number});
        }
    }
    return points;
}

/// The mean of each point and of those around it: a twentieth of all.
std::vector<Point> smooth(const std::vector<Point>& points) {
    const std::size_t reach = points.size() / 40;
    std::vector<double> sums{0};  // of the points before each
    for (const Point& point : points) {
        sums.push_back(sums.back() + point.value);
    }
    std::vector<Point> means;
    for (std::size_t index = 0; index < points.size(); ++index) {
        const std::size_t begin = index - std::min(index, reach);
        const std::size_t end = std::min(points.size(), index + reach + 1);
        means.push_back({.step = points[index].step,
                         .value = (sums[end] - sums[begin]) / static_cast<double>(end - begin)});
    }
    return means;
}

/// The lowest and the highest of neighbouring points, so that a long training run has a line of a
/// thousand points that looks the same.
std::vector<Point> thinned(const std::vector<Point>& points) {
    constexpr std::size_t columns = 500;  // about the width of the picture in pixels
    if (points.size() <= 2 * columns) {
        return points;
    }
    std::vector<Point> kept;
    for (std::size_t column = 0; column < columns; ++column) {
        const std::span<const Point> part = std::span(points).subspan(
            points.size() * column / columns,
            points.size() * (column + 1) / columns - points.size() * column / columns);
        const auto [low, high] = std::ranges::minmax_element(part, {}, &Point::value);
        kept.push_back(*std::min(low, high));  // the earlier of both first
        kept.push_back(*std::max(low, high));
    }
    return kept;
}

class Picture {
  public:
    Picture(double first_step, double last_step)
        : first_(first_step), steps_(std::max(1.0, last_step - first_step)) {}

    void add(const Panel& panel) {
        panel_ = &panel;
        top_ = height_ + 22;
        height_ += 196;
        text(left, top_ - 8, "start", panel.title);
        for (double value = panel.lowest; value <= panel.highest + 1e-9; value += panel.tick) {
            svg_ += fmt::format(
                "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" "
                "stroke=\"{3}\"/>\n",
                left,
                right,
                y(value),
                line_colour);
            text(left - 6,
                 y(value) + 4,
                 "end",
                 panel.is_share ? fmt::format("{:.0f} %", 100 * value)
                                : fmt::format("{:.1f}", value));
        }
        constexpr std::size_t many = 100;
        const bool is_noisy = panel.training.size() > many;
        polyline(thinned(panel.training), of_training, is_noisy ? 0.8 : 1.8, is_noisy ? 0.35 : 1);
        if (is_noisy) {
            polyline(thinned(smooth(panel.training)), of_training, 1.8, 1);
        }
        polyline(panel.validation, of_validation, 1.8, 1);
        for (const Point& point : panel.validation) {
            svg_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" fill=\"{}\"/>\n",
                                x(point.step),
                                y(point.value),
                                of_validation);
        }
    }

    std::string finished(bool has_validation) {
        const double base = height_ + 14;
        text(left, base, "start", fmt::format("step {:.0f}", first_));
        text(right, base, "end", fmt::format("step {:.0f}", first_ + steps_));
        if (has_validation) {
            const double middle = (left + right) / 2;
            svg_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" fill=\"{}\"/>\n",
                                middle - 34,
                                base - 4,
                                of_validation);
            text(middle - 26, base, "start", "validation");
        }
        return fmt::format(
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 520 {:.0f}\" "
                   "role=\"img\" aria-label=\"loss of every step\" font-size=\"11\" "
                   "font-family=\"sans-serif\" fill=\"{}\">\n",
                   height_ + 22,
                   faint) +
               svg_ + "</svg>\n";
    }

  private:
    static constexpr double left = 44;
    static constexpr double right = 512;

    double x(double step) const { return left + (right - left) * (step - first_) / steps_; }
    double y(double value) const {
        const double share = (panel_->highest - value) / (panel_->highest - panel_->lowest);
        return top_ + (height_ - top_ - 8) * share;
    }

    void text(double at_x, double at_y, std::string_view anchor, std::string_view words) {
        svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                            at_x,
                            at_y,
                            anchor,
                            words);
    }

    void polyline(const std::vector<Point>& points,
                  std::string_view colour,
                  double width,
                  double opacity) {
        if (points.empty()) {
            return;
        }
        std::string places;
        for (const Point& point : points) {
            places += fmt::format("{:.1f},{:.1f} ", x(point.step), y(point.value));
        }
        svg_ += fmt::format(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
            "stroke-opacity=\"{}\" stroke-linejoin=\"round\"/>\n",
            places,
            colour,
            width,
            opacity);
    }

    double first_;
    double steps_;
    double top_ = 0;
    double height_ = 0;
    const Panel* panel_ = nullptr;
    std::string svg_;
};

Panel loss_panel(std::span<const exec::StepReport> steps) {
    Panel panel{
        .title = "loss",
        .training = points_of(steps, [](const auto& step) { return std::optional(step.loss); }),
        .validation = points_of(steps, [](const auto& step) { return step.validation_loss; })};
    double lowest = std::numeric_limits<double>::infinity();
    double highest = -lowest;
    for (const std::vector<Point>* const points : {&panel.training, &panel.validation}) {
        for (const Point& point : *points) {
            lowest = std::min(lowest, point.value);
            highest = std::max(highest, point.value);
        }
    }
    if (lowest <= highest) {
        panel.lowest = std::floor(lowest * 2) / 2;
        panel.highest = std::max(std::ceil(highest * 2) / 2, panel.lowest + 0.5);
        // The least of 0.5, 1, 2, 5, 10, ... that makes eight lines or fewer.
        for (int n = 0; (panel.highest - panel.lowest) / panel.tick > 8; ++n) {
            panel.tick *= n % 3 == 2 ? 2.5 : 2;
        }
    }
    return panel;
}

}  // namespace

std::string learning_curve_svg(std::span<const exec::StepReport> steps) {
    Picture picture(steps.front().step, steps.back().step);
    const Panel loss = loss_panel(steps);
    picture.add(loss);
    const Panel right{
        .title = "classes right",
        .training = points_of(steps, [](const auto& step) { return step.accuracy; }),
        .validation = points_of(steps, [](const auto& step) { return step.validation_accuracy; }),
        .tick = 0.25,
        .is_share = true};
    if (!right.training.empty() || !right.validation.empty()) {
        picture.add(right);
    }
    return picture.finished(!loss.validation.empty());
}

}  // namespace pipetwin::cli
