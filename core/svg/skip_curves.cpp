// SPDX-License-Identifier: Apache-2.0
#include "core/svg/skip_curves.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/schedule/edge.h"
#include "core/svg/svg_pieces.h"

namespace pipetwin::svg {

namespace {

constexpr double least_distance = 3;  // of curves that can be told apart, in pixels
constexpr double distance_growth = 1.5;
constexpr double widest_picture = 100'000;  // pixels

/// Key of a curve's two rows and its way.
std::tuple<double, double, bool> rows_of(const SkipCurve& curve) {
    return {curve.begin.y, curve.end.y, curve.gradient};
}

/// Leaves out each of the sorted curves that is nearer than `distance` to the one kept before it,
/// between the same rows.
std::vector<std::size_t> thinned(std::span<const SkipCurve> curves,
                                 const std::vector<std::size_t>& sorted,
                                 double distance) {
    std::vector<std::size_t> kept;
    for (const std::size_t at : sorted) {
        const SkipCurve* const last = kept.empty() ? nullptr : &curves[kept.back()];
        if (last == nullptr || rows_of(*last) != rows_of(curves[at]) ||
            std::abs(curves[at].begin.x - last->begin.x) >= distance ||
            std::abs(curves[at].end.x - last->end.x) >= distance) {
            kept.push_back(at);
        }
    }
    return kept;
}

}  // namespace

std::array<Point, 2> SkipCurve::controls() const {
    const double half = (end.y - begin.y) / 2;
    return {{{begin.x, begin.y + half}, {end.x, end.y - half}}};
}

std::vector<std::size_t> curves_apart(std::span<const SkipCurve> curves, std::size_t most) {
    std::vector<std::size_t> all(curves.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (curves.size() <= most) {
        return all;
    }
    std::ranges::sort(all, {}, [&](std::size_t at) {
        const SkipCurve& curve = curves[at];
        return std::tuple(rows_of(curve), curve.begin.x, curve.end.x);
    });
    std::vector<std::size_t> kept = thinned(curves, all, least_distance);
    for (double distance = least_distance * distance_growth;
         kept.size() > most && distance < widest_picture;
         distance *= distance_growth) {
        kept = thinned(curves, all, distance);
    }
    const std::size_t every = (kept.size() + most - 1) / most;  // of pairs of rows beyond counting
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i < kept.size(); i += every) {
        shown.push_back(kept[i]);
    }
    std::ranges::sort(shown);
    return shown;
}

bool has_skip_messages(const Timeline& timeline) {
    return std::ranges::any_of(timeline.ranks, [](const std::vector<Span>& row) {
        return std::ranges::any_of(row, [](const Span& span) { return span.action.hop != 0; });
    });
}

void SkipCurves::add(int side, const Span& span, const Place& place) {
    Action send = is_send(span.action.op) ? span.action : other_end(span.action);
    send.with_next = false;
    const End end{.place = place, .time = span.end};
    if (is_send(span.action.op)) {
        sends_.emplace(Key{side, send}, end);
    } else {
        receives_.emplace_back(Key{side, send}, end);
    }
}

std::vector<SkipCurves::Found> SkipCurves::matched() const {
    std::vector<Found> found;
    for (const auto& [key, taken] : receives_) {
        const auto send = sends_.find(key);
        if (send == sends_.end()) {
            continue;
        }
        const Place& from = send->second.place;
        const Place& to = taken.place;
        const Action& action = std::get<Action>(key);
        found.push_back({.curve = {.begin = {from.x, facing_edge(from.top, from.bottom, to.top)},
                                   .end = {to.x, facing_edge(to.top, to.bottom, from.top)},
                                   .gradient = action.op == Op::SendBackward},
                         .send = action,
                         .sent = send->second.time,
                         .taken = taken.time});
    }
    return found;
}

std::string SkipCurves::draw() {
    const std::vector<Found> found = matched();
    if (found.empty()) {
        return "";
    }
    std::vector<SkipCurve> curves;
    for (const Found& message : found) {
        curves.push_back(message.curve);
        ++counts_.at(message.curve.gradient ? 1 : 0);
    }
    const std::vector<std::size_t> shown = curves_apart(curves);
    drawn_ = shown.size();
    std::string edges;
    std::string lines;
    for (const std::size_t at : shown) {
        const std::string path = curve_path(curves[at]);
        edges += path;
        lines += fmt::format(
            "<path d=\"{}\"{}><title>{}: handed over at {:.3f} ms, taken at "
            "{:.3f} ms</title></path>\n",
            path,
            curve_stroke(curves[at].gradient),
            escaped(to_string(found[at].send)),
            to_milliseconds(found[at].sent),
            to_milliseconds(found[at].taken));
    }
    return fmt::format(
        "<g fill=\"none\" stroke-width=\"1.3\">\n<path d=\"{}\" stroke=\"#FFFFFF\" "
        "stroke-opacity=\".75\" stroke-width=\"3.3\"/>\n{}</g>\n",
        edges,
        lines);
}

std::string SkipCurves::left_out_words() const {
    const std::size_t all = counts_[0] + counts_[1];
    return drawn_ == all
               ? ""
               : fmt::format("{} of {} skip messages drawn: the others lie too close to tell apart",
                             drawn_,
                             all);
}

std::string curve_path(const SkipCurve& curve) {
    const auto [first, second] = curve.controls();
    constexpr double head = 2.4;
    const double back = curve.end.y > curve.begin.y ? -4 : 4;
    return fmt::format("M{} {}C{} {} {} {} {} {}m{} {}l{} {}l{} {}",
                       number(curve.begin.x),
                       number(curve.begin.y),
                       number(first.x),
                       number(first.y),
                       number(second.x),
                       number(second.y),
                       number(curve.end.x),
                       number(curve.end.y),
                       number(-head),
                       number(back),
                       number(head),
                       number(-back),
                       number(head),
                       number(back));
}

std::string curve_stroke(bool gradient) {
    return gradient ? fmt::format(" stroke=\"{}\" stroke-dasharray=\"5 2\"", skip_gradient_ink)
                    : fmt::format(" stroke=\"{}\"", skip_ink);
}

}  // namespace pipetwin::svg
