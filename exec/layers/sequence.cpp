// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/sequence.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/inner_layers.h"
#include "core/model/layer_spec.h"
#include "exec/layers/linear.h"
#include "exec/layers/make_layer.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {
namespace {

std::vector<std::unique_ptr<ExecutableLayer>> make_chain(const std::vector<LayerSpec>& specs,
                                                         SampleShape shape,
                                                         NumberFormat format) {
    std::vector<std::unique_ptr<ExecutableLayer>> layers;
    for (const LayerSpec& spec : specs) {
        layers.push_back(make_layer(spec, shape, format));
        shape = layers.back()->output();
    }
    PIPETWIN_EXPECT(!layers.empty(), "a sequence has at least one layer");
    return layers;
}

}  // namespace

Sequence::Sequence(const std::vector<LayerSpec>& inner,
                   const SampleShape& input,
                   NumberFormat format,
                   bool reads_output)
    : Sequence(make_chain(inner, input, format), format, reads_output) {
    for (std::size_t i = 0; i < inner.size(); ++i) {
        if (!inner[i].name.empty()) {
            names_[i] = inner[i].name;
        }
    }
}

Sequence::Sequence(std::vector<std::unique_ptr<ExecutableLayer>> layers,
                   NumberFormat format,
                   bool reads_output)
    : ExecutableLayer(layers.front()->input(), layers.back()->output(), format),
      layers_(std::move(layers)),
      is_given_output_(reads_output) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        names_.push_back(fmt::format("{}", i));
        contain(*layers_[i]);
    }
    join_gelus();
    if (layers_.size() > 1 && layers_.back()->has_gradient_in_forward()) {
        loss_ = layers_.back().get();
    }
    find_what_backwards_read();
    find_rooms();
}

/// Notes which inner tensors a backward reads, by the rules with which predictions count them
/// (inputs_read_again in core/model/inner_layers.h).
void Sequence::find_what_backwards_read() {
    reads_input_.resize(layers_.size());
    reads_output_.assign(layers_.size(), false);
    for (std::size_t i = layers_.size(); i-- > 0;) {
        const bool is_before_loss = i + 1 < layers_.size() && layers_[i + 1]->output().width == 0;
        reads_output_[i] = layers_[i]->may_read_output() && i + 1 < layers_.size() &&
                           reads_input_[i + 1] && !is_before_loss;
        const bool is_given = is_given_output_ && i + 1 == layers_.size();
        reads_input_[i] = !reads_output_[i] && !is_given && layers_[i]->backward_reads_input();
    }
}

/// A value goes from one room to the other, as its layer may read the one while it writes the
/// other; a rectifier that reads its output writes its gradient over the one that it reads.
void Sequence::find_rooms() {
    const auto take = [this](std::size_t room, std::size_t layer) {
        const SampleShape& shape = layers_[layer]->input();
        rooms_.numbers.resize(std::max(rooms_.end(), room + 1));
        std::int64_t& numbers = rooms_.numbers[room];
        numbers = std::max(numbers, std::int64_t{shape.positions} * shape.width);
        return room;
    };
    forward_room_.resize(layers_.size());
    for (std::size_t i = 1; i < layers_.size(); ++i) {
        if (!reads_input_[i]) {
            const bool other = i > 1 && !reads_input_[i - 1] && forward_room_[i - 1] == 0;
            forward_room_[i] = take(other ? 1 : 0, i);
        }
    }
    for (const Half half : {Whole, InputHalf}) {
        std::vector<std::size_t>& room = gradient_room_.at(half);
        room.resize(layers_.size());
        for (std::size_t i = layers_.size(); i-- > 1;) {
            if (place_of(i, half) == Place::Room) {
                const bool from_room =
                    i + 1 < layers_.size() && place_of(i + 1, half) == Place::Room;
                const std::size_t before = from_room ? room[i + 1] : 1;
                room[i] = take(from_room && reads_output_[i] ? before : 1 - before, i);
            }
        }
    }
}

/// Where dx_i lies, i > 0.
Sequence::Place Sequence::place_of(std::size_t layer, Half half) const {
    if (reads_output_[layer - 1]) {
        return layer == 1 ? Place::OfWhole : Place::Room;
    }
    if (half == InputHalf && !has_gradient(layer) &&
        (layers_[layer]->weight_reads_input() ||
         (!reads_input_[layer] && layers_[layer - 1]->weight_reads_gradient()))) {
        return Place::Own;
    }
    return reads_input_[layer] ? Place::OfInput : Place::Room;
}

void Sequence::join_gelus() {
    gelus_.resize(layers_.size());
    for (std::size_t i = 1; i + 1 < layers_.size(); ++i) {
        const std::optional<GeluForm> form = layers_[i]->gelu();
        auto* const before = dynamic_cast<Linear*>(layers_[i - 1].get());
        auto* const behind = dynamic_cast<Linear*>(layers_[i + 1].get());
        if (form && before != nullptr && behind != nullptr && before->can_take_gelu() &&
            behind->can_take_gelu_gradient()) {
            gelus_[i] = {.form = *form, .before = before, .behind = behind};
        }
    }
}

