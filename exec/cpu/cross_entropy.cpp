// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/simd_targets.h"
#include "exec/cpu/cpu_kernels.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

namespace pipetwin::exec {

namespace {

/// What the forward of a loss finds in its rows.
struct LossCounts {
    double loss = 0;         ///< the sum over the rows
    std::int64_t right = 0;  ///< rows whose first largest number is the target's
};

/// Operands of a cross-entropy; each function reads those that its formula names.
template <class T>
struct CrossEntropyOperands {
    std::size_t n = 0;
    std::size_t width = 0;    ///< classes
    std::size_t padding = 0;  ///< columns behind them
    std::int64_t first = 0;   ///< the class of the first column
    const T* x = nullptr;
    const std::int32_t* targets = nullptr;
    const Computed<T>* log_sums = nullptr;
    double smoothing = 0;
    double scale = 0;

    /// The column of a row's target; none: another device has it.
    std::optional<std::size_t> target_column(std::size_t row) const {
        const std::int64_t column = targets[row] - first;
        return column >= 0 && column < static_cast<std::int64_t>(width)
                   ? std::optional(static_cast<std::size_t>(column))
                   : std::nullopt;
    }
};

/// The sum of exp(row[j] - largest). On its way it lets the cache fetch the next row, which
/// otherwise would come from memory while nothing is computed.
template <class T>
PIPETWIN_INLINE Computed<T> sum_of_exponentials(const T* row,
                                                std::size_t width,
                                                Computed<T> largest,
                                                const T* next_row) {
    using C = Computed<T>;
    constexpr std::size_t line = 64 / sizeof(T);
    constexpr std::size_t piece = 32 * line;
    LaneSum<C> sum;
    for (std::size_t begin = 0; begin < width; begin += piece) {
        const std::size_t end = std::min(begin + piece, width);
        for (std::size_t j = begin; j < end; j += line) {
            __builtin_prefetch(next_row + j, 0, 2);
        }
        sum.add(begin, end, [=](std::size_t j) { return exponential(computed(row[j]) - largest); });
    }
    return sum.total();
}

/// Whether the target is the first of the largest numbers of the row.
template <class T>
PIPETWIN_INLINE bool is_right(const T* row, std::int32_t target, Computed<T> largest) {
    if (computed(row[target]) != largest) {
        return false;
    }
    std::int32_t first = 0;
    while (computed(row[first]) != largest) {
        ++first;
    }
    return first == target;
}

template <class T>
PIPETWIN_INLINE double mean_of(const T* row, std::size_t width) {
    return sum_of<double>(width,
                          [row](std::size_t j) { return static_cast<double>(computed(row[j])); }) /
           static_cast<double>(width);
}

// l = log(sum exp x) = largest + log(sum exp(x - largest)); a row adds l - (1 - s) x[target] - s
// mean(x)
template <class T>
PIPETWIN_SIMD_TARGETS LossCounts cross_entropy_forward(const CrossEntropyOperands<T>& o,
                                                       bool counts,
                                                       Computed<T>* log_sums) {
    using C = Computed<T>;
    const std::size_t width = o.width;
    const std::size_t columns = width + o.padding;
    LossCounts found;
    for (std::size_t r = 0; r < o.n; ++r) {
        if (o.targets[r] < 0) {
            log_sums[r] = std::numeric_limits<float>::max();  // a softmax of 0
            continue;
        }
        const T* const row = o.x + r * columns;
        const C largest = largest_of(row, width);
        const C exponentials =
            sum_of_exponentials(row, width, largest, r + 1 < o.n ? row + columns : row);
        const double log_sum =
            static_cast<double>(largest) + std::log(static_cast<double>(exponentials));
        log_sums[r] = static_cast<C>(log_sum);
        double wanted = static_cast<double>(computed(row[o.targets[r]]));
        if (o.smoothing > 0) {
            wanted = (1 - o.smoothing) * wanted + o.smoothing * mean_of(row, width);
        }
        found.loss += log_sum - wanted;
        if (counts && is_right(row, o.targets[r], largest)) {
            ++found.right;
        }
    }
    return found;
}

// dx = scale (exp(x - l) - (1 - s) at the target - s / width)
template <class T>
PIPETWIN_SIMD_TARGETS void cross_entropy_backward(const CrossEntropyOperands<T>& o, T* dx) {
    using C = Computed<T>;
    const C scale = static_cast<C>(o.scale);
    const std::size_t width = o.width;
    const C certain = static_cast<C>(o.scale * (1 - o.smoothing));
    const C shared = static_cast<C>(o.scale * o.smoothing / static_cast<double>(width));
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * (width + o.padding);
        T* const row = dx + r * (width + o.padding);
        std::fill_n(row + width, o.padding, stored<T>(C{0}));
        if (o.targets[r] < 0) {
            std::fill_n(row, width, stored<T>(C{0}));
            continue;
        }
        const C log_sum = o.log_sums[r];
        const std::optional<std::size_t> target = o.target_column(r);
        // Before dx takes the place of x. Rounded once.
        const C of_softmax = target ? exponential(computed(x[*target]) - log_sum) * scale : C{0};
        if (o.smoothing > 0) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t j = 0; j < width; ++j) {
                row[j] = stored<T>(exponential(computed(x[j]) - log_sum) * scale - shared);
            }
            if (target) {
                row[*target] = stored<T>(of_softmax - certain - shared);
            }
            continue;
        }
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            row[j] = stored<T>(exponential(computed(x[j]) - log_sum) * scale);
        }
        if (target) {
            row[*target] = stored<T>(of_softmax - scale);
        }
    }
}

