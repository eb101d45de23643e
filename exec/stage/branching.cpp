// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/stage/stage_impl.h"

/// What a stage does where layers read outputs from anywhere before them: which tensors it makes
/// and when they go stands in core/plan/stage_tensors.h, and is counted there.
namespace pipetwin::exec {

void Stage::Impl::set_up_branches(const Model& model) {
    branches.emplace(model, place.first_layer, place.layer_count, *options.messages, blocks);
    made_for_group.reserve(layers.size());
    for (std::size_t index = 0; index < layers.size(); ++index) {
        copies_output[index] = branches->copies_output(index);
        // The model's first layer reads its input alone.
        joining.push_back(branches->reads(index).empty()
                              ? nullptr
                              : dynamic_cast<JoiningLayer*>(layers[index].get()));
    }
    made_again.resize(branches->sent_count());
    for (Stash& stash : stashes) {
        stash.branches = branches->make_stash();
    }
}

/// Refuses a message of a wrong size or type.
void Stage::Impl::check_message(const Tensor& message,
                                std::int64_t numbers,
                                std::string_view what) const {
    if (message.empty() || message.dtype() != options.format.real || message.size() != numbers) {
        throw Error(ErrorKind::BadInput,
                    fmt::format("stage {}", place.stage),
                    fmt::format("{} is {}, expected {}",
                                what,
                                shape_text(message.dtype(), message.rows(), message.columns()),
                                shape_text(options.format.real, 1, numbers)));
    }
}

/// The stage's input as a part of its stash.
void Stage::Impl::take_in(Stash& stash, std::span<Tensor> received, const MicroBatch& data) {
    PIPETWIN_EXPECT(!stash.alive, "F of a micro-batch comes once");
    PIPETWIN_EXPECT(received.size() == branches->received_count(), "all messages of a stage");
    if (first()) {
        stash.input = load(data);
    }
    for (std::size_t message = 0; message < received.size(); ++message) {
        check_message(
            received[message], branches->received_numbers(message, data.samples), "a message");
        received[message].move_to(MemoryKind::Stash);
        stash.branches.received[message] = std::move(received[message]);
    }
    begin(stash, data);
}

/// Where an output lies: in the message that brought it, in a tensor of its own, or in the message
/// that it is sent with.
View Stage::Impl::value_view(Stash& stash, std::size_t index, std::span<Tensor> sent) const {
    const StageBranches::Value& value = branches->values()[index];
    if (value.received) {
        Tensor& message = stash.branches.received[value.received->message];
        return message.empty() ? View()
                               : view_in(message, *value.received, value.shape, stash.samples);
    }
    if (value.is_inner) {
        return stash.branches.values[index];
    }
    return view_in(sent[value.sent->message], *value.sent, value.shape, stash.samples);
}

/// Where the gradient of an output lies: in the message to where the output came from, in the one
/// that came from where it was sent, or in a tensor of its own.
View Stage::Impl::gradient_view(Stash& stash,
                                std::size_t index,
                                std::span<Tensor> gradients) const {
    const StageBranches::Value& value = branches->values()[index];
    if (value.received) {
        return view_in(
            gradients[value.received->message], *value.received, value.shape, stash.samples);
    }
    if (value.sent) {
        return view_in(stash.branches.sent_gradients[value.sent->message],
                       *value.sent,
                       value.shape,
                       stash.samples);
    }
    return stash.branches.gradients[index];
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
    const std::vector<std::size_t>& reads = branches->reads(index);
    if (reads.empty()) {
        return stash.input.empty() ? kept_view(index, stash.input, stash.samples)
                                   : ConstView(stash.input);
    }
    const SampleShape& shape = layers[index]->input();
    return in_shape(value_view(stash, reads.front(), {}), shape, boundary(shape, stash.samples));
}

/// What the backward of a layer that reads one output reads.
ConstView Stage::Impl::backward_reads(Stash& stash, std::size_t index) const {
    return branches->reads_output(index) && !is_given_output[index]
               ? ConstView(value_view(stash, branches->made_by(index).value(), {}))
               : layer_input(stash, index);
}

/// What a layer that takes several outputs reads; empty where nothing needs it any more.
void Stage::Impl::find_operands(Stash& stash, std::size_t index) {
    operands.clear();
    const std::vector<std::size_t>& reads = branches->reads(index);
    for (std::size_t operand = 0; operand < reads.size(); ++operand) {
        const View found = value_view(stash, reads[operand], {});
        const SampleShape& shape = joining[index]->inputs()[operand];
        operands.emplace_back(
            found.empty() ? View() : in_shape(found, shape, boundary(shape, stash.samples)));
    }
}

void Stage::Impl::show_branch(std::size_t index, View output) const {
    if (watch && !output.empty()) {
        show(index,
             Tensor::placed(
                 device.memory(), output.data, output.dtype, output.rows, output.columns));
    }
}

/// Room for an output inside of the stage.
void Stage::Impl::allocate_value(Stash& stash, std::size_t index) {
    stash.branches.values[index] =
        allocate_matrix(stash, branches->values()[index].shape, MemoryKind::Stash);
}

/// The forward of one layer into `y`.
void Stage::Impl::compute_layer(
    LayerCall& call, Stash& stash, std::size_t index, View y, Kept& kept) {
    if (joining[index] != nullptr) {
        find_operands(stash, index);
        joining[index]->join(call, operands, y, kept);
    } else {
        layers[index]->forward(call, layer_input(stash, index), {}, y, kept);
    }
}

/// The forward of one layer, with its output where it belongs.
void Stage::Impl::forward_layer(
    LayerCall& call, Stash& stash, std::size_t index, std::span<Tensor> sent, Kept& kept) {
    if (branches->hands_on(index)) {
        return;
    }
    View y;
    if (const std::optional<std::size_t> made = branches->made_by(index)) {
        if (branches->values()[*made].is_inner) {
            allocate_value(stash, *made);
        }
        y = value_view(stash, *made, sent);
    }
    compute_layer(call, stash, index, y, kept);
    copy_output(index, y, kept);
    show_branch(index, y);
}

/// The forward of the group of blocks that ends with a layer, from what F has kept. Outputs that
/// are there still are written over with their own bits.
void Stage::Impl::compute_branches_again(Stash& stash, const LayerCall& base, std::size_t last) {
    if (!blocks[last] || blocks[last]->end != static_cast<int>(last) + 1) {
        return;
    }
    LayerCall call = base;
    call.recomputation = true;
    made_for_group.clear();  // where an earlier one failed
    for (std::size_t i = as_index(blocks[last]->first); i <= last; ++i) {
        if (branches->hands_on(i)) {
            continue;
        }
        const std::size_t made = branches->made_by(i).value();  // the loss is in no block
        const StageBranches::Value& value = branches->values()[made];
        if (stash.branches.values[made].empty()) {
            allocate_value(stash, made);
            if (!value.is_rebuilt || value.first_keeper < 0) {
                made_for_group.push_back(made);
            }
        }
        compute_layer(call, stash, i, stash.branches.values[made], stash.layers[i]);
        copy_output(i, stash.branches.values[made], stash.layers[i]);
        tell(i, Op::Forward);
        free_made_for_group(stash, i);
    }
}

/// Frees the outputs that no layer of the group reads behind this one, and no backward.
void Stage::Impl::free_made_for_group(Stash& stash, std::size_t index) {
    std::erase_if(made_for_group, [&](std::size_t made) {
        if (branches->values()[made].last_in_group > static_cast<int>(index)) {
            return false;
        }
        stash.branches.values[made] = {};
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
void Stage::Impl::run_branches(
    int micro_batch, Stash& stash, const LayerCall& base, bool keep, std::span<Tensor> sent) {
    LayerCall call = base;
    if (!call.recomputation) {  // which has left its loss already
        want_sums(call, micro_batch);
    }
    for (std::size_t message = 0; message < sent.size(); ++message) {
        sent[message] = arena.allocate(options.format.real,
                                       1,
                                       branches->sent_numbers(message, stash.samples),
                                       MemoryKind::Boundary);
    }
    const auto put_into_message = [&](std::size_t index) {
        const StageBranches::Value& value = branches->values()[index];
        copy(call.kernels,
             value_view(stash, index, {}),
             view_in(sent[value.sent->message], *value.sent, value.shape, stash.samples));
    };
    for (std::size_t index = 0; index < branches->values().size(); ++index) {
        const StageBranches::Value& value = branches->values()[index];
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
        const std::optional<std::size_t> made = computed_by(i);
        if (made && branches->values()[*made].is_inner && branches->values()[*made].sent) {
            put_into_message(*made);
        }
        tell(i, Op::Forward);
        if (!keep || blocks[i]) {
            kept[i].clear();
        }
        free_values_read(stash, i, false, keep);
        if (keep && i == branches->last_reader_of_received()) {
            free_received(stash);
        }
    }
    stash.is_whole = keep;
    if (!call.recomputation) {
        take_scales(call, micro_batch);
    }
}

/// Frees what the stage was sent, or the model's input, if no backward reads any of it.
void Stage::Impl::free_received(Stash& stash) const {
    if (branches->keeps_received() || (first() && options.input_gradient)) {
        return;
    }
    stash.input = {};
    for (Tensor& message : stash.branches.received) {
        message = {};
    }
}

/// The value that a layer computes; none for the loss, and for a layer that hands on.
std::optional<std::size_t> Stage::Impl::computed_by(std::size_t index) const {
    return branches->hands_on(index) ? std::nullopt : branches->made_by(index);
}

/// Frees the outputs inside of the stage that nothing reads behind this layer's forward, or behind
/// its backward.
void Stage::Impl::free_values_read(Stash& stash,
                                   std::size_t index,
                                   bool backward,
                                   bool keep) const {
    for (const std::size_t read : branches->reads(index)) {
        const StageBranches::Value& value = branches->values()[read];
        const bool stays = keep && value.first_keeper >= 0 && !value.is_rebuilt;
        const int last_use = backward ? value.first_keeper : value.last_reader;
        if (last_use == static_cast<int>(index) && (backward || !stays)) {
            stash.branches.values[read] = {};
        }
    }
    if (backward && branches->reads_output(index)) {
        stash.branches.values[branches->made_by(index).value()] = {};
    }
}

/// Room for the gradients of all that was received, with those that later stages have sent of what
/// was handed on.
void Stage::Impl::begin_gradients(Stash& stash,
                                  std::span<Tensor> received,
                                  std::span<Tensor> gradients) {
    PIPETWIN_EXPECT(received.size() == branches->sent_count(), "all gradients of a stage");
    for (std::size_t message = 0; message < received.size(); ++message) {
        check_message(received[message],
                      branches->sent_numbers(message, stash.samples),
                      "the gradient of a message");
        stash.branches.sent_gradients[message] = std::move(received[message]);
    }
    for (std::size_t message = 0; message < branches->received_count(); ++message) {
        gradients[message] = arena.allocate(options.format.real,
                                            1,
                                            branches->received_numbers(message, stash.samples),
                                            MemoryKind::Boundary);
    }
    for (std::size_t index = 0; index < branches->values().size(); ++index) {
        const StageBranches::Value& value = branches->values()[index];
        if (value.received && value.sent) {
            copy(*kernels,
                 view_in(stash.branches.sent_gradients[value.sent->message],
                         *value.sent,
                         value.shape,
                         stash.samples),
                 gradient_view(stash, index, gradients));
        }
    }
}

Tensor Stage::Impl::allocate_matrix(const Stash& stash, const SampleShape& shape, MemoryKind kind) {
    const std::int64_t rows = std::int64_t{stash.samples} * shape.positions;
    return arena.allocate(options.format.real, rows, shape.width, kind);
}

ConstView Stage::Impl::output_gradient(Stash& stash,
                                       std::size_t index,
                                       std::span<Tensor> gradients) const {
    const std::optional<std::size_t> made = branches->made_by(index);
    return made ? ConstView(gradient_view(stash, *made, gradients)) : ConstView();
}

/// Where a layer puts what it adds to the gradient of an output, or writes of it. The last reader
/// of an output writes its gradient, and each one before it adds its own: the sum has one order,
/// whatever the cuts.
JoiningLayer::InputGradient Stage::Impl::begin_input_gradient(Stash& stash,
                                                              std::size_t index,
                                                              std::size_t value,
                                                              const SampleShape& shape,
                                                              std::span<Tensor> gradients) {
    const StageBranches::Value& read = branches->values()[value];
    const bool adds = StageBranches::adds(read, index);
    if (!read.received && !adds) {
        stash.branches.gradients[value] = allocate_matrix(stash, read.shape, MemoryKind::Stash);
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
    const std::vector<std::size_t>& reads = branches->reads(index);
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
    if (branches->hands_on(index)) {
        return;
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
    if (branches->reads_output(index)) {
        give_output(index, value_view(stash, branches->made_by(index).value(), {}), kept);
    }
    const auto compute = [&](View dx) {
        if (op == Op::Backward) {
            layer.backward(call, kept, x, dy, {}, dx);
        } else {
            layer.backward_input(call, kept, x, dy, {}, dx);
        }
    };
    const std::vector<std::size_t>& reads = branches->reads(index);
    if (reads.empty()) {  // the model's first layer
        if (!gradients.empty() && !layer.input().token_ids) {
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
    impl.run_branches(micro_batch, stash, call, keep, sent);
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
    impl.run_branches(micro_batch, stash, call, false, sent);
    stash.clear();
}

void Stage::backward(int micro_batch, std::span<Tensor> received, std::span<Tensor> gradients) {
    Impl& impl = *impl_;
    Stash& stash = impl.stash(micro_batch);
    PIPETWIN_EXPECT(stash.is_whole, "B follows F or R");
    impl.begin_gradients(stash, received, gradients);
    LayerCall call = impl.call(micro_batch, stash);
    for (std::size_t i = impl.layers.size(); i-- > 0;) {
        impl.compute_branches_again(stash, call, i);
        call.after_part = impl.part_teller(i);
        impl.backward_layer(call, stash, i, gradients, Op::Backward);
        impl.tell(i, Op::BackwardInput);
        stash.layers[i].clear();
        if (const std::optional<std::size_t> made = impl.computed_by(i)) {
            stash.branches.gradients[*made] = {};
        }
        impl.free_values_read(stash, i, true, true);
    }
    stash.clear();
}

void Stage::backward_input(int micro_batch,
                           std::span<Tensor> received,
                           std::span<Tensor> gradients) {
    Impl& impl = *impl_;
    Stash& stash = impl.stash(micro_batch);
    PIPETWIN_EXPECT(stash.is_whole, "I follows F or R");
    impl.begin_gradients(stash, received, gradients);
    LayerCall call = impl.call(micro_batch, stash);
    for (std::size_t i = impl.layers.size(); i-- > 0;) {
        impl.compute_branches_again(stash, call, i);
        call.after_part = impl.part_teller(i);
        impl.backward_layer(call, stash, i, gradients, Op::BackwardInput);
        impl.tell(i, Op::BackwardInput);
        if (impl.is_given_output[i] && !impl.copies_output[i]) {
            stash.layers[i].inner.back().input = {};
        }
        const std::optional<std::size_t> made = impl.computed_by(i);
        if (made && !impl.layers[i]->weight_reads_gradient()) {
            stash.branches.gradients[*made] = {};
        }
    }
}

Stage::Boundary Stage::received_message(std::size_t message, int samples) const {
    return {.type = impl_->options.format.real,
            .rows = 1,
            .columns = impl_->branches->received_numbers(message, samples)};
}

Stage::Boundary Stage::sent_message(std::size_t message, int samples) const {
    return {.type = impl_->options.format.real,
            .rows = 1,
            .columns = impl_->branches->sent_numbers(message, samples)};
}

}  // namespace pipetwin::exec
