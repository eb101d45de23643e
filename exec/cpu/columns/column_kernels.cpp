// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/base/random.h"
#include "exec/cpu/columns/column_loops.h"
#include "exec/cpu/columns/cpu_column_kernels.h"

namespace pipetwin::exec {
namespace {

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

/// Calls act(operands, index of the block's first number) for each block of rows.
template <class T, class Do>
void for_each_block(
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
void add_weight_gradients(const NormGradients& operands, const double* sums) {
    using C = Computed<T>;
    const std::size_t columns = as_index(operands.x.columns);
    for (std::size_t j = 0; j < columns && !operands.dgain.empty(); ++j) {
        operands.dbias.as<C>()[j] += static_cast<C>(sums[j]);
        operands.dgain.as<C>()[j] += static_cast<C>(sums[columns + j]);
    }
}

}  // namespace

void CpuColumnKernels::copy(ConstView x, View y) const {
    PIPETWIN_EXPECT(x.dtype == y.dtype && x.size() == y.size(), "as many numbers of one type");
    std::memmove(y.data, x.data, x.bytes());
}

void CpuColumnKernels::norm_statistics(
    const NormParts& parts, double epsilon, ConstView x, View statistics, View moments) const {
    const NormBlock block = block_of(parts, x);
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        auto* const to = moments.as<double>();
        for (std::size_t i = 0; i < as_index(parts.blocks); ++i) {
            column_moments(block, x.as<T>() + i * block.rows * block.columns, to);
            group_statistics(
                block, to, epsilon, statistics.as<Computed<T>>() + 2 * i * block.groups);
        }
    });
}

void CpuColumnKernels::running_statistics(const RunningValues& running,
                                          double epsilon,
                                          View statistics) const {
    with_type(statistics.dtype, [&](auto zero) {
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

void CpuColumnKernels::normalise(const NormParts& parts,
                                 ConstView x,
                                 ConstView statistics,
                                 ConstView gain,
                                 ConstView bias,
                                 ConstView skip,
                                 View y) const {
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        for_each_block<T>(parts, x, statistics, skip, [&](NormOperands<T>& o, auto begin) {
            o.gain = gain.as<T>();
            o.bias = bias.as<T>();
            exec::normalise(o, y.as<T>() + begin);
        });
    });
}

void CpuColumnKernels::normalise_backward(const NormParts& parts,
                                          const NormGradients& operands,
                                          std::byte* scratch) const {
    with_type(operands.dy.dtype, [&](auto zero) {
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

void CpuColumnKernels::add_moments(const Moments& more, std::int64_t rows, View sums) const {
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

void CpuColumnKernels::move_averages(const RunningRule& rule,
                                     const Moments& moments,
                                     const RunningValues& running) const {
    PIPETWIN_EXPECT(moments.rows > 1, "a variance of two values or more");
    std::int32_t& updates = *running.updates.as<std::int32_t>();
    ++updates;
    const double share = rule.cumulative ? 1 / static_cast<double>(updates) : rule.momentum;
    const std::size_t columns = as_index(moments.values.columns);
    const double* const means = moments.values.as<double>();
    const double* const squares = means + columns;
    const auto free_rows = static_cast<double>(moments.rows - 1);
    with_type(running.mean.dtype, [&](auto zero) {
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

const ColumnKernels& cpu_column_kernels() {
    static const CpuColumnKernels kernels;
    return kernels;
}

}  // namespace pipetwin::exec
