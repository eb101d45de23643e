// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "core/model/layer_spec.h"

/// Models of images, cut into the units of partition that torchgpipe's benchmarks have
/// (kakaobrain/torchgpipe v0.0.7, benchmarks/models). The last unit ends with the loss.
namespace pipetwin {

/// Which evolved cells an AmoebaNet is made of (Real et al., arXiv 1802.01548).
enum class AmoebaNetCells { B, D };

/// The program that an AmoebaNet follows where the two differ.
enum class AmoebaNetVariant {
    Reference,  ///< tensorflow/tpu, models/official/amoeba_net: what GPipe trained
    Torchgpipe  ///< torchgpipe's benchmark; its 3x3 "max" pools take means, as they do there
};

/// The word of a variant in scenarios: "torchgpipe".
std::string_view to_string(AmoebaNetVariant variant);

/// Sizes of an AmoebaNet (L, D).
struct AmoebaNetSizes {
    int layers = 0;   ///< L: normal cells, a multiple of 3
    int filters = 0;  ///< D: of the first normal cells; doubled behind each third of them
    int classes = 0;
    AmoebaNetVariant variant = AmoebaNetVariant::Reference;
    /// Reference: a second classifier reads the last cell before the last reduction cell, in
    /// training.
    bool auxiliary_head = false;
    /// Reference: probability behind the last step of the training, to which it rises from 0, that
    /// an operation of a cell is dropped, of each sample.
    double drop_path = 0;

    bool operator==(const AmoebaNetSizes&) const = default;
};

/// L + 6 units: "stem1" to "stem3", cells as "cell1_normal1" and "cell2_reduction", "classify". A
/// cell is one unit, which reads the outputs of the cell before it and of the one before that. The
/// auxiliary head is one more, "auxiliary", behind the cell that it reads; "classify", which has
/// the loss, reads its output, too. Throws Error(BadInput) naming the key whose size no such model
/// has.
std::vector<LayerSpec> amoebanet_layers(AmoebaNetCells cells,
                                        const AmoebaNetSizes& sizes,
                                        const SampleShape& image);

/// Sizes of a ResNet (He et al., arXiv 1512.03385).
struct ResNetSizes {
    int depth = 0;  ///< 18, 34, 50, 101, 152; of small images 20, 32, 44, 56, 110
    int classes = 0;
    /// A skip between unequal shapes is a 1x1 convolution; else every second pixel, and zeros for
    /// further channels.
    bool projections = true;

    bool operator==(const ResNetSizes&) const = default;
};

/// Depths of ResNet that there are.
const std::vector<int>& resnet_depths();

/// torchvision's units, one for each module: "conv1", "bn1", "relu", "maxpool", blocks as
/// "layer1.0.identity" to "layer1.0.residual" and "layer1.0.relu3", "avgpool", "flat", "fc". The
/// skip is the output of "identity" and is read by "residual", which holds the projection. Throws
/// Error(BadInput) for a depth that there is not.
std::vector<LayerSpec> resnet_layers(const ResNetSizes& sizes);

/// Sizes of torchgpipe's U-Net (B, C).
struct UNetSizes {
    int depth = 5;         ///< levels, of which each halves the image
    int convolutions = 0;  ///< B: of a level, down and up
    int channels = 0;      ///< C: of the first level; even
    double dropout = 0.1;  ///< probability that a convolution's channel is dropped

    bool operator==(const UNetSizes&) const = default;
};

/// (2 depth + 1) * 4 B + 4 depth + 1 units under torchgpipe's names: "encoder_0_encode_0_conv" to
/// "encoder_0_skip" and "encoder_0_down", "bottleneck_0_0_conv", "decoder_0_up" to
/// "decoder_0_decode_0_relu", "segment". A level's output is the skip, which "decoder_I_skip"
/// joins. Throws Error(BadInput) naming the key whose size no such model has.
std::vector<LayerSpec> unet_layers(const UNetSizes& sizes, const SampleShape& image);

}  // namespace pipetwin
