// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/stage/stage_impl.h"

/// F, R, B, I and W of a stage: its layers in order, or in reverse. When tensors come and go stands
/// in exec/stage/outputs.h.
namespace pipetwin::exec {

void Stage::Impl::begin_action(bool forward) const {
    if (options.rooms != nullptr) {
        options.rooms->begin_action(forward);
    }
}

/// Makes the weights of a layer whole, where replicas divide them.
void Stage::Impl::need_weights(std::size_t index) const {
    if (options.rooms != nullptr) {
        options.rooms->need_weights(number_in_rooms, index);
    }
}

Tensor Stage::Impl::allocate_message(const StageOutputs::Message& message, int samples) {
    const Boundary shape = message_shape(message, samples);
    return arena.allocate(shape.type, shape.rows, shape.columns, MemoryKind::Boundary);
}

Tensor Stage::Impl::allocate_matrix(const Stash& stash, const SampleShape& shape, MemoryKind kind) {
    const Boundary whole = boundary(shape, stash.samples);
    return arena.allocate(whole.type, whole.rows, whole.columns, kind);
}

/// Refuses a message of a wrong size or type. `layer`: of the stage, that reads or has made all of
/// it; out of range where several do.
void Stage::Impl::check_message(const Tensor& tensor,
                                const StageOutputs::Message& message,
                                int samples,
                                int layer,
                                std::string_view what) const {
    const Boundary wanted = message_shape(message, samples);
    if (!tensor.empty() && tensor.dtype() == wanted.type && tensor.rows() == wanted.rows &&
        tensor.columns() == wanted.columns) {
        return;
    }
    const bool is_of_layer = message.value && layer >= 0 && as_index(layer) < names.size();
    throw Error(ErrorKind::BadInput,
                is_of_layer
                    ? fmt::format("stage {}, layer \"{}\"", place.stage, names[as_index(layer)])
                    : fmt::format("stage {}", place.stage),
                fmt::format("{} is {}, expected {}",
                            what,
                            shape_text(tensor.dtype(), tensor.rows(), tensor.columns()),
                            shape_text(wanted.type, wanted.rows, wanted.columns)));
}

/// The stage's input as a part of its stash.
void Stage::Impl::take_in(Stash& stash, std::span<Tensor> received, const MicroBatch& data) {
    PIPETWIN_EXPECT(!stash.alive, "F of a micro-batch comes once");
    PIPETWIN_EXPECT(received.size() == outputs->received().size(), "all messages of a stage");
    if (first()) {
        stash.outputs.input = load(data);
    }
    for (std::size_t number = 0; number < received.size(); ++number) {
        const StageOutputs::Message& message = outputs->received()[number];
        check_message(received[number],
                      message,
                      data.samples,
                      message.value ? outputs->values()[*message.value].last_reader : -1,
                      "the input");
        received[number].move_to(MemoryKind::Stash);
        stash.outputs.received[number] = std::move(received[number]);
    }
    stash.alive = true;
    stash.samples = data.samples;
    stash.batch_samples = data.batch->samples;
    stash.first_sample = data.first_sample;
    stash.step = data.step;
}

/// Where an output lies: in the message that brought it, in a tensor of its own, or in the message
/// that it is sent with.
View Stage::Impl::value_view(Stash& stash, std::size_t index, std::span<Tensor> sent) const {
    const StageOutputs::Value& value = outputs->values()[index];
    if (value.received) {
        Tensor& message = stash.outputs.received[value.received->message];
        return message.empty() ? View()
                               : view_in(message, *value.received, value.shape, stash.samples);
    }
    if (value.is_inner) {
        return stash.outputs.values[index];
    }
    return view_in(sent[value.sent->message], *value.sent, value.shape, stash.samples);
}

/// Where the gradient of an output lies: in the message to where the output came from, in the one
/// that came from where it was sent, or in a tensor of its own.
View Stage::Impl::gradient_view(Stash& stash,
                                std::size_t index,
                                std::span<Tensor> gradients) const {
    const StageOutputs::Value& value = outputs->values()[index];
    if (value.received) {
        return view_in(
            gradients[value.received->message], *value.received, value.shape, stash.samples);
    }
    if (value.sent) {
        return view_in(stash.outputs.sent_gradients[value.sent->message],
                       *value.sent,
                       value.shape,
                       stash.samples);
    }
    return stash.outputs.gradients[index];
}

namespace {

/// A tensor as a layer reads or writes it: one that hands it on may have given it another shape. A
/// tensor that is gone has its shape and no numbers.
View in_shape(const View& view, const SampleShape& shape, const Stage::Boundary& whole) {
    return {view.data, view.empty() ? whole.type : view.dtype, whole.rows, shape.width};
}

}  // namespace

/// What a layer that reads one output reads.
ConstView Stage::Impl::layer_input(Stash& stash, std::size_t index) const {
    const std::vector<std::size_t>& reads = outputs->reads(index);
    const SampleShape& shape = layers[index]->input();
    const Boundary whole = boundary(shape, stash.samples);
    if (reads.empty()) {  // the model's first layer
        return stash.outputs.input.empty() ? in_shape({}, shape, whole) : View(stash.outputs.input);
    }
    return in_shape(value_view(stash, reads.front(), {}), shape, whole);
}

/// What the backward of a layer that reads one output reads.
ConstView Stage::Impl::backward_reads(Stash& stash, std::size_t index) const {
    return outputs->reads_output(index) && !outputs->is_given_output(index)
               ? ConstView(value_view(stash, outputs->made_by(index).value(), {}))
               : layer_input(stash, index);
}

/// What a layer that takes several outputs reads; empty where nothing needs it any more.
void Stage::Impl::find_operands(Stash& stash, std::size_t index) {
    operands.clear();
    const std::vector<std::size_t>& reads = outputs->reads(index);
    for (std::size_t operand = 0; operand < reads.size(); ++operand) {
        const View found = value_view(stash, reads[operand], {});
        const SampleShape& shape = joining[index]->inputs()[operand];
        operands.emplace_back(
            found.empty() ? View() : in_shape(found, shape, boundary(shape, stash.samples)));
    }
}

/// Keeps a copy of what a layer has made, for its own backward.
void Stage::Impl::copy_output(std::size_t index, ConstView y, Kept& kept) const {
    if (outputs->copies_output(index)) {
        Tensor& copy = kept.inner.back().input;
        copy = arena.allocate(y.dtype, y.rows, y.columns, MemoryKind::Stash);
        kernels->copy_columns({.count = y.columns}, y, copy);
    }
}

/// Shows a layer what it has made, for its backward, where it has no copy.
void Stage::Impl::give_output(std::size_t index, View y, Kept& kept) const {
    if (outputs->is_given_output(index) && !outputs->copies_output(index)) {
        kept.inner.back().input =
            Tensor::placed(device.memory(), y.data, y.dtype, y.rows, y.columns);
    }
}

void Stage::Impl::show(std::size_t index, View output) const {
    if (watch && !output.empty()) {
        device.finish();
        watch(place.first_layer + static_cast<int>(index),
              Tensor::placed(
                  device.memory(), output.data, output.dtype, output.rows, output.columns));
    }
}

/// Room for an output inside of the stage.
void Stage::Impl::allocate_value(Stash& stash, std::size_t index) {
    stash.outputs.values[index] =
        allocate_matrix(stash, outputs->values()[index].shape, MemoryKind::Stash);
}

/// The forward of one layer into `y`.
void Stage::Impl::compute_layer(
    LayerCall& call, Stash& stash, std::size_t index, View y, Kept& kept) {
    need_weights(index);
    if (options.group != nullptr) {
        options.group->at_layer(place.first_layer + static_cast<int>(index));
    }
    if (joining[index] != nullptr) {
        find_operands(stash, index);
        joining[index]->join(call, operands, y, kept);
    } else {
        layers[index]->forward(call, layer_input(stash, index), {}, y, kept);
    }
    copy_output(index, y, kept);
}

/// The forward of one layer, with its output where it belongs.
void Stage::Impl::forward_layer(
    LayerCall& call, Stash& stash, std::size_t index, std::span<Tensor> sent, Kept& kept) {
    if (outputs->hands_on(index)) {
        return;
    }
    View y;
    if (const std::optional<std::size_t> made = outputs->made_by(index)) {
        const StageOutputs::Value& value = outputs->values()[*made];
        if (value.is_inner) {
            allocate_value(stash, *made);
        } else if (outputs->is_chain()) {
            sent.front() = allocate_message(outputs->sent().front(), stash.samples);
        }
        y = value_view(stash, *made, sent);
    }
    compute_layer(call, stash, index, y, kept);
    show(index, y);
}

/// The forward of the group of blocks that ends with a layer, from what F has kept. Where the model
/// has branches, outputs that are there still are written over with their own bits.
void Stage::Impl::compute_again(Stash& stash, const LayerCall& base, std::size_t last) {
    if (!blocks[last] || blocks[last]->end != static_cast<int>(last) + 1) {
        return;
    }
    LayerCall call = base;
    call.recomputation = true;
    made_for_group.clear();  // where an earlier one failed
    for (std::size_t i = as_index(blocks[last]->first); i <= last; ++i) {
        if (outputs->hands_on(i)) {
            continue;
        }
        const std::size_t made = outputs->made_by(i).value();  // the loss is in no block
        const StageOutputs::Value& value = outputs->values()[made];
        if (outputs->is_chain() && i == last) {
            Tensor anew = allocate_matrix(stash, value.shape, MemoryKind::Stash);
            compute_layer(call, stash, i, anew, stash.layers[i]);
            tell(i, Op::Forward);
            continue;
        }
        if (stash.outputs.values[made].empty()) {
            allocate_value(stash, made);
            if (!value.is_rebuilt || value.first_keeper < 0) {
                made_for_group.push_back(made);
            }
        }
        compute_layer(call, stash, i, stash.outputs.values[made], stash.layers[i]);
        tell(i, Op::Forward);
        free_made_for_group(stash, i);
    }
}

/// Frees the outputs that no layer of the group reads behind this one, and no backward.
void Stage::Impl::free_made_for_group(Stash& stash, std::size_t index) {
    std::erase_if(made_for_group, [&](std::size_t made) {
        if (outputs->values()[made].last_in_group > static_cast<int>(index)) {
            return false;
        }
        stash.outputs.values[made] = {};
        return true;
    });
}

namespace {

/// Copies an output, or its gradient, into another place of its own.
void copy(const Kernels& kernels, ConstView from, View to) {
    kernels.copy_columns({.count = from.columns}, from, to);
}

}  // namespace

/// All layers in order, from the messages in the stash. With `keep` everything that the backward
/// needs goes into the stash, else nothing more.
void Stage::Impl::run_forward(
    int micro_batch, Stash& stash, const LayerCall& base, bool keep, std::span<Tensor> sent) {
    LayerCall call = base;
    begin_action(!call.recomputation);
    if (!call.recomputation) {  // which has left its loss already
        want_sums(call, micro_batch);
    }
    if (!outputs->is_chain()) {
        for (std::size_t message = 0; message < sent.size(); ++message) {
            sent[message] = allocate_message(outputs->sent()[message], stash.samples);
        }
    }
    const auto put_into_message = [&](std::size_t index) {
        const StageOutputs::Value& value = outputs->values()[index];
        copy(call.kernels,
             value_view(stash, index, {}),
             view_in(sent[value.sent->message], *value.sent, value.shape, stash.samples));
    };
    for (std::size_t index = 0; index < outputs->values().size(); ++index) {
        const StageOutputs::Value& value = outputs->values()[index];
        if (value.received && value.sent) {
            put_into_message(index);
        }
    }
    std::vector<Kept>& kept = keep ? stash.layers : dropped;
    kept.resize(layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i) {
        kept[i].clear();  // where an earlier forward failed
        call.keeps = keep && !blocks[i];
        forward_layer(call, stash, i, sent, kept[i]);
        const std::optional<std::size_t> made = outputs->computed_by(i);
        if (made && outputs->values()[*made].is_inner && outputs->values()[*made].sent) {
            put_into_message(*made);
        }
        tell(i, Op::Forward);
        if (!keep || blocks[i]) {
            kept[i].clear();
        } else if (options.recomputes_core) {
            layers[i]->forget_core(kept[i]);
        }
        free_values_read(stash, i, false, keep);
        if (keep && i == outputs->last_reader_of_received() && !outputs->keeps_received() &&
            !gives_input_gradient()) {
            free_received(stash);
        }
    }
    stash.is_whole = keep;
    if (!call.recomputation) {
        take_scales(call, micro_batch);
    }
}

/// Frees what the stage was sent, or the model's input.
void Stage::Impl::free_received(Stash& stash) const {
    stash.outputs.input = {};
    for (Tensor& message : stash.outputs.received) {
        message = {};
    }
}

/// Frees the outputs inside of the stage that nothing reads behind this layer's forward, or behind
/// its backward.
void Stage::Impl::free_values_read(Stash& stash,
                                   std::size_t index,
                                   bool backward,
                                   bool keep) const {
    for (const std::size_t read : outputs->reads(index)) {
        const StageOutputs::Value& value = outputs->values()[read];
        const bool stays = keep && value.first_keeper >= 0 && !value.is_rebuilt;
        const int last_use = backward ? value.first_keeper : value.last_reader;
        if (last_use == static_cast<int>(index) && (backward || !stays)) {
            stash.outputs.values[read] = {};
        }
    }
    if (backward && outputs->reads_output(index)) {
        stash.outputs.values[outputs->made_by(index).value()] = {};
    }
}

/// Takes the gradients that later stages have sent, and makes room for those of all that was
/// received, with what was handed on.
void Stage::Impl::begin_gradients(Stash& stash,
                                  std::span<Tensor> received,
                                  std::span<Tensor> gradients) {
    PIPETWIN_EXPECT(received.size() == outputs->sent().size(), "all gradients of a stage");
    for (std::size_t number = 0; number < received.size(); ++number) {
        const StageOutputs::Message& message = outputs->sent()[number];
        const int maker = message.value ? outputs->values()[*message.value].layer : -1;
        check_message(received[number],
                      message,
                      stash.samples,
                      maker - place.first_layer,
                      "the gradient of the output");
        stash.outputs.sent_gradients[number] = std::move(received[number]);
    }
    if (outputs->is_chain()) {
        return;
    }
    for (std::size_t message = 0; message < outputs->received().size(); ++message) {
        gradients[message] = allocate_message(outputs->received()[message], stash.samples);
    }
    for (std::size_t index = 0; index < outputs->values().size(); ++index) {
        const StageOutputs::Value& value = outputs->values()[index];
        if (value.received && value.sent) {
            copy(*kernels,
                 view_in(stash.outputs.sent_gradients[value.sent->message],
                         *value.sent,
                         value.shape,
                         stash.samples),
                 gradient_view(stash, index, gradients));
        }
    }
}

ConstView Stage::Impl::output_gradient(Stash& stash,
                                       std::size_t index,
                                       std::span<Tensor> gradients) const {
    const std::optional<std::size_t> made = outputs->made_by(index);
    return made ? ConstView(gradient_view(stash, *made, gradients)) : ConstView();
}

/// Frees the gradient of what a layer has computed.
void Stage::Impl::free_output_gradient(Stash& stash, std::size_t index) const {
    const std::optional<std::size_t> made = outputs->computed_by(index);
    if (!made) {
        return;
    }
    stash.outputs.gradients[*made] = {};
    const std::optional<StageOutputs::Place>& sent = outputs->values()[*made].sent;
    if (outputs->is_chain() && sent) {
        stash.outputs.sent_gradients[sent->message] = {};
    }
}

/// Where a layer puts what it adds to the gradient of an output, or writes of it. The last reader
/// of an output writes its gradient, and each one before it adds its own: the sum has one order,
/// whatever the cuts.
JoiningLayer::InputGradient Stage::Impl::begin_input_gradient(Stash& stash,
                                                              std::size_t index,
                                                              std::size_t value,
                                                              const SampleShape& shape,
                                                              std::span<Tensor> gradients) {
    const StageOutputs::Value& read = outputs->values()[value];
    const bool adds = StageOutputs::adds(read, index);
    if (read.received && outputs->is_chain()) {
        gradients.front() = allocate_message(outputs->received().front(), stash.samples);
    } else if (!read.received && !adds) {
        stash.outputs.gradients[value] = allocate_matrix(stash, read.shape, MemoryKind::Stash);
    }
    return {.dx = in_shape(
                gradient_view(stash, value, gradients), shape, boundary(shape, stash.samples)),
            .adds = adds};
}

/// The backward of a layer that takes several outputs, or of one half of it.
void Stage::Impl::backward_joining(
    LayerCall& call, Stash& stash, std::size_t index, std::span<Tensor> gradients, Op op) {
    JoiningLayer& layer = *joining[index];
    Kept& kept = stash.layers[index];
    const ConstView dy = output_gradient(stash, index, gradients);
    find_operands(stash, index);
    if (op == Op::BackwardWeight) {
        layer.join_backward_weight(call, kept, operands, dy);
        return;
    }
    operand_gradients.clear();
    const std::vector<std::size_t>& reads = outputs->reads(index);
    for (std::size_t operand = 0; operand < reads.size(); ++operand) {
        operand_gradients.push_back(
            begin_input_gradient(stash, index, reads[operand], layer.inputs()[operand], gradients));
    }
    if (op == Op::Backward) {
        layer.join_backward(call, kept, operands, dy, operand_gradients);
    } else {
        layer.join_backward_input(call, kept, operands, dy, operand_gradients);
    }
}

/// The backward of one layer, or of one half of it.
void Stage::Impl::backward_layer(
    LayerCall& call, Stash& stash, std::size_t index, std::span<Tensor> gradients, Op op) {
    if (outputs->hands_on(index)) {
        return;
    }
    if (options.rooms == nullptr) {
        return compute_backward(call, stash, index, gradients, op);
    }
    const bool gives_gradient = !outputs->reads(index).empty() || gives_input_gradient();
    if (op != Op::BackwardWeight && gives_gradient) {  // else no backward reads weights
        need_weights(index);
    }
    options.rooms->begin_gradients(number_in_rooms, index);
    compute_backward(call, stash, index, gradients, op);
    options.rooms->end_gradients(number_in_rooms, index);
}

void Stage::Impl::compute_backward(
    LayerCall& call, Stash& stash, std::size_t index, std::span<Tensor> gradients, Op op) {
    if (options.group != nullptr) {
        options.group->at_layer(place.first_layer + static_cast<int>(index));
    }
    if (joining[index] != nullptr) {
        backward_joining(call, stash, index, gradients, op);
        return;
    }
    ExecutableLayer& layer = *layers[index];
    const ConstView dy = output_gradient(stash, index, gradients);
    const ConstView x = backward_reads(stash, index);
    Kept& kept = stash.layers[index];
    if (op == Op::BackwardWeight) {
        layer.backward_weight(call, kept, x, dy);
        return;
    }
    if (outputs->reads_output(index)) {
        give_output(index, value_view(stash, outputs->made_by(index).value(), {}), kept);
    }
    const auto compute = [&](View dx) {
        if (op == Op::Backward) {
            layer.backward(call, kept, x, dy, {}, dx);
        } else {
            layer.backward_input(call, kept, x, dy, {}, dx);
        }
    };
    const std::vector<std::size_t>& reads = outputs->reads(index);
    if (reads.empty()) {  // the model's first layer
        if (gives_input_gradient() && !layer.input().token_ids) {
            gradients.front() = allocate_matrix(stash, layer.input(), MemoryKind::Boundary);
            compute(gradients.front());
        } else {
            compute({});
        }
        return;
    }
    const JoiningLayer::InputGradient to =
        begin_input_gradient(stash, index, reads.front(), layer.input(), gradients);
    if (to.adds) {
        Tensor own = allocate_matrix(stash, layer.input(), MemoryKind::Stash);
        compute(own);
        call.kernels.add(own, to.dx);
    } else {
        compute(to.dx);
    }
}

/// Gives back what W of a layer does not read: where the model has branches, gradients alone.
void Stage::Impl::free_unread(Stash& stash, std::size_t index) const {
    const ExecutableLayer& layer = *layers[index];
    Kept& kept = stash.layers[index];
    if (outputs->is_given_output(index) &&
        (outputs->is_chain() || !outputs->copies_output(index))) {
        kept.inner.back().input = {};
    }
    if (!layer.weight_reads_gradient()) {
        free_output_gradient(stash, index);
    }
    if (!outputs->is_chain()) {
        return;
    }
    layer.free_unread(kept);
    if (layer.weight_reads_input()) {
        return;
    }
    if (index == 0) {
        free_received(stash);
    } else {
        stash.outputs.values[outputs->reads(index).front()] = {};
    }
}

void Stage::forward(int micro_batch,
                    std::span<Tensor> received,
                    const MicroBatch& data,
                    bool keep,
                    std::span<Tensor> sent) {
    Impl& impl = *impl_;
    Stash& stash = impl.stash(micro_batch);
    impl.take_in(stash, received, data);
    LayerCall call = impl.call(micro_batch, stash);
    call.data = &data;
    impl.run_forward(micro_batch, stash, call, keep, sent);
}

void Stage::evaluate(int micro_batch,
                     std::span<Tensor> received,
                     const MicroBatch& data,
                     std::span<Tensor> sent) {
    Impl& impl = *impl_;
    Stash& stash = impl.stash(micro_batch);
    impl.take_in(stash, received, data);
    LayerCall call = impl.call(micro_batch, stash);
    call.data = &data;
    call.evaluation = true;
    impl.run_forward(micro_batch, stash, call, false, sent);
    stash.clear();
}

void Stage::recompute(int micro_batch, const MicroBatch& data) {
    Impl& impl = *impl_;
    Stash& stash = impl.stash(micro_batch);
    PIPETWIN_EXPECT(stash.alive && !stash.is_whole, "R follows an F that kept its input only");
    LayerCall call = impl.call(micro_batch, stash);
    call.data = &data;
    call.recomputation = true;
    impl.run_forward(micro_batch, stash, call, true, impl.made_again);
    for (Tensor& tensor : impl.made_again) {  // what it was sent long ago
        tensor = {};
    }
}

/// B, or its half I.
void Stage::Impl::run_backward(int micro_batch,
                               std::span<Tensor> received,
                               std::span<Tensor> gradients,
                               Op op) {
    Stash& stash = this->stash(micro_batch);
    PIPETWIN_EXPECT(stash.is_whole, "B and I follow F or R");
    begin_gradients(stash, received, gradients);
    begin_action(false);
    LayerCall call = this->call(micro_batch, stash);
    for (std::size_t i = layers.size(); i-- > 0;) {
        compute_again(stash, call, i);
        call.after_part = part_teller(i);
        if (options.recomputes_core) {
            layers[i]->recompute_core(call, stash.layers[i]);
            tell(i, Op::Recompute);
        }
        backward_layer(call, stash, i, gradients, op);
        tell(i, Op::BackwardInput);
        if (op == Op::BackwardInput) {
            free_unread(stash, i);
            continue;
        }
        stash.layers[i].clear();
        free_output_gradient(stash, i);
        free_values_read(stash, i, true, true);
    }
    if (op == Op::Backward) {
        stash.clear();
    }
}

void Stage::backward(int micro_batch, std::span<Tensor> received, std::span<Tensor> gradients) {
    impl_->run_backward(micro_batch, received, gradients, Op::Backward);
}

void Stage::backward_input(int micro_batch,
                           std::span<Tensor> received,
                           std::span<Tensor> gradients) {
    impl_->run_backward(micro_batch, received, gradients, Op::BackwardInput);
}

void Stage::backward_weight(int micro_batch) {
    Impl& impl = *impl_;
    Stash& stash = impl.stash(micro_batch);
    PIPETWIN_EXPECT(stash.is_whole, "W follows I");
    LayerCall call = impl.call(micro_batch, stash);
    for (std::size_t i = impl.layers.size(); i-- > 0;) {
        call.after_part = impl.part_teller(i);
        impl.backward_layer(call, stash, i, {}, Op::BackwardWeight);
        impl.tell(i, Op::BackwardWeight);
        stash.layers[i].clear();
    }
    stash.clear();
}

}  // namespace pipetwin::exec
