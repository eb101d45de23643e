// SPDX-License-Identifier: Apache-2.0
// The operations of `ColumnKernels`, each said once: what it computes, and of which operands.
//
// A class includes this list in its body and says before what a line of it declares there:
//
//     #define PIPETWIN_KERNEL(name, parameters) void name parameters const override
//     #include "exec/device/column_kernel_list.h"

/// Copies the numbers of x as they are; y has as many of them, in any shape.
PIPETWIN_KERNEL(copy, (exec::ConstView x, exec::View y));

/// to = from where x > 0, else slope from, which is x or a gradient; `to` may be x or `from`.
PIPETWIN_KERNEL(rectify, (double slope, exec::ConstView x, exec::ConstView from, exec::View to));

/// y = skip + x / (1 - p), or skip where x is dropped; y may be x or skip. Also its gradient.
/// `mask.numbers_per_sample` is the number of columns: a column of a sample is dropped whole;
/// or 1: a sample is. `samples` of as many rows each.
PIPETWIN_KERNEL(drop_columns,
                (const exec::DropoutMask& mask,
                 int samples,
                 exec::ConstView x,
                 exec::ConstView skip,
                 exec::View y));

/// statistics (2 blocks, groups): the mean and 1 / sqrt(variance + epsilon) of each part, block
/// after block, the means first. The variance is the mean of the squares around the mean.
/// `moments` (2, columns) fp64: those of all rows where there is one block, else scratch.
PIPETWIN_KERNEL(norm_statistics,
                (const exec::NormParts& parts,
                 double epsilon,
                 exec::ConstView x,
                 exec::View statistics,
                 exec::View moments));
/// statistics (2, columns): the running mean and 1 / sqrt(running variance + epsilon).
PIPETWIN_KERNEL(running_statistics,
                (const exec::RunningValues& running, double epsilon, exec::View statistics));
/// y = skip + gain (x - mean) / sqrt(variance + epsilon) + bias; gain and bias (1, columns) or
/// empty, skip may be empty.
PIPETWIN_KERNEL(normalise,
                (const exec::NormParts& parts,
                 exec::ConstView x,
                 exec::ConstView statistics,
                 exec::ConstView gain,
                 exec::ConstView bias,
                 exec::ConstView skip,
                 exec::View y));
/// With z the normalised x, g = gain dy, and means over a part:
/// dx = skip + (g - mean(g) - z mean(g z)) / sqrt(variance + epsilon),
/// dgain += sum of dy z, dbias += sum of dy. `scratch` has norm_scratch_bytes.
PIPETWIN_KERNEL(normalise_backward,
                (const exec::NormParts& parts,
                 const exec::NormGradients& operands,
                 std::byte* scratch));

/// Joins the moments of more rows to `sums`, those of `rows` rows so far (Chan, Golub and
/// LeVeque, 1983): no digit is lost to squares of large means. Where `rows` is 0, what `sums`
/// holds is not read.
PIPETWIN_KERNEL(add_moments, (const exec::Moments& more, std::int64_t rows, exec::View sums));
/// Moves the running values towards `moments`: the mean, and the variance S / (rows - 1).
PIPETWIN_KERNEL(move_averages,
                (const exec::RunningRule& rule,
                 const exec::Moments& moments,
                 const exec::RunningValues& running));

#undef PIPETWIN_KERNEL
