#include "exec/layers/sequence.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "exec/layers/activations.h"
#include "exec/layers/cross_entropy.h"
#include "exec/layers/linear.h"
#include "exec/layers/make_layer.h"

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
                   NumberFormat format)
    : Sequence(make_chain(inner, input, format), format) {
    for (std::size_t i = 0; i < inner.size(); ++i) {
        if (!inner[i].name.empty()) {
            names_[i] = inner[i].name;
        }
    }
}

Sequence::Sequence(std::vector<std::unique_ptr<ExecutableLayer>> layers, NumberFormat format)
    : ExecutableLayer(layers.front()->input(), layers.back()->output(), format),
      layers_(std::move(layers)) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        names_.push_back(fmt::format("{}", i));
    }
    join_gelus();
    if (layers_.size() > 1) {
        loss_ = dynamic_cast<CrossEntropy*>(layers_.back().get());
    }
}

void Sequence::join_gelus() {
    gelus_.resize(layers_.size());
    for (std::size_t i = 1; i + 1 < layers_.size(); ++i) {
        const auto* const gelu = dynamic_cast<const Gelu*>(layers_[i].get());
        auto* const before = dynamic_cast<Linear*>(layers_[i - 1].get());
        auto* const behind = dynamic_cast<Linear*>(layers_[i + 1].get());
        if (gelu != nullptr && before != nullptr && behind != nullptr && before->can_take_gelu() &&
            behind->can_take_gelu_gradient()) {
            gelus_[i] = {.form = gelu->form(), .before = before, .behind = behind};
        }
    }
}

Bytes Sequence::kept_bytes(int samples) const {
    Bytes sum;
    for (const auto& layer : layers_) {
        sum += layer->saved_bytes(samples);
    }
    return sum - layers_.front()->input_bytes(samples);
}

Bytes Sequence::workspace_bytes(int samples) const {
    Bytes largest;
    for (const auto& layer : layers_) {
        largest = std::max(largest, layer->workspace_bytes(samples));
    }
    return largest;
}

Bytes Sequence::split_bytes(int samples) const {
    Bytes sum = layers_.front()->split_bytes(samples);
    for (std::size_t i = 1; i < layers_.size(); ++i) {
        sum += layers_[i]->split_bytes(samples);
        if (layers_[i]->weight_reads_input()) {
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
        if (!layers_[i - 1]->weight_reads_gradient()) {
            sum += layers_[i]->input_bytes(samples);
        }
    }
    return sum;
}

void Sequence::free_unread(Kept& kept) const {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        layers_[i]->free_unread(kept.inner[i]);
        if (i > 0 && !layers_[i - 1]->weight_reads_gradient()) {
            Tensor& unread =
                layers_[i]->weight_reads_input() ? kept.inner[i - 1].gradient : kept.inner[i].input;
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

std::vector<Parameter*> Sequence::parameters() {
    std::vector<Parameter*> all;
    for (const auto& layer : layers_) {
        std::ranges::copy(layer->parameters(), std::back_inserter(all));
    }
    return all;
}

bool Sequence::has_parameters() const {
    return std::ranges::any_of(layers_, [](const auto& layer) { return layer->has_parameters(); });
}

Bytes Sequence::state_bytes() const {
    Bytes sum;
    for (const auto& layer : layers_) {
        sum += layer->state_bytes();
    }
    return sum;
}

std::vector<Parameter*> Sequence::state() {
    std::vector<Parameter*> all;
    for (const auto& layer : layers_) {
        std::ranges::copy(layer->state(), std::back_inserter(all));
    }
    return all;
}

std::vector<BatchMoments*> Sequence::batch_moments() {
    std::vector<BatchMoments*> all;
    for (const auto& layer : layers_) {
        std::ranges::copy(layer->batch_moments(), std::back_inserter(all));
    }
    return all;
}

void Sequence::forget_batch() {
    for (const auto& layer : layers_) {
        layer->forget_batch();
    }
}

void Sequence::commit_batch(const Kernels& kernels) {
    for (const auto& layer : layers_) {
        layer->commit_batch(kernels);
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

void Sequence::backward(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    for (std::size_t i = layers_.size(); i-- > 1;) {
        const View place(kept.inner[i].input);  // dx_i takes the place of x_i
        if (has_gradient(i)) {
            call.done(Op::BackwardInput);
            dy = place;
            continue;
        }
        if (const std::optional<JoinedGelu>& gelu = gelus_[i - 1]) {
            Tensor& h = kept.inner[i - 1].input;
            gelu->behind->backward(call, place, dy, {.form = gelu->form, .h = h, .dh = place});
            std::swap(h, kept.inner[i].input);
            dy = place;
            --i;
            continue;
        }
        layers_[i]->backward(call, kept.inner[i], place, dy, {}, place);
        dy = place;
    }
    layers_.front()->backward(call, kept.inner.front(), x, dy, skip, dx);
}

void Sequence::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    for (std::size_t i = layers_.size(); i-- > 1;) {
        View place(kept.inner[i].input);
        if (has_gradient(i)) {
            call.done(Op::BackwardInput);
            dy = place;
            continue;
        }
        if (layers_[i]->weight_reads_input()) {
            // W needs x_i, and the layer before it needs dx_i.
            Tensor& gradient = kept.inner[i - 1].gradient;
            gradient = call.arena.allocate(real(), place.rows, place.columns, MemoryKind::Stash);
            place = gradient;
        }
        if (const std::optional<JoinedGelu>& gelu = gelus_[i - 1]) {
            Tensor& h = kept.inner[i - 1].input;
            gelu->behind->backward_input(call, dy, {.form = gelu->form, .h = h, .dh = place});
            std::swap(h, kept.inner[i - 1].gradient);
            dy = place;
            --i;
            continue;
        }
        layers_[i]->backward_input(call, kept.inner[i], kept.inner[i].input, dy, {}, place);
        dy = place;
    }
    layers_.front()->backward_input(call, kept.inner.front(), x, dy, skip, dx);
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

}  // namespace pipetwin::exec
