// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/device_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using nlohmann::ordered_json;
using std::string_view;

constexpr int device_schema_version = 1;

void expect_version(const JsonObject& object) {
    if (object.whole("schema_version") != device_schema_version) {
        object.refuse("schema_version", fmt::format("{}", device_schema_version));
    }
}

/// Words that scenarios, errors and file names can carry.
std::string read_name(const JsonObject& object) {
    std::string name = object.text("name");
    const bool plain = std::ranges::all_of(
        name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
    if (name.empty() || !plain) {
        object.refuse("name", "a name of small letters, digits and '-'");
    }
    return name;
}

CostSource read_kind(const JsonObject& object) {
    const std::string word = object.text("kind");
    for (const CostSource kind :
         {CostSource::Measured, CostSource::Datasheet, CostSource::Estimated}) {
        if (to_string(kind) == word) {
            return kind;
        }
    }
    object.refuse("kind", "measured, datasheet or estimated");
}

/// `object` has besides what `read` takes a kind and a source.
template <class T, class Read>
Stated<T> read_stated(const JsonObject& object, Read read) {
    Stated<T> stated{.value = read(object), .kind = read_kind(object)};
    stated.source = object.text("source");
    if (stated.source.empty()) {
        object.refuse("source", "where the value comes from");
    }
    return stated;
}

/// {"value": 312e12, "kind": "datasheet", "source": "..."}; `read` takes the value.
template <class T, class Read>
Stated<T> read_stated(const JsonObject& parent, string_view key, Read read) {
    const JsonObject object = parent.object(key);
    object.expect_keys(std::array<string_view, 3>{"value", "kind", "source"});
    return read_stated<T>(object, read);
}

double read_share(const JsonObject& object, string_view key, string_view of = "dense rate") {
    const double share = object.number_or(key, 0);
    if (!(share > 0 && share <= 1)) {
        object.refuse(key, fmt::format("a share of the {}, above 0 and up to 1", of));
    }
    return share;
}

double read_half(const JsonObject& object, string_view key) {
    const double half = object.number_or(key, 0);
    if (!std::isfinite(half) || half < 0) {
        object.refuse(key, "a size that is not negative");
    }
    return half;
}

Stated<MatrixEfficiency> read_matrix_efficiency(const JsonObject& parent, string_view key) {
    const JsonObject object = parent.object(key);
    object.expect_keys(std::array<string_view, 4>{"large", "half_size", "kind", "source"});
    return read_stated<MatrixEfficiency>(object, [](const JsonObject& of) {
        return MatrixEfficiency{.large = read_share(of, "large"),
                                .half_size = read_half(of, "half_size")};
    });
}

Stated<AttentionEfficiency> read_attention_efficiency(const JsonObject& parent, string_view key) {
    const JsonObject object = parent.object(key);
    object.expect_keys(
        std::array<string_view, 5>{"forward", "backward", "half_sequence", "kind", "source"});
    return read_stated<AttentionEfficiency>(object, [](const JsonObject& of) {
        return AttentionEfficiency{.forward = read_share(of, "forward"),
                                   .backward = read_share(of, "backward"),
                                   .half_sequence = read_half(of, "half_sequence")};
    });
}

Stated<double> read_rate(const JsonObject& parent, string_view key) {
    return read_stated<double>(parent, key, [](const JsonObject& object) {
        const double rate = object.number_or("value", 0);
        if (!std::isfinite(rate) || rate <= 0) {
            object.refuse("value", "a finite number above 0");
        }
        return rate;
    });
}

Stated<Duration> read_time(const JsonObject& parent, string_view key) {
    return read_stated<Duration>(
        parent, key, [](const JsonObject& object) { return Duration{object.whole("value")}; });
}

Stated<Bytes> read_bytes(const JsonObject& parent, string_view key) {
    return read_stated<Bytes>(
        parent, key, [](const JsonObject& object) { return Bytes{object.whole("value")}; });
}

LinkFacts read_link(const JsonObject& parent, string_view key) {
    const JsonObject object = parent.object(key);
    object.expect_keys(std::array<string_view, 2>{"bytes_per_second", "latency_ns"});
    return {.bytes_per_second = read_rate(object, "bytes_per_second"),
            .latency = read_time(object, "latency_ns")};
}

/// Keys of the measured collectives, in their order.
constexpr std::array<string_view, measured_collectives> curve_keys{
    "all_gather_ns", "reduce_scatter_ns", "all_reduce_ns", "all_to_all_ns"};

/// Number of members, a key of `curves`.
int read_members(const JsonObject& curves, const std::string& key) {
    constexpr int most = 1'000'000;
    int members = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), members);
    if (error != std::errc{} || end != key.data() + key.size() || members < 2 || members > most) {
        curves.refuse(key, "a number of members as its key, 2 to 1,000,000");
    }
    return members;
}

