// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/image_models.h"
#include "core/model/model.h"
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

constexpr ScenarioKey required_image = keys::own("image", read_required_image, print_image)
                                           .takes(Form::Integers)
                                           .typed("list of 3 numbers");

constexpr std::array<ScenarioKey, 7> keys_of_amoebanet{
    keys::required<&AmoebaNetSizes::layers>("layers", any_size)
        .typed("multiple of 3, to 1,500")
        .says("L, the number of normal cells"),
    keys::required<&AmoebaNetSizes::filters>("filters", any_size)
        .typed("multiple of 16, of 8 for `torchgpipe`")
        .says("D, the filters of the first normal cells; each further reduction cell doubles the "
              "filters"),
    keys::required<&AmoebaNetSizes::classes>("classes", any_size).says("outputs of the classifier"),
    keys::choice<&AmoebaNetSizes::variant>("variant", words::amoebanet_variants)
        .says("the program that the model follows where the two differ: `reference`, "
              "tensorflow/tpu; or `torchgpipe`, the benchmarks of torchgpipe 0.0.7",
              "`reference`"),
    keys::boolean<&AmoebaNetSizes::auxiliary_head>("auxiliary_head")
        .says("`reference` only: a second classifier reads the last cell before the last reduction "
              "cell. Training adds 0.4 times its loss; validation and accuracy leave it out. It "
              "needs images of at least 67 x 67 pixels, and at least two samples per micro-batch",
              "false"),
    keys::probability<&AmoebaNetSizes::drop_path>("drop_path")
        .says("`reference` only: probability, at the end of training, that the output of an "
              "operation of a cell is dropped, per sample. It rises linearly: `drop_path` s / n in "
              "step s of n. It is equal in all cells; an operation that passes its state on is not "
              "dropped, and nothing is dropped in validation",
              "0"),
    required_image.says("height, width and channels of the images: `[224, 224, 3]`", "required")};

constexpr std::array<ScenarioKey, 4> keys_of_resnet{
    keys::required<&ResNetSizes::depth>("depth", any_size)
        .typed("18, 34, 50, 101, 152; 20, 32, 44, 56, 110")
        .says("the last five are for small images: a first convolution of 3x3, no pool, and 16, 32 "
              "and 64 filters"),
    keys::required<&ResNetSizes::classes>("classes", any_size).says("outputs of the classifier"),
    keys::boolean<&ResNetSizes::projections>("projections")
        .says("a skip between unequal shapes is a 1x1 convolution and a norm. With false it takes "
              "every second pixel, and zeros for the new channels",
              "true"),
    required_image.says("height, width and channels of the images: `[32, 32, 3]`", "required")};

constexpr std::array<ScenarioKey, 5> keys_of_unet{
    keys::required<&UNetSizes::depth>("depth", any_size).typed("1 to 12").says("levels"),
    keys::required<&UNetSizes::convolutions>("convolutions", any_size)
        .says("B, the convolutions of each level, on the way down and on the way up"),
    keys::required<&UNetSizes::channels>("channels", any_size)
        .typed("even, 2 to 65,536")
        .says("C, the channels of the first level; each further level doubles them"),
    keys::number<&UNetSizes::dropout>("dropout", {0, 1})
        .read_by(read_unet_dropout)
        .typed("0 up to 1")
        .says("probability that a channel of a convolution is dropped, per sample", "0.1"),
    required_image.says("height, width and channels of the images: `[192, 192, 3]`", "required")};

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
