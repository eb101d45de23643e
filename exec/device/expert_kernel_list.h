// SPDX-License-Identifier: Apache-2.0
// The operations of `ExpertKernels`, each said once: what it computes, and of which operands.
//
// A class includes this list in its body and says before what a line of it declares there:
//
//     #define PIPETWIN_KERNEL(name, parameters) void name parameters const override
//     #include "exec/device/expert_kernel_list.h"

/// choice (n, k) int32: the experts of each row, the best first; weights (n, k), in fp32 at least:
/// theirs. Both follow from logits (n, experts) as the rule says. bias (1, experts) of the type of
/// weights, or empty: added to scores for the choice alone.
PIPETWIN_KERNEL(route,
                (const Routing& rule,
                 exec::ConstView logits,
                 exec::ConstView bias,
                 exec::View choice,
                 exec::View weights));
/// dlogits from the gradients of the weights, and from that of a loss of unequal loads:
/// `load_factor` times the copies of an expert is added to the gradient of its mean score. dlogits
/// may be logits itself; the choice has no gradient.
PIPETWIN_KERNEL(route_backward,
                (const Routing& rule,
                 exec::ConstView logits,
                 exec::ConstView choice,
                 exec::ConstView dweights,
                 std::span<const std::int32_t> copies,
                 double load_factor,
                 exec::View dlogits));
/// copies[expert]: how many rows have chosen it. It waits for the device.
PIPETWIN_KERNEL(count_copies, (exec::ConstView choice, std::span<std::int32_t> copies));
/// places (n, k) int32: where the copy of a row for one of its experts stands among all n k copies,
/// which are sorted by expert, and those of an expert by row.
PIPETWIN_KERNEL(sort_copies,
                (exec::ConstView choice, std::span<const std::int32_t> copies, exec::View places));
/// The rows of y (n k, width) are copies of those of x (n, width).
PIPETWIN_KERNEL(copy_rows, (exec::ConstView x, exec::ConstView places, exec::View y));
/// A row of y (n, width) is that of skip, if there is one, plus its copies in x (n k, width), one
/// after the other in the order of its experts; y may be skip.
PIPETWIN_KERNEL(add_copies,
                (exec::ConstView x, exec::ConstView places, exec::ConstView skip, exec::View y));
/// Multiplies each copy in x (n k, width) by its weight; y may be x.
PIPETWIN_KERNEL(weigh_copies,
                (exec::ConstView x, exec::ConstView places, exec::ConstView weights, exec::View y));
/// dweights (n, k): of each copy the sum of x times dy, the gradient of what its weight has made.
PIPETWIN_KERNEL(
    weigh_copies_backward,
    (exec::ConstView x, exec::ConstView dy, exec::ConstView places, exec::View dweights));
/// Moves the bias (1, experts) by `step`: up where `copies` (1, experts) fp64 is below their mean,
/// down where it is above.
PIPETWIN_KERNEL(move_bias, (double step, exec::ConstView copies, exec::View bias));

#undef PIPETWIN_KERNEL
