// SPDX-License-Identifier: Apache-2.0
#include "core/model/image_layers.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "core/model/layer_spec.h"
#include "core/model/pixels.h"

namespace pipetwin {

namespace {

/// Larger than any picture, and small enough that sums of a few of them fit into an int.
constexpr int most_pixels = 1 << 20;

void expect_image(const std::string& name, const LayerSpec& spec, const SampleShape& input) {
    if (!input.is_image()) {
        refuse_layer(
            name,
            fmt::format("{} reads {}, expected an image", to_string(spec.type), to_string(input)),
            "give the model image = [height, width, channels], and put no flatten before this");
    }
}

/// A size that the user may leave out, with its default in place of 0 x 0.
void settle(const std::string& name, std::string_view what, Pixels& size, Pixels otherwise) {
    if (size == Pixels{}) {
        size = otherwise;
    }
    for (const int pixels : {size.height, size.width}) {
        if (pixels < 1 || pixels > most_pixels) {
            refuse_layer(name,
                         fmt::format("{} = {} x {}, expected 1 to {} pixels each",
                                     what,
                                     size.height,
                                     size.width,
                                     most_pixels));
        }
    }
}

void expect_margins(const std::string& name, const Margins& padding) {
    for (const int margin : {padding.top, padding.left, padding.bottom, padding.right}) {
        if (margin < -most_pixels || margin > most_pixels) {
            refuse_layer(
                name,
                fmt::format("padding of {} pixels, expected at most {}, or as many cut off",
                            margin,
                            most_pixels));
        }
    }
}

/// Number of places that a window has in a row, or in a column, of pixels; below 1: none.
int places(std::int64_t pixels, int margins, int kernel, int dilation, int stride) {
    const std::int64_t free = pixels + margins - std::int64_t{dilation} * (kernel - 1) - 1;
    return free < 0 ? 0 : static_cast<int>(free / stride + 1);
}

/// The image of the places of a layer's window; its width is that of the input.
SampleShape windows_of(const std::string& name, const LayerSpec& spec, const SampleShape& input) {
    const Margins& padding = spec.padding;
    const Pixels image{.height = places(input.image.height,
                                        padding.top + padding.bottom,
                                        spec.kernel.height,
                                        spec.dilation.height,
                                        spec.stride.height),
                       .width = places(input.image.width,
                                       padding.left + padding.right,
                                       spec.kernel.width,
                                       spec.dilation.width,
                                       spec.stride.width)};
    if (image.height < 1 || image.width < 1) {
        refuse_layer(name,
                     fmt::format("a window of {} x {} pixels is larger than the image of {} x {} "
                                 "with its padding",
                                 spec.dilation.height * (spec.kernel.height - 1) + 1,
                                 spec.dilation.width * (spec.kernel.width - 1) + 1,
                                 input.image.height,
                                 input.image.width),
                     "choose a smaller kernel, or larger images");
    }
    checked_product(name, image.height, image.width);
    if (std::int64_t{image.height} * image.width > (std::int64_t{1} << 30)) {
        refuse_layer(name,
                     fmt::format("an image of {} x {} pixels, expected at most 2^30 of them",
                                 image.height,
                                 image.width),
                     "check the padding");
    }
    return image_shape(image, input.width);
}

void settle_window(const std::string& name, LayerSpec& spec, Pixels stride) {
    settle(name, "kernel", spec.kernel, {});
    settle(name, "stride", spec.stride, stride);
    settle(name, "dilation", spec.dilation, {1, 1});
    expect_margins(name, spec.padding);
}

void expect_groups(const std::string& name, int groups, std::string_view what, int channels) {
    expect_positive(name, "groups", groups);
    if (channels % groups != 0) {
        refuse_layer(name,
                     fmt::format("{} groups do not divide the {} {}", groups, channels, what),
                     "choose a number of groups that does");
    }
}

Placed gain_and_bias(const SampleShape& shape) {
    return {shape, 2 * std::int64_t{shape.width}};
}

}  // namespace

Placed place_conv2d(LayerPlacement& /*placement*/,
                    LayerSpec& spec,
                    const std::string& name,
                    const SampleShape& input) {
    expect_image(name, spec, input);
    expect_positive(name, "outputs", spec.outputs);
    settle_window(name, spec, {1, 1});
    expect_groups(name, spec.groups, "channels that it reads", input.width);
    expect_groups(name, spec.groups, "outputs", spec.outputs);
    SampleShape output = windows_of(name, spec, input);
    output.width = spec.outputs;
    const std::int64_t window =
        checked_product(name,
                        checked_product(name, spec.kernel.height, spec.kernel.width),
                        input.width / spec.groups);
    return {output, checked_product(name, window + (spec.bias ? 1 : 0), spec.outputs)};
}

Placed place_pool(LayerPlacement& /*placement*/,
                  LayerSpec& spec,
                  const std::string& name,
                  const SampleShape& input) {
    expect_image(name, spec, input);
    settle_window(name, spec, spec.kernel);
    const Margins& padding = spec.padding;
    // Then every window has a pixel of the image in it.
    if (std::min({padding.top, padding.left, padding.bottom, padding.right}) < 0 ||
        std::max(padding.top, padding.bottom) >= spec.kernel.height ||
        std::max(padding.left, padding.right) >= spec.kernel.width) {
        refuse_layer(name,
                     fmt::format("padding of {}, {}, {}, {} pixels around a window of {} x {}, "
                                 "expected less than the window on every side, and nothing cut off",
                                 padding.top,
                                 padding.left,
                                 padding.bottom,
                                 padding.right,
                                 spec.kernel.height,
                                 spec.kernel.width),
                     "a pad before it may add or cut off more");
    }
    return {windows_of(name, spec, input), 0};
}

Placed place_global_avg_pool(LayerPlacement& /*placement*/,
                             LayerSpec& spec,
                             const std::string& name,
                             const SampleShape& input) {
    expect_image(name, spec, input);
    return {image_shape({1, 1}, input.width), 0};
}

Placed place_upsample(LayerPlacement& /*placement*/,
                      LayerSpec& spec,
                      const std::string& name,
                      const SampleShape& input) {
    expect_image(name, spec, input);
    expect_positive(name, "factor", spec.factor);
    const std::int64_t height = std::int64_t{input.image.height} * spec.factor;
    const std::int64_t width = std::int64_t{input.image.width} * spec.factor;
    if (std::max(height, width) > most_pixels || height * width > (std::int64_t{1} << 30)) {
        refuse_layer(name,
                     fmt::format("an image of {} x {} pixels, expected at most {} a side and 2^30",
                                 height,
                                 width,
                                 most_pixels),
                     "check the factor");
    }
    return {image_shape({static_cast<int>(height), static_cast<int>(width)}, input.width), 0};
}

Placed place_pad(LayerPlacement& /*placement*/,
                 LayerSpec& spec,
                 const std::string& name,
                 const SampleShape& input) {
    expect_image(name, spec, input);
    expect_margins(name, spec.padding);
    LayerSpec pixel = spec;  // each place of a window of one pixel is a pixel of the output
    pixel.kernel = pixel.stride = pixel.dilation = {1, 1};
    return {windows_of(name, pixel, input), 0};
}

Placed place_pad_channels(LayerPlacement& /*placement*/,
                          LayerSpec& spec,
                          const std::string& name,
                          const SampleShape& input) {
    if (spec.outputs < input.width) {
        refuse_layer(name,
                     fmt::format("outputs = {}, expected at least the {} channels that it reads",
                                 spec.outputs,
                                 input.width));
    }
    SampleShape output = input;
    output.width = spec.outputs;
    return {output, 0};
}

Placed place_batch_norm(LayerPlacement& /*placement*/,
                        LayerSpec& spec,
                        const std::string& name,
                        const SampleShape& input) {
    expect_epsilon(name, spec.epsilon);
    return gain_and_bias(input);
}

Placed place_instance_norm(LayerPlacement& /*placement*/,
                           LayerSpec& spec,
                           const std::string& name,
                           const SampleShape& input) {
    expect_image(name, spec, input);
    expect_epsilon(name, spec.epsilon);
    if (input.positions < 2) {
        refuse_layer(name,
                     "instance_norm reads one pixel, expected at least 2: the variance of one is 0",
                     "take it out, or let larger images come here");
    }
    return {input, 0};
}

Placed place_group_norm(LayerPlacement& /*placement*/,
                        LayerSpec& spec,
                        const std::string& name,
                        const SampleShape& input) {
    expect_groups(name, spec.groups, "channels that it reads", input.width);
    expect_epsilon(name, spec.epsilon);
    if (std::int64_t{input.positions} * (input.width / spec.groups) < 2) {
        refuse_layer(name,
                     "group_norm has groups of one value, expected at least 2: one has no variance",
                     "choose fewer groups");
    }
    return gain_and_bias(input);
}

Placed place_flatten(LayerPlacement& /*placement*/,
                     LayerSpec& spec,
                     const std::string& name,
                     const SampleShape& input) {
    expect_image(name, spec, input);
    const std::int64_t width = checked_product(name, input.positions, input.width);
    if (width > (std::int64_t{1} << 30)) {
        refuse_layer(name,
                     fmt::format("a row of {} numbers, expected at most 2^30", width),
                     "let a pool come before it");
    }
    return {{.positions = 1, .width = static_cast<int>(width)}, 0};
}

Placed place_binary_cross_entropy(LayerPlacement& placement,
                                  LayerSpec& spec,
                                  const std::string& name,
                                  const SampleShape& input) {
    if (input.width != 1) {
        refuse_layer(name,
                     fmt::format("{} reads {} numbers for each position, expected one",
                                 to_string(spec.type),
                                 input.width),
                     "let the layer before it make one, or use a cross_entropy");
    }
    placement.after_loss = true;
    return {{.positions = 1, .width = 0}, 0};
}

}  // namespace pipetwin
