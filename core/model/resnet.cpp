// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/model/image_models.h"
#include "core/model/image_specs.h"

namespace pipetwin {

namespace {

/// The blocks of a depth, group by group; the image is halved in front of each group but the first.
struct ResNetPlan {
    int depth = 0;
    std::array<int, 4> blocks{};  ///< 0: no such group
    bool is_bottleneck = false;
    bool has_small_stem = false;  ///< 3x3 convolution of small images; no pool
    int width = 64;               ///< channels of the first group
};

/// CIFAR's: three groups of n blocks of two convolutions make 6 n + 2 layers.
constexpr ResNetPlan small_plan(int depth) {
    const int n = (depth - 2) / 6;
    return {.depth = depth, .blocks = {n, n, n, 0}, .has_small_stem = true, .width = 16};
}

constexpr std::array plans{
    ResNetPlan{.depth = 18, .blocks = {2, 2, 2, 2}},
    small_plan(20),
    small_plan(32),
    ResNetPlan{.depth = 34, .blocks = {3, 4, 6, 3}},
    small_plan(44),
    ResNetPlan{.depth = 50, .blocks = {3, 4, 6, 3}, .is_bottleneck = true},
    small_plan(56),
    ResNetPlan{.depth = 101, .blocks = {3, 4, 23, 3}, .is_bottleneck = true},
    small_plan(110),
    ResNetPlan{.depth = 152, .blocks = {3, 8, 36, 3}, .is_bottleneck = true},
};

/// A convolution without bias, drawn as in the paper.
LayerSpec resnet_convolution(std::string name, int outputs, int kernel, int stride = 1) {
    LayerSpec spec = image_convolution(std::move(name), outputs, {kernel, kernel}, stride);
    spec.he_normal = true;
    return spec;
}

/// One block of a group.
struct ResNetBlock {
    std::string path;     ///< "layer2.0"
    int width = 0;        ///< of its inner convolutions
    int stride = 1;       ///< of the block
    bool widens = false;  ///< it makes more channels than it reads, or fewer pixels
};

class ResNetUnits {
  public:
    ResNetUnits(const ResNetSizes& sizes, const ResNetPlan& plan) : sizes_(sizes), plan_(plan) {}

    std::vector<LayerSpec> all() {
        stem();
        int channels = plan_.width;
        for (std::size_t group = 0; group < plan_.blocks.size(); ++group) {
            const int width = plan_.width << group;
            for (int index = 0; index < plan_.blocks.at(group); ++index) {
                const int outputs = width * (plan_.is_bottleneck ? 4 : 1);
                const int stride = index == 0 && group > 0 ? 2 : 1;
                block({.path = fmt::format("layer{}.{}", group + 1, index),
                       .width = width,
                       .stride = stride,
                       .widens = stride > 1 || outputs != channels});
                channels = outputs;
            }
        }
        add("avgpool", LayerType::GlobalAvgPool);
        add("flat", LayerType::Flatten);
        units_.push_back(layer_sequence(
            "fc",
            {{.name = "linear", .type = LayerType::Linear, .outputs = sizes_.classes},
             plain_layer("loss", LayerType::CrossEntropy)}));
        return std::move(units_);
    }

  private:
    void add(std::string name, LayerType type) {
        units_.push_back(plain_layer(std::move(name), type));
    }

    void stem() {
        const bool small = plan_.has_small_stem;
        units_.push_back(resnet_convolution("conv1", plan_.width, small ? 3 : 7, small ? 1 : 2));
        add("bn1", LayerType::BatchNorm);
        add("relu", LayerType::Relu);
        if (!small) {
            units_.push_back(image_pool("maxpool", LayerType::MaxPool, 3, 2, 1));
        }
    }

    /// A convolution of a block and its norm.
    void convolution(const ResNetBlock& block, int number, LayerSpec conv) {
        conv.name = fmt::format("{}.conv{}", block.path, number);
        units_.push_back(std::move(conv));
        add(fmt::format("{}.bn{}", block.path, number), LayerType::BatchNorm);
    }

    void relu(const ResNetBlock& block, int number) {
        add(fmt::format("{}.relu{}", block.path, number), LayerType::Relu);
    }

    void block(const ResNetBlock& block) {
        add(block.path + ".identity", LayerType::Identity);
        if (plan_.is_bottleneck) {
            convolution(block, 1, resnet_convolution("", block.width, 1));
            relu(block, 1);
            convolution(block, 2, resnet_convolution("", block.width, 3, block.stride));
            relu(block, 2);
            convolution(block, 3, resnet_convolution("", 4 * block.width, 1));
            residual(block, 4 * block.width);
            relu(block, 3);
        } else {
            convolution(block, 1, resnet_convolution("", block.width, 3, block.stride));
            relu(block, 1);
            convolution(block, 2, resnet_convolution("", block.width, 3));
            residual(block, block.width);
            relu(block, 2);
        }
    }

    /// The sum of what the block made and of what it read, brought to the same shape.
    void residual(const ResNetBlock& block, int outputs) {
        const std::string name = block.path + ".residual";
        const std::vector<std::string> inputs{units_.back().name, block.path + ".identity"};
        if (!block.widens) {
            units_.push_back(reading(plain_layer(name, LayerType::Add), inputs));
            return;
        }
        std::vector<LayerSpec> inner;
        if (sizes_.projections) {
            inner = {resnet_convolution("conv", outputs, 1, block.stride),
                     plain_layer("bn", LayerType::BatchNorm)};
        } else {
            inner = {{.name = "channels", .type = LayerType::PadChannels, .outputs = outputs}};
            if (block.stride > 1) {  // a window of one pixel takes the pixels that it meets
                inner.insert(inner.begin(),
                             image_pool("pixels", LayerType::MaxPool, 1, block.stride));
            }
        }
        inner.front().inputs = {"input1"};
        inner.push_back(reading(plain_layer("add", LayerType::Add), {"input0", inner.back().name}));
        units_.push_back(reading(layer_sequence(name, std::move(inner)), inputs));
    }

    ResNetSizes sizes_;
    ResNetPlan plan_;
    std::vector<LayerSpec> units_;
};

}  // namespace

const std::vector<int>& resnet_depths() {
    static const std::vector<int> depths = [] {
        std::vector<int> all;
        std::ranges::transform(plans, std::back_inserter(all), &ResNetPlan::depth);
        return all;
    }();
    return depths;
}

std::vector<LayerSpec> resnet_layers(const ResNetSizes& sizes) {
    const auto* const plan = std::ranges::find(plans, sizes.depth, &ResNetPlan::depth);
    if (plan == plans.end()) {
        refuse_model_key(
            "depth",
            fmt::format("{}, expected one of {}", sizes.depth, fmt::join(resnet_depths(), ", ")),
            "20, 32, 44, 56 and 110 are those of small images");
    }
    return ResNetUnits(sizes, *plan).all();
}

}  // namespace pipetwin
