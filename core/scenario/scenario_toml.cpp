// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/model/model.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_over.h"
#include "core/scenario/scenario_tables.h"
#include "core/text/json_text.h"

/// Reading and writing of scenarios: their tables, one after the other. docs/scenario.md describes
/// every key.
namespace pipetwin {

std::filesystem::path resolve(const std::filesystem::path& file, const std::string& path) {
    return (std::filesystem::absolute(file).parent_path() / path).lexically_normal();
}

void read_table(std::span<const ScenarioKey> keys, const TomlTable& table, Scenario& scenario) {
    table.expect_keys(names_of(keys));
    read_keys(keys, table, scenario);
}

void read_pipeline(const std::vector<Override>& keys, Scenario& scenario) {
    const TomlDocument document("", "", keys);
    read_table(pipeline_keys(), document.root().table("pipeline"), scenario);
}

void leave_division_open(Scenario& scenario) {
    scenario.pipeline.context_parallel.open({1});
    scenario.pipeline.expert_parallel.open({1});
    scenario.pipeline.expert_tensor_parallel.open({0});
}

void close_division(Scenario& scenario) {
    const auto close = [](OrAuto<int>& key, int value) {
        if (key.choices() == std::vector{value}) {
            key = value;
        }
    };
    close(scenario.pipeline.context_parallel, 1);
    close(scenario.pipeline.expert_parallel, 1);
    close(scenario.pipeline.expert_tensor_parallel, 0);
}

namespace {

constexpr std::size_t largest_file = std::size_t{16} << 20;

/// Shapes and sums that no single key can be wrong about.
void check_whole(const TomlDocument& document, const Scenario& scenario) {
    if (scenario.model.kind == ModelKind::Profile) {
        return;
    }
    try {
        scenario_partition(scenario, scenario_model(scenario));
    } catch (const Error& error) {
        throw document.placed(error);
    }
}

/// Whatever is not written is planned, but for what takes messages with every micro-batch.
void leave_open(Scenario& scenario) {
    for (const ScenarioKey& key : pipeline_keys()) {
        if (key.open != nullptr) {
            key.open(scenario);
        }
    }
    scenario.pipeline.recompute_modules = ModuleLists{};
    scenario.pipeline.tensor_parallel = 1;
    leave_division_open(scenario);
    scenario.pipeline.shard.open({Shard::None, Shard::Optimizer});
}

/// Refuses what is no table of a scenario; a key above all tables belongs below one.
void expect_tables(const TomlTable& root) {
    constexpr std::array<std::string_view, 6> tables{
        "model", "data", "training", "pipeline", "cluster", "output"};
    for (const KeyGroup& group : all_key_groups()) {
        for (const ScenarioKey& key : group.keys) {
            const bool is_table = group.where.starts_with('[') && !group.where.starts_with("[[");
            if (is_table && root.has(key.name) &&
                std::ranges::find(tables, key.name) == tables.end()) {
                const std::string header = group.where.substr(0, group.where.find(']') + 1);
                throw Error(ErrorKind::BadInput,
                            root.place(key.name),
                            fmt::format("unknown key '{}'", key.name),
                            fmt::format("write it below the line {}", header));
            }
        }
    }
    root.expect_keys(tables);
}

/// Reads every table over what the scenario has.
void read_tables(const TomlDocument& document, Scenario& scenario) {
    const TomlTable root = document.root();
    read_model(root.table("model"), scenario);
    read_data(root.table("data"), scenario);
    read_table(training_keys(), root.table("training"), scenario);
    read_table(pipeline_keys(), root.table("pipeline"), scenario);
    read_cluster(root.table("cluster"), scenario);
    expect_enough_devices(root, scenario);
    expect_host_link(root.table("pipeline"), scenario);
    read_table(output_keys(), root.table("output"), scenario);
    check_whole(document, scenario);
}

}  // namespace

Scenario parse_scenario(std::string_view text,
                        const std::filesystem::path& file,
                        const std::vector<Override>& overrides,
                        Unwritten unwritten) {
    if (text.size() > largest_file) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    fmt::format("{} bytes, a scenario has at most {}", text.size(), largest_file),
                    "is it the right file? a scenario is a few lines of TOML");
    }
    TomlDocument document(text, file.string(), overrides);
    fill_in_cluster(document, file);
    const TomlTable root = document.root();
    expect_tables(root);

    Scenario scenario;
    scenario.file = file;
    if (unwritten == Unwritten::Auto) {
        leave_open(scenario);
    }
    if (!root.has("model")) {
        root.missing("model", "a table [model] with the kind of the model");
    }
    read_tables(document, scenario);
    return scenario;
}

Scenario scenario_over(Scenario begun,
                       const std::string& cluster,
                       const std::vector<Override>& overrides) {
    TomlDocument document("", begun.file.string(), overrides);
    if (!cluster.empty()) {
        fill_in_cluster_file(
            document,
            cluster.ends_with(".toml") ? resolve(begun.file, cluster) : find_cluster(cluster),
            begun.cluster.count > 0 ? std::vector<std::string_view>{"count"}
                                    : std::vector<std::string_view>());
    }
    expect_tables(document.root());
    read_tables(document, begun);
    return begun;
}

Scenario read_scenario(const std::filesystem::path& file,
                       const std::vector<Override>& overrides,
                       Unwritten unwritten) {
    return parse_scenario(read_file(file, largest_file), file, overrides, unwritten);
}

namespace {

/// The tables after [model].
struct NamedTable {
    std::string_view name;
    std::span<const ScenarioKey> keys;
};

std::vector<NamedTable> further_tables() {
    return {{"data", data_keys()},
            {"training", training_keys()},
            {"pipeline", pipeline_keys()},
            {"cluster", cluster_keys()},
            {"output", output_keys()}};
}

}  // namespace

std::string print_scenario(const Scenario& scenario) {
    ScenarioWriter writer;
    print_model(writer, scenario);
    for (const NamedTable& table : further_tables()) {
        writer.table(table.name);
        print_keys(table.keys, writer, scenario);
    }
    return writer.take();
}

std::vector<KeyGroup> all_key_groups() {
    std::vector<KeyGroup> groups = model_key_groups();
    for (const NamedTable& table : further_tables()) {
        groups.push_back({fmt::format("[{}]", table.name), {table.keys.begin(), table.keys.end()}});
    }
    return groups;
}

}  // namespace pipetwin
