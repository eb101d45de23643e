// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/layers/dropout.h"
#include "exec/layers/layer.h"
#include "exec/layers/linear.h"

/// Attentions in which a query sees all keys of its sample that are no padding. A sample's length
/// is in the batch (`Batch::lengths`); where that has none, no position is padding.
namespace pipetwin::exec {

/// What both attentions have behind their queries, keys and values: h heads of size a, and the
/// output projection. Per sample with length t, and head:
///
///   P = softmax(Q K^T / sqrt a), over the first t keys
///   y = skip + P V w_out + b_out                      w_out (h a, width)
///
/// Rows at padding are computed like all others, but no key or value of theirs has a part in
/// another row. Keeps P or what it can be found from (exec/device/number_format.h), P V and the
/// lengths, in front of what an attention keeps itself.
class PaddedHeads {
  public:
    /// `x`: the shape of the queries' sequence; `key_positions`: keys of a sample. Throws
    /// Error(Infeasible) for heads that the kernels do not take.
    PaddedHeads(const LayerSpec& spec,
                const SampleShape& x,
                int key_positions,
                NumberFormat format);

    /// Number of tensors that it keeps.
    static constexpr std::size_t kept_count = 3;

    const AttentionSizes& sizes() const { return sizes_; }
    Bytes kept_bytes(int samples) const;
    Bytes unread_bytes(int samples) const;
    static void free_unread(Kept& kept);
    Bytes workspace_bytes(int samples) const;
    void create_parameters(ParameterMaker& maker, const std::string& path, bool ends_residual);
    void add_parameters(std::vector<Parameter*>& all);

    /// y = skip + P V w_out + b_out. Throws Error(BadInput), naming the sample, for a length beyond
    /// the keys. `k`: the columns of the keys, with those of the values behind them.
    void forward(
        LayerCall& call, ConstColumns q, ConstColumns k, ConstView skip, View y, Kept& kept);
    /// The gradient of the output projection: dy, or what the dropout has left of it in scratch.
    ConstView projected(const LayerCall& call, ConstView dy) const;
    /// From the projected gradient to dQ and dK | dV, in the places of Q and K | V.
    void backward(LayerCall& call, Kept& kept, ConstView gradient, Columns q, Columns k);
    /// dw_out += (P V)^T gradient.
    void backward_weight(LayerCall& call, Kept& kept, ConstView gradient);

  private:
    PaddedAttentionShape shape(int samples) const;
    Bytes softmax_bytes(int samples) const;

    AttentionSizes sizes_;
    int positions_;
    int key_positions_;
    NumberFormat format_;
    Linear out_;
    OutputDropout dropout_;
};

/// Self-attention in which a query sees all positions that are no padding:
///
///   Q | K | V = x w_qkv + b_qkv                       x (n, width)   w_qkv (width, 3 h a)
///   dx = skip + (dQ | dK | dV) w_qkv^T
///
/// Keeps its input and Q | K | V beside what the heads keep.
class PaddedAttention final : public ExecutableLayer {
  public:
    PaddedAttention(const LayerSpec& spec, const SampleShape& input, NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override { return heads_.unread_bytes(samples); }
    void free_unread(Kept& kept) const override { PaddedHeads::free_unread(kept); }
    Bytes workspace_bytes(int samples) const override { return heads_.workspace_bytes(samples); }
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
    void heads_backward(LayerCall& call, Kept& kept, ConstView gradient);
    void weights_backward(LayerCall& call, Kept& kept, ConstView x, ConstView gradient);

    PaddedHeads heads_;
    Linear qkv_;
};

/// Attention of one sequence x to another, the memory m, whose lengths are those of the batch:
///
///   Q = x w_q + b_q,  K | V = m w_kv + b_kv           x (n, width)   m (n', width')
///   dm = (dK | dV) w_kv^T,  dx = dQ w_q^T
///
/// Keeps Q and K | V beside what the heads keep.
class CrossAttention final : public JoiningLayer {
  public:
    /// `inputs`: the shapes of x and of the memory.
    CrossAttention(const LayerSpec& spec,
                   const std::vector<SampleShape>& inputs,
                   NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override { return heads_.unread_bytes(samples); }
    void free_unread(Kept& kept) const override { PaddedHeads::free_unread(kept); }
    Bytes workspace_bytes(int samples) const override { return heads_.workspace_bytes(samples); }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;
    std::vector<Parameter*> parameters() override;
    bool has_parameters() const override { return true; }

    bool backward_reads(std::size_t /*input*/) const override { return true; }
    bool weight_reads(std::size_t /*input*/) const override { return true; }
    void join(LayerCall& call, std::span<const ConstView> x, View y, Kept& kept) override;
    void join_backward_input(LayerCall& call,
                             Kept& kept,
                             std::span<const ConstView> x,
                             ConstView dy,
                             std::span<const InputGradient> dx) override;
    void join_backward_weight(LayerCall& call,
                              Kept& kept,
                              std::span<const ConstView> x,
                              ConstView dy) override;
    void join_backward(LayerCall& call,
                       Kept& kept,
                       std::span<const ConstView> x,
                       ConstView dy,
                       std::span<const InputGradient> dx) override;

  private:
    void heads_backward(LayerCall& call, Kept& kept, ConstView gradient);
    void weights_backward(LayerCall& call,
                          Kept& kept,
                          std::span<const ConstView> x,
                          ConstView gradient);
    void inputs_backward(LayerCall& call, Kept& kept, std::span<const InputGradient> dx);

    PaddedHeads heads_;
    Linear q_;
    Linear kv_;
};

}  // namespace pipetwin::exec
