// SPDX-License-Identifier: Apache-2.0
#include "exec/stage/branches.h"

#include <algorithm>
#include <utility>

#include "core/base/as_index.h"

namespace pipetwin::exec {

void BranchStash::clear() {
    for (std::vector<Tensor>* const tensors : {&received, &values, &gradients, &sent_gradients}) {
        for (Tensor& tensor : *tensors) {
            tensor = {};
        }
    }
}

StageBranches::StageBranches(const Model& model,
                             int first,
                             int count,
                             const PieceMessages& messages,
                             std::span<const std::optional<LayerRange>> groups)
    : lies_in_(model, first, first + count),
      first_(first),
      reads_(as_index(count)),
      hands_on_(as_index(count)),
      reads_output_(as_index(count)),
      made_by_(as_index(count)) {
    const auto numbers_of = [&](int layer) {
        const SampleShape& shape = model.layer(layer).output;
        return std::int64_t{shape.positions} * shape.width;
    };
    const auto place = [&](const std::vector<std::vector<int>>& layers_of,
                           std::vector<std::int64_t>& numbers,
                           std::optional<Place> Value::*end) {
        for (std::size_t message = 0; message < layers_of.size(); ++message) {
            std::int64_t begin = 0;
            for (const int layer : layers_of[message]) {
                values_[value_of(model, layer)].*end = Place{.message = message, .begin = begin};
                begin += numbers_of(layer);
            }
            numbers.push_back(begin);
        }
    };
    place(messages.received, received_numbers_, &Value::received);
    place(messages.sent, sent_numbers_, &Value::sent);
    for (int index = 0; index < count; ++index) {
        const int layer = first + index;
        for (const int source : model.operands_of(layer)) {
            reads_[as_index(index)].push_back(value_of(model, source));
        }
        hands_on_[as_index(index)] = lies_in_.hands_on(layer);
        reads_output_[as_index(index)] = lies_in_.reads_output(layer);
        if (!model.readers_of(layer).empty()) {
            made_by_[as_index(index)] = value_of(model, layer);
        }
    }
    for (Value& value : values_) {
        find_readers(value, groups);
        if (value.received) {
            keeps_received_ = keeps_received_ || value.first_keeper >= 0;
            last_reader_of_received_ = std::max(last_reader_of_received_, value.last_reader);
        }
    }
    if (first == 0) {
        keeps_received_ = lies_in_.keeps_model_input();
    }
}

/// Finds out which layers of the stage read a value, and until when.
void StageBranches::find_readers(Value& value, std::span<const std::optional<LayerRange>> groups) {
    const int made = value.layer - first_;  // negative: it is received
    const bool has_group = made >= 0 && groups[as_index(made)].has_value();
    const int group_end = has_group ? groups[as_index(made)]->end : -1;  // of its own
    value.first_keeper = made >= 0 && reads_output_[as_index(made)] ? made : -1;
    for (const StageValues::Reader& reader : lies_in_.readers(value.layer)) {
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
std::size_t StageBranches::value_of(const Model& model, int layer) {
    const int root = lies_in_.root(layer);
    const auto found = std::ranges::find(values_, root, &Value::layer);
    if (found != values_.end()) {
        return static_cast<std::size_t>(found - values_.begin());
    }
    values_.push_back({.layer = root, .shape = model.layer(root).output});
    return values_.size() - 1;
}

BranchStash StageBranches::make_stash() const {
    BranchStash stash;
    stash.received.resize(received_count());
    stash.values.resize(values_.size());
    stash.gradients.resize(values_.size());
    stash.sent_gradients.resize(sent_count());
    return stash;
}

View view_in(Tensor& message,
             const StageBranches::Place& place,
             const SampleShape& shape,
             int samples) {
    const std::int64_t begin = place.begin * samples;
    return {static_cast<std::byte*>(message.data()) + as_index(begin) * size_of(message.dtype()),
            message.dtype(),
            std::int64_t{samples} * shape.positions,
            shape.width};
}

}  // namespace pipetwin::exec
