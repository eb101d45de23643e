// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <fmt/format.h>

#include "core/model/image_models.h"
#include "core/model/image_specs.h"
#include "core/model/layer_placement.h"

namespace pipetwin {

namespace {

constexpr int most_levels = 12;
constexpr int most_channels = 1 << 16;
constexpr int most_units = static_cast<int>(most_layers);

/// Channels that a stack of convolutions reads, has inside, and makes.
struct StackChannels {
    int inner = 0;
    int last = 0;
};

class UNetUnits {
  public:
    explicit UNetUnits(const UNetSizes& sizes) : sizes_(sizes) {}

    std::vector<LayerSpec> all(Pixels image) {
        std::vector<Pixels> levels;  // the size of each skip
        for (int level = 0; level < sizes_.depth; ++level) {
            const int channels = sizes_.channels << level;
            const std::string name = fmt::format("encoder_{}", level);
            convolutions(name + "_encode", {.inner = channels, .last = channels});
            units_.push_back(plain_layer(name + "_skip", LayerType::Identity));
            units_.push_back(image_pool(name + "_down", LayerType::MaxPool, 2, 2));
            levels.push_back(image);
            image = {.height = image.height / 2, .width = image.width / 2};
        }
        const int widest = sizes_.channels << sizes_.depth;
        convolutions("bottleneck_0", {.inner = widest, .last = widest / 2});
        for (int step = 0; step < sizes_.depth; ++step) {
            const int level = sizes_.depth - 1 - step;
            const int channels = (sizes_.channels << level) / 2;
            up(step, level, levels[static_cast<std::size_t>(level)]);
            convolutions(fmt::format("decoder_{}_decode", step),
                         {.inner = channels, .last = channels});
        }
        units_.push_back(layer_sequence("segment",
                                        {image_convolution("conv", 1, {1, 1}),
                                         plain_layer("loss", LayerType::BinaryCrossEntropy)}));
        return std::move(units_);
    }

  private:
    void convolutions(const std::string& path, StackChannels channels) {
        for (int i = 0; i < sizes_.convolutions; ++i) {
            const bool is_last = i + 1 == sizes_.convolutions;
            const std::string name = fmt::format("{}_{}", path, i);
            units_.push_back(image_convolution(
                name + "_conv", is_last ? channels.last : channels.inner, {3, 3}));
            units_.push_back({.name = name + "_dropout",
                              .type = LayerType::ChannelDropout,
                              .dropout = sizes_.dropout});
            units_.push_back(plain_layer(name + "_norm", LayerType::InstanceNorm));
            units_.push_back(plain_layer(name + "_relu", LayerType::LeakyRelu));
        }
    }

    /// Twice as many pixels, and the skip of a level behind their channels. Where halving lost a
    /// row or a column, zeros stand in for it.
    void up(int step, int level, Pixels size) {
        const std::string name = fmt::format("decoder_{}", step);
        units_.push_back(plain_layer(name + "_up", LayerType::Upsample));
        const std::vector<std::string> inputs{name + "_up", fmt::format("encoder_{}_skip", level)};
        const Margins lost{.bottom = size.height % 2, .right = size.width % 2};
        if (lost == Margins{}) {
            units_.push_back(reading(plain_layer(name + "_skip", LayerType::Concat), inputs));
            return;
        }
        LayerSpec pad{.name = "pad", .type = LayerType::Pad, .padding = lost};
        units_.push_back(reading(
            layer_sequence(name + "_skip",
                           {reading(std::move(pad), {"input0"}),
                            reading(plain_layer("concat", LayerType::Concat), {"pad", "input1"})}),
            inputs));
    }

    UNetSizes sizes_;
    std::vector<LayerSpec> units_;
};

}  // namespace

std::vector<LayerSpec> unet_layers(const UNetSizes& sizes, const SampleShape& image) {
    if (sizes.depth < 1 || sizes.depth > most_levels) {
        refuse_model_key("depth",
                         fmt::format("{}, expected 1 to {}", sizes.depth, most_levels),
                         "5 is torchgpipe's");
    }
    const int most_convolutions = (most_units - 4 * sizes.depth - 1) / (4 * (2 * sizes.depth + 1));
    if (sizes.convolutions < 1 || sizes.convolutions > most_convolutions) {
        refuse_model_key("convolutions",
                         fmt::format("{}, expected 1 to {}", sizes.convolutions, most_convolutions),
                         "it is the number of convolutions of each level, down and up");
    }
    if (sizes.channels < 2 || sizes.channels > most_channels || sizes.channels % 2 != 0) {
        refuse_model_key(
            "channels",
            fmt::format("{}, expected an even number from 2 to {}", sizes.channels, most_channels),
            "the last level has half of them");
    }
    const int smallest = 1 << sizes.depth;
    if (image.image.height < smallest || image.image.width < smallest) {
        refuse_model_key(
            "image",
            fmt::format("{} x {} pixels, expected at least {} x {}: each of {} levels halves them",
                        image.image.height,
                        image.image.width,
                        smallest,
                        smallest,
                        sizes.depth),
            "choose a smaller depth, or larger images");
    }
    return UNetUnits(sizes).all(image.image);
}

}  // namespace pipetwin
