// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/cuda_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "core/model/gelu_form.h"
#include "exec/cuda/columns/cuda_column_kernels.h"
#include "exec/cuda/device/lane.h"
#include "exec/cuda/device/update_table.h"
#include "exec/cuda/kernels/windows/cuda_window_kernels.h"

namespace pipetwin::cuda {
namespace {

using exec::ConstView;
using exec::DType;
using exec::GradientSum;
using exec::View;

cudaError_t zero(void* y, std::size_t bytes, cudaStream_t stream) {
    return cudaMemsetAsync(y, 0, bytes, stream);
}

/// The half-precision number nearest to `value`, of two the even one; as the GPU rounds.
std::uint16_t bf16_of(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7FFF'FFFFU) > 0x7F80'0000U) {
        return 0x7FFF;  // not a number
    }
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

/// Numbers as the elements of a tensor.
template <class From>
void convert(std::span<const From> from, DType type, std::byte* to) {
    const auto store_each = [&](auto as_element) {
        for (const From value : from) {
            const auto element = as_element(value);
            std::memcpy(to, &element, sizeof(element));
            to += sizeof(element);
        }
    };
    switch (type) {
        case DType::F32:
            return store_each([](From value) { return static_cast<float>(value); });
        case DType::BF16:
            return store_each([](From value) { return bf16_of(static_cast<float>(value)); });
        case DType::I32:
            return store_each([](From value) { return static_cast<std::int32_t>(value); });
        case DType::F64:
        case DType::U8:
            PIPETWIN_EXPECT(false, "a type of numbers that the host hands to the GPU");
    }
}

/// Padding has no gradient and no state: its 0 / (0 + epsilon) is to be 0 also where the epsilon
/// is. To the root of any number but 0 the smallest one adds nothing.
float epsilon_of(double epsilon) {
    return std::max(static_cast<float>(epsilon), std::numeric_limits<float>::min());
}

UpdateTensor tensor_of(const exec::UpdateView& p) {
    const bool has_master = !p.master.empty();
    PIPETWIN_EXPECT(has_master == (p.value.dtype == DType::BF16),
                    "values in half precision are rounded from master weights");
    return {.value = p.value.data,
            .master = p.master.as<float>(),
            .gradient = p.gradient.as<float>(),
            .first = p.first.as<float>(),
            .second = p.second.as<float>(),
            .size = p.value.size(),
            .squares = p.squares,
            .counted = p.counted};
}

cudaError_t multiply_listed(Products* products,
                            int number,
                            Products::Operands operands,
                            cudaStream_t stream) {
    return products->multiply(number, operands, stream);
}

void multiply(Lane& lane, int number, const Products::Operands& operands) {
    const auto is_aligned = [](const void* address) {
        return reinterpret_cast<std::uintptr_t>(address) % Products::operand_alignment == 0;
    };
    PIPETWIN_EXPECT(is_aligned(operands.a) && is_aligned(operands.b) && is_aligned(operands.c) &&
                        is_aligned(operands.bias) && is_aligned(operands.d) &&
                        is_aligned(operands.aux_out) && is_aligned(operands.aux_in),
                    "the operands of a product begin where their blocks of memory do");
    lane.list().add("cublasLtMatmul", multiply_listed, &lane.products(), number, operands);
}

/// The number of a product with an epilogue, where the GELU is that of one: cuBLASLt's is that of
/// tanh, and wants rows of whole eights.
std::optional<int> with_gelu(Lane& lane, GeluForm form, const Product& product) {
    constexpr std::int32_t aux_columns = 8;
    if (!lane.joins_gelus() || form != GeluForm::Tanh || product.factors != Real::BF16 ||
        product.n % aux_columns != 0) {
        return std::nullopt;
    }
    return lane.products().number_if_known(product);
}

template <class From>
void upload_from(Lane& lane, std::span<const From> from, View y) {
    PIPETWIN_EXPECT(from.size() == static_cast<std::size_t>(y.size()),
                    "as many numbers as the tensor holds");
    const std::size_t width = exec::size_of(y.dtype);
    auto* to = static_cast<std::byte*>(y.data);
    while (!from.empty()) {
        const std::size_t count = std::min(from.size(), lane.staging_bytes() / width);
        std::byte* const place = lane.staged(count * width);
        convert(from.first(count), y.dtype, place);
        lane.list_copy(to, place, count * width);
        to += count * width;
        from = from.subspan(count);
    }
}

using Tables = std::deque<UpdateTable>;  // made when parameters are first updated

const UpdateTable& table_of(Lane& lane, Tables& tables, std::vector<UpdateTensor> tensors) {
    const auto found = std::ranges::find_if(
        tables, [&](const UpdateTable& table) { return table.is_of(tensors); });
    return found != tables.end() ? *found : tables.emplace_back(lane, std::move(tensors));
}

// The factors change from step to step, so they come from host memory: a CUDA graph keeps the
// address that they are copied from, not the numbers.
void stage_factors(Lane& lane, const UpdateTable& table, const UpdateFactors& factors) {
    lane.to_device(factors, static_cast<UpdateFactors*>(table.factors()));
}

/// Without a rule: the sums of squares alone.
void update_by(Lane& lane,
               Tables& tables,
               std::optional<exec::UpdateRule> rule,
               std::span<const exec::UpdateView> parameters,
               const UpdateFactors& factors) {
    if (parameters.empty()) {
        return;
    }
    std::vector<UpdateTensor> tensors;
    tensors.reserve(parameters.size());
    std::ranges::transform(parameters, std::back_inserter(tensors), tensor_of);
    const UpdateTable& table = table_of(lane, tables, std::move(tensors));
    stage_factors(lane, table, factors);
    if (!rule) {
        lane.list().add("sum_squares", cuda::sum_squares, table.updates());
        return;
    }
    lane.list().add("update",
                    cuda::update,
                    real_of(parameters.front().value.dtype),
                    *rule,
                    factors.weight_decay == 0 ? WeightDecay::No : WeightDecay::Yes,
                    table.updates());
}

}  // namespace

struct CudaKernels::Parts {
    CudaColumnKernels columns;
    CudaWindowKernels windows;
    Tables tables{};
};

CudaKernels::CudaKernels(Lane& lane)
    : calls_(lane),
      lane_(lane),
      parts_(std::make_unique<Parts>(
          Parts{.columns = CudaColumnKernels(lane), .windows = CudaWindowKernels(lane, *this)})) {}

CudaKernels::~CudaKernels() = default;

const exec::ColumnKernels& CudaKernels::columns() const {
    return parts_->columns;
}

const exec::WindowKernels& CudaKernels::windows() const {
    return parts_->windows;
}

void CudaKernels::fill_zero(View y) const {
    call("cudaMemsetAsync", zero, y.data, ConstView(y).bytes());
}

void CudaKernels::upload(std::span<const std::int32_t> from, View y) const {
    upload_from(lane_, from, y);
}
void CudaKernels::upload(std::span<const float> from, View y) const {
    upload_from(lane_, from, y);
}
void CudaKernels::upload(std::span<const double> from, View y) const {
    upload_from(lane_, from, y);
}

void CudaKernels::download(ConstView x, std::span<std::byte> to) const {
    lane_.finish();
    PIPETWIN_CUDA_CHECK(
        cudaMemcpyAsync(to.data(), x.data, x.bytes(), cudaMemcpyDeviceToHost, lane_.stream()));
    PIPETWIN_CUDA_CHECK(cudaStreamSynchronize(lane_.stream()));
}

void CudaKernels::upload(std::span<const std::byte> from, View y) const {
    lane_.finish();
    PIPETWIN_CUDA_CHECK(
        cudaMemcpyAsync(y.data, from.data(), from.size(), cudaMemcpyHostToDevice, lane_.stream()));
    PIPETWIN_CUDA_CHECK(cudaStreamSynchronize(lane_.stream()));
}

// y = skip + x w + b
void CudaKernels::linear_forward(
    ConstView x, ConstView w, ConstView b, ConstView skip, View y) const {
    const int number = lane_.products().number_of({.m = static_cast<std::int32_t>(x.rows),
                                                   .n = static_cast<std::int32_t>(w.columns),
                                                   .k = static_cast<std::int32_t>(w.rows),
                                                   .factors = real_of(x.dtype),
                                                   .result = real_of(y.dtype),
                                                   .has_bias = !b.empty()});
    multiply(
        lane_, number, {.a = x.data, .b = w.data, .c = skip.data, .bias = b.data, .d = y.data});
}

// dx = skip + dy w^T
void CudaKernels::linear_backward_input(ConstView dy, ConstView w, ConstView skip, View dx) const {
    const int number = lane_.products().number_of({.m = static_cast<std::int32_t>(dy.rows),
                                                   .n = static_cast<std::int32_t>(w.rows),
                                                   .k = static_cast<std::int32_t>(w.columns),
                                                   .b_transposed = true,
                                                   .factors = real_of(dy.dtype),
                                                   .result = real_of(dx.dtype)});
    multiply(lane_, number, {.a = dy.data, .b = w.data, .c = skip.data, .d = dx.data});
}

// dw += x^T dy,  db += sum of the rows of dy
void CudaKernels::linear_backward_weight(ConstView x,
                                         ConstView dy,
                                         const GradientSum& dw,
                                         const GradientSum& db) const {
    const View sum = dw.view;
    const int number = lane_.products().number_of({.m = static_cast<std::int32_t>(sum.rows),
                                                   .n = static_cast<std::int32_t>(sum.columns),
                                                   .k = static_cast<std::int32_t>(x.rows),
                                                   .a_transposed = true,
                                                   .factors = real_of(dy.dtype),
                                                   .result = real_of(sum.dtype)});
    multiply(lane_,
             number,
             {.a = x.data, .b = dy.data, .c = dw.adds ? sum.data : nullptr, .d = sum.data});
    if (db.empty()) {
        return;
    }
    View sums = db.view;
    call("column_sums",
         column_sums,
         real_of(dy.dtype),
         dy.rows,
         dy.columns,
         dy.data,
         ColumnTotals{.first = sums.as<float>(), .adds = db.adds ? 1 : 0},
         calls_.scratch_of<float>(column_sums_scratch(dy.rows, dy.columns)));
}

// h = x w + b,  y = gelu(h)
void CudaKernels::linear_gelu_forward(
    GeluForm form, ConstView x, ConstView w, ConstView b, View h, View y) const {
    const std::optional<int> number = with_gelu(lane_,
                                                form,
                                                {.m = static_cast<std::int32_t>(x.rows),
                                                 .n = static_cast<std::int32_t>(w.columns),
                                                 .k = static_cast<std::int32_t>(w.rows),
                                                 .factors = real_of(x.dtype),
                                                 .result = real_of(y.dtype),
                                                 .has_bias = !b.empty(),
                                                 .epilogue = Product::Epilogue::Gelu});
    if (number) {
        multiply(lane_,
                 *number,
                 {.a = x.data, .b = w.data, .bias = b.data, .d = y.data, .aux_out = h.data});
    } else {
        Kernels::linear_gelu_forward(form, x, w, b, h, y);
    }
}

// dh = (dy w^T) gelu'(h)
void CudaKernels::linear_gelu_backward(
    GeluForm form, ConstView dy, ConstView w, ConstView h, View dh) const {
    const std::optional<int> number = with_gelu(lane_,
                                                form,
                                                {.m = static_cast<std::int32_t>(dy.rows),
                                                 .n = static_cast<std::int32_t>(w.rows),
                                                 .k = static_cast<std::int32_t>(w.columns),
                                                 .b_transposed = true,
                                                 .factors = real_of(dy.dtype),
                                                 .result = real_of(dh.dtype),
                                                 .epilogue = Product::Epilogue::GeluGradient});
    if (number) {
        multiply(lane_, *number, {.a = dy.data, .b = w.data, .d = dh.data, .aux_in = h.data});
    } else {
        Kernels::linear_gelu_backward(form, dy, w, h, dh);
    }
}

void CudaKernels::sum_squares(std::span<const exec::UpdateView> parameters) const {
    update_by(lane_, parts_->tables, std::nullopt, parameters, {});
}

void CudaKernels::update(exec::UpdateRule rule,
                         std::span<const exec::UpdateView> parameters,
                         const exec::UpdateFactors<double>& factors) const {
    UpdateFactors rounded = factors.rounded<float>();
    rounded.epsilon = epsilon_of(factors.epsilon);
    update_by(lane_, parts_->tables, rule, parameters, rounded);
}

void CudaKernels::average(std::span<const exec::UpdateView> parameters, double decay) const {
    if (parameters.empty()) {
        return;
    }
    std::vector<UpdateTensor> tensors;
    tensors.reserve(parameters.size());
    for (const exec::UpdateView& p : parameters) {
        UpdateTensor& tensor = tensors.emplace_back(tensor_of(p));
        tensor.first = p.average.as<float>();
        tensor.gradient = nullptr;  // which tells its table from that of the update
        tensor.squares = nullptr;
    }
    const UpdateTable& table = table_of(lane_, parts_->tables, std::move(tensors));
    stage_factors(lane_, table, {.take_first = static_cast<float>(1 - decay)});
    call("average", cuda::average, table.updates());
}

void CudaKernels::round(ConstView x, View y) const {
    call("convert_from_float",
         cuda::convert_from_float,
         real_of(y.dtype),
         y.size(),
         1.0F,
         x.as<float>(),
         y.data);
}

}  // namespace pipetwin::cuda
