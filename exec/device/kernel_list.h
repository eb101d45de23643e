// SPDX-License-Identifier: Apache-2.0
// The operations of `Kernels`, each said once: what it computes, and of which operands. Every
// device computes all of them; PIPETWIN_FUSED_KERNEL marks those that are others one after the
// other, which a device may compute in one pass.
//
// A class includes this list in its body and says before what a line of it declares there:
//
//     #define PIPETWIN_KERNEL(name, parameters) void name parameters const override
//     #include "exec/device/kernel_list.h"

#ifndef PIPETWIN_FUSED_KERNEL
#define PIPETWIN_FUSED_KERNEL(name, parameters) static_assert(true)
#endif

/// y = 0.
PIPETWIN_KERNEL(fill_zero, (exec::View y));
/// Copies host numbers to the device, converted to the type of y.
PIPETWIN_KERNEL(upload, (std::span<const std::int32_t> from, exec::View y));
PIPETWIN_KERNEL(upload, (std::span<const float> from, exec::View y));
PIPETWIN_KERNEL(upload, (std::span<const double> from, exec::View y));
/// Copies the bytes of x to the host, unconverted, once all that was issued before is done: it
/// waits. `to` has room for all of them.
PIPETWIN_KERNEL(download, (exec::ConstView x, std::span<std::byte> to));
/// Copies the host's bytes into y, unconverted; `from` may go when it returns.
PIPETWIN_KERNEL(upload, (std::span<const std::byte> from, exec::View y));
/// y += x.
PIPETWIN_KERNEL(add, (exec::ConstView x, exec::View y));
/// y = the sum of all terms, in their order, and then skip, each number added up in fp32 at least
/// and rounded once; all have as many numbers. skip may be empty; y may be one of the operands.
PIPETWIN_KERNEL(add_up,
                (std::span<const exec::ConstView> terms, exec::ConstView skip, exec::View y));
/// Columns of y = or += columns of x; other columns of y stay.
PIPETWIN_KERNEL(copy_columns, (const exec::ColumnCopy& columns, exec::ConstView x, exec::View y));

/// y = skip + x w + b.  x (n, i), w (i, o), b (1, o) or empty, y (n, o)
PIPETWIN_KERNEL(
    linear_forward,
    (exec::ConstView x, exec::ConstView w, exec::ConstView b, exec::ConstView skip, exec::View y));
/// dx = skip + dy w^T.
PIPETWIN_KERNEL(linear_backward_input,
                (exec::ConstView dy, exec::ConstView w, exec::ConstView skip, exec::View dx));
/// dw += x^T dy,  db += sum of the rows of dy (where db is not empty).
PIPETWIN_KERNEL(linear_backward_weight,
                (exec::ConstView x,
                 exec::ConstView dy,
                 const exec::GradientSum& dw,
                 const exec::GradientSum& db));

/// h = x w + b and its GELU y, as `linear_forward` and `gelu_forward`. A device may make both
/// at once, and y of an h that is not rounded yet.
PIPETWIN_FUSED_KERNEL(linear_gelu_forward,
                      (GeluForm form,
                       exec::ConstView x,
                       exec::ConstView w,
                       exec::ConstView b,
                       exec::View h,
                       exec::View y));
/// dh, where h's GELU is the input of a linear layer, as `linear_backward_input` and
/// `gelu_backward`; dh may not be h.
PIPETWIN_FUSED_KERNEL(
    linear_gelu_backward,
    (GeluForm form, exec::ConstView dy, exec::ConstView w, exec::ConstView h, exec::View dh));

/// Per row, with m = mean(x), or 0 of a norm that is not centred (RMSNorm), s = 1 / sqrt(mean((x -
/// m)^2) + epsilon), z = (x - m) s:  y = gain z, + bias where it is centred. statistics (n, 2) = m,
/// s, or (n, 1) = s.
PIPETWIN_KERNEL(row_norm_forward,
                (const exec::RowNormRule& rule,
                 exec::ConstView x,
                 exec::ConstView gain,
                 exec::ConstView bias,
                 exec::View y,
                 exec::View statistics));
/// dx = skip + ...; dx may be x itself.
PIPETWIN_KERNEL(row_norm_backward_input,
                (const exec::RowNormRule& rule,
                 exec::ConstView x,
                 exec::ConstView gain,
                 exec::ConstView statistics,
                 exec::ConstView dy,
                 exec::ConstView skip,
                 exec::View dx));
