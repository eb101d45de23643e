// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_choice.h"
#include "core/scenario/cluster_readers.h"
#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"
#include "core/text/json_text.h"

/// [cluster].
namespace pipetwin {

namespace {

using std::string_view;

/// One device for all ranks, or one for each; or how fast each rank is.
void refuse_devices_twice(const TomlTable& table, const Scenario&) {
    if (table.has("devices") && (table.has("device") || table.has("speeds"))) {
        table.refuse("devices",
                     table.has("device") ? "either device or devices" : "either speeds or devices",
                     "devices names one for each rank");
    }
}

/// The uplinks of a leaf carry no more than its nodes can send.
void read_oversubscription(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    double& factor = scenario.cluster.oversubscription;
    factor = table.number(key.name, {0, key.range.high}).value_or(factor);
    if (factor >= 1) {
        return;
    }
    const std::string name = fmt::format("cluster.{}", key.name);
    Hint hint("set {}", {{name, "1"}});
    if (factor > 0) {
        hint.form += fmt::format(", or {{}} for uplinks that carry {:g} of it", factor);
        hint.settings.push_back({name, fmt::format("{:g}", 1 / factor)});
    }
    table.refuse(key.name,
                 "at least 1: what nodes send over what the uplinks of their leaf carry",
                 std::move(hint));
}

/// The class of a link, where one is named.
template <std::string Scenario::ClusterPart::*member>
constexpr ScenarioKey link_class(string_view name) {
    return keys::own(
        name,
        [](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
            scenario.cluster.*member = read_link_name(table, key.name);
        },
        [](const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
            if (const std::string& link = scenario.cluster.*member; !link.empty()) {
                writer.string(key.name, link);
            }
        });
}

using ClusterKeys = Scenario::ClusterPart;

/// A number that is printed where it is another than that of an unwritten scenario.
template <auto member>
constexpr ScenarioKey said_number(string_view name, Range range) {
    return keys::number<member>(name, range)
        .printed_by([](const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
            if (scenario.cluster.*member != ClusterKeys{}.*member) {
                keys::print_member<member>(key, writer, scenario);
            }
        });
}

constexpr Range device_count_range{0, 1 << 20};
constexpr Range rate_range{0, 1'000'000'000};

constexpr std::array<ScenarioKey, 36> keys_of_cluster{{
    keys::choice<&ClusterKeys::backend>("backend", words::backends)
        .says("`cpu`; `cuda`; `paced`: operations, and messages within a process, take exactly as "
              "long as the profile says, and traces are marked emulated"),
    keys::own("profile", nullptr, nullptr)
        .takes(Form::Text)
        .says("name of a [cluster](devices.md#clusters) (`pipetwin devices` lists them), or a file "
              "of your own, `\"mine.toml\"`, relative to the scenario. Keys of the scenario "
              "override the cluster's",
              "none"),  // `fill_in_cluster` has read it
    keys::own("device", read_device, print_device)
        .takes(Form::Text)
        .says("the [device](devices.md) of every rank (`pipetwin devices` lists them). Devices "
              "other than `this-machine` are for simulation and planning only",
              "`this-machine`"),
    keys::own("devices", read_rank_devices, print_rank_devices)
        .takes(Form::Texts)
        .says("in place of `device`, one name per rank", "none"),
    ScenarioKey{
        .name = "speeds", .read = read_speeds, .print = print_speeds, .range = {0, 1'000'000}}
        .takes(Form::Numbers)
        .says("relative speed of each rank, which divides its times. With `backend = \"cpu\"` for "
              "simulation only",
              "none"),
    keys::choice<&ClusterKeys::scale_costs>("scale_costs", words::scale_costs)
        .checked_by(refuse_devices_twice)
        .says("what to do if the profile's costs are of another device. `none`: refuse. `compute`, "
              "`memory`: scale by the ratio of the matrix rates, or of the memory rates. "
              "`cautious`: take the longer of the two. Scaled costs are called *estimated*"),
    keys::own("stack", read_stack, print_stack)
        .takes(Form::Text)
        .says("the [training software](devices.md#stacks) of the run: a name (`pipetwin devices` "
              "lists them), or a stack's file, `FILE.toml`; `none`: costs and messages are those "
              "of the devices and links alone. Costs that were estimated with another "
              "one are refused",
              "that of the costs"),
    keys::number<&ClusterKeys::device_spread>("device_spread", {0, 1})
        .says("standard deviation of the devices' speeds, as a share of their mean. The slowest of "
              "N devices holds up the others: computation takes 1 + `device_spread` x sqrt(2 ln N) "
              "times as long. 0: all are alike",
              "that of the [stack](devices.md#stacks); 0 without one"),
    keys::number<&ClusterKeys::count>("count", device_count_range)
        .read_after("backend")
        .says("devices; 0: as many as needed. Fewer than stages x replicas is an error"),
    keys::number<&ClusterKeys::per_node>("per_node", {1, device_count_range.high})
        .says("devices per node; messages between two nodes use the node link"),
    said_number<&ClusterKeys::nvlink_domain>("nvlink_domain", device_count_range)
        .says("devices that NVLink joins, where these fill several nodes: 72 of a GB200 NVL72, "
              "with `per_node = 4`. Messages inside such a [domain](devices.md#topology) use the "
              "link inside a node. A multiple of `per_node`; 0: a node",
              "0"),
    said_number<&ClusterKeys::nics_per_node>("nics_per_node", device_count_range)
        .says("network adapters of a node, each with the bandwidth of the node link. A divisor of "
              "`per_node`: neighbouring devices [share one](devices.md#topology); a multiple: each "
              "device has several. 0: one for each device",
              "0"),
    said_number<&ClusterKeys::oversubscription>("oversubscription", {1, 1000})
        .read_by(read_oversubscription)
        .says("how many times as much the network adapters below a leaf of the network carry as "
              "its [uplinks](devices.md#topology) to other leaves, at least 1; 7 between the pods "
              "of Llama 3's cluster",
              "1"),
    said_number<&ClusterKeys::nodes_per_leaf>("nodes_per_leaf", device_count_range)
        .says("nodes below one leaf: a rack, a scalable unit or a pod, all rails together; for "
              "`oversubscription`. A multiple of the nodes of an NVLink domain; 0: one domain, or "
              "node",
              "0"),
    ScenarioKey{.name = "placement",
                .read = read_placement,
                .print = print_placement,
                .range = device_count_range,
                .words = words::placements}
        .takes(Form::Text | Form::Integers)
        .says("on which node each device is. `replicas-first`: all replicas of rank 0, then those "
              "of rank 1, ...: gradients are summed inside nodes as far as possible, and stages "
              "communicate across nodes, as in Megatron-LM, DeepSpeed and torchtitan. `fill`: all "
              "ranks of a replica, then those of the next. `round-robin`: in the order of `fill`, "
              "one to each node in turn. A list: the node of each rank, replica after replica. "
              "With one replica the first two are the same. Processes of `launch`, mpirun, srun "
              "and torchrun are numbered as in `fill`, and their prediction uses the nodes on "
              "which they really run",
              "`replicas-first`"),
    link_class<&ClusterKeys::link>("link")
        .takes(Form::Text)
        .says("[class](devices.md#links) of the links inside a node: `nvlink-4`, `pcie-4`, ...",
              "none"),
    link_class<&ClusterKeys::node_link>("node_link")
        .takes(Form::Text)
        .says("[class](devices.md#links) of the links between nodes: `ethernet-100`, "
              "`infiniband-ndr`, ...",
              "none"),
    keys::number<&ClusterKeys::link_gbps>("link_gbps", rate_range)
        .says("bandwidth of each device inside a node, in gigabit per second; overrides the class. "
              "0: the class's, else the profile's, else the device's"),
    keys::number<&ClusterKeys::node_link_gbps>("node_link_gbps", rate_range)
        .says("bandwidth of each device between nodes, as `link_gbps`"),
    keys::number<&ClusterKeys::link_latency_us>("link_latency_us", rate_range)
        .says("microseconds from the send to the arrival of an empty message inside a node; "
              "overrides the class. 0: the class's, else the profile's, else the device's"),
    keys::number<&ClusterKeys::node_link_latency_us>("node_link_latency_us", rate_range)
        .says("microseconds between nodes, as `link_latency_us`"),
    link_class<&ClusterKeys::host_link>("host_link")
        .read_after("node_link")
        .printed_after("node_link")
        .takes(Form::Text)
        .says("class of the link from each device to its host memory, such as `pcie-4`, for "
              "`pipeline.offload`; both directions carry data at once. Without `host_link` and "
              "`host_link_gbps` the link's speed has to be in the profile; `backend = \"cuda\"` "
              "measures it",
              "none"),
    keys::number<&ClusterKeys::host_link_gbps>("host_link_gbps", rate_range)
        .says("gigabit per second of `host_link`; overrides its class, or replaces it"),
    keys::number<&ClusterKeys::host_link_latency_us>("host_link_latency_us", rate_range)
        .says("microseconds of `host_link`; overrides its class, or replaces it"),
    keys::own("host_memory", read_host_memory, print_host_memory)
        .typed("text or bytes")
        .takes(Form::Text | Form::Integer)
        .says("memory of the host that each device may fill: `pipeline.offload_blocks = \"auto\"` "
              "hands over nothing where that would take more",
              "not limited"),
    keys::own("memory_limit", read_memory_limit, print_memory_limit)
        .printed_after("gpu_shares")
        .typed("text or bytes, or a list")
        .takes(Form::Text | Form::Integer | Form::Sizes)
        .says("memory of a device: `\"4 GiB\"`, `\"80 GB\"`, `1073741824`; a list has one limit "
              "per rank. Without it the limit is the named device's memory. A plan above the limit "
              "is refused (exit code 4)",
              "none"),
    keys::choice<&ClusterKeys::transfer>("transfer", words::transfers)
        .says("what a rank does while a link carries its message. `asynchronous`: it continues. "
              "`blocking`: it waits until the link has carried all of it. `hand-over`: no bytes "
              "move, as within one memory, and the message arrives after the latency. Simulation "
              "only"),
    keys::number<&ClusterKeys::cores>("cores", device_count_range)
        .says("processors that the ranks share equally; 0: one for each rank. Simulation only"),
    ScenarioKey{.name = "interference",
                .read = read_interference,
                .print = print_interference,
                .range = {0, 100}}
        .takes(Form::Number | Form::Lists)
        .says("how much longer a rank's actions take for every other rank that computes at the "
              "same time, as a share: 0.05 is 5 %. For pairs that share a memory or a GPU, a list "
              "of K lists of K numbers, `[[0, 0.3], [0.1, 0]]`: entry [r][s] is how much longer "
              "rank r takes while rank s computes. Simulation only",
              "as measured for ranks that share a GPU (`ranks` of the "
              "[profile](formats.md#profile)), else 0"),
    ScenarioKey{.name = "link_sharing",
                .read = read_link_sharing,
                .print = print_link_sharing,
                .words = words::link_sharings}
        .takes(Form::Text)
        .says("how messages share the network between nodes. `none`: every boundary has a link of "
              "its own. `fifo`, `fair`: all messages that leave a node share its node link, and so "
              "do all that enter it; `fifo` sends one after the other, `fair` gives each its "
              "max-min fair rate. Simulated, and [emulated](#shared-links-of-a-node)",
              "`none`"),
    ScenarioKey{.name = "gpu_shares",
                .read = read_gpu_shares,
                .print = print_gpu_shares,
                .range = {1, 1 << 10},
                .words = words::gpu_shares}
        .takes(Form::Text | Form::Integers)
        .says("how the ranks of one GPU share it, with `backend = \"cuda\"`. `own`: each has its "
              "own multiprocessors, equally many, as many as the GPU can give. A list: units of 8 "
              "multiprocessors per rank, such as `[6, 8]`. `streams`: each rank takes what is "
              "free, so stages fill each other's gaps and the timing does not validate the "
              "schedule; every report of a training run then says so. See [the "
              "executor](internals/executor.md#ranks-that-share-a-gpu)",
              "`own`"),
    keys::number<&ClusterKeys::link_ctas>("link_ctas", {1, 32})
        .says("with `backend = \"cuda\"` and a process for each GPU: how many thread blocks of "
              "NCCL carry the messages of a link (`maxCTAs`). Each takes a multiprocessor while a "
              "message is expected or on its way. More of them are faster over NVLink: one carries "
              "20 to 25 GB/s"),
    keys::boolean<&ClusterKeys::emulate_links>("emulate_links")
        .read_after("node_link_latency_us")
        .printed_after("node_link_latency_us")
        .says("when training, messages take at least as long as the plan says, to emulate slower "
              "links on one machine. The timeline is marked emulated"),
    keys::number<&ClusterKeys::allocator_reserve>("allocator_reserve", {0, 900})
        .says("bytes that a memory pool such as PyTorch's caching allocator reserves beyond the "
              "allocated ones, in per cent of them; the limit then applies to the sum. A run that "
              "reports `torch.cuda.max_memory_reserved` and `max_memory_allocated` shows the right "
              "value. Where none is written, what the [stack](devices.md#stacks) says, and without "
              "one 0",
              "as the stack"),
    keys::own("communicator_bytes", read_communicator, print_communicator)
        .typed("text or bytes")
        .takes(Form::Text | Form::Integer)
        .says("buffers of each process group that a device is in (pipeline, replicas, tensor "
              "parallelism); replaces the value of the stack, and that of the "
              "[device's profile](devices.md#a-device-file)",
              "none"),
    ScenarioKey{.name = "shared_link",  // tables of their own, so nothing is printed behind them
                .read = read_shared_links,
                .print = print_shared_links,
                .words = words::shared_link_kinds}
        .takes(Form::Tables)
        .says("links that some devices of every node share, of kind `switch`, `host`, `socket`, "
              "`memory` or `uplink`, see [below](#shared-links-of-a-node). Simulated, and emulated",
              "none"),
}};

/// Lists that have an entry for every rank.
void expect_one_per_rank(const TomlTable& table, const Scenario& scenario) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    const auto expect = [&](string_view key, std::size_t entries, std::int64_t ranks) {
        if (table.is_list(key) && static_cast<std::int64_t>(entries) != ranks) {
            table.refuse(key,
                         fmt::format("{}, one for each rank", counted(ranks, "entry")),
                         fmt::format("it has {}", entries));
        }
    };
    if (const std::optional<int> stages = scenario.pipeline.stages.known()) {
        expect("devices", cluster.devices.size(), *stages);
        expect("speeds", cluster.speeds.size(), *stages);
        expect("memory_limit", cluster.memory_limits.size(), *stages);
        expect("gpu_shares", cluster.gpu_units.size(), *stages);
        expect("interference", cluster.pair_interference.size(), *stages);
        for (const std::vector<double>& row : cluster.pair_interference) {
            expect("interference", row.size(), *stages);
        }
        if (const std::optional<int> replicas = scenario.pipeline.data_parallel.known()) {
            expect("placement", cluster.nodes.size(), std::int64_t{*stages} * *replicas);
        }
    }
}

/// The multiple of `of` that is nearest to `number`, the smaller of two.
int nearest_multiple(int number, int of) {
    const int below = number / of * of;
    return below > 0 && number - below <= below + of - number ? below : below + of;
}

/// The divisor or multiple of `of` that is nearest to `number`, the smaller of two.
int nearest_sharing(int number, int of) {
    if (number > of) {
        return nearest_multiple(number, of);
    }
    int below = number;
    int above = number;
    while (of % below != 0) {
        --below;
    }
    while (of % above != 0) {
        ++above;
    }
    return number - below <= above - number ? below : above;
}

/// Refuses a number that is not the nearest one that would do.
void expect_nearest(
    const TomlTable& table, string_view key, int number, int nearest, const std::string& expected) {
    if (number > 0 && number != nearest) {
        table.refuse(
            key, expected, {"set {}", {{fmt::format("cluster.{}", key), fmt::to_string(nearest)}}});
    }
}

/// Sizes of domains, nodes and leaves fit into each other.
void expect_levels(const TomlTable& table, const Scenario::ClusterPart& cluster) {
    const std::string node =
        fmt::format("the {} of a node (cluster.per_node)", counted(cluster.per_node, "device"));
    expect_nearest(table,
                   "nvlink_domain",
                   cluster.nvlink_domain,
                   nearest_multiple(cluster.nvlink_domain, cluster.per_node),
                   "a multiple of " + node);
    const int nics = cluster.nics_per_node;
    expect_nearest(table,
                   "nics_per_node",
                   nics,
                   nics > 0 ? nearest_sharing(nics, cluster.per_node) : 0,
                   "a divisor or a multiple of " + node);
    const int of_domain = cluster.levels().nodes_of_domain;
    expect_nearest(table,
                   "nodes_per_leaf",
                   cluster.nodes_per_leaf,
                   nearest_multiple(cluster.nodes_per_leaf, of_domain),
                   fmt::format("a multiple of the {} of an NVLink domain (cluster.nvlink_domain)",
                               counted(of_domain, "node")));
    const bool has_uplinks =
        std::ranges::find(cluster.shared_links, SharedLinkKind::Uplink, &NodeLink::kind) !=
        cluster.shared_links.end();
    if (nics > 0 && has_uplinks) {
        table.refuse(
            "nics_per_node",
            "either nics_per_node or shared_link of kind uplink",
            {"set {}, as the uplinks say what devices share", {{"cluster.nics_per_node", "0"}}});
    }
}

/// ": set data_parallel = 4", with which no device is left over; empty where there is none.
std::string fitting_replicas(int devices, std::int64_t of_replica, int replicas) {
    const std::int64_t most = devices / of_replica;
    if (replicas == 1 || most == 0 || devices % of_replica != 0) {
        return "";
    }
    return fmt::format(": set data_parallel = {}", most);
}

}  // namespace

void expect_enough_devices(const TomlTable& root, const Scenario& scenario) {
    const TomlTable table = root.table("cluster");
    const int count = scenario.cluster.count;
    const int stages = scenario.pipeline.stages.value_or(1);
    const int replicas = scenario.pipeline.data_parallel.value_or(1);
    const int tensor = scenario.pipeline.tensor_parallel.value_or(1) *
                       scenario.pipeline.context_parallel.value_or(1);
    const std::int64_t needed = std::int64_t{stages} * replicas * tensor;
    if (count > 0 && needed > count) {
        const bool stages_alone = needed == stages;
        std::string whose = fmt::format("for the {}", counted(stages, "stage"));
        if (tensor > 1) {
            whose += fmt::format(" of {} devices each", tensor);
        }
        if (replicas > 1) {
            whose += fmt::format(" of {} replicas", replicas);
        }
        const KeyValue enough{"cluster.count", fmt::to_string(needed)};
        if (table.is_filled_in("count")) {  // by a file that the reader has not written
            const std::string key = stages > 1     ? "stages"
                                    : replicas > 1 ? "data_parallel"
                                                   : "tensor_parallel";
            root.table("pipeline")
                .refuse(
                    key,
                    fmt::format(
                        "at most the {} of the cluster ({}){}",
                        counted(count, "device"),
                        table.place("count"),
                        stages_alone ? "" : fmt::format(", but {} are needed {}", needed, whose)),
                    {fmt::format(
                         "every rank needs a device; cluster.count = {} is a larger cluster",
                         (needed + count - 1) / count * count),
                     {{"cluster.count", fmt::to_string((needed + count - 1) / count * count)}}});
        }
        Hint hint("every stage of every replica needs its own devices" +
                      fitting_replicas(count, std::int64_t{stages} * tensor, replicas),
                  {enough});
        if (stages_alone) {
            hint.form = "every stage needs a device: set {} or {}";
            hint.settings.insert(hint.settings.begin(), {"pipeline.stages", fmt::to_string(count)});
        }
        table.refuse("count",
                     stages_alone ? fmt::format("at least the {} of pipeline.stages", stages)
                                  : fmt::format("at least {}, {}", needed, whose),
                     std::move(hint),
                     ErrorReason::TooFewDevices);
    }
}

std::span<const ScenarioKey> cluster_keys() {
    return keys_of_cluster;
}

void read_cluster(const TomlTable& table, Scenario& scenario) {
    read_table(cluster_keys(), table, scenario);
    expect_levels(table, scenario.cluster);
    expect_one_per_rank(table, scenario);
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
        throw error.about("cluster.profile").placed(table.place("profile"));
    }
}

/// Checks the file of a cluster as a scenario of nothing else: errors have their place in that
/// file, and paths start from there.
void check_cluster_file(TomlDocument& document, const std::filesystem::path& file) {
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
    alone.file = file;
    read_cluster(cluster, alone);
    if (is_stack_file(alone.cluster.stack)) {
        document.replace_text("cluster", "stack", alone.cluster.stack);
    }
}

}  // namespace

void fill_in_cluster(TomlDocument& document, const std::filesystem::path& scenario) {
    const TomlTable table = document.root().table("cluster");
    if (const std::optional<std::string> name = table.text("profile")) {
        fill_in_cluster_file(document, cluster_file(table, *name, scenario), {});
    }
}

void fill_in_cluster_file(TomlDocument& document,
                          const std::filesystem::path& file,
                          std::vector<string_view> without) {
    constexpr std::size_t largest_file = std::size_t{1} << 20;
    const TomlTable table = document.root().table("cluster");
    TomlDocument cluster(read_file(file, largest_file), file.string(), {});
    check_cluster_file(cluster, file);
    if (table.has("device") || table.has("devices")) {  // exclude each other: the scenario's win
        without.insert(without.end(), {"device", "devices"});
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
