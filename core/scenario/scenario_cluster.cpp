#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/costs/shipped_profiles.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"
#include "core/text/json_text.h"

/// [cluster].
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
    table.refuse(key,
                 fmt::format("devices out of {}", fmt::join(known, ", ")),
                 shipped.empty()
                     ? fmt::format("there are no device profiles in {}; PIPETWIN_PROFILES names "
                                   "another folder",
                                   profiles_folder().string())
                 : near.empty() ? "'pipetwin devices' lists what is known of each"
                                : fmt::format("did you mean '{}'?", near));
}

/// One device for all ranks, or one for each; or how fast each rank is.
void read_devices(const TomlTable& table, Scenario::ClusterPart& cluster) {
    cluster.device = table.text("device").value_or(cluster.device);
    expect_device(table, "device", cluster.device);
    cluster.devices = table.texts("devices").value_or(cluster.devices);
    for (const std::string& name : cluster.devices) {
        expect_device(table, "devices", name);
    }
    cluster.speeds = table.numbers("speeds", {0, 1'000'000}).value_or(cluster.speeds);
    if (std::ranges::any_of(cluster.speeds, [](double speed) { return speed < 1e-6; })) {
        table.refuse("speeds", "speeds from 0.000001 to 1000000, 1 being that of the costs");
    }
    if (const auto how = table.choice("scale_costs", words::scale_costs)) {
        cluster.scale_costs = static_cast<ScaleCosts>(*how);
    }
    if (table.has("devices") && (table.has("device") || table.has("speeds"))) {
        table.refuse("devices",
                     table.has("device") ? "either device or devices" : "either speeds or devices",
                     "devices names one for each rank");
    }
}

