// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/device/cuda_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "exec/cuda/device/real_of.h"

namespace pipetwin::cuda {
namespace {

using exec::ConstView;
using exec::DType;
using exec::GradientSum;
using exec::View;

cudaError_t zero(void* y, std::size_t bytes, cudaStream_t stream) {
    return cudaMemsetAsync(y, 0, bytes, stream);
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
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

Gelu gelu_of(GeluForm form) {
    return form == GeluForm::Tanh ? Gelu::Tanh : Gelu::Exact;
}

LayerNorm norm_of(ConstView x, ConstView gain) {
    return {.rows = x.rows, .width = x.columns, .x = x.data, .gain = gain.data};
}

/// Where the gradients of gain and bias go.
ColumnTotals norm_totals(const GradientSum& dgain, const GradientSum& dbias) {
    PIPETWIN_EXPECT(dgain.adds == dbias.adds, "both gradients of a norm have as many terms");
    View gain_sums = dgain.view;
    View bias_sums = dbias.view;
    return {.first = gain_sums.as<float>(),
            .second = bias_sums.as<float>(),
            .adds = dgain.adds ? 1 : 0};
}

RmsNorm rms_norm_of(ConstView x, ConstView gain) {
    return {.rows = x.rows, .width = x.columns, .x = x.data, .gain = gain.data};
}

Embedding embedding_of(const exec::EmbeddingRows& rows, ConstView ids, std::int64_t width) {
    return {.rows = ids.rows,
            .positions = rows.positions,
            .width = width,
            .ids = ids.as<std::int32_t>(),
            .first = rows.first,
            .count = rows.count,
            .scale = rows.scale};
}

CrossEntropy loss_of(ConstView x, ConstView targets, const exec::ClassColumns& columns) {
    return {.rows = x.rows,
            .width = x.columns - columns.padding,
            .x = x.data,
            .targets = targets.as<std::int32_t>(),
            .padding = columns.padding};
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
            .squares = p.squares};
}

cudaError_t multiply_listed(Products* products,
                            int number,
                            Products::Operands operands,
                            cudaStream_t stream) {
    return products->multiply(number, operands, stream);
}

}  // namespace

void CudaKernels::fill_zero(View y) const {
    lane_.list().add("cudaMemsetAsync", zero, y.data, ConstView(y).bytes());
}

std::byte* CudaKernels::stage(std::size_t bytes) const {
    std::byte* const place = lane_.stage(bytes);
    if (place != nullptr) {
        return place;
    }
    lane_.finish();
    return lane_.stage(bytes);
}

template <class From>
void CudaKernels::upload_from(std::span<const From> from, View y) const {
    PIPETWIN_EXPECT(from.size() == static_cast<std::size_t>(y.size()),
                    "as many numbers as the tensor holds");
    const std::size_t width = exec::size_of(y.dtype);
    auto* to = static_cast<std::byte*>(y.data);
    while (!from.empty()) {
        const std::size_t count = std::min(from.size(), lane_.staging_bytes() / width);
        std::byte* const place = stage(count * width);
        convert(from.first(count), y.dtype, place);
        lane_.list().add("cudaMemcpyAsync", copy, to, place, count * width);
        to += count * width;
        from = from.subspan(count);
    }
}

template <class Value>
const Value* CudaKernels::to_device(const Value& value) const {
    return to_device(value, scratch<Value>(1));
}

template <class Value>
const Value* CudaKernels::to_device(const Value& value, Value* here) const {
    std::byte* const staged = stage(sizeof(value));
    std::memcpy(staged, &value, sizeof(value));
    lane_.list().add("cudaMemcpyAsync", copy, here, staged, sizeof(value));
    return here;
}

void CudaKernels::upload(std::span<const std::int32_t> from, View y) const {
    upload_from(from, y);
}
void CudaKernels::upload(std::span<const float> from, View y) const {
    upload_from(from, y);
}
void CudaKernels::upload(std::span<const double> from, View y) const {
    upload_from(from, y);
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

void CudaKernels::add(ConstView x, View y) const {
    lane_.list().add("add", cuda::add, real_of(y.dtype), y.size(), x.data, y.data);
}

void CudaKernels::copy_columns(const exec::ColumnCopy& columns, ConstView x, View y) const {
    const cuda::ColumnCopy copy{.rows = x.rows,
                                .columns = columns.count,
                                .x_width = x.columns,
                                .y_width = y.columns,
                                .adds = columns.adds ? 1 : 0};
    lane_.list().add("copy_columns",
                     cuda::copy_columns,
                     real_of(y.dtype),
                     copy,
                     first_of(exec::ConstColumns{x, columns.from}),
                     first_of(exec::Columns{y, columns.to}));
}

void CudaKernels::multiply(int number, const Products::Operands& operands) const {
    const auto is_aligned = [](const void* address) {
        return reinterpret_cast<std::uintptr_t>(address) % Products::operand_alignment == 0;
    };
    PIPETWIN_EXPECT(is_aligned(operands.a) && is_aligned(operands.b) && is_aligned(operands.c) &&
                        is_aligned(operands.bias) && is_aligned(operands.d) &&
                        is_aligned(operands.aux_out) && is_aligned(operands.aux_in),
                    "the operands of a product begin where their blocks of memory do");
    lane_.list().add("cublasLtMatmul", multiply_listed, &lane_.products(), number, operands);
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
    multiply(number, {.a = x.data, .b = w.data, .c = skip.data, .bias = b.data, .d = y.data});
}

// dx = skip + dy w^T
void CudaKernels::linear_backward_input(ConstView dy, ConstView w, ConstView skip, View dx) const {
    const int number = lane_.products().number_of({.m = static_cast<std::int32_t>(dy.rows),
                                                   .n = static_cast<std::int32_t>(w.rows),
                                                   .k = static_cast<std::int32_t>(w.columns),
                                                   .b_transposed = true,
                                                   .factors = real_of(dy.dtype),
                                                   .result = real_of(dx.dtype)});
    multiply(number, {.a = dy.data, .b = w.data, .c = skip.data, .d = dx.data});
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
    multiply(number, {.a = x.data, .b = dy.data, .c = dw.adds ? sum.data : nullptr, .d = sum.data});
    if (db.empty()) {
        return;
    }
    View sums = db.view;
    lane_.list().add("column_sums",
                     column_sums,
                     real_of(dy.dtype),
                     dy.rows,
                     dy.columns,
                     dy.data,
                     ColumnTotals{.first = sums.as<float>(), .adds = db.adds ? 1 : 0},
                     scratch<float>(column_sums_scratch(dy.rows, dy.columns)));
}

// cuBLASLt's GELU is that of tanh. It wants rows of whole eights.
std::optional<int> CudaKernels::with_gelu(GeluForm form, const Product& product) const {
    constexpr std::int32_t aux_columns = 8;
    if (!lane_.joins_gelus() || form != GeluForm::Tanh || product.factors != Real::BF16 ||
        product.n % aux_columns != 0) {
        return std::nullopt;
    }
    return lane_.products().number_if_known(product);
}

// h = x w + b,  y = gelu(h)
void CudaKernels::linear_gelu_forward(
    GeluForm form, ConstView x, ConstView w, ConstView b, View h, View y) const {
    const std::optional<int> number = with_gelu(form,
                                                {.m = static_cast<std::int32_t>(x.rows),
                                                 .n = static_cast<std::int32_t>(w.columns),
                                                 .k = static_cast<std::int32_t>(w.rows),
                                                 .factors = real_of(x.dtype),
                                                 .result = real_of(y.dtype),
                                                 .has_bias = !b.empty(),
                                                 .epilogue = Product::Epilogue::Gelu});
    if (number) {
        multiply(*number,
                 {.a = x.data, .b = w.data, .bias = b.data, .d = y.data, .aux_out = h.data});
    } else {
        Kernels::linear_gelu_forward(form, x, w, b, h, y);
    }
}

// dh = (dy w^T) gelu'(h)
void CudaKernels::linear_gelu_backward(
    GeluForm form, ConstView dy, ConstView w, ConstView h, View dh) const {
    const std::optional<int> number = with_gelu(form,
                                                {.m = static_cast<std::int32_t>(dy.rows),
                                                 .n = static_cast<std::int32_t>(w.rows),
                                                 .k = static_cast<std::int32_t>(w.columns),
                                                 .b_transposed = true,
                                                 .factors = real_of(dy.dtype),
                                                 .result = real_of(dh.dtype),
                                                 .epilogue = Product::Epilogue::GeluGradient});
    if (number) {
        multiply(*number, {.a = dy.data, .b = w.data, .d = dh.data, .aux_in = h.data});
    } else {
        Kernels::linear_gelu_backward(form, dy, w, h, dh);
    }
}

void CudaKernels::layer_norm_forward(
    ConstView x, ConstView gain, ConstView bias, View y, View statistics) const {
    lane_.list().add("layer_norm_forward",
                     cuda::layer_norm_forward,
                     real_of(x.dtype),
                     norm_of(x, gain),
                     bias.data,
                     y.data,
                     statistics.as<float>());
}

void CudaKernels::layer_norm_backward_input(ConstView x,
                                            ConstView gain,
                                            ConstView statistics,
                                            ConstView dy,
                                            ConstView skip,
                                            View dx) const {
    lane_.list().add("layer_norm_backward_input",
                     cuda::layer_norm_backward_input,
                     real_of(x.dtype),
                     norm_of(x, gain),
                     statistics.as<float>(),
                     dy.data,
                     skip.data,
                     dx.data);
}

void CudaKernels::layer_norm_backward_weight(ConstView x,
                                             ConstView statistics,
                                             ConstView dy,
                                             const GradientSum& dgain,
                                             const GradientSum& dbias) const {
    lane_.list().add("layer_norm_backward_weight",
                     cuda::layer_norm_backward_weight,
                     real_of(x.dtype),
                     norm_of(x, {}),
                     statistics.as<float>(),
                     dy.data,
                     norm_totals(dgain, dbias),
                     scratch<float>(layer_norm_scratch(x.rows, x.columns)));
}

void CudaKernels::rms_norm_forward(
    ConstView x, ConstView gain, double epsilon, View y, View roots) const {
    lane_.list().add("rms_norm_forward",
                     cuda::rms_norm_forward,
                     real_of(x.dtype),
                     rms_norm_of(x, gain),
                     static_cast<float>(epsilon),
                     y.data,
                     roots.as<float>());
}

void CudaKernels::rms_norm_backward_input(
    ConstView x, ConstView gain, ConstView roots, ConstView dy, ConstView skip, View dx) const {
    lane_.list().add("rms_norm_backward_input",
                     cuda::rms_norm_backward_input,
                     real_of(x.dtype),
                     rms_norm_of(x, gain),
                     roots.as<float>(),
                     dy.data,
                     skip.data,
                     dx.data);
}

void CudaKernels::rms_norm_backward_weight(ConstView x,
                                           ConstView roots,
                                           ConstView dy,
                                           const GradientSum& dgain) const {
    View sums = dgain.view;
    lane_.list().add("rms_norm_backward_weight",
                     cuda::rms_norm_backward_weight,
                     real_of(x.dtype),
                     rms_norm_of(x, {}),
                     roots.as<float>(),
                     dy.data,
                     ColumnTotals{.first = sums.as<float>(), .adds = dgain.adds ? 1 : 0},
                     scratch<float>(column_sums_scratch(x.rows, x.columns)));
}

void CudaKernels::layer_norm_backward(ConstView x,
                                      ConstView gain,
                                      ConstView statistics,
                                      ConstView dy,
                                      ConstView skip,
                                      View dx,
                                      const GradientSum& dgain,
                                      const GradientSum& dbias) const {
    lane_.list().add("layer_norm_backward",
                     cuda::layer_norm_backward,
                     real_of(x.dtype),
                     norm_of(x, gain),
                     statistics.as<float>(),
                     dy.data,
                     skip.data,
                     dx.data,
                     norm_totals(dgain, dbias),
                     scratch<float>(norm_backward_scratch(x.rows, x.columns, 2)));
}

void CudaKernels::rms_norm_backward(ConstView x,
                                    ConstView gain,
                                    ConstView roots,
                                    ConstView dy,
                                    ConstView skip,
                                    View dx,
                                    const GradientSum& dgain) const {
    View sums = dgain.view;
    lane_.list().add("rms_norm_backward",
                     cuda::rms_norm_backward,
                     real_of(x.dtype),
                     rms_norm_of(x, gain),
                     roots.as<float>(),
                     dy.data,
                     skip.data,
                     dx.data,
                     ColumnTotals{.first = sums.as<float>(), .adds = dgain.adds ? 1 : 0},
                     scratch<float>(norm_backward_scratch(x.rows, x.columns, 1)));
}

void CudaKernels::swiglu_forward(ConstView x, View y) const {
    lane_.list().add("swiglu_forward",
                     cuda::swiglu_forward,
                     real_of(x.dtype),
                     y.rows,
                     y.columns,
                     x.data,
                     y.data);
}

void CudaKernels::swiglu_backward(ConstView x, ConstView dy, View dx) const {
    lane_.list().add("swiglu_backward",
                     cuda::swiglu_backward,
                     real_of(x.dtype),
                     dy.rows,
                     dy.columns,
                     x.data,
                     dy.data,
                     dx.data);
}

void CudaKernels::gelu_forward(GeluForm form, ConstView x, View y) const {
    lane_.list().add("gelu_forward",
                     cuda::gelu_forward,
                     real_of(x.dtype),
                     gelu_of(form),
                     x.size(),
                     x.data,
                     y.data);
}

void CudaKernels::gelu_backward(GeluForm form, ConstView x, ConstView dy, View dx) const {
    lane_.list().add("gelu_backward",
                     cuda::gelu_backward,
                     real_of(x.dtype),
                     gelu_of(form),
                     x.size(),
                     x.data,
                     dy.data,
                     dx.data);
}

void CudaKernels::embedding_forward(const exec::EmbeddingRows& rows,
                                    ConstView ids,
                                    ConstView tokens,
                                    ConstView places,
                                    View y) const {
    lane_.list().add("embedding_forward",
                     cuda::embedding_forward,
                     real_of(y.dtype),
                     embedding_of(rows, ids, y.columns),
                     tokens.data,
                     places.data,
                     y.data);
}

void CudaKernels::embedding_backward(const exec::EmbeddingRows& rows,
                                     ConstView ids,
                                     ConstView dy,
                                     View dtokens,
                                     View dplaces) const {
    lane_.list().add("embedding_backward",
                     cuda::embedding_backward,
                     real_of(dy.dtype),
                     embedding_of(rows, ids, dy.columns),
                     dy.data,
                     dtokens.as<float>(),
                     dplaces.as<float>());
}

LossSums CudaKernels::loss_sums(std::int64_t rows, const exec::LossSums& sums) const {
    return {.loss = sums.loss,
            .right = sums.right,
            .scratch = scratch<double>(cuda::loss_scratch(rows))};
}

void CudaKernels::cross_entropy_forward(ConstView x,
                                        ConstView targets,
                                        const exec::ClassColumns& columns,
                                        View log_sums,
                                        const exec::LossSums& sums) const {
    lane_.list().add("cross_entropy_forward",
                     cuda::cross_entropy_forward,
                     real_of(x.dtype),
                     loss_of(x, targets, columns),
                     static_cast<float>(columns.smoothing),
                     log_sums.as<float>(),
                     loss_sums(x.rows, sums));
}

// The scale changes from step to step where padding is, so it comes from host memory: see `update`.
void CudaKernels::cross_entropy_backward(ConstView x,
                                         ConstView targets,
                                         ConstView log_sums,
                                         const exec::ClassColumns& columns,
                                         double scale,
                                         View dx) const {
    lane_.list().add("cross_entropy_backward",
                     cuda::cross_entropy_backward,
                     real_of(x.dtype),
                     loss_of(x, targets, columns),
                     log_sums.as<float>(),
                     static_cast<float>(columns.smoothing),
                     LossGradient{.scale = to_device(static_cast<float>(scale)), .dx = dx.data});
}

void CudaKernels::cross_entropy_with_gradient(ConstView targets,
                                              const exec::ClassColumns& columns,
                                              double scale,
                                              View log_sums,
                                              const exec::LossSums& sums,
                                              View x) const {
    const std::int64_t of_sums = cuda::loss_scratch(x.rows);
    auto* const all = scratch<double>(of_sums + 1);
    const float* const factor =
        to_device(static_cast<float>(scale), reinterpret_cast<float*>(all + of_sums));
    lane_.list().add("cross_entropy_with_gradient",
                     cuda::cross_entropy_with_gradient,
                     real_of(x.dtype),
                     loss_of(x, targets, columns),
                     static_cast<float>(columns.smoothing),
                     log_sums.as<float>(),
                     LossSums{.loss = sums.loss, .right = sums.right, .scratch = all},
                     LossGradient{.scale = factor, .dx = x.data});
}

void CudaKernels::binary_cross_entropy_forward(ConstView x,
                                               ConstView targets,
                                               const exec::LossSums& sums) const {
    lane_.list().add("binary_cross_entropy_forward",
                     cuda::binary_cross_entropy_forward,
                     real_of(x.dtype),
                     x.size(),
                     x.data,
                     targets.as<std::int32_t>(),
                     loss_sums(x.size(), sums));
}

void CudaKernels::binary_cross_entropy_backward(ConstView x,
                                                ConstView targets,
                                                double scale,
                                                View dx) const {
    lane_.list().add("binary_cross_entropy_backward",
                     cuda::binary_cross_entropy_backward,
                     real_of(x.dtype),
                     x.size(),
                     x.data,
                     targets.as<std::int32_t>(),
                     static_cast<float>(scale),
                     dx.data);
}

// Key and probability change from step to step, so they come from host memory: see `update`.
void CudaKernels::dropout(const exec::DropoutMask& mask,
                          ConstView x,
                          ConstView skip,
                          View y) const {
    lane_.list().add("dropout",
                     cuda::dropout,
                     real_of(y.dtype),
                     Dropout{.step = to_device(dropout_step_of(mask)),
                             .first_sample = mask.first_sample,
                             .samples = y.size() / mask.numbers_per_sample,
                             .numbers_per_sample = mask.numbers_per_sample},
                     x.data,
                     skip.data,
                     y.data);
}

void CudaKernels::sum_squares(std::span<const exec::UpdateView> parameters) const {
    update_by(std::nullopt, parameters, {});
}

void CudaKernels::update(exec::UpdateRule rule,
                         std::span<const exec::UpdateView> parameters,
                         const exec::UpdateFactors<double>& factors) const {
    UpdateFactors rounded = factors.rounded<float>();
    rounded.epsilon = epsilon_of(factors.epsilon);
    update_by(rule, parameters, rounded);
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
    const UpdateTable& table = table_of(std::move(tensors));
    stage_factors(table, {.take_first = static_cast<float>(1 - decay)});
    lane_.list().add("average", cuda::average, table.updates());
}

void CudaKernels::round(ConstView x, View y) const {
    lane_.list().add("convert_from_float",
                     cuda::convert_from_float,
                     real_of(y.dtype),
                     y.size(),
                     1.0F,
                     x.as<float>(),
                     y.data);
}

void CudaKernels::update_by(std::optional<exec::UpdateRule> rule,
                            std::span<const exec::UpdateView> parameters,
                            const UpdateFactors& factors) const {
    if (parameters.empty()) {
        return;
    }
    std::vector<UpdateTensor> tensors;
    tensors.reserve(parameters.size());
    std::ranges::transform(parameters, std::back_inserter(tensors), tensor_of);
    const UpdateTable& table = table_of(std::move(tensors));
    stage_factors(table, factors);
    const Real real = real_of(parameters.front().value.dtype);
    if (rule) {
        lane_.list().add("update",
                         cuda::update,
                         real,
                         *rule,
                         factors.weight_decay == 0 ? WeightDecay::No : WeightDecay::Yes,
                         table.updates());
    } else {
        lane_.list().add("sum_squares", cuda::sum_squares, table.updates());
    }
}

// The factors change from step to step, so they come from host memory: a CUDA graph keeps the
// address that they are copied from, not the numbers.
void CudaKernels::stage_factors(const UpdateTable& table, const UpdateFactors& factors) const {
    std::byte* const staged = stage(sizeof(factors));
    std::memcpy(staged, &factors, sizeof(factors));
    lane_.list().add("cudaMemcpyAsync", copy, table.factors(), staged, sizeof(factors));
}

const UpdateTable& CudaKernels::table_of(std::vector<UpdateTensor> tensors) const {
    const auto found = std::ranges::find_if(
        tables_, [&](const UpdateTable& table) { return table.is_of(tensors); });
    return found != tables_.end() ? *found : tables_.emplace_back(lane_, std::move(tensors));
}

}  // namespace pipetwin::cuda
