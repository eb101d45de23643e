#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/scenario/scenario.h"
#include "core/text/toml_table.h"

/// The tables of a scenario, each with its reader. For the readers alone; others include
/// core/scenario/scenario.h. All throw Error(BadInput) with the place in the file.
namespace pipetwin {

constexpr Range any_size{1, 1 << 30};
constexpr Range layer_range{1, 100'000};

inline int as_int(std::optional<std::int64_t> value, int otherwise) {
    return value ? static_cast<int>(*value) : otherwise;
}

/// Paths of a scenario are relative to its folder, those of overrides, too.
std::filesystem::path resolve(const std::filesystem::path& file, const std::string& path);

/// What users may write, but this version cannot do yet: anything but `only`.
void expect_only(
    const TomlTable& table, std::string_view key, int value, int only, std::string_view what);

void read_model(const TomlTable& table, Scenario& scenario);

/// After the model, as it says what data it reads.
void read_data(const TomlTable& table, Scenario& scenario);

/// After the pipeline, as lists have an entry for each of its ranks.
void read_cluster(const TomlTable& table, Scenario& scenario);

/// Where `cluster.profile` names a cluster, shipped or in a file, its keys are filled in that the
/// scenario does not write itself. `scenario` anchors the file.
void fill_in_cluster(TomlDocument& document, const std::filesystem::path& scenario);

/// What is offloaded has to go somewhere. `pipeline` is the table that says what is.
void expect_host_link(const TomlTable& pipeline, const Scenario& scenario);

}  // namespace pipetwin
