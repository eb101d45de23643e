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
    : reads_(as_index(count)), made_by_(as_index(count)) {
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
        const std::optional<LayerRange>& group = groups[as_index(index)];
        const std::vector<int>& operands = model.operands_of(layer);
        for (std::size_t operand = 0; operand < operands.size(); ++operand) {
            const int source = operands[operand];
            const bool keeps = model.layer(layer).keeps_input[operand];
            const std::size_t read = value_of(model, source);
            Value& value = values_[read];
            reads_[as_index(index)].push_back(read);
            value.is_inner = source >= first;
            value.last_reader = index;
            const bool stays_for_it = keeps || (group && source < first + group->first);
            value.first_keeper =
                stays_for_it && value.first_keeper < 0 ? index : value.first_keeper;
            if (group && source >= first + group->first) {
                value.last_in_group = index;
            }
        }
        if (!model.readers_of(layer).empty()) {
            made_by_[as_index(index)] = value_of(model, layer);
        }
    }
    find_rebuilt(groups);
}

/// Finds the outputs that no layer outside of their own layer's group reads.
void StageBranches::find_rebuilt(std::span<const std::optional<LayerRange>> groups) {
    for (std::size_t layer = 0; layer < made_by_.size(); ++layer) {
        if (groups[layer] && made_by_[layer]) {
            Value& value = values_[*made_by_[layer]];
            value.is_rebuilt = !value.sent && value.last_reader < groups[layer]->end;
        }
    }
}

/// The index of the value of a layer's output, which may be new.
std::size_t StageBranches::value_of(const Model& model, int layer) {
    const auto found = std::ranges::find(values_, layer, &Value::layer);
    if (found != values_.end()) {
        return static_cast<std::size_t>(found - values_.begin());
    }
    values_.push_back({.layer = layer, .shape = model.layer(layer).output});
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
