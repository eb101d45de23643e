// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "exec/layers/graph_memory.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

class Linear;

/// y = skip + f_n(... f_2(f_1(x)))
///
///      x = x_1        x_2          x_3                       y
///   ------> f_1 -----> f_2 -----> f_3  ...  f_n  ----------->
///   <------     <-----     <-----                <-----------
///      dx          dx_2       dx_3                      dy
///
/// Keeps its input and x_2 ... x_n, as far as backwards read them, and what the layers inside keep.
/// In a full backward dx_i takes the place of x_i, which is not needed any more. I keeps x_i for W
/// wherever f_i's W reads it, so there dx_i has memory of its own (`split_bytes`). Behind I goes
/// what no W reads: dx_i unless f_i-1 reads it, and what the layers inside do not.
///
/// An x_i that f_i's backward does not read is in scratch, and so is its gradient. A rectifier f_i
/// reads x_i+1 in place of x_i where f_i+1 keeps that; then dx_i+1 is in scratch or, of the first
/// layer, in the place of dx, where the rectifier changes it.
///
/// A GELU between two linear layers is computed with them, so that a device may do it in their
/// products: its x_i with the product before it, and dx_i with that behind it, in the place of
/// x_i+1 (or dx_i+1); the tensors then change names.
///
/// A cross-entropy at the end has dx_n in the place of x_n as soon as its forward ends, so that a
/// device may make both in one pass, unless no backward follows.
class Sequence final : public ExecutableLayer {
  public:
    /// `reads_output`: the last layer is a rectifier that reads y in place of x_n, and the caller
    /// puts y into `Kept::inner.back().input` before the backward.
    Sequence(const std::vector<LayerSpec>& inner,
             const SampleShape& input,
             NumberFormat format,
             bool reads_output = false);
    /// A sequence of layers that the caller has made; their shapes must chain.
    Sequence(std::vector<std::unique_ptr<ExecutableLayer>> layers,
             NumberFormat format,
             bool reads_output = false);

    Bytes kept_bytes(int samples) const override;
    Bytes workspace_bytes(int samples) const override;
    Bytes split_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override;
    bool weight_reads_input() const override { return layers_.front()->weight_reads_input(); }
    bool weight_reads_gradient() const override { return layers_.back()->weight_reads_gradient(); }
    bool backward_reads_input() const override { return reads_input_.front(); }
    void free_unread(Kept& kept) const override;
    Bytes core_bytes(int samples) const override;
    void forget_core(Kept& kept) const override;
    void recompute_core(LayerCall& call, Kept& kept) override;
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override;
    void backward(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    /// The layers before and behind a GELU that is computed with both.
    struct JoinedGelu {
        GeluForm form = GeluForm::Exact;
        Linear* before = nullptr;
        Linear* behind = nullptr;
    };
    /// Where dx_i lies in a backward.
    enum class Place {
        OfInput,  ///< where x_i was
        Own,      ///< in a tensor of its own, until W
        OfWhole,  ///< in the place of dx
        Room      ///< in scratch
    };
    /// Places of [whole backward, I].
    enum Half { Whole, InputHalf };
    void join_gelus();
    void find_what_backwards_read();
    void find_rooms();
    Place place_of(std::size_t layer, Half half) const;
    bool is_gradient_unread(std::size_t layer) const;
    bool is_input_unread(std::size_t layer) const;
    Bytes inner_workspace(int samples) const;
    View room(const LayerCall& call, std::size_t room, std::size_t layer) const;
    View begin_gradient(LayerCall& call, Kept& kept, std::size_t layer, Half half, View dx) const;
    void run_backward(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx, Half half);
    ConstView read_by_backward(const LayerCall& call, const Kept& kept, std::size_t layer) const;
    ConstView without_numbers(const LayerCall& call, std::size_t layer) const;
    /// True for a layer whose dx_i is in the place of x_i before the backward.
    bool has_gradient(std::size_t layer) const {
        return loss_ != nullptr && layer + 1 == layers_.size();
    }

    std::vector<std::string> names_;
    std::vector<std::unique_ptr<ExecutableLayer>> layers_;
    std::vector<std::optional<JoinedGelu>> gelus_;  ///< [layer] where it is a joined GELU
    std::vector<bool> reads_input_;                 ///< [layer] its backward; else x_i is not kept
    std::vector<bool> reads_output_;                ///< [layer] its backward, in place of x_i
    Rooms rooms_;
    std::vector<std::size_t> forward_room_;                  ///< [layer] of x_i, where it is unkept
    std::array<std::vector<std::size_t>, 2> gradient_room_;  ///< [half][layer] of dx_i
    bool is_given_output_ = false;                           ///< the last layer reads y
    ExecutableLayer* loss_ = nullptr;  ///< the last of several layers, which leaves its gradient
};

}  // namespace pipetwin::exec