/// dgain += sum of dy z, dbias += sum of dy where it is centred, over the rows.
PIPETWIN_KERNEL(row_norm_backward_weight,
                (const exec::RowNormRule& rule,
                 exec::ConstView x,
                 exec::ConstView statistics,
                 exec::ConstView dy,
                 const exec::GradientSum& dgain,
                 const exec::GradientSum& dbias));
/// `row_norm_backward_weight`, and then `row_norm_backward_input`. A device may do both in one
/// pass, with an order of its own of the sums.
PIPETWIN_FUSED_KERNEL(row_norm_backward,
                      (const exec::RowNormRule& rule,
                       exec::ConstView x,
                       exec::ConstView gain,
                       exec::ConstView statistics,
                       exec::ConstView dy,
                       exec::ConstView skip,
                       exec::View dx,
                       const exec::GradientSum& dgain,
                       const exec::GradientSum& dbias));

/// y = v g / (1 + exp(-g)), x (n, 2 width) = g | v, y (n, width).
PIPETWIN_KERNEL(swiglu_forward, (exec::ConstView x, exec::View y));
/// dx = dg | dv from dy (n, width); dx may be x itself.
PIPETWIN_KERNEL(swiglu_backward, (exec::ConstView x, exec::ConstView dy, exec::View dx));

/// y = x F(x), F the normal distribution, or its approximation by tanh.
PIPETWIN_KERNEL(gelu_forward, (GeluForm form, exec::ConstView x, exec::View y));
/// dx = dy (F(x) + x F'(x)); dx may be x or dy.
PIPETWIN_KERNEL(gelu_backward,
                (GeluForm form, exec::ConstView x, exec::ConstView dy, exec::View dx));

/// Turns queries and keys of qkv (n, qkv_width) by their positions, or gradients back
/// (core/model/rotary.h).
PIPETWIN_KERNEL(
    rotate,
    (const exec::AttentionShape& shape, const Rotary& rotary, exec::Turn turn, exec::View qkv));

/// Per head: P = softmax(Q K^T / sqrt(head) under the causal mask), context = P V.
/// qkv (n, qkv_width) = Q | K | V, each with its heads side by side; context (n, query_width);
/// softmax, as the device's number format says: the probabilities (samples * heads * positions,
/// positions), undefined above the diagonal's blocks, or log(sum exp) of their rows (samples *
/// heads * positions, 1).
PIPETWIN_KERNEL(attention_forward,
                (const exec::AttentionShape& shape,
                 exec::ConstView qkv,
                 exec::View softmax,
                 exec::View context));
/// Computes dQ | dK | dV. `scratch` has attention_scratch bytes. `qkv` leads to the gradients then:
/// in the place of Q | K | V, or at the begin of `scratch`.
PIPETWIN_KERNEL(attention_backward,
                (const exec::AttentionShape& shape,
                 exec::ConstView softmax,
                 exec::ConstView context,
                 exec::ConstView dcontext,
                 exec::View& qkv,
                 std::byte* scratch));

/// Per head and sample: P = softmax(Q K^T / sqrt(head)) over the keys before the sample's
/// length, context = P V; padding is no part of any sum. q: the columns of the queries; k:
/// those of the keys, with those of the values behind them; heads stand side by side. lengths
/// (samples, 1) int32, 1 to key_positions; softmax, as the device's number format says: P
/// (samples * heads * positions, key_positions), undefined at padding, or log(sum exp) of its
/// rows (samples * heads * positions, 1).
PIPETWIN_KERNEL(padded_attention_forward,
                (const exec::PaddedAttentionShape& shape,
                 exec::ConstColumns q,
                 exec::ConstColumns k,
                 exec::ConstView lengths,
                 exec::View softmax,
                 exec::View context));
/// Puts dQ into the place of Q, and dK | dV into that of K | V, 0 at padding. `scratch` has
/// padded_attention_scratch bytes.
PIPETWIN_KERNEL(padded_attention_backward,
                (const exec::PaddedAttentionShape& shape,
                 exec::ConstView softmax,
                 exec::ConstView context,
                 exec::ConstView dcontext,
                 exec::ConstView lengths,
                 exec::Columns q,
                 exec::Columns k,
                 std::byte* scratch));

/// y[r] = scale tokens[id of r] + places[position of r]; ids (n, 1) int32; places may be empty.
PIPETWIN_KERNEL(embedding_forward,
                (const exec::EmbeddingRows& rows,
                 exec::ConstView ids,
                 exec::ConstView tokens,
                 exec::ConstView places,
                 exec::View y));