/// Numbers of a row's part (`Kernels::class_parts`), and what they are.
enum ClassPart : std::size_t { Largest, Exponentials, Wanted, FirstLargest, ClassPartCount };

template <class T>
PIPETWIN_SIMD_TARGETS void class_parts(const CrossEntropyOperands<T>& o, Computed<T>* parts) {
    using C = Computed<T>;
    const std::size_t columns = o.width + o.padding;
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const row = o.x + r * columns;
        C* const part = parts + r * ClassPartCount;
        const C largest = largest_of(row, o.width);
        part[Largest] = largest;
        part[Exponentials] =
            sum_of_exponentials(row, o.width, largest, r + 1 < o.n ? row + columns : row);
        const std::optional<std::size_t> target = o.target_column(r);
        part[Wanted] = target ? computed(row[*target]) : C{0};
        std::size_t first = 0;
        while (first + 1 < o.width && computed(row[first]) != largest) {
            ++first;
        }
        part[FirstLargest] = static_cast<C>(o.first + static_cast<std::int64_t>(first));
    }
}

// l = m + log(sum of s_d exp(m_d - m)), m the largest m_d; in double
template <class C>
LossCounts cross_entropy_of_parts(
    const C* parts, std::size_t devices, const std::int32_t* targets, std::size_t n, C* log_sums) {
    LossCounts found;
    for (std::size_t r = 0; r < n; ++r) {
        if (targets[r] < 0) {
            log_sums[r] = std::numeric_limits<float>::max();  // a softmax of 0
            continue;
        }
        const auto part = [=](std::size_t device, ClassPart which) {
            return static_cast<double>(parts[(device * n + r) * ClassPartCount + which]);
        };
        std::size_t best = 0;  // the first of those with the largest number
        for (std::size_t device = 1; device < devices; ++device) {
            best = part(device, Largest) > part(best, Largest) ? device : best;
        }
        const double largest = part(best, Largest);
        double exponentials = 0;
        double wanted = 0;
        for (std::size_t device = 0; device < devices; ++device) {
            exponentials += part(device, Exponentials) * std::exp(part(device, Largest) - largest);
            wanted += part(device, Wanted);
        }
        const double log_sum = largest + std::log(exponentials);
        log_sums[r] = static_cast<C>(log_sum);
        found.loss += log_sum - wanted;
        found.right += part(best, FirstLargest) == targets[r] ? 1 : 0;
    }
    return found;
}

