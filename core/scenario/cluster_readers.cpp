// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/cluster_readers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/costs/devices/device_profile.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_choice.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"

namespace pipetwin {

namespace {

using std::string_view;

void expect_device(const TomlTable& table, string_view key, const std::string& name) {
    if (name == this_machine) {
        return;
    }
    const std::vector<std::string> shipped = device_names();
    if (std::ranges::find(shipped, name) != shipped.end()) {
        return;
    }
    std::vector<string_view> known{this_machine};
    known.insert(known.end(), shipped.begin(), shipped.end());
    const string_view near = nearest_word(name, known);
    table.refuse(
        key,
        fmt::format("devices out of {}", fmt::join(known, ", ")),
        shipped.empty()
            ? Hint(fmt::format("there are no device profiles in {}; PIPETWIN_PROFILES names "
                               "another folder",
                               profiles_folder().string()))
        : near.empty() ? "'pipetwin devices' lists what is known of each"
                       : did_you_mean(near));
}

}  // namespace

void read_device(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    std::string& device = scenario.cluster.device;
    device = table.text(key.name).value_or(device);
    expect_device(table, key.name, device);
}

void print_device(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (scenario.cluster.devices.empty()) {
        writer.string(key.name, scenario.cluster.device);
    }
}

void read_rank_devices(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    std::vector<std::string>& devices = scenario.cluster.devices;
    devices = table.texts(key.name).value_or(devices);
    for (const std::string& name : devices) {
        expect_device(table, key.name, name);
    }
}

void print_rank_devices(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (!scenario.cluster.devices.empty()) {
        writer.strings(key.name, scenario.cluster.devices);
    }
}

void read_speeds(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    std::vector<double>& speeds = scenario.cluster.speeds;
    speeds = table.numbers(key.name, key.range).value_or(speeds);
    if (std::ranges::any_of(speeds, [](double speed) { return speed < 1e-6; })) {
        table.refuse(key.name, "speeds from 0.000001 to 1000000, 1 being that of the costs");
    }
}

void print_speeds(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (!scenario.cluster.speeds.empty()) {
        writer.list(key.name, scenario.cluster.speeds);
    }
}

void read_placement(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    Scenario::ClusterPart& cluster = scenario.cluster;
    if (table.is_list(key.name)) {
        cluster.placement = Placement::Written;
        cluster.nodes = *table.integers(key.name, key.range);
    } else if (const auto placement = table.choice(key.name, key.words)) {
        cluster.placement = static_cast<Placement>(*placement);
    }
}

void print_placement(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    if (cluster.placement == Placement::Written) {
        writer.list(key.name, cluster.nodes);
    } else {
        writer.string(key.name, to_string(cluster.placement));
    }
}

std::string read_link_name(const TomlTable& table, string_view key) {
    const std::optional<std::string> name = table.text(key);
    if (name) {
        try {
            find_link(*name);
        } catch (const Error& error) {
            throw error.at(table.place(key));
        }
    }
    return name.value_or("");
}

void read_stack(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    std::string& stack = scenario.cluster.stack;
    stack = table.text(key.name).value_or("");
    if (is_stack_file(stack)) {
        stack = resolve(scenario.file, stack).string();
    }
    if (!stack.empty() && stack != no_stack) {
        try {
            find_stack(stack);
        } catch (const Error& error) {
            throw error.at(table.place(key.name));
        }
    }
}

void print_stack(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (const std::string& stack = scenario.cluster.stack; !stack.empty()) {
        writer.string(key.name, stack);
    }
}

void read_memory_limit(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    if (table.is_list(key.name)) {
        scenario.cluster.memory_limits = *table.all_bytes(key.name);
    } else {
        scenario.cluster.memory_limit = table.bytes(key.name);
    }
}

void print_memory_limit(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    if (cluster.memory_limit) {
        writer.number(key.name, cluster.memory_limit->count);
    } else if (!cluster.memory_limits.empty()) {
        std::vector<std::int64_t> limits;
        std::ranges::transform(cluster.memory_limits, std::back_inserter(limits), &Bytes::count);
        writer.list(key.name, limits);
    }
}

void read_interference(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    Scenario::ClusterPart& cluster = scenario.cluster;
    if (table.is_list(key.name)) {
        cluster.pair_interference = *table.rows_of_numbers(key.name, key.range);
    } else {
        cluster.interference = table.number(key.name, key.range);
    }
}

void print_interference(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    if (cluster.interference) {
        writer.number(key.name, *cluster.interference);
    } else if (!cluster.pair_interference.empty()) {
        writer.lists(key.name, cluster.pair_interference);
    }
}

/// The last word says that there is none.
void read_link_sharing(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    const auto sharing = table.choice(key.name, key.words);
    if (sharing && key.words[*sharing] != "none") {
        scenario.cluster.link_sharing = static_cast<LinkSharing>(*sharing);
    }
}

void print_link_sharing(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const std::optional<LinkSharing>& sharing = scenario.cluster.link_sharing;
    writer.string(key.name, sharing ? key.words[as_index(*sharing)] : key.words.back());
}

namespace {

constexpr std::array<std::pair<string_view, double>, 15> bytes_of_units{{{"B", 1},
                                                                         {"kB", 1e3},
                                                                         {"KB", 1e3},
                                                                         {"MB", 1e6},
                                                                         {"GB", 1e9},
                                                                         {"TB", 1e12},
                                                                         {"KiB", 0x1p10},
                                                                         {"MiB", 0x1p20},
                                                                         {"GiB", 0x1p30},
                                                                         {"TiB", 0x1p40},
                                                                         {"bit", 1e0 / 8},
                                                                         {"kbit", 1e3 / 8},
                                                                         {"Mbit", 1e6 / 8},
                                                                         {"Gbit", 1e9 / 8},
                                                                         {"Tbit", 1e12 / 8}}};

/// Bytes per second of "12 GB/s" or "100 Gbit/s"; none for other texts.
std::optional<double> rate_of(string_view text) {
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, number);
    string_view unit(rest, as_index(end - rest));
    unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
    if (status != std::errc{} || !std::isfinite(number) || !unit.ends_with("/s")) {
        return std::nullopt;
    }
    unit.remove_suffix(2);
    const auto found =
        std::ranges::find(bytes_of_units, unit, &std::pair<string_view, double>::first);
    return found == bytes_of_units.end() ? std::nullopt : std::optional(number * found->second);
}

/// A number with its unit, or that of a class of links.
double read_rate(const TomlTable& table, string_view key) {
    constexpr string_view expected =
        "a number above 0 with its unit, as in \"12 GB/s\" or \"100 Gbit/s\", or a class of links";
    if (!table.has(key)) {
        table.missing(key, expected);
    }
    if (!table.is_text(key)) {
        const std::optional<double> number = table.number(key, {-(1 << 30), 1 << 30});
        table.refuse(key,
                     expected,
                     fmt::format("write {} = \"{:g} GB/s\" if these are GB/s",
                                 key,
                                 number.value_or(0) > 0 ? *number : 12));
    }
    const std::string text = *table.text(key);
    const std::optional<double> rate = rate_of(text);
    if (rate && (*rate < 1 || *rate > 1e17)) {
        table.refuse(
            key, "a rate from 1 B/s to 100000 TB/s", "a PCIe 3.0 slot: rate = \"12 GB/s\"");
    }
    if (rate) {
        return *rate;
    }
    if (!text.empty() && text.front() >= '0' && text.front() <= '9') {
        table.refuse(
            key, expected, "units are B/s to TB/s and bit/s to Tbit/s: rate = \"12 GB/s\"");
    }
    try {
        return link_cost(find_link(text)).bytes_per_second;
    } catch (const Error& error) {
        throw error.at(table.place(key));
    }
}

/// "[0, 1, 2]"
std::string list_text(const std::vector<int>& devices) {
    return fmt::format("[{}]", fmt::join(devices, ", "));
}

std::vector<int> read_sharing_devices(const TomlTable& table, string_view key, int per_node) {
    const std::string expected =
        fmt::format("devices of a node, which cluster.per_node = {} numbers from 0 to {}",
                    per_node,
                    per_node - 1);
    if (!table.has(key)) {
        table.missing(key, expected);
    }
    std::vector<int> devices = *table.integers(key, {-(1 << 30), 1 << 30});
    std::ranges::sort(devices);
    if (devices.empty()) {
        table.refuse(key, "at least one device", "name those that share the link, as in [0, 1]");
    }
    if (devices.front() < 0 || devices.back() >= per_node) {
        const int unknown = devices.front() < 0 ? devices.front() : devices.back();
        table.refuse(key,
                     expected,
                     unknown < 0 ? fmt::format("there is no device {}: the first one is 0", unknown)
                                 : fmt::format("leave device {} out, or set cluster.per_node = {}",
                                               unknown,
                                               unknown + 1));
    }
    std::vector<int> once = devices;
    const auto rest = std::ranges::unique(once);
    once.erase(rest.begin(), rest.end());
    if (once.size() < devices.size()) {
        table.refuse(key, "each device once", fmt::format("write {} = {}", key, list_text(once)));
    }
    return devices;
}

/// Links of a node form a tree: of two, one has all devices of the other, or they have none in
/// common. By an uplink a device leaves the node, so it has one of them.
void expect_tree(const TomlTable& table,
                 string_view key,
                 const NodeLink& link,
                 const std::vector<NodeLink>& others) {
    const auto is_uplink = [](const NodeLink& of) { return of.kind == SharedLinkKind::Uplink; };
    for (std::size_t index = 0; index < others.size(); ++index) {
        const NodeLink& other = others[index];
        std::vector<int> common;
        std::ranges::set_intersection(link.devices, other.devices, std::back_inserter(common));
        if (common.empty() || is_uplink(link) != is_uplink(other)) {
            continue;
        }
        const std::string earlier = fmt::format("cluster.shared_link[{}], {} = {}, {}",
                                                index,
                                                key,
                                                list_text(other.devices),
                                                to_string(other.kind));
        if (link.kind == other.kind && link.devices == other.devices) {
            table.refuse(key,
                         fmt::format("devices that do not share another {} already ({})",
                                     to_string(link.kind),
                                     earlier),
                         "write one of the two, with the rate of both together");
        }
        const bool nests = !is_uplink(link) && (common == link.devices || common == other.devices);
        if (!nests) {
            std::vector<int> alone;
            std::ranges::set_difference(link.devices, common, std::back_inserter(alone));
            table.refuse(
                key,
                fmt::format("{}none of those of {}",
                            is_uplink(link) ? "" : "all of these among those of, or ",
                            earlier),
                alone.empty()
                    ? "a device leaves its node by one uplink"
                    : fmt::format("without those in common: {} = {}", key, list_text(alone)));
        }
    }
}

}  // namespace

