// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/device/cuda_window_kernels.h"

#include <cstdint>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/pixels.h"
#include "exec/cuda/kernels/real_of.h"
#include "exec/cuda/kernels/windows/windows.h"

namespace pipetwin::cuda {
namespace {

using exec::ConstView;
using exec::DType;
using exec::UpsampleShape;
using exec::View;
using exec::WindowShape;

std::int32_t bytes_of(DType type) {
    return static_cast<std::int32_t>(exec::size_of(type));
}

Window window_of(const WindowShape& shape, ConstView x) {
    return {.samples = static_cast<std::int32_t>(x.rows / shape.in_rows(1)),
            .in_height = shape.in.height,
            .in_width = shape.in.width,
            .out_height = shape.out.height,
            .out_width = shape.out.width,
            .channels = shape.channels,
            .outputs = shape.outputs,
            .kernel_height = shape.kernel.height,
            .kernel_width = shape.kernel.width,
            .stride_height = shape.stride.height,
            .stride_width = shape.stride.width,
            .dilation_height = shape.dilation.height,
            .dilation_width = shape.dilation.width,
            .top = shape.padding.top,
            .left = shape.padding.left,
            .groups = shape.groups,
            .count_padding = shape.count_padding ? 1 : 0};
}

Upsampling upsampling_of(const UpsampleShape& shape, ConstView x) {
    return {.samples = static_cast<std::int32_t>(x.rows / shape.pixels()),
            .height = shape.in.height,
            .width = shape.in.width,
            .channels = static_cast<std::int32_t>(x.columns),
            .factor = shape.factor,
            .bilinear = shape.bilinear ? 1 : 0};
}

cudaError_t convolve_listed(CudnnConvolutions* convolutions,
                            int number,
                            CudnnConvolutions::Operands operands,
                            cudaStream_t stream) {
    return convolutions->run(number, operands, stream);
}

cudaError_t copy_images(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}

}  // namespace

std::optional<CudaWindowKernels::CudnnCall> CudaWindowKernels::cudnn_call(
    const CudnnConvolution& convolution, std::int64_t weights) const {
    const std::optional<CudnnConvolutions::Plan> plan = lane_.convolutions().plan(convolution);
    if (!plan) {
        return std::nullopt;
    }
    constexpr std::size_t alignment = 256;
    const std::size_t width = convolution.real == Real::BF16 ? 2 : 4;
    const std::size_t filters = (as_index(weights) * width + alignment - 1) / alignment * alignment;
    auto* const place =
        static_cast<std::byte*>(lane_.cudnn_scratch(filters + plan->workspace_bytes));
    return CudnnCall{.number = plan->number, .filters = place, .workspace = place + filters};
}

void CudaWindowKernels::list_cudnn(int number, const CudnnConvolutions::Operands& operands) const {
    constexpr std::uintptr_t alignment = 16;
    for (const void* const address : {operands.image, operands.filters, operands.result}) {
        PIPETWIN_EXPECT(reinterpret_cast<std::uintptr_t>(address) % alignment == 0,
                        "the operands of a convolution begin where their blocks of memory do");
    }
    lane_.list().add(
        "cudnnBackendExecute", convolve_listed, &lane_.convolutions(), number, operands);
}

bool CudaWindowKernels::is_cudnns(CudnnConvolution convolution,
                                  ConstView w,
                                  ConstView skip,
                                  const Images& images,
                                  View to) const {
    convolution.adds = !skip.empty();
    const std::optional<CudnnCall> call = cudnn_call(convolution, w.size());
    if (!call) {
        return false;
    }
    if (convolution.adds && skip.data != to.data) {
        lane_.list().add("cudaMemcpyAsync", copy_images, to.data, skip.data, skip.bytes());
    }
    lane_.list().add(
        "turn_filters", turn_filters, convolution.real, w.rows, w.columns, w.data, call->filters);
    list_cudnn(call->number,
               {.image = images.x.data,
                .filters = call->filters,
                .result = images.y.data,
                .workspace = call->workspace});
    return true;
}

float* CudaWindowKernels::scratch(std::int64_t numbers) const {
    return static_cast<float*>(lane_.scratch(as_index(numbers) * sizeof(float)));
}

void CudaWindowKernels::convolution_forward(
    const WindowShape& shape, ConstView x, ConstView w, ConstView b, ConstView skip, View y) const {
    if (shape.is_pointwise()) {
        kernels_.linear_forward(x, w, b, skip, y);
        return;
    }
    const Real real = real_of(x.dtype);
    const Window window = window_of(shape, x);
    if (is_cudnns({.real = real, .window = window}, w, skip, {.x = x, .y = y}, y)) {
        if (!b.empty()) {
            lane_.list().add("add_row", add_row, real, y.rows, y.columns, b.data, y.data);
        }
        return;
    }
    const Convolution operands{
        .x = x.data, .w = w.data, .bias = b.data, .skip = skip.data, .y = y.data};
    lane_.list().add("convolution_forward", cuda::convolution_forward, real, window, operands);
}

void CudaWindowKernels::convolution_backward_input(
    const WindowShape& shape, ConstView dy, ConstView w, ConstView skip, View dx) const {
    if (shape.is_pointwise()) {
        kernels_.linear_backward_input(dy, w, skip, dx);
        return;
    }
    const Real real = real_of(dy.dtype);
    const Window window = window_of(shape, dx);
    if (is_cudnns(
            {.real = real, .window = window, .direction = ConvolutionDirection::BackwardInput},
            w,
            skip,
            {.x = dx, .y = dy},
            dx)) {
        return;
    }
    const ConvolutionInput operands{.dy = dy.data, .w = w.data, .skip = skip.data, .dx = dx.data};
    lane_.list().add(
        "convolution_backward_input", cuda::convolution_backward_input, real, window, operands);
}

void CudaWindowKernels::convolution_backward_weight(const WindowShape& shape,
                                                    ConstView x,
                                                    ConstView dy,
                                                    const exec::GradientSum& weight_sum,
                                                    const exec::GradientSum& bias_sum) const {
    if (shape.is_pointwise()) {
        kernels_.linear_backward_weight(x, dy, weight_sum, bias_sum);
        return;
    }
    const View dw = kernels_.begun(weight_sum);
    const Real real = real_of(dy.dtype);
    const Window window = window_of(shape, x);
    if (const auto call = cudnn_call(
            {.real = real, .window = window, .direction = ConvolutionDirection::BackwardWeight},
            dw.size())) {
        list_cudnn(call->number,
                   {.image = x.data,
                    .filters = call->filters,
                    .result = dy.data,
                    .workspace = call->workspace});
        lane_.list().add("add_turned_filters",
                         add_turned_filters,
                         real,
                         dw.rows,
                         dw.columns,
                         call->filters,
                         dw.as<float>());
    } else {
        lane_.list().add("convolution_backward_weight",
                         cuda::convolution_backward_weight,
                         real,
                         window,
                         x.data,
                         dy.data,
                         dw.as<float>(),
                         scratch(convolution_scratch(window)));
    }
    if (!bias_sum.empty()) {
        View db = bias_sum.view;
        lane_.list().add("column_sums",
                         column_sums,
                         real_of(dy.dtype),
                         dy.rows,
                         dy.columns,
                         dy.data,
                         ColumnTotals{.first = db.as<float>(), .adds = bias_sum.adds ? 1 : 0},
                         scratch(column_sums_scratch(dy.rows, dy.columns)));
    }
}

void CudaWindowKernels::max_pool_forward(
    const WindowShape& shape, ConstView x, ConstView skip, View y, View places) const {
    lane_.list().add("max_pool_forward",
                     cuda::max_pool_forward,
                     real_of(x.dtype),
                     window_of(shape, x),
                     bytes_of(places.dtype),
                     x.data,
                     skip.data,
                     y.data,
                     places.data);
}

void CudaWindowKernels::max_pool_backward(
    const WindowShape& shape, ConstView places, ConstView dy, ConstView skip, View dx) const {
    lane_.list().add("max_pool_backward",
                     cuda::max_pool_backward,
                     real_of(dy.dtype),
                     window_of(shape, dx),
                     bytes_of(places.dtype),
                     places.data,
                     dy.data,
                     skip.data,
                     dx.data);
}

void CudaWindowKernels::average_pool_forward(const WindowShape& shape,
                                             ConstView x,
                                             ConstView skip,
                                             View y) const {
    lane_.list().add("average_pool_forward",
                     cuda::average_pool_forward,
                     real_of(x.dtype),
                     window_of(shape, x),
                     x.data,
                     skip.data,
                     y.data);
}

void CudaWindowKernels::average_pool_backward(const WindowShape& shape,
                                              ConstView dy,
                                              ConstView skip,
                                              View dx) const {
    lane_.list().add("average_pool_backward",
                     cuda::average_pool_backward,
                     real_of(dy.dtype),
                     window_of(shape, dx),
                     dy.data,
                     skip.data,
                     dx.data);
}

void CudaWindowKernels::upsample_forward(const UpsampleShape& shape,
                                         ConstView x,
                                         ConstView skip,
                                         View y) const {
    lane_.list().add("upsample_forward",
                     cuda::upsample_forward,
                     real_of(x.dtype),
                     upsampling_of(shape, x),
                     x.data,
                     skip.data,
                     y.data);
}

void CudaWindowKernels::upsample_backward(const UpsampleShape& shape,
                                          ConstView dy,
                                          ConstView skip,
                                          View dx) const {
    lane_.list().add("upsample_backward",
                     cuda::upsample_backward,
                     real_of(dy.dtype),
                     upsampling_of(shape, dx),
                     dy.data,
                     skip.data,
                     dx.data);
}

void CudaWindowKernels::pad(
    Pixels from, Margins margins, ConstView x, ConstView skip, View y) const {
    const Padding padding{
        .samples = static_cast<std::int32_t>(x.rows / (std::int64_t{from.height} * from.width)),
        .height = from.height,
        .width = from.width,
        .channels = static_cast<std::int32_t>(x.columns),
        .top = margins.top,
        .left = margins.left,
        .out_height = from.height + margins.top + margins.bottom,
        .out_width = from.width + margins.left + margins.right};
    lane_.list().add("pad", cuda::pad, real_of(x.dtype), padding, x.data, skip.data, y.data);
}

}  // namespace pipetwin::cuda
