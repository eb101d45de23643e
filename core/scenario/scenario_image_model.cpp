// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/image_models.h"
#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"

/// Images that models read, and the keys of models that are written by their sizes.
namespace pipetwin {

std::optional<SampleShape> read_image(const TomlTable& table, std::string_view key) {
    constexpr Range image_range{1, 1 << 20};
    constexpr std::int64_t most_pixels = std::int64_t{1} << 30;
    const std::optional<std::vector<int>> image = table.integers(key, image_range);
    if (!image) {
        return std::nullopt;
    }
    if (image->size() != 3 || std::int64_t{image->at(0)} * image->at(1) > most_pixels) {
        table.refuse(key, "height, width and channels of at most 2^30 pixels, as in [32, 32, 3]");
    }
    return image_shape({.height = image->at(0), .width = image->at(1)}, image->at(2));
}

void print_image(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const SampleShape& input = scenario.model.input;
    if (input.is_image()) {
        writer.list(key.name, std::vector<int>{input.image.height, input.image.width, input.width});
    }
}

namespace {

void read_required_image(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    const std::optional<SampleShape> image = read_image(table, key.name);
    if (!image) {
        table.missing(key.name, "height, width and channels, as in image = [224, 224, 3]");
    }
    scenario.model.input = *image;
}

void read_unet_dropout(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    if (table.has(key.name)) {
        scenario.model.unet.dropout = keys::read_probability(table, key.name);
    }
}

constexpr ScenarioKey required_image = keys::own("image", read_required_image, print_image);

constexpr std::array<ScenarioKey, 7> keys_of_amoebanet{
    keys::required<&AmoebaNetSizes::layers>("layers", any_size),
    keys::required<&AmoebaNetSizes::filters>("filters", any_size),
    keys::required<&AmoebaNetSizes::classes>("classes", any_size),
    keys::choice<&AmoebaNetSizes::variant>("variant", words::amoebanet_variants),
    keys::boolean<&AmoebaNetSizes::auxiliary_head>("auxiliary_head"),
    keys::probability<&AmoebaNetSizes::drop_path>("drop_path"),
    required_image};

constexpr std::array<ScenarioKey, 4> keys_of_resnet{
    keys::required<&ResNetSizes::depth>("depth", any_size),
    keys::required<&ResNetSizes::classes>("classes", any_size),
    keys::boolean<&ResNetSizes::projections>("projections"),
    required_image};

constexpr std::array<ScenarioKey, 5> keys_of_unet{
    keys::required<&UNetSizes::depth>("depth", any_size),
    keys::required<&UNetSizes::convolutions>("convolutions", any_size),
    keys::required<&UNetSizes::channels>("channels", any_size),
    keys::number<&UNetSizes::dropout>("dropout", {0, 1}).read_by(read_unet_dropout),
    required_image};

}  // namespace

std::span<const ScenarioKey> image_model_keys(ModelKind kind) {
    switch (kind) {
        case ModelKind::AmoebaNetD:
        case ModelKind::AmoebaNetB:
            return keys_of_amoebanet;
        case ModelKind::ResNet:
            return keys_of_resnet;
        case ModelKind::UNet:
            return keys_of_unet;
        default:
            return {};
    }
}

std::vector<LayerSpec> image_model_layers(const Scenario::ModelPart& model) {
    switch (model.kind) {
        case ModelKind::AmoebaNetD:
            return amoebanet_layers(AmoebaNetCells::D, model.amoebanet, model.input);
        case ModelKind::AmoebaNetB:
            return amoebanet_layers(AmoebaNetCells::B, model.amoebanet, model.input);
        case ModelKind::ResNet:
            return resnet_layers(model.resnet);
        case ModelKind::UNet:
            return unet_layers(model.unet, model.input);
        default:
            PIPETWIN_EXPECT(false, "no kind of model of images");
    }
}

void expect_image_model(const TomlTable& table, const Scenario::ModelPart& model) {
    try {
        Model::graph(model.input, image_model_layers(model));
    } catch (const Error& error) {
        const std::string_view key = error.key();
        const std::string_view name = key.empty() ? "image" : key.substr(key.find('.') + 1);
        throw error.placed(fmt::format("{}: {}", table.place(name), error.place()));
    }
}

}  // namespace pipetwin