void read_shared_links(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    constexpr string_view devices_key = "devices";
    constexpr string_view kind_key = "kind";
    std::vector<NodeLink>& links = scenario.cluster.shared_links;
    for (const TomlTable& entry : table.tables(key.name)) {
        entry.expect_keys(std::array<string_view, 3>{devices_key, "rate", kind_key});
        NodeLink link{
            .devices = read_sharing_devices(entry, devices_key, scenario.cluster.per_node),
            .bytes_per_second = read_rate(entry, "rate")};
        const auto kind = entry.choice(kind_key, key.words);
        if (!kind) {
            entry.missing(kind_key, fmt::format("one of {}", fmt::join(key.words, ", ")));
        }
        link.kind = static_cast<SharedLinkKind>(*kind);
        if (link.kind == SharedLinkKind::Socket &&
            std::ssize(link.devices) == scenario.cluster.per_node) {
            entry.refuse(devices_key,
                         "those of one socket, as messages to those of others pass the link",
                         "write kind = \"host\" for a link of all devices of a node");
        }
        expect_tree(entry, devices_key, link, links);
        links.push_back(std::move(link));
    }
}

void print_shared_links(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    for (const NodeLink& link : scenario.cluster.shared_links) {
        writer.list_entry(fmt::format("cluster.{}", key.name));
        writer.list("devices", link.devices);
        writer.string("rate", fmt::format("{} B/s", link.bytes_per_second));
        writer.string("kind", to_string(link.kind));
    }
}

