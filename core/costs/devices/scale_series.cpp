// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/scale_series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "core/base/ascii.h"

namespace pipetwin {

namespace {

/// The layout without its number of replicas: "tensor parallel 4,  replicas that divide ...".
std::string layout_without_replicas(const std::string& layout) {
    const std::size_t word = layout.find(" replica");
    std::string text = layout;
    std::size_t begin = word == std::string::npos ? 0 : word;
    while (begin > 0 && ascii::is_digit(layout[begin - 1])) {
        --begin;
    }
    return word == std::string::npos ? text : text.erase(begin, word - begin);
}

}  // namespace

std::vector<ScaleSeries> scale_series(const Evidence& evidence) {
    constexpr int devices_of_a_node = 8;
    constexpr int least_ratio = 4;
    using Key =
        std::tuple<std::string, std::string, std::string, std::string, std::string, std::string>;
    std::map<Key, std::map<int, PublishedRun>> runs;
    for (const PublishedRun& run : evidence.runs) {
        if (run.devices < devices_of_a_node) {
            continue;
        }
        std::map<int, PublishedRun>& of_layout = runs[{run.set,
                                                       run.model,
                                                       run.device,
                                                       run.precision,
                                                       run.stack,
                                                       layout_without_replicas(run.layout)}];
        const auto [place, is_new] = of_layout.try_emplace(run.devices, run);
        if (!is_new && run.measured > place->second.measured) {
            place->second = run;
        }
    }
    std::vector<ScaleSeries> series;
    for (const auto& [key, of_layout] : runs) {
        const ScaleSeries one{.least = of_layout.begin()->second,
                              .most = of_layout.rbegin()->second};
        if (one.most.devices >= least_ratio * one.least.devices) {
            series.push_back(one);
        }
    }
    return series;
}

std::optional<ScaleSeries> nearest_series(const std::vector<ScaleSeries>& series,
                                          const RunLike& like) {
    constexpr double of_difference = 0.5;
    const auto distance = [&like](const ScaleSeries& one) {
        const PublishedRun& run = one.most;
        return std::abs(std::log(static_cast<double>(run.devices) / like.devices)) +
               of_difference * (run.device != like.device) +
               of_difference * (run.precision != like.precision) +
               of_difference * (run.stack != like.stack) + 1.0 * (run.experts != like.experts);
    };
    const auto nearest = std::ranges::min_element(series, {}, distance);
    return nearest == series.end() ? std::nullopt : std::optional(*nearest);
}

std::optional<double> median_unexplained_loss(const std::vector<ScaleSeries>& series) {
    if (series.empty()) {
        return std::nullopt;
    }
    std::vector<double> losses;
    for (const ScaleSeries& one : series) {
        losses.push_back(one.unexplained_loss());
    }
    std::ranges::sort(losses);
    const std::size_t half = losses.size() / 2;
    return losses.size() % 2 == 1 ? losses[half] : (losses[half - 1] + losses[half]) / 2;
}

}  // namespace pipetwin
