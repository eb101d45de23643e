// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/cudnn_convolution_graph.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace pipetwin::cuda {
namespace {

using Pair = std::array<std::int64_t, 2>;  ///< along the height, along the width

/// Attributes of an operation, which have other names for each direction.
struct OperationNames {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t kind;
    cudnnBackendAttributeName_t image;
    cudnnBackendAttributeName_t filters;
    cudnnBackendAttributeName_t result;
    cudnnBackendAttributeName_t alpha;
    cudnnBackendAttributeName_t beta;
};

OperationNames names_of(ConvolutionDirection direction) {
    switch (direction) {
        case ConvolutionDirection::Forward:
            return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
        case ConvolutionDirection::BackwardInput:
            return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
        case ConvolutionDirection::BackwardWeight:
            break;
    }
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

/// Sizes in cuDNN's order, (n, c, h, w), of what lies in memory as n h w c.
CudnnTensor channels_last(ConvolutionTensor name,
                          cudnnDataType_t type,
                          const std::array<std::int64_t, 4>& sizes) {
    const auto [n, c, h, w] = sizes;
    return {.name = static_cast<std::int64_t>(name),
            .type = type,
            .sizes = sizes,
            .strides = {h * w * c, 1, w * c, c}};
}

/// One direction of a window.
struct Axis {
    std::int64_t in;
    std::int64_t out;
    std::int64_t reach;  ///< pixels from the first place of a window to behind its last
    std::int64_t stride;
    std::int64_t before;

    /// Windows that there are with so many zeros behind the image.
    std::int64_t windows(std::int64_t after) const {
        const std::int64_t room = in + before + after - reach;
        return room < 0 ? 0 : room / stride + 1;
    }
    /// None: something is cut off.
    std::optional<std::int64_t> after() const {
        if (before < 0) {
            return std::nullopt;
        }
        if (windows(before) == out) {
            return before;
        }
        const std::int64_t least =
            std::max<std::int64_t>((out - 1) * stride + reach - in - before, 0);
        return windows(least) == out ? std::optional(least) : std::nullopt;
    }
};

Axis rows_of_window(const Window& w) {
    return {w.in_height,
            w.out_height,
            std::int64_t{w.kernel_height - 1} * w.dilation_height + 1,
            w.stride_height,
            w.top};
}
Axis columns_of_window(const Window& w) {
    return {w.in_width,
            w.out_width,
            std::int64_t{w.kernel_width - 1} * w.dilation_width + 1,
            w.stride_width,
            w.left};
}

CudnnDescriptor kind_of(const CudnnFunctions& cudnn, const Window& w) {
    const std::optional<ConvolutionMargins> margins = margins_of(w);
    PIPETWIN_EXPECT(margins.has_value(), "a window that cuts nothing off");
    CudnnDescriptor kind(cudnn, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const auto set = [&kind](cudnnBackendAttributeName_t name, const Pair& pair) {
        kind.set(name, std::span<const std::int64_t>(pair));
    };
    kind.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
    kind.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    kind.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {w.stride_height, w.stride_width});
    set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {w.dilation_height, w.dilation_width});
    set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, margins->before);
    set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, margins->after);
    kind.finalize();
    return kind;
}

}  // namespace

std::optional<ConvolutionMargins> margins_of(const Window& window) {
    const std::optional<std::int64_t> bottom = rows_of_window(window).after();
    const std::optional<std::int64_t> right = columns_of_window(window).after();
    if (!bottom || !right) {
        return std::nullopt;
    }
    return ConvolutionMargins{.before = {window.top, window.left}, .after = {*bottom, *right}};
}

std::vector<cudnnBackendNumericalNote_t> refused_notes(Real real) {
    std::vector<cudnnBackendNumericalNote_t> refused{
        CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
        CUDNN_NUMERICAL_NOTE_FFT,
        CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
        CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13};
    if (real == Real::F32) {
        refused.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
        refused.push_back(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
    }
    return refused;
}

CudnnGraph convolution_graph(const CudnnFunctions& cudnn,
                             cudnnHandle_t handle,
                             const CudnnConvolution& convolution) {
    const auto& [real, w, direction, adds] = convolution;
    const cudnnDataType_t type = real == Real::BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    std::deque<CudnnDescriptor> parts;
    const auto add = [&parts](CudnnDescriptor part) {
        parts.push_back(std::move(part));
        return parts.back().get();
    };
    const auto tensor = [&](ConvolutionTensor name, const std::array<std::int64_t, 4>& sizes) {
        return add(tensor_descriptor(cudnn, channels_last(name, type, sizes)));
    };
    const OperationNames names = names_of(direction);
    CudnnDescriptor operation(cudnn, names.operation);
    operation.set(names.kind, add(kind_of(cudnn, w)));
    operation.set(
        names.image,
        tensor(ConvolutionTensor::Image, {w.samples, w.channels, w.in_height, w.in_width}));
    operation.set(names.filters,
                  tensor(ConvolutionTensor::Filters,
                         {w.outputs, w.channels / w.groups, w.kernel_height, w.kernel_width}));
    operation.set(
        names.result,
        tensor(ConvolutionTensor::Result, {w.samples, w.outputs, w.out_height, w.out_width}));
    operation.set(names.alpha, 1.0F);
    operation.set(names.beta, adds ? 1.0F : 0.0F);
    operation.finalize();
    const std::array operations{add(std::move(operation))};
    CudnnDescriptor graph = graph_descriptor(cudnn, handle, operations);
    return {.parts = std::move(parts), .graph = std::move(graph)};
}

}  // namespace pipetwin::cuda
