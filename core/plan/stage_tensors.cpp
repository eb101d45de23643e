// SPDX-License-Identifier: Apache-2.0
#include "core/plan/stage_tensors.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/model/inner_layers.h"
#include "core/model/model.h"
#include "core/plan/stage_values.h"

namespace pipetwin {

/// Follows the outputs that a stage has to do with.
class StageTensors::Walk {
  public:
    Walk(const Model& model, const LayerSamples& samples, int first, int end)
        : model_(model), samples_(samples), values_(model, first, end), first_(first), end_(end) {
        for (int layer = first; layer < end; ++layer) {
            for (const int source : model.inputs_of(layer)) {
                if (source < first) {
                    received_.insert(source);
                }
            }
        }
    }

    const std::set<int>& received() const { return received_; }

    /// The layer has computed what lies in the tensor of its output.
    bool is_root(int layer) const { return !values_.hands_on(layer); }

    Bytes output(int layer) const { return samples_[as_index(layer)].output; }

    /// A stage behind this one reads the output.
    bool is_sent(int layer) const { return values_.is_sent(layer); }

    /// The outputs that a layer keeps of those that it reads, as far as its kind tells.
    Bytes inputs_to_keep(int layer) const {
        Bytes sum = layer == 0 && may_keep(0, 0) ? samples_.front().input : Bytes{};
        const std::vector<int>& operands = model_.operands_of(layer);
        for (std::size_t operand = 0; operand < operands.size(); ++operand) {
            sum += may_keep(layer, operand) ? output(operands[operand]) : Bytes{};
        }
        return sum;
    }

    /// What a layer saves has what it keeps of its inputs in it.
    bool keeps_inputs(int layer) const {
        const Bytes kept = inputs_to_keep(layer);
        return kept > Bytes{} && samples_[as_index(layer)].saved >= kept;
    }

    Bytes kept_by(int layer) const {
        const Bytes saved = samples_[as_index(layer)].saved;
        const Bytes copy = values_.copies_output(layer) ? output(layer) : Bytes{};
        return copy + (keeps_inputs(layer) ? saved - inputs_to_keep(layer) : saved);
    }

    /// What W of a layer reads of the gradient of its output.
    Bytes read_by_weight(int layer) const {
        const LayerSample& sample = samples_[as_index(layer)];
        return sample.output - std::min(sample.unread_gradient, sample.output);
    }

    /// The last layer of the stage that reads the output; none: no layer of it does.
    std::optional<int> last_reader(int source) { return last_reader_before(source, end_); }

    /// No layer behind `end` reads the output.
    bool is_read_before(int source, int end) const {
        return values_.last_reader(source).value_or(source) < end;
    }

    /// The last layer of the stage's before `end` that reads the output; none: no such layer does.
    std::optional<int> last_reader_before(int source, int end) {
        std::optional<int> last;
        for (const StageValues::Reader& reader : values_.readers(source)) {
            last = reader.layer < end ? reader.layer : last;
        }
        return last;
    }

    /// The first layer of the stage whose backward reads the output. `tensors` knows the groups.
    std::optional<int> first_keeper(int source, const StageTensors& tensors) {
        if (source >= first_ && values_.reads_output(source)) {
            return source;
        }
        for (const StageValues::Reader& reader : values_.readers(source)) {
            const std::optional<LayerRange>& group = tensors.group(reader.layer);
            if (keeps(reader) || (group && source < group->first)) {
                return reader.layer;
            }
        }
        return std::nullopt;
    }

    /// The first layer of the model keeps the model's input.
    bool keeps_model_input() const { return values_.keeps_model_input() && keeps_inputs(0); }

    /// What the backward of a layer writes before it is added to a gradient that is there: joins
    /// add to it at once, sequences with branches from their scratch, and of layers that are known
    /// by their costs nothing is known.
    Bytes written_beside(int layer) const {
        const LayerSpec& spec = model_.layer(layer).spec;
        if (spec.type == LayerType::Opaque ||
            takes_several(spec, model_.operands_of(layer).size())) {
            return {};
        }
        Bytes sum;
        for (const int source : model_.inputs_of(layer)) {
            sum += model_.readers_of(source).back() == layer ? Bytes{} : output(source);
        }
        return sum;
    }

  private:
    /// False for an output that the backward of a layer does not read.
    bool may_keep(int layer, std::size_t operand) const {
        const std::vector<bool>& keeps = model_.layer(layer).keeps_input;
        return keeps.empty() || keeps[operand];
    }

    /// True if the backward of a layer reads an output: its kind says so, and what it saves.
    bool keeps(const StageValues::Reader& reader) const {
        const bool is_rectifier = can_read_output(model_.layer(reader.layer).spec);
        return reader.keeps && (is_rectifier || keeps_inputs(reader.layer));
    }

    const Model& model_;
    const LayerSamples& samples_;
    StageValues values_;
    int first_;
    int end_;
    std::set<int> received_;  ///< layers before the stage whose outputs it reads
};

/// An output of the stage's layers.
struct StageTensors::Value {
    int source = 0;  ///< the layer that makes it
    Bytes bytes;
    bool is_sent = false;
    std::optional<int> last{};           ///< its last reader in the stage
    std::optional<int> keeper{};         ///< its first reader in the stage whose backward reads it
    Bytes for_weight{};                  ///< of its gradient, where that has a tensor of its own
    std::optional<int> last_in_group{};  ///< its last reader in its layer's group
    bool is_rebuilt = false;             ///< the layers of its group alone read it

