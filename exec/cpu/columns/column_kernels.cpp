// SPDX-License-Identifier: Apache-2.0
#include "exec/device/column_kernels.h"

#include <cmath>
#include <cstring>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/base/random.h"
#include "exec/cpu/columns/column_loops.h"

namespace pipetwin::exec {
namespace {

/// Calls f(T{}) with T = float, double or BFloat16.
template <class F>
void with_real(DType type, F&& f) {
    PIPETWIN_EXPECT(type != DType::I32, "real numbers");
    switch (type) {
        case DType::F64:
            return f(double{});
        case DType::BF16:
            return f(BFloat16{});
        default:
            return f(float{});
    }
}

/// Rows and columns of each block of x.
NormBlock block_of(const NormParts& parts, ConstView x) {
    PIPETWIN_EXPECT(x.rows % parts.blocks == 0 && x.columns % parts.groups == 0,
                    "parts of equal size");
    return {.rows = as_index(x.rows / parts.blocks),
            .columns = as_index(x.columns),
            .groups = as_index(parts.groups)};
}

/// Mean and 1 / sqrt(variance + epsilon) of each group, from the moments of its columns.
template <class C>
void group_statistics(const NormBlock& block, const double* moments, double epsilon, C* to) {
    const std::size_t per_group = block.columns / block.groups;
    const auto rows = static_cast<double>(block.rows);
    for (std::size_t group = 0; group < block.groups; ++group) {
        const double* const means = moments + group * per_group;
        const double* const squares = means + block.columns;
        double mean = 0;
        for (std::size_t j = 0; j < per_group; ++j) {
            mean += means[j];
        }
        mean /= static_cast<double>(per_group);
        double sum = 0;
        for (std::size_t j = 0; j < per_group; ++j) {
            sum += squares[j] + rows * (means[j] - mean) * (means[j] - mean);
        }
        const double variance = sum / (rows * static_cast<double>(per_group));
        to[group] = static_cast<C>(mean);
        to[block.groups + group] = static_cast<C>(1 / std::sqrt(variance + epsilon));
    }
}

class CpuColumnKernels final : public ColumnKernels {
  public:
    void copy(ConstView x, View y) const override {
        PIPETWIN_EXPECT(x.dtype == y.dtype && x.size() == y.size(), "as many numbers of one type");
        std::memmove(y.data, x.data, x.bytes());
    }

    void rectify(double slope, ConstView x, View y) const override {
        with_real(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::rectify(slope, x.as<T>(), y.as<T>(), as_index(y.size()));
        });
    }
    void rectify_backward(double slope, ConstView x, ConstView dy, View dx) const override {
        with_real(dx.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::rectify_backward(slope, x.as<T>(), dy.as<T>(), dx.as<T>(), as_index(dx.size()));
        });
    }