void read_gpu_shares(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    Scenario::ClusterPart& cluster = scenario.cluster;
    if (table.is_list(key.name)) {
        cluster.gpu_units = *table.integers(key.name, key.range);
        return;
    }
    const std::optional<std::string> word = table.text(key.name);
    if (word && std::ranges::find(key.words, *word) == key.words.end()) {
        table.refuse(key.name,
                     "\"own\", \"streams\", or a list of each rank's units of 8 multiprocessors, "
                     "as in [6, 8]",
                     suggestion_of_listed(*word, key.words));
    }
    if (const auto shares = table.choice(key.name, key.words)) {
        cluster.gpu_shares = static_cast<GpuShares>(*shares);
    }
}

void print_gpu_shares(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    if (cluster.gpu_units.empty()) {
        writer.string(key.name, to_string(cluster.gpu_shares));
    } else {
        writer.list(key.name, cluster.gpu_units);
    }
}

void read_communicator(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    scenario.cluster.communicator_bytes = table.bytes(key.name);
}

void print_communicator(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (const std::optional<Bytes>& bytes = scenario.cluster.communicator_bytes) {
        writer.number(key.name, bytes->count);
    }
}

void read_host_memory(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    scenario.cluster.host_memory = table.bytes(key.name);
}

void print_host_memory(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (const std::optional<Bytes>& bytes = scenario.cluster.host_memory) {
        writer.number(key.name, bytes->count);
    }
}

}  // namespace pipetwin
