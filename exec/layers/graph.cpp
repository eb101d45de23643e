// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/graph.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/error.h"
#include "exec/layers/make_layer.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {

Graph::Graph(const LayerSpec& sequence, const std::vector<SampleShape>& inputs, NumberFormat format)
    : Graph(inner_layers(sequence, inputs), inputs, format) {}

Graph::Graph(std::vector<InnerLayer> inner, std::vector<SampleShape> inputs, NumberFormat format)
    : JoiningLayer(std::move(inputs), inner.back().output, format),
      nodes_(make_nodes(inner, format)),
      memory_(graph_shape(inner, nodes_, this->inputs())) {
    const std::size_t values = this->inputs().size() + nodes_.size();
    outputs_.resize(values);
    gradients_.resize(values);
    for (const Node& node : nodes_) {
        contain(*node.layer);
    }
}

std::vector<Graph::Node> Graph::make_nodes(const std::vector<InnerLayer>& inner,
                                           NumberFormat format) {
    std::vector<Node> nodes;
    for (const InnerLayer& layer : inner) {
        Node& node = nodes.emplace_back();
        node.name = layer.spec.name;
        node.layer = make_layer(layer.spec, layer.inputs, format);
        node.joining = dynamic_cast<JoiningLayer*>(node.layer.get());
        node.operands = layer.operands;
    }
    return nodes;
}

GraphShape Graph::graph_shape(const std::vector<InnerLayer>& inner,
                              const std::vector<Node>& nodes,
                              const std::vector<SampleShape>& inputs) {
    const auto numbers_of = [](const SampleShape& shape) {
        return std::int64_t{shape.positions} * shape.width;
    };
    GraphShape shape{.inputs = inputs.size()};
    std::ranges::transform(inputs, std::back_inserter(shape.numbers), numbers_of);
    const std::vector<InnerReads> reads = inner_reads(inner, inputs.size());
    for (std::size_t i = 0; i < inner.size(); ++i) {
        const Node& node = nodes[i];
        GraphShape::Node& made = shape.nodes.emplace_back();
        made.operands = node.operands;
        made.backward_reads = reads[i].inputs;
        made.reads_output = reads[i].output;
        for (std::size_t operand = 0; operand < node.operands.size(); ++operand) {
            made.weight_reads.push_back(node.joining != nullptr
                                            ? node.joining->weight_reads(operand)
                                            : node.layer->weight_reads_input());
            PIPETWIN_EXPECT(made.backward_reads[operand] || !made.weight_reads[operand],
                            "W is a part of the backward");
        }
        made.adds_itself = node.joining != nullptr;
        made.is_sum = node.joining != nullptr && node.joining->is_sum();
        made.weight_reads_gradient = node.layer->weight_reads_gradient();
        shape.numbers.push_back(numbers_of(inner[i].output));
    }
    return shape;
}

const SampleShape& Graph::shape_of(std::size_t value) const {
    return memory_.is_outside(value) ? inputs()[value] : nodes_[node_of(value)].layer->output();
}

Bytes Graph::value_bytes(std::size_t value, int samples) const {
    const SampleShape& shape = shape_of(value);
    return matrix_bytes(std::int64_t{samples} * shape.positions, shape.width);
}

Bytes Graph::kept_bytes(int samples) const {
    Bytes sum;
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
        const std::size_t made = memory_.output_of(node);
        sum += nodes_[node].layer->kept_bytes(samples);
        sum += memory_.is_kept(made) ? value_bytes(made, samples) : Bytes{};
    }
    return sum;
}

Bytes Graph::inner_workspace(int samples) const {
    Bytes largest;
    for (const Node& node : nodes_) {
        largest = std::max(largest, node.layer->workspace_bytes(samples));
    }
    return Rooms::aligned(largest);
}

/// [scratch of the layers inside | rooms]
Bytes Graph::workspace_bytes(int samples) const {
    const auto width = static_cast<std::int64_t>(size_of(real()));
    Bytes rooms = memory_.forward_rooms().bytes(samples, width);
    for (const Half half : {Half::Whole, Half::InputHalf}) {
        rooms = std::max(rooms, memory_.rooms(half).bytes(samples, width));
    }
    return inner_workspace(samples) + rooms;
}