    void drop_columns(
        const DropoutMask& mask, int samples, ConstView x, ConstView skip, View y) const override {
        PIPETWIN_EXPECT(mask.numbers_per_sample == y.columns || mask.numbers_per_sample == 1,
                        "a decision for each column, or for the sample");
        with_real(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            const std::int64_t size = y.size() / samples;
            const RandomStream random = RandomStream::with_key(mask.key);
            for (int s = 0; s < samples; ++s) {
                const std::int64_t begin = s * size;
                const auto sample = static_cast<std::uint64_t>(mask.first_sample + s);
                const ColumnDropOperands<T> o{
                    .rows = as_index(y.rows / samples),
                    .columns = as_index(y.columns),
                    .whole = mask.numbers_per_sample == 1,
                    .key = random.of(sample).key(),
                    .threshold = mask.threshold(),
                    .scale = mask.scale(),
                    .x = x.as<T>() + begin,
                    .skip = skip.empty() ? nullptr : skip.as<T>() + begin};
                exec::drop_columns(o, y.as<T>() + begin);
            }
        });
    }

    void norm_statistics(const NormParts& parts,
                         double epsilon,
                         ConstView x,
                         View statistics,
                         View moments) const override {
        const NormBlock block = block_of(parts, x);
        with_real(x.dtype, [&](auto zero) {
            using T = decltype(zero);
            auto* const to = moments.as<double>();
            for (std::size_t i = 0; i < as_index(parts.blocks); ++i) {
                column_moments(block, x.as<T>() + i * block.rows * block.columns, to);
                group_statistics(
                    block, to, epsilon, statistics.as<Computed<T>>() + 2 * i * block.groups);
            }
        });
    }

    void running_statistics(const RunningValues& running,
                            double epsilon,
                            View statistics) const override {
        with_real(statistics.dtype, [&](auto zero) {
            using T = decltype(zero);
            const std::size_t columns = as_index(statistics.columns);
            auto* const to = statistics.as<T>();
            for (std::size_t j = 0; j < columns; ++j) {
                const auto variance = static_cast<double>(computed(running.variance.as<T>()[j]));
                to[j] = running.mean.as<T>()[j];
                to[columns + j] =
                    stored<T>(static_cast<Computed<T>>(1 / std::sqrt(variance + epsilon)));
            }
        });
    }

    void normalise(const NormParts& parts,
                   ConstView x,
                   ConstView statistics,
                   ConstView gain,
                   ConstView bias,
                   ConstView skip,
                   View y) const override {
        with_real(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            for_each_block<T>(parts, x, statistics, skip, [&](NormOperands<T>& o, auto begin) {
                o.gain = gain.as<T>();
                o.bias = bias.as<T>();
                exec::normalise(o, y.as<T>() + begin);
            });
        });
    }

    void normalise_backward(const NormParts& parts,
                            const NormGradients& operands,
                            std::byte* scratch) const override {
        with_real(operands.dy.dtype, [&](auto zero) {
            using T = decltype(zero);
            auto* const sums = reinterpret_cast<double*>(scratch);
            for_each_block<T>(parts,
                              operands.x,
                              operands.statistics,
                              operands.skip,
                              [&](NormOperands<T>& o, auto begin) {
                                  o.gain = operands.gain.as<T>();
                                  o.dy = operands.dy.as<T>() + begin;
                                  norm_sums(o, sums);
                                  add_weight_gradients<T>(operands, sums);
                                  if (!operands.dx.empty()) {
                                      norm_input_gradient(o, sums, operands.dx.as<T>() + begin);
                                  }
                              });
        });
    }

    void add_moments(const Moments& more, std::int64_t rows, View sums) const override {
        const auto before = static_cast<double>(rows);
        const auto added = static_cast<double>(more.rows);
        const double share = added / (before + added);
        const std::size_t columns = as_index(sums.columns);
        double* const means = sums.as<double>();
        const double* const of_more = more.values.as<double>();
        for (std::size_t j = 0; j < columns; ++j) {
            if (rows == 0) {
                means[j] = of_more[j];
                means[columns + j] = of_more[columns + j];
                continue;
            }
            const double apart = of_more[j] - means[j];
            means[j] += apart * share;
            means[columns + j] += of_more[columns + j] + apart * apart * before * share;
        }
    }

    void move_averages(const RunningRule& rule,
                       const Moments& moments,
                       const RunningValues& running) const override {
        PIPETWIN_EXPECT(moments.rows > 1, "a variance of two values or more");
        std::int32_t& updates = *running.updates.as<std::int32_t>();
        ++updates;
        const double share = rule.cumulative ? 1 / static_cast<double>(updates) : rule.momentum;
        const std::size_t columns = as_index(moments.values.columns);
        const double* const means = moments.values.as<double>();
        const double* const squares = means + columns;
        const auto free_rows = static_cast<double>(moments.rows - 1);
        with_real(running.mean.dtype, [&](auto zero) {
            using T = decltype(zero);
            const auto move = [share](T& value, double towards) {
                const auto old = static_cast<double>(computed(value));
                value = stored<T>(static_cast<Computed<T>>((1 - share) * old + share * towards));
            };
            for (std::size_t j = 0; j < columns; ++j) {
                move(running.mean.as<T>()[j], means[j]);
                move(running.variance.as<T>()[j], squares[j] / free_rows);
            }
        });
    }

  private:
    /// Calls act(operands, index of the block's first number) for each block of rows.
    template <class T, class Do>
    static void for_each_block(
        const NormParts& parts, ConstView x, ConstView statistics, ConstView skip, const Do& act) {
        const NormBlock block = block_of(parts, x);
        for (std::size_t i = 0; i < as_index(parts.blocks); ++i) {
            const std::size_t begin = i * block.rows * block.columns;
            NormOperands<T> o{.block = block,
                              .x = x.as<T>() + begin,
                              .statistics = statistics.as<Computed<T>>() + 2 * i * block.groups,
                              .skip = skip.empty() ? nullptr : skip.as<T>() + begin};
            act(o, begin);
        }
    }

    /// dgain and dbias += the sums of one block.
    template <class T>
    static void add_weight_gradients(const NormGradients& operands, const double* sums) {
        using C = Computed<T>;
        const std::size_t columns = as_index(operands.x.columns);
        for (std::size_t j = 0; j < columns && !operands.dgain.empty(); ++j) {
            operands.dbias.as<C>()[j] += static_cast<C>(sums[j]);
            operands.dgain.as<C>()[j] += static_cast<C>(sums[columns + j]);
        }
    }
};

}  // namespace

const ColumnKernels& cpu_column_kernels() {
    static const CpuColumnKernels kernels;
    return kernels;
}

}  // namespace pipetwin::exec
