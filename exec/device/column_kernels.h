// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/device/kernels.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {

/// How a matrix is cut into the parts that a norm gives mean 0 and variance 1: blocks of
/// neighbouring rows, and in each block groups of neighbouring columns, all of one size.
///
///   batch norm      one block, every column a group
///   instance norm   every sample a block, every column a group
///   group norm      every sample a block
struct NormParts {
    std::int64_t blocks = 1;
    std::int64_t groups = 1;
};

/// Mean and sum of the squares around it of the columns of a matrix, and how many rows they are of.
struct Moments {
    std::int64_t rows = 0;
    ConstView values;  ///< (2, columns) fp64: means, sums of squares
};

/// How running values follow the values of a mini-batch: running = (1 - share) running + share
/// value.
struct RunningRule {
    double momentum = 0.1;    ///< the share, where it is not cumulative
    bool cumulative = false;  ///< the share is 1 / number of updates, this one counted
};

/// Running mean and variance of the columns of a matrix, as an evaluation reads them.
struct RunningValues {
    View mean;      ///< (1, columns)
    View variance;  ///< (1, columns)
    View updates;   ///< (1, 1) int32: how many there were
};

/// Operands of the gradients of a norm. `dx` may be x itself, or empty: not computed.
struct NormGradients {
    ConstView x;
    ConstView statistics;  ///< as `ColumnKernels::norm_statistics` wrote them
    ConstView gain;        ///< (1, columns), or empty: 1
    ConstView dy;
    ConstView skip;  ///< added to dx; or empty
    View dx;
    View dgain;  ///< (1, columns), added to; or empty
    View dbias;  ///< likewise
};

/// Bytes of scratch memory for the moments of a micro-batch, and for a norm's gradients: two
/// numbers in double for each column.
constexpr std::int64_t norm_scratch_bytes(std::int64_t columns) {
    return 2 * columns * static_cast<std::int64_t>(sizeof(double));
}

/// The mathematics of layers of images whose columns are channels: norms over columns, rectifiers,
/// dropout of whole columns.
///
/// Names, types and the promises about results are those of `Kernels`. Sums over rows are taken in
/// double, in the order of the rows.
class ColumnKernels {
  public:
    virtual ~ColumnKernels() = default;

    /// Copies the numbers of x as they are; y has as many of them, in any shape.
    virtual void copy(ConstView x, View y) const = 0;

    /// y = x where x > 0, else slope x.
    virtual void rectify(double slope, ConstView x, View y) const = 0;
    /// dx = dy where x > 0, else slope dy; dx may be x itself.
    virtual void rectify_backward(double slope, ConstView x, ConstView dy, View dx) const = 0;

    /// y = skip + x / (1 - p), or skip where x is dropped; y may be x or skip. Also its gradient.
    /// `mask.numbers_per_sample` is the number of columns: a column of a sample is dropped whole;
    /// or 1: a sample is. `samples` of as many rows each.
    virtual void drop_columns(
        const DropoutMask& mask, int samples, ConstView x, ConstView skip, View y) const = 0;

    /// statistics (2 blocks, groups): the mean and 1 / sqrt(variance + epsilon) of each part, block
    /// after block, the means first. The variance is the mean of the squares around the mean.
    /// `moments` (2, columns) fp64: those of all rows where there is one block, else scratch.
    virtual void norm_statistics(const NormParts& parts,
                                 double epsilon,
                                 ConstView x,
                                 View statistics,
                                 View moments) const = 0;
    /// statistics (2, columns): the running mean and 1 / sqrt(running variance + epsilon).
    virtual void running_statistics(const RunningValues& running,
                                    double epsilon,
                                    View statistics) const = 0;
    /// y = skip + gain (x - mean) / sqrt(variance + epsilon) + bias; gain and bias (1, columns) or
    /// empty, skip may be empty.
    virtual void normalise(const NormParts& parts,
                           ConstView x,
                           ConstView statistics,
                           ConstView gain,
                           ConstView bias,
                           ConstView skip,
                           View y) const = 0;
    /// With z the normalised x, g = gain dy, and means over a part:
    /// dx = skip + (g - mean(g) - z mean(g z)) / sqrt(variance + epsilon),
    /// dgain += sum of dy z, dbias += sum of dy. `scratch` has norm_scratch_bytes.
    virtual void normalise_backward(const NormParts& parts,
                                    const NormGradients& operands,
                                    std::byte* scratch) const = 0;

    /// Joins the moments of more rows to `sums`, those of `rows` rows so far (Chan, Golub and
    /// LeVeque, 1983): no digit is lost to squares of large means. Where `rows` is 0, what `sums`
    /// holds is not read.
    virtual void add_moments(const Moments& more, std::int64_t rows, View sums) const = 0;
    /// Moves the running values towards `moments`: the mean, and the variance S / (rows - 1).
    virtual void move_averages(const RunningRule& rule,
                               const Moments& moments,
                               const RunningValues& running) const = 0;
};

/// The CPU's.
const ColumnKernels& cpu_column_kernels();

}  // namespace pipetwin::exec