Bytes Graph::split_bytes(int samples) const {
    Bytes sum;
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
        const std::size_t made = memory_.output_of(node);
        sum += nodes_[node].layer->split_bytes(samples);
        if (memory_.gradient(Half::InputHalf, made).place == GraphMemory::Place::Own) {
            sum += value_bytes(made, samples);
        }
    }
    return sum;
}

bool Graph::is_unread(std::size_t value) const {
    const bool has_gradient =
        memory_.gradient(Half::InputHalf, value).place == GraphMemory::Place::OfOutput;
    return has_gradient ? !memory_.weight_reads_gradient(value) : !memory_.weight_reads(value);
}

Bytes Graph::unread_bytes(int samples) const {
    Bytes sum;
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
        const std::size_t made = memory_.output_of(node);
        sum += nodes_[node].layer->unread_bytes(samples);
        sum += memory_.is_kept(made) && is_unread(made) ? value_bytes(made, samples) : Bytes{};
    }
    return sum;
}

void Graph::free_unread(Kept& kept) const {
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
        nodes_[node].layer->free_unread(kept.inner[node]);
        if (is_unread(memory_.output_of(node))) {
            kept.tensors[node] = {};
        }
    }
}

bool Graph::weight_reads_gradient() const {
    return memory_.weight_reads_gradient(memory_.output_of(nodes_.size() - 1));
}

void Graph::create_parameters(ParameterMaker& maker, const std::string& path, bool ends_residual) {
    for (const Node& node : nodes_) {
        const bool last = &node == &nodes_.back();
        node.layer->create_parameters(maker, path + "." + node.name, ends_residual && last);
    }
}

/// Takes what a call reads.
void Graph::begin(const LayerCall& call, std::span<const ConstView> x) {
    rooms_begin_ = call.workspace + inner_workspace(call.samples).count;
    inputs_.assign(x.begin(), x.end());
}

View Graph::room(const LayerCall& call,
                 const Rooms& rooms,
                 std::size_t room,
                 std::size_t value) const {
    const SampleShape& shape = shape_of(value);
    const auto width = static_cast<std::int64_t>(size_of(real()));
    return {rooms_begin_ + rooms.offset(room, call.samples, width).count,
            real(),
            std::int64_t{call.samples} * shape.positions,
            shape.width};
}

/// A value in the backward; one that nothing reads has its shape and no numbers.
ConstView Graph::value(const LayerCall& call, const Kept& kept, std::size_t value) const {
    const ConstView found =
        memory_.is_outside(value) ? inputs_[value] : ConstView(kept.tensors[node_of(value)]);
    if (!found.empty()) {
        return found;
    }
    const SampleShape& shape = shape_of(value);
    return {nullptr, real(), std::int64_t{call.samples} * shape.positions, shape.width};
}

/// Room for the output of a layer inside: kept, or in scratch.
View Graph::begin_output(LayerCall& call, Kept& kept, std::size_t value) {
    if (!memory_.is_kept(value)) {
        return room(call, memory_.forward_rooms(), memory_.forward_room(value), value);
    }
    const SampleShape& shape = shape_of(value);
    Tensor& tensor = kept.tensors[node_of(value)];
    tensor = call.arena.allocate(
        real(), std::int64_t{call.samples} * shape.positions, shape.width, MemoryKind::Stash);
    return tensor;
}

void Graph::run_forward(LayerCall& call, ConstView skip, View y, Kept& kept) {
    kept.inner.resize(nodes_.size());
    kept.tensors.resize(nodes_.size());
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
        const std::size_t made = memory_.output_of(node);
        const bool last = memory_.is_output(made);
        outputs_[made] = last ? y : begin_output(call, kept, made);
        operands_.clear();
        for (const std::size_t value : nodes_[node].operands) {
            operands_.push_back(memory_.is_outside(value) ? inputs_[value]
                                                          : ConstView(outputs_[value]));
        }
        const ConstView own_skip = last ? skip : ConstView{};
        if (nodes_[node].joining == nullptr) {
            nodes_[node].layer->forward(
                call, operands_.front(), own_skip, outputs_[made], kept.inner[node]);
            continue;
        }
        nodes_[node].joining->join(call, operands_, outputs_[made], kept.inner[node]);
        if (!own_skip.empty()) {
            call.kernels.add(own_skip, y);
        }
    }
}

