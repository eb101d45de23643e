// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/model/layer_spec.h"
#include "exec/layers/dropout.h"
#include "exec/layers/layer.h"
#include "exec/layers/linear.h"

namespace pipetwin::exec {

/// Throws Error(Infeasible) for heads that the kernels of a device with this number format do not
/// take: a GPU's hold sums of a head in registers.
void expect_heads_that_kernels_take(const LayerSpec& spec,
                                    const AttentionSizes& sizes,
                                    const NumberFormat& format);

/// Causal self-attention with h heads of size a. Per sample and head, T positions:
///
///   Q | K | V = x w_qkv + b_qkv                  x (n, width)   w_qkv (width, (h + 2 g) a)
///   Q, K are turned by their positions, where these are rotary (core/model/rotary.h)
///   P = softmax(Q K^T / sqrt a), zero above the diagonal                        P (T, T)
///   c = P V                                                                     c (n, width)
///   y = skip + c w_out + b_out                                       w_out (h a, width)
///
///   dc = dy w_out^T
///   dV = P^T dc,  dP = dc V^T,  dS = P * (dP - rowsum(dP * P)) / sqrt a
///   dQ = dS K,  dK = dS^T Q
///   dx = skip + (dQ | dK | dV) w_qkv^T
///
/// Heads in g groups of h / g share keys and values, whose gradients are sums over the group in the
/// order of its heads; dQ and dK are turned back. Biases may be missing.
///
/// With a dropout at its end y = skip + mask (c w_out + b_out) / (1 - p); probabilities are not
/// dropped.
///
/// Keeps its input, Q | K | V, c, and P or what it can be found from (exec/device/number_format.h).
/// Where the backward is split, I puts dQ | dK | dV into the place of Q | K | V for W, which reads
/// the input, these, c and dy.
class Attention final : public ExecutableLayer {
  public:
    /// Throws Error(Infeasible) for heads that are too large for the kernels of a GPU.
    Attention(const LayerSpec& spec, const SampleShape& input, NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override { return softmax_bytes(samples); }
    void free_unread(Kept& kept) const override;
    Bytes workspace_bytes(int samples) const override;
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;
    std::vector<Parameter*> parameters() override;
    bool has_parameters() const override { return true; }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override;
    void backward(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    AttentionShape shape(int samples) const;
    /// Bytes of P, or of what it can be found from.
    Bytes softmax_bytes(int samples) const;
    /// Bytes of dc in the workspace, up to where the kernel's scratch memory may begin: on a GPU
    /// the operand of a product.
    Bytes context_room(int samples) const;
    /// From dy to dQ | dK | dV, turned back. Returns where they are until the layer's workspace is
    /// used again: there, or in the place of Q | K | V.
    View heads_backward(LayerCall& call, Kept& kept, ConstView dy);
    void weights_backward(LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView dqkv);
    /// The gradient of the output projection.
    ConstView projected_gradient(const LayerCall& call, ConstView dy) const;

    AttentionSizes sizes_;
    Rotary rotary_;
    Linear qkv_;
    Linear out_;
    OutputDropout dropout_;
};

}  // namespace pipetwin::exec