    /// F keeps it for the backward.
    bool stays() const { return keeper.has_value() && !is_rebuilt; }
};

/// Sets the groups of all layers.
void StageTensors::find_groups(const LayerSamples& samples, int end) {
    Groups groups(samples, first_);
    for (int layer = first_; layer < end; ++layer) {
        const InGroup where = groups.next();
        if (where == InGroup::Alone) {
            continue;
        }
        const int begin = where == InGroup::Begins ? layer : at(layer - 1).group.value().first;
        for (int member = begin; member <= layer; ++member) {
            at(member).group = LayerRange{.first = begin, .end = layer + 1};
        }
    }
}

void StageTensors::count_forward(const Value& value) {
    const int end = first_ + static_cast<int>(layers_.size());
    for (int layer = value.source; layer < end; ++layer) {
        at(layer).in_drop += layer <= *value.last ? value.bytes : Bytes{};
        at(layer).in_forward += layer <= *value.last || value.stays() ? value.bytes : Bytes{};
    }
}

/// The gradient, where it has a tensor of its own.
void StageTensors::count_gradient(const Value& value) {
    for (int layer = first_; layer <= *value.last; ++layer) {
        OfLayer& at_work = at(layer);
        const bool is_open = layer >= value.source;
        at_work.gradients += is_open ? value.bytes : Bytes{};
        at_work.gradients_that_stay += is_open ? value.bytes : value.for_weight;
        if (layer < *value.last) {
            at_work.gradients_before += is_open ? value.bytes : Bytes{};
            at_work.gradients_that_stay_before += is_open ? value.bytes : value.for_weight;
        }
    }
}

/// The output in the backward.
void StageTensors::count_backward(const Value& value) {
    const int end = first_ + static_cast<int>(layers_.size());
    if (value.is_rebuilt) {
        at(value.source).rebuilt_value = value.bytes;
    }
    for (int layer = *value.keeper; layer < end; ++layer) {
        if (value.stays()) {
            at(layer).stays += value.bytes;
            at(layer).in_backward += value.bytes;
        } else if (layer < group(value.source)->end) {
            at(layer).in_backward += value.bytes;
        }
    }
}

/// The output while its group is computed again.
void StageTensors::count_recompute(const Value& value) {
    const int end = group(value.source)->end;
    const bool is_for_backward = value.is_rebuilt && value.keeper;
    const int last = is_for_backward ? end - 1 : value.last_in_group.value_or(value.source);
    for (int layer = value.source; layer <= last; ++layer) {
        at(layer).made_again += value.stays() && *value.keeper < end ? Bytes{} : value.bytes;
        at(layer).made_again_beside += value.stays() ? Bytes{} : value.bytes;
    }
}

StageTensors::StageTensors(const Model& model, const LayerSamples& samples, int first, int end)
    : first_(first), layers_(as_index(end - first)) {
    Walk walk(model, samples, first, end);
    find_groups(samples, end);
    input_ = first == 0 ? samples.front().input : Bytes{};
    bool keeps_input = first == 0 && walk.keeps_model_input();
    int last_reader = first;  // of all that is received
    for (const int source : walk.received()) {
        input_ += walk.output(source);
        output_ += walk.is_sent(source) ? walk.output(source) : Bytes{};
        keeps_input = keeps_input || walk.first_keeper(source, *this);
        last_reader = std::max(last_reader, walk.last_reader(source).value_or(first));
    }
    kept_input_ = keeps_input ? input_ : Bytes{};
    for (int layer = first; layer < end; ++layer) {
        at(layer).input_in_forward = layer <= last_reader ? input_ : kept_input_;
    }
    for (int source = first; source < end; ++source) {
        if (!walk.is_root(source)) {
            continue;  // it is a part of what it hands on
        }
        Value value{.source = source,
                    .bytes = walk.output(source),
                    .is_sent = walk.is_sent(source),
                    .last = walk.last_reader(source),
                    .keeper = walk.first_keeper(source, *this)};
        value.for_weight = value.is_sent ? Bytes{} : walk.read_by_weight(source);
        output_ += value.is_sent ? value.bytes : Bytes{};
        if (const std::optional<LayerRange>& own = group(source)) {
            value.last_in_group = walk.last_reader_before(source, own->end);
            value.is_rebuilt = walk.is_read_before(source, own->end);
            count_recompute(value);
        }
        if (!value.last) {
            continue;  // it is written where it is sent from, or is the loss
        }
        kept_values_ += value.stays() ? value.bytes : Bytes{};
        inner_gradients_ += value.for_weight;
        count_forward(value);
        if (!value.is_sent) {
            count_gradient(value);
        }
        if (value.keeper) {
            count_backward(value);
        }
    }
    for (int layer = first; layer < end; ++layer) {
        OfLayer& own = at(layer);
        own.kept = walk.kept_by(layer);
        own.gradients += walk.written_beside(layer);
        own.gradients_that_stay += walk.written_beside(layer);
    }
}

Bytes kept_inside(const Model& model, const LayerSamples& samples, int layer) {
    const StageTensors alone(model, samples, layer, layer + 1);
    const bool has_copy =
        reads_output(model, layer) && ends_with_rectifier(model.layer(layer).spec);
    return alone.kept_by(layer) - (has_copy ? samples[as_index(layer)].output : Bytes{});
}

}  // namespace pipetwin