void read_placement(const TomlTable& table, Scenario::ClusterPart& cluster) {
    cluster.per_node = as_int(table.integer("per_node", {1, 1 << 20}), cluster.per_node);
    if (table.is_list("placement")) {
        cluster.placement = Placement::Written;
        cluster.nodes = *table.integers("placement", {0, 1 << 20});
    } else if (const auto placement = table.choice("placement", words::placements)) {
        cluster.placement = static_cast<Placement>(*placement);
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

void read_links(const TomlTable& table, Scenario::ClusterPart& cluster) {
    cluster.link = read_link_name(table, "link");
    cluster.node_link = read_link_name(table, "node_link");
    cluster.host_link = read_link_name(table, "host_link");
    constexpr Range rate{0, 1'000'000'000};
    const auto number = [&](string_view key, double& value) {
        value = table.number(key, rate).value_or(value);
    };
    number("link_gbps", cluster.link_gbps);
    number("node_link_gbps", cluster.node_link_gbps);
    number("link_latency_us", cluster.link_latency_us);
    number("node_link_latency_us", cluster.node_link_latency_us);
    cluster.emulate_links = table.boolean("emulate_links").value_or(cluster.emulate_links);
    number("host_link_gbps", cluster.host_link_gbps);
    number("host_link_latency_us", cluster.host_link_latency_us);
}

/// What ranks and messages take from each other.
void read_sharing(const TomlTable& table, Scenario::ClusterPart& cluster) {
    if (const auto transfer = table.choice("transfer", words::transfers)) {
        cluster.transfer = static_cast<TransferMode>(*transfer);
    }
    cluster.cores = as_int(table.integer("cores", {0, 1 << 20}), cluster.cores);
    constexpr Range share{0, 100};
    if (table.is_list("interference")) {
        cluster.pair_interference = *table.rows_of_numbers("interference", share);
    } else {
        cluster.interference = table.number("interference", share).value_or(cluster.interference);
    }
    const auto sharing = table.choice("link_sharing", words::link_sharings);
    if (sharing && words::link_sharings.at(*sharing) != "none") {
        cluster.link_sharing = static_cast<LinkSharing>(*sharing);
    }
}

void read_memory_limit(const TomlTable& table, Scenario::ClusterPart& cluster) {
    if (table.is_list("memory_limit")) {
        cluster.memory_limits = *table.all_bytes("memory_limit");
    } else {
        cluster.memory_limit = table.bytes("memory_limit");
    }
}

void read_gpu_shares(const TomlTable& table, Scenario::ClusterPart& cluster) {
    if (table.is_list("gpu_shares")) {
        cluster.gpu_units = *table.integers("gpu_shares", {1, 1 << 10});
    } else if (const auto shares = table.choice("gpu_shares", words::gpu_shares)) {
        cluster.gpu_shares = static_cast<GpuShares>(*shares);
    }
}

/// Lists that have an entry for every rank.
void expect_one_per_rank(const TomlTable& table, const Scenario& scenario) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    const auto expect = [&](string_view key, std::size_t entries, std::int64_t ranks) {
        if (table.is_list(key) && static_cast<std::int64_t>(entries) != ranks) {
            table.refuse(key,
                         fmt::format("{} entries, one for each rank", ranks),
                         fmt::format("it has {}", entries));
        }
    };
    if (const std::optional<int> stages = scenario.pipeline.stages) {
        expect("devices", cluster.devices.size(), *stages);
        expect("speeds", cluster.speeds.size(), *stages);
        expect("memory_limit", cluster.memory_limits.size(), *stages);
        expect("gpu_shares", cluster.gpu_units.size(), *stages);
        expect("interference", cluster.pair_interference.size(), *stages);
        for (const std::vector<double>& row : cluster.pair_interference) {
            expect("interference", row.size(), *stages);
        }
        if (const std::optional<int> replicas = scenario.pipeline.data_parallel) {
            expect("placement", cluster.nodes.size(), std::int64_t{*stages} * *replicas);
        }
    }
}

void expect_enough_devices(const TomlTable& table, const Scenario& scenario) {
    const int count = scenario.cluster.count;
    const int stages = scenario.pipeline.stages.value_or(1);
    const int replicas = scenario.pipeline.data_parallel.value_or(1);
    const int tensor = scenario.pipeline.tensor_parallel.value_or(1);
    const std::int64_t needed = std::int64_t{stages} * replicas * tensor;
    if (count > 0 && needed > count) {
        const bool stages_alone = needed == stages;
        std::string whose = fmt::format("for the {} stages", stages);
        if (tensor > 1) {
            whose += fmt::format(" of {} devices each", tensor);
        }
        if (replicas > 1) {
            whose += fmt::format(" of {} replicas", replicas);
        }
        table.refuse(
            "count",
            stages_alone ? fmt::format("at least the {} of pipeline.stages", stages)
                         : fmt::format("at least {}, {}", needed, whose),
            stages_alone
                ? fmt::format(
                      "every stage needs a device: set stages = {} or count = {}", count, stages)
                : "every stage of every replica needs its own devices");
    }
}

}  // namespace

void read_cluster(const TomlTable& table, Scenario& scenario) {
    table.expect_keys(
        std::array<string_view, 25>{"backend",        "profile",         "device",
                                    "devices",        "speeds",          "scale_costs",
                                    "count",          "per_node",        "placement",
                                    "link",           "node_link",       "link_gbps",
                                    "node_link_gbps", "link_latency_us", "node_link_latency_us",
                                    "host_link",      "host_link_gbps",  "host_link_latency_us",
                                    "memory_limit",   "transfer",        "cores",
                                    "interference",   "link_sharing",    "gpu_shares",
                                    "emulate_links"});
    Scenario::ClusterPart& cluster = scenario.cluster;
    if (const auto backend = table.choice("backend", words::backends)) {
        cluster.backend = static_cast<Backend>(*backend);
    }
    cluster.count = as_int(table.integer("count", {0, 1 << 20}), cluster.count);
    read_devices(table, cluster);
    read_placement(table, cluster);
    read_links(table, cluster);
    read_memory_limit(table, cluster);
    read_sharing(table, cluster);
    read_gpu_shares(table, cluster);
    expect_one_per_rank(table, scenario);
    expect_enough_devices(table, scenario);
}

namespace {

std::filesystem::path cluster_file(const TomlTable& table,
                                   const std::string& name,
                                   const std::filesystem::path& scenario) {
    if (name.ends_with(".toml")) {
        return resolve(scenario, name);
    }
    try {
        return find_cluster(name);
    } catch (const Error& error) {
        throw Error(error.kind(),
                    table.place("profile"),
                    error.text(),
                    error.hint() + "; a file of your own ends in .toml");
    }
}

/// As a scenario of nothing else: what is wrong is said with its place in that file.
void check_cluster_file(const TomlDocument& document) {
    const TomlTable root = document.root();
    root.expect_keys(std::array<string_view, 2>{"description", "cluster"});
    if (!root.has("cluster")) {
        root.missing("cluster", "a table [cluster] with keys as in a scenario");
    }
    const TomlTable cluster = root.table("cluster");
    if (cluster.has("profile")) {
        cluster.refuse("profile", "no further one", "write its keys out");
    }
    Scenario alone;
    read_cluster(cluster, alone);
}

}  // namespace

void fill_in_cluster(TomlDocument& document, const std::filesystem::path& scenario) {
    const TomlTable table = document.root().table("cluster");
    const std::optional<std::string> name = table.text("profile");
    if (!name) {
        return;
    }
    constexpr std::size_t largest_file = std::size_t{1} << 20;
    const std::filesystem::path file = cluster_file(table, *name, scenario);
    const TomlDocument cluster(read_file(file, largest_file), file.string(), {});
    check_cluster_file(cluster);
    std::vector<string_view> without;  // keys that exclude each other: the scenario's own win
    if (table.has("device") || table.has("devices")) {
        without = {"device", "devices"};
    }
    if (table.has("devices")) {
        without.emplace_back("speeds");
    }
    if (table.has("speeds")) {
        without.emplace_back("devices");
    }
    document.fill_in("cluster", cluster, without);
}

void expect_host_link(const TomlTable& pipeline, const Scenario& scenario) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    const bool may_be_measured = cluster.backend == Backend::Cuda;
    if (scenario.pipeline.offload != Offload::None && !may_be_measured &&
        cluster.host_link.empty() && cluster.host_link_gbps <= 0) {
        pipeline.refuse("offload",
                        "a link to host memory that the stashes go over",
                        "set cluster.host_link = \"pcie-4\", or another of its kind, or "
                        "cluster.host_link_gbps");
    }
}

}  // namespace pipetwin
