// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/inner_layers.h"
#include "exec/layers/graph_memory.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// Layers inside a layer that read each other by name: a sequence with branches, of one input or
/// several.
///
///     x_0 --> left ---.
///        \             both --> ... --> y
///     x_1 '-> right --'
///
/// The gradient of a value is the sum over its readers, from the last to the first; of an input,
/// too, where it may be added to what is there.
///
/// Keeps the outputs that a backward inside reads, and what the layers inside keep. All others lie
/// in scratch while they are needed (exec/layers/graph_memory.h). In a full backward the gradient
/// of an output takes its place where nothing reads the output any more; that of a summand is the
/// gradient of the sum, without a copy; all others lie in scratch. I gives those that W reads
/// memory of their own (`split_bytes`), unless they are in an output's place.
class Graph final : public JoiningLayer {
  public:
    /// `sequence` has layers with branches that fit together and read `inputs`.
    Graph(const LayerSpec& sequence, const std::vector<SampleShape>& inputs, NumberFormat format);

    Bytes kept_bytes(int samples) const override;
    Bytes workspace_bytes(int samples) const override;
    Bytes split_bytes(int samples) const override;
    Bytes unread_bytes(int samples) const override;
    bool backward_reads(std::size_t input) const override { return memory_.backward_reads(input); }
    bool weight_reads(std::size_t input) const override { return memory_.weight_reads(input); }
    bool weight_reads_input() const override { return weight_reads(0); }
    bool backward_reads_input() const override { return backward_reads(0); }
    bool weight_reads_gradient() const override;
    void free_unread(Kept& kept) const override;
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;

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

    /// With one input it is a layer as any other.
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override;
    void backward(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    /// A layer inside.
    struct Node {
        std::string name;
        std::unique_ptr<ExecutableLayer> layer;
        JoiningLayer* joining = nullptr;      ///< the layer, where it takes several outputs
        std::vector<std::size_t> operands{};  ///< values
    };
    using Half = GraphMemory::Backward;
    Graph(std::vector<InnerLayer> inner, std::vector<SampleShape> inputs, NumberFormat format);
    static std::vector<Node> make_nodes(const std::vector<InnerLayer>& inner, NumberFormat format);
    static GraphShape graph_shape(const std::vector<InnerLayer>& inner,
                                  const std::vector<Node>& nodes,
                                  const std::vector<SampleShape>& inputs);

    std::size_t node_of(std::size_t value) const { return value - inputs().size(); }
    const SampleShape& shape_of(std::size_t value) const;
    Bytes value_bytes(std::size_t value, int samples) const;
    Bytes inner_workspace(int samples) const;
    bool is_unread(std::size_t value) const;

    void begin(const LayerCall& call, std::span<const ConstView> x);
    View room(const LayerCall& call, const Rooms& rooms, std::size_t room, std::size_t value) const;
    ConstView value(const LayerCall& call, const Kept& kept, std::size_t value) const;
    ConstView gradient(std::size_t value, ConstView dy) const;

    void run_forward(LayerCall& call, ConstView skip, View y, Kept& kept);
    View begin_output(LayerCall& call, Kept& kept, std::size_t value);
    void run_backward(LayerCall& call, Kept& kept, ConstView dy, ConstView skip, Half half);
    void run_backward_of_one(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx, Half half);
    InputGradient begin_gradient(
        LayerCall& call, Kept& kept, std::size_t node, std::size_t value, Half half);
    void joining_backward(
        LayerCall& call, Kept& kept, std::size_t node, ConstView dy, ConstView skip, Half half);
    void layer_backward(
        LayerCall& call, Kept& kept, std::size_t node, ConstView dy, ConstView skip, Half half);
    ConstView gradient_for_weight(const Kept& kept, std::size_t value, ConstView dy) const;

    std::vector<Node> nodes_;
    GraphMemory memory_;
    // The rest is of the call at hand; lengths stay, so that a step asks for no memory of the
    // host's.
    std::byte* rooms_begin_ = nullptr;            ///< behind the scratch of the layers inside
    std::vector<ConstView> inputs_;               ///< [input]
    std::vector<InputGradient> input_gradients_;  ///< [input]
    std::vector<View> outputs_;                   ///< [value] in the forward
    std::vector<View> gradients_;                 ///< [value] its gradient
    std::vector<ConstView> operands_;             ///< of the layer at work
    std::vector<InputGradient> operand_gradients_;
};

}  // namespace pipetwin::exec