/// The gradient of a value that is complete; `dy`: that of the last output.
ConstView Graph::gradient(std::size_t value, ConstView dy) const {
    const std::size_t root = memory_.root(value);
    return memory_.is_output(root) ? dy : ConstView(gradients_[root]);
}

/// Where a layer inside puts what it adds to the gradient of a value; nothing for a summand, whose
/// gradient is that of the sum.
Graph::InputGradient Graph::begin_gradient(
    LayerCall& call, Kept& kept, std::size_t node, std::size_t value, Half half) {
    const bool adds = !memory_.is_last_reader(value, node);
    if (memory_.is_outside(value)) {
        const InputGradient& given = input_gradients_[value];
        return {.dx = given.dx, .adds = adds || given.adds};
    }
    if (adds) {
        return {.dx = gradients_[value], .adds = true};
    }
    const GraphMemory::Gradient& place = memory_.gradient(half, value);
    View& gradient = gradients_[value];
    switch (place.place) {
        case GraphMemory::Place::Given:
        case GraphMemory::Place::OfSum:
            return {};
        case GraphMemory::Place::OfOutput:
            gradient = kept.tensors[node_of(value)];
            break;
        case GraphMemory::Place::Own: {
            const SampleShape& shape = shape_of(value);
            Tensor& own = kept.inner[node_of(value)].gradient;
            own = call.arena.allocate(real(),
                                      std::int64_t{call.samples} * shape.positions,
                                      shape.width,
                                      MemoryKind::Stash);
            gradient = own;
            break;
        }
        case GraphMemory::Place::Room:
            gradient = room(call, memory_.rooms(half), place.room, value);
            break;
    }
    return {.dx = gradient, .adds = false};
}

void Graph::joining_backward(
    LayerCall& call, Kept& kept, std::size_t node, ConstView dy, ConstView skip, Half half) {
    operands_.clear();
    operand_gradients_.clear();
    for (const std::size_t read : nodes_[node].operands) {
        operands_.push_back(value(call, kept, read));
        operand_gradients_.push_back(begin_gradient(call, kept, node, read, half));
    }
    JoiningLayer& layer = *nodes_[node].joining;
    if (half == Half::Whole) {
        layer.join_backward(call, kept.inner[node], operands_, dy, operand_gradients_);
    } else {
        layer.join_backward_input(call, kept.inner[node], operands_, dy, operand_gradients_);
    }
    if (skip.empty()) {
        return;
    }
    for (const std::size_t read : nodes_[node].operands) {
        if (memory_.is_outside(read) && memory_.is_last_reader(read, node) &&
            !input_gradients_[read].dx.empty()) {
            call.kernels.add(skip, input_gradients_[read].dx);
        }
    }
}

/// The backward of a layer that reads one output. It adds to a gradient from scratch.
void Graph::layer_backward(
    LayerCall& call, Kept& kept, std::size_t node, ConstView dy, ConstView skip, Half half) {
    const std::size_t read = nodes_[node].operands.front();
    const InputGradient to = begin_gradient(call, kept, node, read, half);
    const bool reads_output = memory_.shape().nodes[node].reads_output;
    const ConstView x = value(call, kept, reads_output ? memory_.output_of(node) : read);
    const auto compute = [&](ConstView own_skip, View dx) {
        backward_of(*nodes_[node].layer,
                    half == Half::Whole,
                    call,
                    kept.inner[node],
                    {x, dy, own_skip, dx});
    };
    if (to.dx.empty() || !to.adds) {
        compute(memory_.is_outside(read) ? skip : ConstView{}, to.dx);
        return;
    }
    const View summand = room(call, memory_.rooms(half), memory_.summand_room(half, node), read);
    compute({}, summand);
    call.kernels.add(summand, to.dx);
}