Bytes Sequence::kept_bytes(int samples) const {
    Bytes sum = layers_.front()->kept_bytes(samples);
    for (std::size_t i = 1; i < layers_.size(); ++i) {
        sum += layers_[i]->kept_bytes(samples);
        sum += reads_input_[i] ? layers_[i]->input_bytes(samples) : Bytes{};
    }
    return sum;
}

Bytes Sequence::inner_workspace(int samples) const {
    Bytes largest;
    for (const auto& layer : layers_) {
        largest = std::max(largest, layer->workspace_bytes(samples));
    }
    return largest;
}

/// [scratch of the layers inside | rooms]
Bytes Sequence::workspace_bytes(int samples) const {
    const Bytes inner = inner_workspace(samples);
    return rooms_.end() == 0
               ? inner
               : Rooms::aligned(inner) + rooms_.bytes(samples, std::int64_t(size_of(real())));
}

Bytes Sequence::split_bytes(int samples) const {
    Bytes sum = layers_.front()->split_bytes(samples);
    for (std::size_t i = 1; i < layers_.size(); ++i) {
        sum += layers_[i]->split_bytes(samples);
        if (place_of(i, InputHalf) == Place::Own) {
            sum += layers_[i]->input_bytes(samples);
        }
    }
    return sum;
}

// Between f_i-1 and f_i lie x_i and dx_i, in one place where no W reads x_i.
Bytes Sequence::unread_bytes(int samples) const {
    Bytes sum = layers_.front()->unread_bytes(samples);
    for (std::size_t i = 1; i < layers_.size(); ++i) {
        sum += layers_[i]->unread_bytes(samples);
        if (is_input_unread(i) || is_gradient_unread(i)) {
            sum += layers_[i]->input_bytes(samples);
        }
    }
    return sum;
}

/// True for a dx_i in memory that the sequence keeps, if no W reads it.
bool Sequence::is_gradient_unread(std::size_t layer) const {
    const Place place = place_of(layer, InputHalf);
    return (place == Place::Own || place == Place::OfInput) &&
           !layers_[layer - 1]->weight_reads_gradient();
}

/// True for an x_i that is kept until I, if no W reads it.
bool Sequence::is_input_unread(std::size_t layer) const {
    const Place place = place_of(layer, InputHalf);
    return (place == Place::OfWhole || place == Place::Room) && reads_input_[layer] &&
           !layers_[layer]->weight_reads_input();
}

void Sequence::free_unread(Kept& kept) const {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        layers_[i]->free_unread(kept.inner[i]);
        if (i == 0) {
            continue;
        }
        if (is_input_unread(i)) {
            kept.inner[i].input = {};
        }
        if (is_gradient_unread(i)) {
            Tensor& unread = place_of(i, InputHalf) == Place::Own ? kept.inner[i - 1].gradient
                                                                  : kept.inner[i].input;
            unread = {};
        }
    }
}

void Sequence::create_parameters(ParameterMaker& maker,
                                 const std::string& path,
                                 bool ends_residual) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const bool last = i + 1 == layers_.size();
        layers_[i]->create_parameters(maker, path + "." + names_[i], ends_residual && last);
    }
}

View Sequence::room(const LayerCall& call, std::size_t room, std::size_t layer) const {
    const SampleShape& shape = layers_[layer]->input();
    const std::int64_t begin =
        Rooms::aligned(inner_workspace(call.samples)).count +
        rooms_.offset(room, call.samples, std::int64_t(size_of(real()))).count;
    return {
        call.workspace + begin, real(), std::int64_t{call.samples} * shape.positions, shape.width};
}

/// An x_i that nothing reads.
ConstView Sequence::without_numbers(const LayerCall& call, std::size_t layer) const {
    const SampleShape& shape = layers_[layer]->input();
    return {nullptr, real(), std::int64_t{call.samples} * shape.positions, shape.width};
}

/// What the backward of f_i reads, i > 0.
ConstView Sequence::read_by_backward(const LayerCall& call,
                                     const Kept& kept,
                                     std::size_t layer) const {
    if (reads_output_[layer]) {
        return kept.inner[layer + 1].input;
    }
    const bool is_given = is_given_output_ && layer + 1 == layers_.size();
    return reads_input_[layer] || is_given ? ConstView(kept.inner[layer].input)
                                           : without_numbers(call, layer);
}

