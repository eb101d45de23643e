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

#define PIPETWIN_KERNEL(name, parameters) virtual void name parameters const = 0
#include "exec/device/column_kernel_list.h"
};

/// The CPU's.
const ColumnKernels& cpu_column_kernels();

}  // namespace pipetwin::exec
