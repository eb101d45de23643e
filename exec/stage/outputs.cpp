// SPDX-License-Identifier: Apache-2.0
#include "exec/stage/outputs.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/model/inner_layers.h"
#include "core/model/model.h"

namespace pipetwin::exec {

void OutputStash::clear() {
    for_each([](Tensor& tensor) { tensor = {}; });
}

StageOutputs::StageOutputs(
    const Model& model, int first, int count, const PieceMessages& messages, Groups groups)
    : lies_in_(model, first, first + count),
      first_(first),
      is_chain_(model.is_chain()),
      layers_(as_index(count)) {
    received_ = place(model, messages.received, &Value::received);
    sent_ = place(model, messages.sent, &Value::sent);
    for (std::size_t index = 0; index < layers_.size(); ++index) {
        const int layer = first + static_cast<int>(index);
        OfLayer& own = layers_[index];
        for (const int source : model.operands_of(layer)) {
            own.reads.push_back(value_of(model, source));
        }
        if (!model.readers_of(layer).empty() ||
            (is_chain_ && model.layer(layer).output.width > 0)) {
            own.made = value_of(model, layer);
        }
        own.is_given_output =
            pipetwin::reads_output(model, layer) && ends_with_rectifier(model.layer(layer).spec);
        if (is_chain_) {
            own.reads_output = pipetwin::reads_output(model, layer) && !groups[index] &&
                               index + 1 < layers_.size() && !groups[index + 1];
        } else {
            own.hands_on = lies_in_.hands_on(layer);
            own.reads_output = lies_in_.reads_output(layer);
        }
    }
    for (Value& value : values_) {
        find_readers(model, value, groups);
        if (value.received) {
            keeps_received_ = keeps_received_ || value.first_keeper >= 0;
            last_reader_of_received_ = std::max(last_reader_of_received_, value.last_reader);
        }
    }
    if (first == 0) {
        keeps_received_ =
            is_chain_ ? chain_keeps_input(model, 0, groups) : lies_in_.keeps_model_input();
    }
}

/// Gives the outputs their places in the messages of one direction.
std::vector<StageOutputs::Message> StageOutputs::place(
    const Model& model,
    const std::vector<std::vector<int>>& layers_of,
    std::optional<Place> Value::*end) {
    std::vector<Message> messages(layers_of.size());
    for (std::size_t number = 0; number < messages.size(); ++number) {
        Message& message = messages[number];
        for (const int layer : layers_of[number]) {
            const std::size_t index = value_of(model, layer);
            Value& value = values_[index];
            value.*end = Place{.message = number, .begin = message.numbers};
            message.numbers += std::int64_t{value.shape.positions} * value.shape.width;
            message.value = is_chain_ ? std::optional(index) : std::nullopt;
        }
    }
    return messages;
}

/// True for a layer of a chain whose input stays for its backward. The layers of a group that is
/// computed again have them all while they are there.
bool StageOutputs::chain_keeps_input(const Model& model, std::size_t layer, Groups groups) const {
    const int number = first_ + static_cast<int>(layer);
    const Layer& own = model.layer(number);
    return own.keeps_input.front() || groups[layer] ||
           (pipetwin::reads_output(model, number) && !layers_[layer].reads_output &&
            !ends_with_rectifier(own.spec));
}

/// The layers of the stage that read a value.
std::vector<StageValues::Reader> StageOutputs::readers(const Model& model,
                                                       int root,
                                                       Groups groups) {
    if (!is_chain_) {
        return lies_in_.readers(root);
    }
    const int index = root + 1 - first_;
    if (index >= static_cast<int>(layers_.size())) {
        return {};
    }
    return {{.layer = root + 1, .keeps = chain_keeps_input(model, as_index(index), groups)}};
}

/// Finds out which layers of the stage read a value, and until when.
void StageOutputs::find_readers(const Model& model, Value& value, Groups groups) {
    const int made = value.layer - first_;  // negative: it is received
    const bool has_group = made >= 0 && groups[as_index(made)].has_value();
    const int group_end = has_group ? groups[as_index(made)]->end : -1;  // of its own
    value.first_keeper = made >= 0 && reads_output(as_index(made)) ? made : -1;
    for (const StageValues::Reader& reader : readers(model, value.layer, groups)) {
        const int index = reader.layer - first_;
        const std::optional<LayerRange>& group = groups[as_index(index)];
        value.is_inner = made >= 0;
        value.last_reader = index;
        if (value.first_keeper < 0 && (reader.keeps || (group && made < group->first))) {
            value.first_keeper = index;
        }
        if (index < group_end) {
            value.last_in_group = index;
        }
    }
    value.is_rebuilt = has_group && !value.sent && value.last_reader < group_end;
}

/// The index of the value of a layer's output, which may be new.
std::size_t StageOutputs::value_of(const Model& model, int layer) {
    const int root = is_chain_ ? layer : lies_in_.root(layer);
    const auto found = std::ranges::find(values_, root, &Value::layer);
    if (found != values_.end()) {
        return static_cast<std::size_t>(found - values_.begin());
    }
    values_.push_back({.layer = root, .shape = model.layer(root).output});
    return values_.size() - 1;
}

OutputStash StageOutputs::make_stash() const {
    OutputStash stash;
    stash.received.resize(received_.size());
    stash.values.resize(values_.size());
    stash.gradients.resize(values_.size());
    stash.sent_gradients.resize(sent_.size());
    return stash;
}

View view_in(Tensor& message,
             const StageOutputs::Place& place,
             const SampleShape& shape,
             int samples) {
    const std::int64_t begin = place.begin * samples;
    return {static_cast<std::byte*>(message.data()) + as_index(begin) * size_of(message.dtype()),
            message.dtype(),
            std::int64_t{samples} * shape.positions,
            shape.width};
}

}  // namespace pipetwin::exec
