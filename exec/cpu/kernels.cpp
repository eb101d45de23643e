// SPDX-License-Identifier: Apache-2.0
#include "exec/device/kernels.h"

#include <algorithm>
#include <cstring>

#include "core/base/as_index.h"
#include "exec/base/random.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/products/bfloat16.h"
#include "exec/cpu/products/products.h"
#include "exec/device/column_kernels.h"
#include "exec/device/device.h"
#include "exec/device/window_kernels.h"

namespace pipetwin::exec {
namespace {

std::size_t count(std::int64_t n) {
    return as_index(n);
}

/// Calls f(T{}) with T = float, double or BFloat16.
template <class F>
auto with_type(DType type, F&& f) {
    PIPETWIN_EXPECT(type != DType::I32 && type != DType::U8, "real numbers");
    switch (type) {
        case DType::F64:
            return f(double{});
        case DType::BF16:
            return f(BFloat16{});
        default:
            return f(float{});
    }
}

Factor factor(ConstView view, Transposed transposed = Transposed::No) {
    return {
        .data = view.data, .type = view.dtype, .stride = view.columns, .transposed = transposed};
}

template <class From>
void upload_from(std::span<const From> from, View y) {
    PIPETWIN_EXPECT(from.size() == count(y.size()), "as many numbers as the tensor holds");
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        std::ranges::transform(
            from, y.as<T>(), [](From value) { return stored<T>(static_cast<Computed<T>>(value)); });
    });
}

/// y = a b + skip + bias.
void multiply(
    std::int64_t k, const Factor& a, const Factor& b, ConstView skip, ConstView bias, View y) {
    PIPETWIN_EXPECT(
        (skip.empty() || skip.dtype == y.dtype) && (bias.empty() || bias.dtype == y.dtype),
        "what is added to a product has the type of its result");
    compute({.m = y.rows,
             .n = y.columns,
             .k = k,
             .a = a,
             .b = b,
             .c = y.data,
             .c_type = y.dtype,
             .c_stride = y.columns,
             .skip = skip.data,
             .bias = bias.data});
}

template <class T>
UpdateOperands<T> operands(const UpdateView& p) {
    return {.size = count(p.value.size()),
            .value = p.value.as<T>(),
            .gradient = p.gradient.as<Computed<T>>(),
            .first = p.first.as<Computed<T>>(),
            .second = p.second.as<Computed<T>>(),
            .master = p.master.as<Computed<T>>(),
            .average = p.average.as<Computed<T>>()};
}

/// `rule` returns the sum of the squares of the gradient.
template <class Rule>
void update_each(std::span<const UpdateView> parameters,
                 const GradientUse& gradient,
                 const Rule& rule) {
    for (const UpdateView& p : parameters) {
        const double squares = with_type(p.value.dtype, [&](auto zero) {
            auto all = operands<decltype(zero)>(p);
            all.use = gradient;
            return rule(all);
        });
        if (p.squares != nullptr) {
            *p.squares = squares;
        }
    }
}

/// Writes what the host wants to know of a loss.
void tell(const LossCounts& found, const LossSums& sums) {
    if (sums.loss != nullptr) {
        *sums.loss = found.loss;
    }
    if (sums.right != nullptr) {
        *sums.right = static_cast<double>(found.right);
    }
}

class CpuKernels final : public Kernels {
  public:
    const WindowKernels& windows() const override { return cpu_window_kernels(); }

    bool are_immediate() const override { return true; }

    void fill_zero(View y) const override {
        std::memset(y.data, 0, count(y.size()) * size_of(y.dtype));
    }

    void upload(std::span<const std::int32_t> from, View y) const override {
        PIPETWIN_EXPECT(from.size() == count(y.size()), "as many numbers as the tensor holds");
        std::ranges::copy(from, y.as<std::int32_t>());
    }
    void upload(std::span<const float> from, View y) const override { upload_from(from, y); }
    void upload(std::span<const double> from, View y) const override { upload_from(from, y); }