std::vector<Duration> read_curve(const JsonObject& curves,
                                 const std::string& key,
                                 std::size_t sizes) {
    std::vector<Duration> curve;
    for (const std::int64_t time : curves.wholes(key)) {
        curve.emplace_back(time);
    }
    if (curve.size() != sizes) {
        curves.refuse(key, fmt::format("{}, one for each of the bytes", counted(sizes, "time")));
    }
    if (curve.front() < Duration(1) || !std::ranges::is_sorted(curve)) {
        curves.refuse(key,
                      "times above 0, none shorter than the one before",
                      "give a size that took longer than a larger one the time of the larger one");
    }
    return curve;
}

CollectiveTable read_curves(const JsonObject& object) {
    CollectiveTable table;
    for (const std::int64_t size : object.wholes("bytes")) {
        table.sizes.emplace_back(size);
    }
    const bool ascends =
        std::ranges::adjacent_find(table.sizes, std::greater_equal{}) == table.sizes.end();
    if (table.sizes.size() < 2 || table.sizes.front().count < 1 || !ascends) {
        object.refuse("bytes", "two sizes or more, each above 0 and above the one before");
    }
    for (std::size_t i = 0; i < curve_keys.size(); ++i) {
        if (object.has(curve_keys[i])) {
            const JsonObject curves = object.object(curve_keys[i]);
            for (const std::string& key : curves.keys()) {
                table.times[i][read_members(curves, key)] =
                    read_curve(curves, key, table.sizes.size());
            }
        }
    }
    if (std::ranges::all_of(table.times, [](const auto& curves) { return curves.empty(); })) {
        object.missing("all_gather_ns", "times of at least one collective, by members");
    }
    return table;
}

Stated<CollectiveTable> read_collectives(const JsonObject& parent) {
    const JsonObject object = parent.object("collectives");
    object.expect_keys(std::array<string_view, 3 + measured_collectives>{
        "bytes", curve_keys[0], curve_keys[1], curve_keys[2], curve_keys[3], "kind", "source"});
    return read_stated<CollectiveTable>(object, read_curves);
}

constexpr std::array<string_view, 7> precisions{
    "fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4"};

}  // namespace

DeviceProfile parse_device_profile(string_view text, string_view place) {
    const nlohmann::json root = parse_json(text, place);
    const JsonObject object(root, place, "");
    object.expect_keys(std::array<string_view, 16>{"schema_version",
                                                   "name",
                                                   "description",
                                                   "matrix_flops_per_second",
                                                   "matrix_efficiency",
                                                   "attention_efficiency",
                                                   "memory_bytes",
                                                   "memory_bytes_per_second",
                                                   "copy_efficiency",
                                                   "multiprocessors",
                                                   "device_link",
                                                   "host_link",
                                                   "launch_ns",
                                                   "context_bytes",
                                                   "communication_bytes",
                                                   "collectives"});
    expect_version(object);
    DeviceProfile device;
    device.name = read_name(object);
    device.description = object.text_or("description", "");
    const JsonObject rates = object.object("matrix_flops_per_second");
    rates.expect_keys(precisions);
    for (const string_view precision : precisions) {
        if (rates.has(precision)) {
            device.matrix_rates.emplace(precision, read_rate(rates, precision));
        }
    }
    if (device.matrix_rates.empty()) {
        object.refuse("matrix_flops_per_second", "a rate for at least one precision");
    }
    if (object.has("matrix_efficiency")) {
        const JsonObject efficiencies = object.object("matrix_efficiency");
        efficiencies.expect_keys(precisions);
        for (const string_view precision : precisions) {
            if (efficiencies.has(precision)) {
                device.matrix_efficiencies.emplace(precision,
                                                   read_matrix_efficiency(efficiencies, precision));
            }
        }
    }
    if (object.has("attention_efficiency")) {
        device.attention_efficiency = read_attention_efficiency(object, "attention_efficiency");
    }
    device.memory = read_bytes(object, "memory_bytes");
    if (device.memory.value.count == 0) {
        object.object("memory_bytes").refuse("value", "more than 0 bytes");
    }
    device.memory_rate = read_rate(object, "memory_bytes_per_second");
    if (object.has("copy_efficiency")) {
        device.copy_efficiency =
            read_stated<double>(object, "copy_efficiency", [](const JsonObject& of) {
                return read_share(of, "value", "memory rate");
            });
    }
    if (object.has("multiprocessors")) {
        device.multiprocessors =
            read_stated<int>(object, "multiprocessors", [](const JsonObject& of) {
                const std::int64_t count = of.whole("value");
                if (count < 1 || count > 1'000'000) {
                    of.refuse("value", "1 to 1,000,000");
                }
                return static_cast<int>(count);
            });
    }
    if (object.has("device_link")) {
        device.device_link = read_link(object, "device_link");
    }
    device.host_link = read_link(object, "host_link");
    device.launch = read_time(object, "launch_ns");
    device.context = read_bytes(object, "context_bytes");
    if (device.context.value >= device.memory.value) {
        object.object("context_bytes").refuse("value", "less than memory_bytes");
    }
    if (object.has("communication_bytes")) {
        device.communication = read_bytes(object, "communication_bytes");
        if (device.communication->value > device.context.value) {
            object.object("communication_bytes").refuse("value", "no more than context_bytes");
        }
    }
    if (object.has("collectives")) {
        device.collectives = read_collectives(object);
    }
    return device;
}