// max(x, 0) - x t + log(1 + exp(-|x|)), in double: the logarithm is what it costs.
template <class T>
LossCounts binary_cross_entropy_forward(const T* x, const std::int32_t* targets, std::size_t n) {
    LossCounts found;
    for (std::size_t r = 0; r < n; ++r) {
        const auto logit = static_cast<double>(computed(x[r]));
        const double positive = logit > 0 ? logit : 0.0;
        found.loss += positive - logit * targets[r] + std::log1p(std::exp(-std::fabs(logit)));
        found.right += (logit > 0) == (targets[r] == 1) ? 1 : 0;
    }
    return found;
}

// dx = scale (1 / (1 + exp(-x)) - t), by the exponential of -|x|, which cannot overflow
template <class T>
PIPETWIN_SIMD_TARGETS void binary_cross_entropy_backward(
    const T* x, const std::int32_t* targets, double scale, std::size_t n, T* dx) {
    using C = Computed<T>;
    const C factor = static_cast<C>(scale);
    PIPETWIN_ELEMENTWISE
    for (std::size_t r = 0; r < n; ++r) {
        const C logit = computed(x[r]);
        const C e = exponential(-std::fabs(logit));
        const C sigmoid = (logit >= 0 ? C{1} : e) / (C{1} + e);
        dx[r] = stored<T>((sigmoid - static_cast<C>(targets[r])) * factor);
    }
}

template <class T>
CrossEntropyOperands<T> loss_operands(ConstView x, ConstView targets, const ClassColumns& columns) {
    return {.n = count(x.rows),
            .width = count(x.columns - columns.padding),
            .padding = count(columns.padding),
            .first = columns.first,
            .x = x.as<T>(),
            .targets = targets.as<std::int32_t>(),
            .smoothing = columns.smoothing};
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

}  // namespace

void CpuKernels::cross_entropy_forward(ConstView x,
                                       ConstView targets,
                                       const ClassColumns& columns,
                                       View log_sums,
                                       const LossSums& sums) const {
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto o = loss_operands<T>(x, targets, columns);
        tell(exec::cross_entropy_forward(o, sums.right != nullptr, log_sums.as<Computed<T>>()),
             sums);
    });
}

void CpuKernels::cross_entropy_backward(ConstView x,
                                        ConstView targets,
                                        ConstView log_sums,
                                        const ClassColumns& columns,
                                        double scale,
                                        View dx) const {
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        auto o = loss_operands<T>(x, targets, columns);
        o.log_sums = log_sums.as<Computed<T>>();
        o.scale = scale;
        exec::cross_entropy_backward(o, dx.as<T>());
    });
}

void CpuKernels::class_parts(ConstView x,
                             ConstView targets,
                             const ClassColumns& columns,
                             View parts) const {
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::class_parts(loss_operands<T>(x, targets, columns), parts.as<Computed<T>>());
    });
}

void CpuKernels::cross_entropy_of_parts(ConstView parts,
                                        ConstView targets,
                                        View log_sums,
                                        const LossSums& sums) const {
    with_type(parts.dtype, [&](auto zero) {
        using C = Computed<decltype(zero)>;
        const std::size_t rows = count(targets.rows);
        const std::size_t devices = rows == 0 ? 0 : count(parts.rows) / rows;
        tell(exec::cross_entropy_of_parts(
                 parts.as<C>(), devices, targets.as<std::int32_t>(), rows, log_sums.as<C>()),
             sums);
    });
}

void CpuKernels::binary_cross_entropy_forward(ConstView x,
                                              ConstView targets,
                                              const LossSums& sums) const {
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        tell(exec::binary_cross_entropy_forward(
                 x.as<T>(), targets.as<std::int32_t>(), count(x.size())),
             sums);
    });
}

void CpuKernels::binary_cross_entropy_backward(ConstView x,
                                               ConstView targets,
                                               double scale,
                                               View dx) const {
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::binary_cross_entropy_backward(
            x.as<T>(), targets.as<std::int32_t>(), scale, count(x.size()), dx.as<T>());
    });
}

}  // namespace pipetwin::exec