/// Room for dx_i, i > 0. `dx`: of the whole sequence.
View Sequence::begin_gradient(
    LayerCall& call, Kept& kept, std::size_t layer, Half half, View dx) const {
    switch (place_of(layer, half)) {
        case Place::OfInput:
            return kept.inner[layer].input;
        case Place::Own: {
            const SampleShape& shape = layers_[layer]->input();
            Tensor& own = kept.inner[layer - 1].gradient;
            own = call.arena.allocate(real(),
                                      std::int64_t{call.samples} * shape.positions,
                                      shape.width,
                                      MemoryKind::Stash);
            return own;
        }
        case Place::OfWhole:
            return dx;
        case Place::Room:
            break;
    }
    return room(call, gradient_room_.at(half)[layer], layer);
}

Bytes Sequence::core_bytes(int samples) const {
    Bytes sum;
    for (const auto& layer : layers_) {
        sum += layer->core_bytes(samples);
    }
    return sum;
}

void Sequence::forget_core(Kept& kept) const {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        layers_[i]->forget_core(kept.inner[i]);
    }
}

void Sequence::recompute_core(LayerCall& call, Kept& kept) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        layers_[i]->recompute_core(call, kept.inner[i]);
    }
}

void Sequence::forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) {
    kept.inner.resize(layers_.size());
    const auto output_of = [&](std::size_t i) {
        const SampleShape& shape = layers_[i]->output();
        const std::int64_t rows = std::int64_t{call.samples} * shape.positions;
        return call.arena.allocate(real(), rows, shape.width, MemoryKind::Stash);
    };
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const bool last = i + 1 == layers_.size();
        if (has_gradient(i) && call.keeps && !call.evaluation) {
            loss_->forward_with_gradient(call, kept.inner[i].input, kept.inner[i]);
            continue;
        }
        if (last) {
            layers_[i]->forward(call, x, skip, y, kept.inner[i]);
            continue;
        }
        if (!reads_input_[i + 1]) {
            const View next = room(call, forward_room_[i + 1], i + 1);
            layers_[i]->forward(call, x, {}, next, kept.inner[i]);
            x = next;
            continue;
        }
        Tensor next = output_of(i);
        if (const std::optional<JoinedGelu>& gelu = gelus_[i + 1]) {
            Tensor behind = output_of(i + 1);
            gelu->before->forward_with_gelu(call, gelu->form, x, next, behind);
            kept.inner[i + 1].input = std::move(next);
            next = std::move(behind);
            ++i;
        } else {
            layers_[i]->forward(call, x, {}, next, kept.inner[i]);
        }
        kept.inner[i + 1].input = std::move(next);
        x = kept.inner[i + 1].input;
    }
}

/// B, or its half I.
void Sequence::run_backward(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx, Half half) {
    for (std::size_t i = layers_.size(); i-- > 1;) {
        if (has_gradient(i)) {
            call.done(Op::BackwardInput);
            dy = kept.inner[i].input;
            continue;
        }
        const View place = begin_gradient(call, kept, i, half, dx);
        if (const std::optional<JoinedGelu>& gelu = gelus_[i - 1]) {
            Tensor& h = kept.inner[i - 1].input;
            const Linear::GeluBefore before{.form = gelu->form, .h = h, .dh = place};
            if (half == Whole) {
                gelu->behind->backward(call, place, dy, before);
                std::swap(h, kept.inner[i].input);
            } else {
                gelu->behind->backward_input(call, dy, before);
                std::swap(h, kept.inner[i - 1].gradient);
            }
            dy = place;
            --i;
            continue;
        }
        const ConstView read = read_by_backward(call, kept, i);
        backward_of(*layers_[i], half == Whole, call, kept.inner[i], {read, dy, {}, place});
        dy = place;
    }
    const ConstView read = reads_output_.front() ? ConstView(kept.inner[1].input) : x;
    backward_of(*layers_.front(), half == Whole, call, kept.inner.front(), {read, dy, skip, dx});
}

void Sequence::backward(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    run_backward(call, kept, x, dy, skip, dx, Whole);
}

void Sequence::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    run_backward(call, kept, x, dy, skip, dx, InputHalf);
}

void Sequence::backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) {
    for (std::size_t i = layers_.size(); i-- > 0;) {
        const ConstView own_input = i == 0 ? x : ConstView(kept.inner[i].input);
        layers_[i]->backward_weight(call, kept.inner[i], own_input, dy);
        if (i > 0) {
            // Where backward_input had no memory for the gradient, it stands in the place of x_i.
            dy = kept.inner[i - 1].gradient.empty() ? own_input
                                                    : ConstView(kept.inner[i - 1].gradient);
        }
    }
}

namespace {

Made sequence_or_graph(const LayerSpec& spec, const SampleShape& input, NumberFormat format) {
    return has_branches(spec) ? make_graph(spec, {input}, format)
                              : std::make_unique<Sequence>(spec.inner, input, format);
}

}  // namespace

const LayerMaker make_sequence = sequence_or_graph;

}  // namespace pipetwin::exec
