// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/evidence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using nlohmann::ordered_json;
using std::string_view;

constexpr std::array<string_view, 13> run_keys{"set",
                                               "stack",
                                               "device",
                                               "precision",
                                               "model",
                                               "parameters",
                                               "experts",
                                               "devices",
                                               "layout",
                                               "year",
                                               "source",
                                               "measured",
                                               "predicted"};
constexpr std::array<string_view, 9> range_keys{"stack",
                                                "device",
                                                "experts",
                                                "low",
                                                "high",
                                                "runs",
                                                "sources",
                                                "largest_devices",
                                                "order_error"};
constexpr std::array<string_view, 3> file_keys{"schema_version", "runs", "ranges"};

int number(const JsonObject& object, string_view key) {
    return static_cast<int>(object.whole(key));
}

bool has_experts(const JsonObject& object) {
    return object.has("experts") && object.flag("experts");
}

PublishedRun read_run(const JsonObject& object) {
    object.expect_keys(run_keys);
    return {.set = object.text("set"),
            .stack = object.text("stack"),
            .device = object.text("device"),
            .precision = object.text("precision"),
            .model = object.text("model"),
            .parameters = object.whole("parameters"),
            .experts = has_experts(object),
            .devices = number(object, "devices"),
            .layout = object.text("layout"),
            .year = number(object, "year"),
            .source = object.text("source"),
            .measured = object.number_or("measured", 0),
            .predicted = object.number_or("predicted", 0)};
}

PublishedRange read_range(const JsonObject& object) {
    object.expect_keys(range_keys);
    return {.stack = object.text("stack"),
            .device = object.text("device"),
            .experts = has_experts(object),
            .low = object.number_or("low", 1),
            .high = object.number_or("high", 1),
            .runs = number(object, "runs"),
            .sources = number(object, "sources"),
            .largest_devices = number(object, "largest_devices"),
            .order_error = object.has("order_error")
                               ? std::optional(object.number_or("order_error", 0))
                               : std::nullopt};
}

ordered_json json_of(const PublishedRun& run) {
    ordered_json json{{"set", run.set},
                      {"stack", run.stack},
                      {"device", run.device},
                      {"precision", run.precision},
                      {"model", run.model},
                      {"parameters", run.parameters}};
    if (run.experts) {
        json["experts"] = true;
    }
    json["devices"] = run.devices;
    json["layout"] = run.layout;
    json["year"] = run.year;
    json["source"] = run.source;
    json["measured"] = run.measured;
    json["predicted"] = run.predicted;
    return json;
}

ordered_json json_of(const PublishedRange& range) {
    ordered_json json{{"stack", range.stack}, {"device", range.device}};
    if (range.experts) {
        json["experts"] = true;
    }
    json["low"] = range.low;
    json["high"] = range.high;
    json["runs"] = range.runs;
    json["sources"] = range.sources;
    json["largest_devices"] = range.largest_devices;
    if (range.order_error) {
        json["order_error"] = *range.order_error;
    }
    return json;
}

/// A list of JSON with an element in each line.
template <class Value>
std::string lines_of(const std::vector<Value>& values) {
    std::vector<std::string> lines;
    std::ranges::transform(values, std::back_inserter(lines), [](const Value& value) {
        return "  " + json_of(value).dump();
    });
    return fmt::format("[\n{}\n ]", fmt::join(lines, ",\n"));
}

}  // namespace

const PublishedRange* Evidence::range_of(string_view stack,
                                         string_view device,
                                         bool experts) const {
    const auto found = std::ranges::find_if(ranges, [&](const PublishedRange& range) {
        return range.stack == stack && range.device == device && range.experts == experts;
    });
    return found == ranges.end() ? nullptr : &*found;
}

Evidence parse_evidence(string_view text, string_view place) {
    const auto root = parse_json(text, place);
    const JsonObject object(root, place, "");
    object.expect_keys(file_keys);
    if (object.whole("schema_version") != 1) {
        object.refuse("schema_version", "1");
    }
    Evidence evidence;
    std::ranges::transform(object.objects("runs"), std::back_inserter(evidence.runs), read_run);
    std::ranges::transform(
        object.objects("ranges"), std::back_inserter(evidence.ranges), read_range);
    return evidence;
}

std::string print_evidence(const Evidence& evidence) {
    return fmt::format("{{\n \"schema_version\": 1,\n \"runs\": {},\n \"ranges\": {}\n}}\n",
                       lines_of(evidence.runs),
                       lines_of(evidence.ranges));
}

std::vector<NearRun> nearest_runs(const Evidence& evidence, const RunLike& like, std::size_t most) {
    constexpr double of_difference = 0.5;
    constexpr double of_experts = 1;
    std::vector<std::pair<double, NearRun>> all;
    for (const PublishedRun& run : evidence.runs) {
        NearRun near{.run = run};
        for (const auto& [differs, word] : {std::pair(run.device != like.device, "device"),
                                            std::pair(run.precision != like.precision, "precision"),
                                            std::pair(run.stack != like.stack, "stack")}) {
            if (differs) {
                near.differs.emplace_back(word);
            }
        }
        const double of_words = of_difference * static_cast<double>(near.differs.size());
        const bool is_other_kind = run.experts != like.experts;
        if (is_other_kind) {
            near.differs.emplace_back("kind of model");
        }
        const double distance =
            std::abs(std::log(static_cast<double>(run.parameters) / like.parameters)) +
            std::abs(std::log(static_cast<double>(run.devices) / like.devices)) + of_words +
            (is_other_kind ? of_experts : 0);
        all.emplace_back(distance, std::move(near));
    }
    std::ranges::stable_sort(all, {}, &std::pair<double, NearRun>::first);
    std::vector<NearRun> nearest;
    for (auto& [distance, near] : all) {
        if (nearest.size() < most) {
            nearest.push_back(std::move(near));
        }
    }
    return nearest;
}

}  // namespace pipetwin
