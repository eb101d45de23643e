// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <optional>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/cuda/device/lane.h"
#include "exec/cuda/kernels/windows/cuda_window_kernels.h"

/// Convolutions on one rank's lane: by cuDNN where it has a plan, else by our own kernels.
namespace pipetwin::cuda {
namespace {

using exec::ConstView;
using exec::View;
using exec::WindowShape;

cudaError_t convolve_listed(CudnnConvolutions* convolutions,
                            int number,
                            CudnnConvolutions::Operands operands,
                            cudaStream_t stream) {
    return convolutions->run(number, operands, stream);
}

/// A plan of cuDNN, and the memory for its call.
struct CudnnCall {
    int number = 0;
    void* filters = nullptr;  ///< room for as many as the weight has
    void* workspace = nullptr;
};

/// What is needed to have cuDNN compute it; none: our own kernels do.
std::optional<CudnnCall> cudnn_call(Lane& lane,
                                    const CudnnConvolution& convolution,
                                    std::int64_t weights) {
    const std::optional<CudnnConvolutions::Plan> plan = lane.convolutions().plan(convolution);
    if (!plan) {
        return std::nullopt;
    }
    constexpr std::size_t alignment = 256;
    const std::size_t width = convolution.real == Real::BF16 ? 2 : 4;
    const std::size_t filters = (as_index(weights) * width + alignment - 1) / alignment * alignment;
    auto* const place =
        static_cast<std::byte*>(lane.cudnn_scratch(filters + plan->workspace_bytes));
    return CudnnCall{.number = plan->number, .filters = place, .workspace = place + filters};
}

void list_cudnn(Lane& lane, int number, const CudnnConvolutions::Operands& operands) {
    constexpr std::uintptr_t alignment = 16;
    for (const void* const address : {operands.image, operands.filters, operands.result}) {
        PIPETWIN_EXPECT(reinterpret_cast<std::uintptr_t>(address) % alignment == 0,
                        "the operands of a convolution begin where their blocks of memory do");
    }
    lane.list().add("cudnnBackendExecute", convolve_listed, &lane.convolutions(), number, operands);
}

/// Images before and behind the window, or their gradients.
struct Images {
    ConstView x;
    ConstView y;
};

/// Lists what has cuDNN make `to`, which is one of the images. Does nothing and returns false where
/// it has no plan.
bool is_cudnns(Lane& lane,
               CudnnConvolution convolution,
               ConstView w,
               ConstView skip,
               const Images& images,
               View to) {
    convolution.adds = !skip.empty();
    const std::optional<CudnnCall> call = cudnn_call(lane, convolution, w.size());
    if (!call) {
        return false;
    }
    if (convolution.adds && skip.data != to.data) {
        lane.list_copy(to.data, skip.data, skip.bytes());
    }
    lane.list().add(
        "turn_filters", turn_filters, convolution.real, w.rows, w.columns, w.data, call->filters);
    list_cudnn(lane,
               call->number,
               {.image = images.x.data,
                .filters = call->filters,
                .result = images.y.data,
                .workspace = call->workspace});
    return true;
}

}  // namespace

CudaWindowKernels::CudaWindowKernels(Lane& lane, const exec::Kernels& kernels)
    : calls_(lane), lane_(lane), kernels_(kernels) {}

void CudaWindowKernels::convolution_forward(
    const WindowShape& shape, ConstView x, ConstView w, ConstView b, ConstView skip, View y) const {
    if (shape.is_pointwise()) {
        kernels_.linear_forward(x, w, b, skip, y);
        return;
    }
    const Real real = real_of(x.dtype);
    const Window window = window_of(shape, x);
    if (is_cudnns(lane_, {.real = real, .window = window}, w, skip, {.x = x, .y = y}, y)) {
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
            lane_,
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
            lane_,
            {.real = real, .window = window, .direction = ConvolutionDirection::BackwardWeight},
            dw.size())) {
        list_cudnn(lane_,
                   call->number,
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
                         calls_.scratch_of<float>(convolution_scratch(window)));
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
                         calls_.scratch_of<float>(column_sums_scratch(dy.rows, dy.columns)));
    }
}

}  // namespace pipetwin::cuda