/// dtokens[id of r] += scale dy[r], dplaces[position of r] += dy[r], in the order of the rows;
/// dplaces may be empty.
PIPETWIN_KERNEL(embedding_backward,
                (const exec::EmbeddingRows& rows,
                 exec::ConstView ids,
                 exec::ConstView dy,
                 exec::View dtokens,
                 exec::View dplaces));

/// With l = log(sum exp x) of a row, s the label smoothing and m the mean of the row, all over
/// the columns of classes: *sums.loss = the sum over the rows of l - (1 - s) x[target] - s m,
/// in double. A row is right where its first largest number is the target's. targets (n, 1)
/// int32; log_sums (n, 1) = l. A row whose target is -1 has no part in the sums.
PIPETWIN_KERNEL(cross_entropy_forward,
                (exec::ConstView x,
                 exec::ConstView targets,
                 const exec::ClassColumns& columns,
                 exec::View log_sums,
                 const exec::LossSums& sums));
/// dx = scale (softmax(x) - (1 - smoothing) at the target - smoothing / classes), 0 where the
/// target is -1 and in the columns of padding; dx may be x itself. The target of a row may be a
/// class that is not here.
PIPETWIN_KERNEL(cross_entropy_backward,
                (exec::ConstView x,
                 exec::ConstView targets,
                 exec::ConstView log_sums,
                 const exec::ClassColumns& columns,
                 double scale,
                 exec::View dx));
/// `cross_entropy_forward`, and then `cross_entropy_backward` in the place of x: the same bits.
/// A device may do both in one pass.
PIPETWIN_FUSED_KERNEL(cross_entropy_with_gradient,
                      (exec::ConstView targets,
                       const exec::ClassColumns& columns,
                       double scale,
                       exec::View log_sums,
                       const exec::LossSums& sums,
                       exec::View x));

/// What a row's largest logit, its sum of exponentials and its target's logit are among the classes
/// that are here, where other devices have the others. parts (n, 4): the largest number m; the sum
/// of exp(x - m); x[target], or 0 where the target is not here; the class of the first m.
PIPETWIN_KERNEL(class_parts,
                (exec::ConstView x,
                 exec::ConstView targets,
                 const exec::ClassColumns& columns,
                 exec::View parts));
/// Sums and log sums of `cross_entropy_forward`, without label smoothing, from the parts (d n, 4)
/// of all devices, one behind the other.
PIPETWIN_KERNEL(cross_entropy_of_parts,
                (exec::ConstView parts,
                 exec::ConstView targets,
                 exec::View log_sums,
                 const exec::LossSums& sums));

/// *sums.loss = the sum of max(x, 0) - x target + log(1 + exp(-|x|)), in double. A row is right
/// where x > 0 and the target is 1, or x <= 0 and it is 0. x (n, 1); targets (n, 1) int32, each
/// 0 or 1.
PIPETWIN_KERNEL(binary_cross_entropy_forward,
                (exec::ConstView x, exec::ConstView targets, const exec::LossSums& sums));
/// dx = scale (1 / (1 + exp(-x)) - target); dx may be x itself.
PIPETWIN_KERNEL(binary_cross_entropy_backward,
                (exec::ConstView x, exec::ConstView targets, double scale, exec::View dx));

/// y = skip + x / (1 - p), or skip where x is dropped; y may be x or skip. Also its gradient.
PIPETWIN_KERNEL(
    dropout,
    (const exec::DropoutMask& mask, exec::ConstView x, exec::ConstView skip, exec::View y));

/// Writes each gradient's sum of squares to `squares`, in double; nothing is updated.
PIPETWIN_KERNEL(sum_squares, (std::span<const exec::UpdateView> parameters));

/// One update of every parameter in one fused pass (exec/device/update_rules.h). Writes each
/// gradient's sum of squares to `squares`, in double, of the summed gradient as it is.
PIPETWIN_KERNEL(update,
                (exec::UpdateRule rule,
                 std::span<const exec::UpdateView> parameters,
                 const exec::UpdateFactors<double>& factors));

/// average += (1 - decay) (w - average) for every parameter, w being what updates change.
/// Writes no `squares`.
PIPETWIN_KERNEL(average, (std::span<const exec::UpdateView> parameters, double decay));
/// y = x, rounded to the type of y, which half-precision values have and x has not.
PIPETWIN_KERNEL(round, (exec::ConstView x, exec::View y));

#undef PIPETWIN_KERNEL
#undef PIPETWIN_FUSED_KERNEL