/// `skip`: what the gradient of the only input begins with.
void Graph::run_backward(LayerCall& call, Kept& kept, ConstView dy, ConstView skip, Half half) {
    for (std::size_t node = nodes_.size(); node-- > 0;) {
        const ConstView own_dy = gradient(memory_.output_of(node), dy);
        if (nodes_[node].joining != nullptr) {
            joining_backward(call, kept, node, own_dy, skip, half);
        } else {
            layer_backward(call, kept, node, own_dy, skip, half);
        }
    }
}

void Graph::join(LayerCall& call, std::span<const ConstView> x, View y, Kept& kept) {
    begin(call, x);
    run_forward(call, {}, y, kept);
}

void Graph::join_backward_input(LayerCall& call,
                                Kept& kept,
                                std::span<const ConstView> x,
                                ConstView dy,
                                std::span<const InputGradient> dx) {
    begin(call, x);
    input_gradients_.assign(dx.begin(), dx.end());
    run_backward(call, kept, dy, {}, Half::InputHalf);
}

void Graph::join_backward(LayerCall& call,
                          Kept& kept,
                          std::span<const ConstView> x,
                          ConstView dy,
                          std::span<const InputGradient> dx) {
    begin(call, x);
    input_gradients_.assign(dx.begin(), dx.end());
    run_backward(call, kept, dy, {}, Half::Whole);
}

/// The gradient of an output that I has left for W; empty where W does not read it.
ConstView Graph::gradient_for_weight(const Kept& kept, std::size_t value, ConstView dy) const {
    const std::size_t root = memory_.root(value);
    if (memory_.is_output(root)) {
        return dy;
    }
    switch (memory_.gradient(Half::InputHalf, root).place) {
        case GraphMemory::Place::OfOutput:
            return kept.tensors[node_of(root)];
        case GraphMemory::Place::Own:
            return kept.inner[node_of(root)].gradient;
        default:
            return {};
    }
}

void Graph::join_backward_weight(LayerCall& call,
                                 Kept& kept,
                                 std::span<const ConstView> x,
                                 ConstView dy) {
    begin(call, x);
    for (std::size_t node = nodes_.size(); node-- > 0;) {
        const ConstView own_dy = gradient_for_weight(kept, memory_.output_of(node), dy);
        operands_.clear();
        for (const std::size_t read : nodes_[node].operands) {
            operands_.push_back(value(call, kept, read));
        }
        if (nodes_[node].joining != nullptr) {
            nodes_[node].joining->join_backward_weight(call, kept.inner[node], operands_, own_dy);
        } else {
            nodes_[node].layer->backward_weight(call, kept.inner[node], operands_.front(), own_dy);
        }
    }
}

void Graph::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) {
    begin(call, {&x, 1});
    run_forward(call, skip, y, kept);
}

/// Where dx is x itself, and layers read x after the first has written its gradient, the gradient
/// is summed in scratch.
void Graph::run_backward_of_one(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx, Half half) {
    begin(call, {&x, 1});
    const bool apart = !dx.empty() && dx.data == x.data && memory_.needs_input_room(half);
    const View sum = apart ? room(call, memory_.rooms(half), memory_.input_room(half), 0) : dx;
    input_gradients_.assign(1, {.dx = sum});
    run_backward(call, kept, dy, skip, half);
    if (apart) {
        call.kernels.copy_columns({.count = dx.columns}, sum, dx);
    }
}

void Graph::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    run_backward_of_one(call, kept, x, dy, skip, dx, Half::InputHalf);
}

void Graph::backward(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    run_backward_of_one(call, kept, x, dy, skip, dx, Half::Whole);
}

void Graph::backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) {
    join_backward_weight(call, kept, {&x, 1}, dy);
}

const JoiningMaker make_graph = made_of_several<Graph>;

}  // namespace pipetwin::exec
