// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/nodes_of_run.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/usual_cluster.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_writer.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view cluster_head = "[cluster]\n";

/// The device of a cluster by its name.
std::string device_of_cluster(const std::string& name) {
    find_cluster(name, "--cluster");
    const std::string text = fmt::format(
        "model = {{kind = \"profile\", file = \"none.json\"}}\ncluster = {{profile = {}}}\n",
        toml_string(name));
    return parse_scenario(text, name).cluster.device;
}

/// The devices of the imported run; none: it does not say them, or is no scenario.
std::optional<std::int64_t> devices_of_content(const Imported& imported,
                                               const ImportOptions& options,
                                               int& per_node) {
    try {
        const Scenario scenario = parse_scenario(imported.content, options.common.out);
        per_node = scenario.cluster.domain_devices();
        std::int64_t devices = 1;
        for (const OrAuto<int>& degree : {scenario.pipeline.stages,
                                          scenario.pipeline.data_parallel,
                                          scenario.pipeline.tensor_parallel,
                                          scenario.pipeline.context_parallel}) {
            if (degree.is_auto()) {
                return std::nullopt;
            }
            devices *= *degree;
        }
        return devices;
    } catch (const Error&) {
        return std::nullopt;
    }
}

}  // namespace

void take_device_of_cluster(ImportOptions& options) {
    if (options.cluster.empty()) {
        return;
    }
    const std::string device = device_of_cluster(options.cluster);
    if (options.hf.device && find_device(*options.hf.device, "--device").name != device) {
        throw Error(
            ErrorKind::Usage,
            "--cluster",
            fmt::format("its devices are {}, but --device is {}", device, *options.hf.device),
            "leave --device out, or name another cluster");
    }
    options.hf.device = device;
}

void add_nodes(Imported& imported, const ImportOptions& options) {
    const std::size_t at = imported.content.rfind(cluster_head);
    const bool is_last = imported.content.find("\n[", at) == std::string::npos;
    if (at == std::string::npos || !is_last || !options.hf.device) {
        return;
    }
    if (imported.has_open_devices) {
        if (!options.cluster.empty()) {
            imported.content += fmt::format("profile = {}\n", toml_string(options.cluster));
        }
        return;
    }
    int per_node = 1;
    const std::optional<std::int64_t> devices = devices_of_content(imported, options, per_node);
    const bool is_given = !options.cluster.empty();
    if (!devices || (!is_given && *devices <= per_node)) {
        return;
    }
    const std::string nodes =
        is_given ? options.cluster : usual_cluster(find_device(*options.hf.device).name);
    if (nodes.empty()) {
        imported.notes.push_back(fmt::format(
            "warning: nothing says what connects the {} nodes: add --cluster NAME to the command "
            "('pipetwin devices' lists the names), or write cluster.node_link",
            (*devices + per_node - 1) / per_node));
        return;
    }
    if (!is_given) {
        imported.notes.push_back(fmt::format(
            "the links between nodes are those of {}, as the file does not say them: --cluster "
            "NAME names others",
            nodes));
    }
    imported.content += fmt::format("profile = {}\ncount = {}\n", toml_string(nodes), *devices);
}

}  // namespace pipetwin::cli