    void download(ConstView x, std::span<std::byte> to) const override {
        std::memcpy(to.data(), x.data, x.bytes());
    }

    void upload(std::span<const std::byte> from, View y) const override {
        std::memcpy(y.data, from.data(), from.size());
    }

    void add(ConstView x, View y) const override {
        with_type(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::add(x.as<T>(), y.as<T>(), count(y.size()));
        });
    }

    void copy_columns(const ColumnCopy& columns, ConstView x, View y) const override {
        PIPETWIN_EXPECT(x.rows == y.rows && columns.from + columns.count <= x.columns &&
                            columns.to + columns.count <= y.columns,
                        "columns of two matrices with as many rows");
        with_type(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            for (std::int64_t r = 0; r < x.rows; ++r) {
                const T* const from = x.as<T>() + r * x.columns + columns.from;
                T* const to = y.as<T>() + r * y.columns + columns.to;
                if (columns.adds) {
                    exec::add(from, to, count(columns.count));
                } else {
                    std::memcpy(to, from, count(columns.count) * sizeof(T));
                }
            }
        });
    }

    void linear_forward(
        ConstView x, ConstView w, ConstView b, ConstView skip, View y) const override {
        multiply(x.columns, factor(x), factor(w), skip, b, y);
    }

    void linear_backward_input(ConstView dy, ConstView w, ConstView skip, View dx) const override {
        multiply(dy.columns, factor(dy), factor(w, Transposed::Yes), skip, {}, dx);
    }

    void linear_backward_weight(ConstView x,
                                ConstView dy,
                                const GradientSum& dw,
                                const GradientSum& db) const override {
        const ConstView sum_so_far = dw.adds ? ConstView(dw.view) : ConstView();
        multiply(x.rows, factor(x, Transposed::Yes), factor(dy), sum_so_far, {}, dw.view);
        if (!db.empty()) {
            View sums = begun(db);
            with_type(dy.dtype, [&](auto zero) {
                using T = decltype(zero);
                add_rows(dy.as<T>(), sums.as<Computed<T>>(), count(dy.rows), count(dy.columns));
            });
        }
    }

    void layer_norm_forward(
        ConstView x, ConstView gain, ConstView bias, View y, View statistics) const override {
        with_type(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            const LayerNormOperands<T> o{.n = count(x.rows),
                                         .width = count(x.columns),
                                         .x = x.as<T>(),
                                         .gain = gain.as<T>(),
                                         .bias = bias.as<T>()};
            exec::layer_norm_forward(o, y.as<T>(), statistics.as<Computed<T>>());
        });
    }

    void layer_norm_backward_input(ConstView x,
                                   ConstView gain,
                                   ConstView statistics,
                                   ConstView dy,
                                   ConstView skip,
                                   View dx) const override {
        with_type(dx.dtype, [&](auto zero) {
            using T = decltype(zero);
            const LayerNormOperands<T> o{.n = count(x.rows),
                                         .width = count(x.columns),
                                         .x = x.as<T>(),
                                         .gain = gain.as<T>(),
                                         .dy = dy.as<T>(),
                                         .skip = skip.as<T>()};
            exec::layer_norm_backward_input(o, statistics.as<Computed<T>>(), dx.as<T>());
        });
    }

    void layer_norm_backward_weight(ConstView x,
                                    ConstView statistics,
                                    ConstView dy,
                                    const GradientSum& dgain,
                                    const GradientSum& dbias) const override {
        View gain_sums = begun(dgain);
        View bias_sums = begun(dbias);
        with_type(x.dtype, [&](auto zero) {
            using T = decltype(zero);
            const LayerNormOperands<T> o{
                .n = count(x.rows), .width = count(x.columns), .x = x.as<T>(), .dy = dy.as<T>()};
            exec::layer_norm_backward_weight(o,
                                             statistics.as<Computed<T>>(),
                                             gain_sums.as<Computed<T>>(),
                                             bias_sums.as<Computed<T>>());
        });
    }

    void rms_norm_forward(
        ConstView x, ConstView gain, double epsilon, View y, View roots) const override {
        with_type(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            const RmsNormOperands<T> o{.n = count(x.rows),
                                       .width = count(x.columns),
                                       .x = x.as<T>(),
                                       .gain = gain.as<T>()};
            exec::rms_norm_forward(o, epsilon, y.as<T>(), roots.as<Computed<T>>());
        });
    }

    void rms_norm_backward_input(ConstView x,
                                 ConstView gain,
                                 ConstView roots,
                                 ConstView dy,
                                 ConstView skip,
                                 View dx) const override {
        with_type(dx.dtype, [&](auto zero) {
            using T = decltype(zero);
            const RmsNormOperands<T> o{.n = count(x.rows),
                                       .width = count(x.columns),
                                       .x = x.as<T>(),
                                       .gain = gain.as<T>(),
                                       .roots = roots.as<Computed<T>>(),
                                       .dy = dy.as<T>(),
                                       .skip = skip.as<T>()};
            exec::rms_norm_backward_input(o, dx.as<T>());
        });
    }

    void rms_norm_backward_weight(ConstView x,
                                  ConstView roots,
                                  ConstView dy,
                                  const GradientSum& dgain) const override {
        View sums = begun(dgain);
        with_type(x.dtype, [&](auto zero) {
            using T = decltype(zero);
            const RmsNormOperands<T> o{.n = count(x.rows),
                                       .width = count(x.columns),
                                       .x = x.as<T>(),
                                       .roots = roots.as<Computed<T>>(),
                                       .dy = dy.as<T>()};
            exec::rms_norm_backward_weight(o, sums.as<Computed<T>>());
        });
    }

    void swiglu_forward(ConstView x, View y) const override {
        with_type(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::swiglu_forward(x.as<T>(), y.as<T>(), count(y.rows), count(y.columns));
        });
    }

    void swiglu_backward(ConstView x, ConstView dy, View dx) const override {
        with_type(dx.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::swiglu_backward(
                x.as<T>(), dy.as<T>(), dx.as<T>(), count(dy.rows), count(dy.columns));
        });
    }

    void rotate(const AttentionShape& shape,
                const Rotary& rotary,
                Turn turn,
                View qkv) const override {
        with_type(qkv.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::rotate(shape, rotary, turn, qkv.as<T>());
        });
    }

    void gelu_forward(GeluForm form, ConstView x, View y) const override {
        with_type(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::gelu_forward(form, x.as<T>(), y.as<T>(), count(y.size()));
        });
    }

    void gelu_backward(GeluForm form, ConstView x, ConstView dy, View dx) const override {
        with_type(dx.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::gelu_backward(form, x.as<T>(), dy.as<T>(), dx.as<T>(), count(dx.size()));
        });
    }

    void attention_forward(const AttentionShape& shape,
                           ConstView qkv,
                           View softmax,
                           View context) const override {
        with_type(qkv.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::attention_forward(shape, qkv.as<T>(), softmax.as<T>(), context.as<T>());
        });
    }

    View attention_backward(const AttentionShape& shape,
                            ConstView softmax,
                            ConstView /*context*/,
                            ConstView dcontext,
                            View qkv,
                            std::byte* scratch) const override {
        with_type(qkv.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::attention_backward(
                shape, softmax.as<T>(), dcontext.as<T>(), qkv.as<T>(), scratch);
        });
        return qkv;
    }

    void padded_attention_forward(const PaddedAttentionShape& shape,
                                  ConstColumns q,
                                  ConstColumns k,
                                  ConstView lengths,
                                  View softmax,
                                  View context) const override {
        with_type(context.dtype, [&](auto zero) {
            using T = decltype(zero);
            const PaddedOperands<const T> operands{.q = q.matrix.as<T>() + q.first,
                                                   .k = k.matrix.as<T>() + k.first,
                                                   .q_stride = q.matrix.columns,
                                                   .k_stride = k.matrix.columns};
            exec::padded_attention_forward(
                shape, operands, lengths.as<std::int32_t>(), softmax.as<T>(), context.as<T>());
        });
    }

    void padded_attention_backward(const PaddedAttentionShape& shape,
                                   ConstView softmax,
                                   ConstView /*context*/,
                                   ConstView dcontext,
                                   ConstView lengths,
                                   Columns q,
                                   Columns k,
                                   std::byte* scratch) const override {
        with_type(dcontext.dtype, [&](auto zero) {
            using T = decltype(zero);
            const PaddedOperands<T> operands{.q = q.matrix.as<T>() + q.first,
                                             .k = k.matrix.as<T>() + k.first,
                                             .q_stride = q.matrix.columns,
                                             .k_stride = k.matrix.columns};
            exec::padded_attention_backward(shape,
                                            softmax.as<T>(),
                                            dcontext.as<T>(),
                                            lengths.as<std::int32_t>(),
                                            operands,
                                            scratch);
        });
    }

    void embedding_forward(const EmbeddingRows& rows,
                           ConstView ids,
                           ConstView tokens,
                           ConstView places,
                           View y) const override {
        with_type(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            const std::int64_t width = y.columns;
            const auto* const id = ids.as<std::int32_t>();
            for (std::int64_t r = 0; r < y.rows; ++r) {
                if (!rows.has(r)) {
                    continue;
                }
                T* const row = y.as<T>() + r * width;
                const std::int64_t position = r % rows.positions - rows.first;
                const T* const place = places.empty() ? nullptr : places.as<T>() + position * width;
                const T* const token = tokens.as<T>() + id[r] * width;
                exec::scale_and_add(token, rows.scale, place, row, count(width));
            }
        });
    }

    void embedding_backward(const EmbeddingRows& rows,
                            ConstView ids,
                            ConstView dy,
                            View dtokens,
                            View dplaces) const override {
        with_type(dy.dtype, [&](auto zero) {
            using T = decltype(zero);
            const std::int64_t width = dy.columns;
            const auto* const id = ids.as<std::int32_t>();
            for (std::int64_t r = 0; r < dy.rows; ++r) {
                if (!rows.has(r)) {
                    continue;
                }
                const T* const row = dy.as<T>() + r * width;
                auto* const token = dtokens.as<Computed<T>>() + id[r] * width;
                exec::add_scaled(row, rows.scale, token, count(width));
                if (!dplaces.empty()) {
                    const std::int64_t position = r % rows.positions - rows.first;
                    exec::add(row, dplaces.as<Computed<T>>() + position * width, count(width));
                }
            }
        });
    }

    void cross_entropy_forward(ConstView x,
                               ConstView targets,
                               const ClassColumns& columns,
                               View log_sums,
                               const LossSums& sums) const override {
        with_type(x.dtype, [&](auto zero) {
            using T = decltype(zero);
            const CrossEntropyOperands<T> o{.n = count(x.rows),
                                            .width = count(x.columns - columns.padding),
                                            .padding = count(columns.padding),
                                            .x = x.as<T>(),
                                            .targets = targets.as<std::int32_t>(),
                                            .smoothing = columns.smoothing};
            tell(exec::cross_entropy_forward(o, sums.right != nullptr, log_sums.as<Computed<T>>()),
                 sums);
        });
    }

    void cross_entropy_backward(ConstView x,
                                ConstView targets,
                                ConstView log_sums,
                                const ClassColumns& columns,
                                double scale,
                                View dx) const override {
        with_type(x.dtype, [&](auto zero) {
            using T = decltype(zero);
            const CrossEntropyOperands<T> o{.n = count(x.rows),
                                            .width = count(x.columns - columns.padding),
                                            .padding = count(columns.padding),
                                            .x = x.as<T>(),
                                            .targets = targets.as<std::int32_t>(),
                                            .log_sums = log_sums.as<Computed<T>>(),
                                            .smoothing = columns.smoothing,
                                            .scale = scale};
            exec::cross_entropy_backward(o, dx.as<T>());
        });
    }

    void binary_cross_entropy_forward(ConstView x,
                                      ConstView targets,
                                      const LossSums& sums) const override {
        with_type(x.dtype, [&](auto zero) {
            using T = decltype(zero);
            tell(exec::binary_cross_entropy_forward(
                     x.as<T>(), targets.as<std::int32_t>(), count(x.size())),
                 sums);
        });
    }

    void binary_cross_entropy_backward(ConstView x,
                                       ConstView targets,
                                       double scale,
                                       View dx) const override {
        with_type(x.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::binary_cross_entropy_backward(
                x.as<T>(), targets.as<std::int32_t>(), scale, count(x.size()), dx.as<T>());
        });
    }

    void dropout(const DropoutMask& mask, ConstView x, ConstView skip, View y) const override {
        with_type(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            const std::int64_t size = mask.numbers_per_sample;
            const RandomStream random = RandomStream::with_key(mask.key);
            for (std::int64_t begin = 0; begin < y.size(); begin += size) {
                const auto sample = static_cast<std::uint64_t>(mask.first_sample + begin / size);
                const DropoutOperands<T> o{.size = count(size),
                                           .key = random.of(sample).key(),
                                           .threshold = mask.threshold(),
                                           .scale = mask.scale(),
                                           .x = x.as<T>() + begin,
                                           .skip = skip.empty() ? nullptr : skip.as<T>() + begin};
                exec::dropout(o, y.as<T>() + begin);
            }
        });
    }

    const ColumnKernels& columns() const override { return cpu_column_kernels(); }

    void sum_squares(std::span<const UpdateView> parameters) const override {
        update_each(
            parameters, {}, [](const auto& p) { return exec::sum_squares(p.gradient, p.size); });
    }
    void sgd(std::span<const UpdateView> parameters,
             double rate,
             const GradientUse& gradient) const override {
        update_each(parameters, gradient, [=](const auto& p) { return exec::sgd(p, rate); });
    }
    void momentum(std::span<const UpdateView> parameters,
                  double rate,
                  double mu,
                  const GradientUse& gradient) const override {
        update_each(
            parameters, gradient, [=](const auto& p) { return exec::momentum(p, rate, mu); });
    }
    void rmsprop(std::span<const UpdateView> parameters,
                 double rate,
                 double decay,
                 double epsilon,
                 const GradientUse& gradient) const override {
        update_each(parameters, gradient, [=](const auto& p) {
            return exec::rmsprop(p, rate, decay, epsilon);
        });
    }
    void rmsprop_momentum(std::span<const UpdateView> parameters,
                          const RmsPropMomentumFactors& factors,
                          const GradientUse& gradient) const override {
        update_each(parameters, gradient, [&](const auto& p) {
            return exec::rmsprop_momentum(p, factors);
        });
    }
    void adam(std::span<const UpdateView> parameters, const AdamFactors& factors) const override {
        update_each(parameters,
                    {.scale = factors.gradient_scale, .weight_decay = factors.weight_decay},
                    [&](const auto& p) { return exec::adam(p, factors); });
    }
    void average(std::span<const UpdateView> parameters, double decay) const override {
        for (const UpdateView& p : parameters) {
            with_type(p.value.dtype,
                      [&](auto zero) { exec::average(operands<decltype(zero)>(p), decay); });
        }
    }
    void round(ConstView x, View y) const override {
        with_type(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::round(x.as<Computed<T>>(), y.as<T>(), count(y.size()));
        });
    }
};

}  // namespace

const Kernels& cpu_kernels() {
    static const CpuKernels kernels;
    return kernels;
}

}  // namespace pipetwin::exec
