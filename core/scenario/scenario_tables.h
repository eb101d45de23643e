// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/scenario/scenario.h"
#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_writer.h"
#include "core/text/toml_table.h"

/// The tables of a scenario, each with its keys and its reader. For the readers alone; others
/// include core/scenario/scenario.h. All throw Error(BadInput) with the place in the file.
namespace pipetwin {

/// Range of a key that is any positive number.
constexpr Range any_size{1, 1 << 30};
/// Range of a number of layers.
constexpr Range layer_range{1, 100'000};

/// The value as an int, or `otherwise` where there is none.
inline int as_int(std::optional<std::int64_t> value, int otherwise) {
    return value ? static_cast<int>(*value) : otherwise;
}

/// Paths of a scenario are relative to its folder, those of overrides, too.
std::filesystem::path resolve(const std::filesystem::path& file, const std::string& path);

/// Reads a table that has no other keys than these.
void read_table(std::span<const ScenarioKey> keys, const TomlTable& table, Scenario& scenario);

/// The keys of [data].
std::span<const ScenarioKey> data_keys();
/// The keys of [training].
std::span<const ScenarioKey> training_keys();
/// The keys of [pipeline].
std::span<const ScenarioKey> pipeline_keys();
/// The keys of [cluster].
std::span<const ScenarioKey> cluster_keys();
/// The keys of [output].
std::span<const ScenarioKey> output_keys();

/// Reads keys of [pipeline], "pipeline.stages", that stand in no file. What they do not say stays
/// in the scenario as it is, or follows from the schedule.
void read_pipeline(const std::vector<Override>& keys, Scenario& scenario);

/// [model] with the layers in it.
void read_model(const TomlTable& table, Scenario& scenario);
/// Prints [model] with the layers in it.
void print_model(ScenarioWriter& writer, const Scenario& scenario);

/// `image = [height, width, channels]`; none where the key is not written.
std::optional<SampleShape> read_image(const TomlTable& table, std::string_view key);
/// Prints the image that the model reads; nothing where it reads none.
void print_image(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario);

/// The keys of a kind of model that reads words and is written by its sizes; none for any other
/// kind.
std::span<const ScenarioKey> language_model_keys(ModelKind kind);
/// The keys of a kind of model that is written by its sizes and an image; none for any other kind.
std::span<const ScenarioKey> image_model_keys(ModelKind kind);
/// The layers of such a model. Throws as the functions of core/model/image_models.h.
std::vector<LayerSpec> image_model_layers(const Scenario::ModelPart& model);
/// Throws Error(BadInput) with the place of the key that no such model can have.
void expect_image_model(const TomlTable& table, const Scenario::ModelPart& model);

/// Reads [data]. Call it after `read_model`: the model says what data it reads.
void read_data(const TomlTable& table, Scenario& scenario);

/// Reads [cluster]. Call it after [pipeline]: lists have an entry for each of its ranks.
void read_cluster(const TomlTable& table, Scenario& scenario);
/// Refuses more ranks than [cluster] has devices, where the number of them is known.
void expect_enough_devices(const TomlTable& root, const Scenario& scenario);

/// Where `cluster.profile` names a cluster, shipped or in a file, its keys are filled in that the
/// scenario does not write itself. `scenario` anchors the file.
void fill_in_cluster(TomlDocument& document, const std::filesystem::path& scenario);
/// Fills in the keys of the cluster in `file`, but for those in `without`.
void fill_in_cluster_file(TomlDocument& document,
                          const std::filesystem::path& file,
                          std::vector<std::string_view> without);

/// Throws Error(BadInput) at `pipeline`, the table [pipeline], if stashes are offloaded and the
/// link to host memory is neither written nor measured.
void expect_host_link(const TomlTable& pipeline, const Scenario& scenario);

/// Keys that stand in one table, or in those of one kind of model or layer.
struct KeyGroup {
    std::string where;  ///< "[training]", "kind = \"gpt\"", "every layer" or a type of layer
    std::vector<ScenarioKey> keys;
};

/// The groups of [model] and its layers.
std::vector<KeyGroup> model_key_groups();

/// Every key that a scenario may have.
std::vector<KeyGroup> all_key_groups();

}  // namespace pipetwin
