// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/gelu_form.h"
#include "core/model/pixels.h"
#include "core/model/rotary.h"
#include "core/model/routing.h"

namespace pipetwin {

/// What a layer computes. Primitive layers have weights or a formula of their own; `Sequence` and
/// `Residual` are made of others, so that one unit of partition may hold several.
enum class LayerType {
    Embedding,  ///< token ids (positions) -> (positions, outputs): token table plus position table
    LayerNorm,  ///< per position, gain and bias, epsilon 1e-5
    RmsNorm,    ///< per position: x / sqrt(mean(x^2) + epsilon), then a gain
    Linear,     ///< y = x w + b; b only where `bias`
    Gelu,       ///< x Phi(x), Phi the normal distribution or the approximation of it by tanh
    SwiGlu,     ///< of gates g and values v side by side: v g / (1 + exp(-g)); half as wide
    Experts,    ///< rows go through `per_row` of many SwiGLU feed-forwards, whose sum has weights
    Dropout,    ///< in training: each number is 0 with probability p, or 1 / (1 - p) of itself
    Attention,  ///< multi-head self-attention with qkv and output projections
    CrossAttention,  ///< queries of the first output attend to keys and values of the second
    Positions,       ///< some neighbouring positions of a sample, from `begin` on
    CrossEntropy,    ///< mean negative log-likelihood of the target class at every position; of a
                     ///< second output, too, with a weight
    Sequence,        ///< `inner`, one after the other or with branches
    Residual,        ///< x + inner(x)
    Add,             ///< the sum of two or more outputs of one shape
    Concat,          ///< two or more outputs of equal positions side by side: their widths add up
    Conv2d,          ///< of images: sums of w x over windows of pixels; b only where `bias`
    MaxPool,         ///< of images: the largest number of each channel in each window
    AvgPool,         ///< of images: the mean of each channel in each window
    GlobalAvgPool,   ///< of images: the mean of each channel over all pixels; one position
    Upsample,        ///< of images: `factor` times as many pixels in each direction
    Pad,             ///< of images: zeros around them; negative margins cut off
    PadChannels,     ///< zeros behind the channels, up to `outputs` of them
    BatchNorm,       ///< per channel over a micro-batch, then gain and bias; running statistics
    InstanceNorm,    ///< of images: per channel and sample; no parameters
    GroupNorm,       ///< of images: per sample and group of channels, then gain and bias
    Relu,            ///< max(x, 0)
    LeakyRelu,       ///< x where x > 0, else slope * x
    ChannelDropout,  ///< as Dropout, of whole channels of a sample
    DropPath,        ///< as Dropout, of whole samples
    Identity,        ///< hands on what it reads
    Flatten,         ///< of images: one position with all numbers of the sample, row by row
    BinaryCrossEntropy,  ///< mean over all numbers of -log of the chance of their targets, 0 or 1
    Opaque,              ///< known by its costs only; can be planned and simulated, not executed
};

/// The word of a type of layer in scenarios: "linear".
std::string_view to_string(LayerType type);

/// What each of several devices has of a layer that they compute together
/// (core/model/tensor_division.h). The sizes of its LayerSpec are those of one device then.
struct TensorCut {
    int devices = 1;    ///< 1: the layer is not divided
    bool rows = false;  ///< Linear: a part of the rows of its matrix, else of the columns
    int blocks = 1;     ///< Linear: equal blocks of columns; a device has its part of each
    /// Attention: neighbours that have the same head of keys and values, where there are fewer of
    /// these than devices.
    int sharers = 1;

    /// What goes into the layer and comes out has a part of the rows on each device: positions of
    /// its SampleShape are those of a part. Also of norms.
    bool sequence = false;