std::vector<LinkProfile> parse_link_profiles(string_view text, string_view place) {
    const nlohmann::json root = parse_json(text, place);
    const JsonObject object(root, place, "");
    object.expect_keys(std::array<string_view, 2>{"schema_version", "links"});
    expect_version(object);
    std::vector<LinkProfile> links;
    std::set<std::string> names;
    for (const JsonObject& entry : object.objects("links")) {
        entry.expect_keys(std::array<string_view, 5>{
            "name", "description", "bytes_per_second", "latency_ns", "half_bandwidth_bytes"});
        LinkProfile link;
        link.name = read_name(entry);
        if (!names.insert(link.name).second) {
            entry.refuse("name", "each name once");
        }
        link.description = entry.text_or("description", "");
        link.facts.bytes_per_second = read_rate(entry, "bytes_per_second");
        link.facts.latency = read_time(entry, "latency_ns");
        link.half_bandwidth = read_bytes(entry, "half_bandwidth_bytes");
        links.push_back(std::move(link));
    }
    return links;
}

namespace {

ordered_json number_of(int value) {
    return value;
}

ordered_json number_of(double value) {
    return value;
}

ordered_json number_of(Duration value) {
    return value.count();
}

ordered_json number_of(Bytes value) {
    return value.count;
}

template <class T>
ordered_json stated_json(const Stated<T>& stated) {
    return {{"value", number_of(stated.value)},
            {"kind", to_string(stated.kind)},
            {"source", stated.source}};
}

ordered_json facts_json(const LinkFacts& facts) {
    return {{"bytes_per_second", stated_json(facts.bytes_per_second)},
            {"latency_ns", stated_json(facts.latency)}};
}

ordered_json curves_json(const Stated<CollectiveTable>& stated) {
    ordered_json json{{"bytes", ordered_json::array()}};
    for (const Bytes size : stated.value.sizes) {
        json["bytes"].push_back(size.count);
    }
    for (std::size_t i = 0; i < curve_keys.size(); ++i) {
        for (const auto& [members, curve] : stated.value.times[i]) {
            ordered_json& times = json[std::string(curve_keys[i])][fmt::to_string(members)];
            for (const Duration time : curve) {
                times.push_back(time.count());
            }
        }
    }
    json["kind"] = to_string(stated.kind);
    json["source"] = stated.source;
    return json;
}

}  // namespace

std::string print_device_profile(const DeviceProfile& device) {
    ordered_json root{{"schema_version", device_schema_version},
                      {"name", device.name},
                      {"description", device.description},
                      {"matrix_flops_per_second", ordered_json::object()},
                      {"memory_bytes", stated_json(device.memory)},
                      {"memory_bytes_per_second", stated_json(device.memory_rate)}};
    for (const auto& [precision, rate] : device.matrix_rates) {
        root["matrix_flops_per_second"][precision] = stated_json(rate);
    }
    for (const auto& [precision, of] : device.matrix_efficiencies) {
        root["matrix_efficiency"][precision] = {{"large", of.value.large},
                                                {"half_size", of.value.half_size},
                                                {"kind", to_string(of.kind)},
                                                {"source", of.source}};
    }
    if (const auto& of = device.attention_efficiency) {
        root["attention_efficiency"] = {{"forward", of->value.forward},
                                        {"backward", of->value.backward},
                                        {"half_sequence", of->value.half_sequence},
                                        {"kind", to_string(of->kind)},
                                        {"source", of->source}};
    }
    if (device.copy_efficiency) {
        root["copy_efficiency"] = stated_json(*device.copy_efficiency);
    }
    if (device.multiprocessors) {
        root["multiprocessors"] = stated_json(*device.multiprocessors);
    }
    if (device.device_link) {
        root["device_link"] = facts_json(*device.device_link);
    }
    root["host_link"] = facts_json(device.host_link);
    root["launch_ns"] = stated_json(device.launch);
    root["context_bytes"] = stated_json(device.context);
    if (device.communication) {
        root["communication_bytes"] = stated_json(*device.communication);
    }
    if (device.collectives) {
        root["collectives"] = curves_json(*device.collectives);
    }
    return root.dump(1) + "\n";
}

std::string print_link_profiles(const std::vector<LinkProfile>& links) {
    ordered_json root{{"schema_version", device_schema_version}, {"links", ordered_json::array()}};
    for (const LinkProfile& link : links) {
        ordered_json& entry = root["links"].emplace_back(
            ordered_json{{"name", link.name}, {"description", link.description}});
        entry.update(facts_json(link.facts));
        entry["half_bandwidth_bytes"] = stated_json(link.half_bandwidth);
    }
    return root.dump(1) + "\n";
}

}  // namespace pipetwin
