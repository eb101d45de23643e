#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/scenario/scenario.h"
#include "core/scenario/scenario_tables.h"

/// Writing of scenarios: the tables of the reader, every default written out.
namespace pipetwin {

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

std::vector<KeyFacts> facts_of(std::span<const ScenarioKey> keys) {
    std::vector<KeyFacts> facts;
    for (const ScenarioKey& key : keys) {
        facts.push_back({.name = key.name, .words = key.words});
    }
    return facts;
}

std::vector<KeyGroup> all_key_groups() {
    std::vector<KeyGroup> groups = model_key_groups();
    for (const NamedTable& table : further_tables()) {
        groups.push_back({fmt::format("[{}]", table.name), facts_of(table.keys)});
    }
    return groups;
}

}  // namespace pipetwin