    bool divides() const { return devices > 1; }
    bool operator==(const TensorCut&) const = default;
};

/// What a user writes about a layer; shapes follow from the layers that it reads. A layer without a
/// name gets one from its type and its index among its siblings: "linear0", "gelu1".
struct LayerSpec {
    std::string name{};
    LayerType type = LayerType::Opaque;
    int outputs = 0;     ///< Embedding, Linear, Conv2d, PadChannels: width of the output
    int vocabulary = 0;  ///< Embedding: rows of the token table
    int context = 0;     ///< Embedding: rows of the position table; 0 = no position table
    /// Embedding: false: there is no position table, whatever the context.
    bool learned_positions = true;
    /// Embedding: adds sinusoids of the position (Vaswani et al., arXiv 1706.03762, section 3.5).
    bool sinusoids = false;
    /// Embedding: rows of the token table are multiplied by sqrt(outputs), and drawn accordingly
    /// (arXiv 1706.03762, section 3.4).
    bool scaled = false;
    /// Embedding: so many positions in front are those of a source, the others of a target;
    /// positions are counted from 0 in both. 0: there is one sequence.
    int source_positions = 0;
    bool source_table = false;  ///< Embedding: the source has a token table of its own
    int heads = 0;  ///< Attention, CrossAttention: must divide the width, where `head_size` is 0
    /// Attention: heads in groups of heads / key_value_heads share keys and values; 0: each has its
    /// own.
    int key_value_heads = 0;
    /// Attention, CrossAttention: numbers of a head's query; 0: width / heads
    int head_size = 0;
    Rotary rotary{};      ///< Attention: turns queries and keys
    Routing routing{};    ///< Experts: which rows go where
    int inner_width = 0;  ///< Experts: of each
    bool bias = true;     ///< Linear, Conv2d, Attention, CrossAttention
    /// Attention: a query sees the keys up to its own position. False: it sees all keys of its
    /// sample before the sample's length.
    bool causal = true;
    int begin = 0;      ///< Positions: the first one that is handed on
    int positions = 0;  ///< Positions: how many are
    /// Linear: w is the token table of the model's embedding, transposed. Embedding: there is one.
    bool tied = false;
    /// Tied Embedding, Linear, CrossEntropy: rows of the token table, outputs or columns that
    /// belong to no token (Model::with_padded_vocabulary). No user writes them.
    int vocabulary_padding = 0;
    /// Dropout, ChannelDropout, DropPath; also of the output of Embedding, Linear, Attention: the
    /// p.
    double dropout = 0;
    Pixels kernel{};    ///< Conv2d, MaxPool, AvgPool: the window
    Pixels stride{};    ///< of the window; 0 x 0: one pixel for a Conv2d, the kernel for a pool
    Pixels dilation{};  ///< Conv2d: from one pixel of the window to the next; 0 x 0: one
    Margins padding{};  ///< Conv2d, MaxPool, AvgPool, Pad
    int groups = 1;     ///< Conv2d, GroupNorm: of channels that have nothing to do with each other
    /// Conv2d: initial weights are normal with variance 2 / (pixels of the window * outputs), as in
    /// He et al., arXiv 1502.01852; else as those of a Linear.
    bool he_normal = false;
    bool count_padding = true;  ///< AvgPool: the mean is over the window, not over the image in it
    int factor = 2;             ///< Upsample
    bool bilinear = false;  ///< Upsample: means of the nearest four pixels, else the nearest one
    /// BatchNorm, InstanceNorm, GroupNorm: added to the variance; RmsNorm: to the mean square.
    double epsilon = 1e-5;
    double momentum = 0.1;    ///< BatchNorm: weight of a new value in the running statistics
    bool cumulative = false;  ///< BatchNorm: they are means of all values so far; no momentum
    bool deferred = true;     ///< BatchNorm: they move once a mini-batch, else a micro-batch
    double slope = 0.01;      ///< LeakyRelu
    GeluForm gelu = GeluForm::Exact;  ///< Gelu
    /// CrossEntropy: share of the target that all classes divide among them, 0 up to, but not, 1.
    double label_smoothing = 0;
    /// CrossEntropy of two outputs: factor of the loss of the second one, in training alone.
    double auxiliary_weight = 0.4;
    /// DropPath: the p rises from 0 with the steps of the training, and is reached behind the last.
    bool rising = false;
    /// Embedding, Linear, Attention, CrossEntropy: no user writes it (`tensor_division`).
    TensorCut cut{};
    std::vector<LayerSpec> inner{};
    /// Names of the layers whose outputs it reads, in the order in which a concat joins them;
    /// empty: the layer before, or the model's input for the first. A layer of a sequence names
    /// layers of the same sequence, and what that reads "input0", "input1", ..., in the order of
    /// the sequence's own `inputs`; empty: the layer before, or "input0" for the first.
    std::vector<std::string> inputs{};

    bool operator==(const LayerSpec&) const = default;
};

/// The heads of an attention layer.
struct AttentionSizes {
    int heads = 0;
    int key_value_heads = 0;
    int head_size = 0;

    /// Numbers of a row of all queries, and of what heads make of them.
    int query_width() const { return heads * head_size; }
    /// Numbers of a row of queries, keys and values.
    int qkv_width() const { return (heads + 2 * key_value_heads) * head_size; }
};

/// The heads of an attention that reads rows of `width` numbers; `spec.heads` is at least 1.
AttentionSizes attention_sizes(const LayerSpec& spec, int width);

/// True for a loss, and for a sequence that ends with one.
bool ends_with_loss(const LayerSpec& layer);

/// Shape of one sample between layers: `positions` x `width` numbers, or `positions` token ids. The
/// positions of an image are its pixels, row by row, and its width is the number of its channels.
struct SampleShape {
    bool token_ids = false;
    int positions = 1;
    int width = 0;
    Pixels image{};  ///< 0 x 0: no image

    bool is_image() const { return image.height > 0; }

    bool operator==(const SampleShape&) const = default;
};

/// The shape of an image of so many pixels and channels.
SampleShape image_shape(Pixels image, int channels);

/// The shape in words, for errors: "8 x 64", "8 token ids" or "28 x 28 pixels x 3".
std::string to_string(const SampleShape& shape);

/// What a layer that reads one output makes of it. Throws Error(BadInput) where it does not fit.
SampleShape output_shape(const LayerSpec& spec, const SampleShape& input);

}  // namespace pipetwin
