#include "core/plan/stage_tensors.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/model/inner_layers.h"

namespace pipetwin {

namespace {

/// Follows the outputs that a stage has to do with.
class Walk {
  public:
    Walk(const Model& model, const LayerSamples& samples, int first, int end)
        : model_(model), samples_(samples), first_(first), end_(end) {
        for (int layer = first; layer < end; ++layer) {
            for (const int source : model.inputs_of(layer)) {
                if (source < first) {
                    received_.insert(source);
                }
            }
        }
    }

    const std::set<int>& received() const { return received_; }

    Bytes output(int layer) const { return samples_[as_index(layer)].output; }

    /// A stage behind this one reads the output.
    bool is_sent(int layer) const {
        const std::vector<int>& readers = model_.readers_of(layer);
        return !readers.empty() && readers.back() >= end_;
    }

    /// The outputs that a layer keeps of those that it reads, as far as its kind tells.
    Bytes inputs_to_keep(int layer) const {
        Bytes sum = layer == 0 ? samples_.front().input : Bytes{};
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
        return keeps_inputs(layer) ? saved - inputs_to_keep(layer) : saved;
    }

    /// What W of a layer reads of the gradient of its output.
    Bytes read_by_weight(int layer) const {
        const LayerSample& sample = samples_[as_index(layer)];
        return sample.output - std::min(sample.unread_gradient, sample.output);
    }

    /// The last layer of the stage that reads the output; none: no layer of it does.
    std::optional<int> last_reader(int source) const {
        std::optional<int> last;
        for (const int reader : model_.readers_of(source)) {
            last = reader >= first_ && reader < end_ ? reader : last;
        }
        return last;
    }

    /// The first layer of the stage whose backward reads the output.
    std::optional<int> first_keeper(int source) const {
        for (const int reader : model_.readers_of(source)) {
            if (reader >= first_ && reader < end_ && keeps(reader, source)) {
                return reader;
            }
        }
        return std::nullopt;
    }

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

    bool keeps(int layer, int source) const {
        const std::vector<int>& operands = model_.operands_of(layer);
        const auto operand = std::ranges::find(operands, source) - operands.begin();
        return may_keep(layer, as_index(operand)) && keeps_inputs(layer);
    }

    const Model& model_;
    const LayerSamples& samples_;
    int first_;
    int end_;
    std::set<int> received_;  ///< layers before the stage whose outputs it reads
};

}  // namespace

StageTensors::StageTensors(const Model& model, const LayerSamples& samples, int first, int end)
    : first_(first), layers_(as_index(end - first)) {
    const Walk walk(model, samples, first, end);
    input_ = first == 0 ? samples.front().input : Bytes{};
    for (const int source : walk.received()) {
        input_ += walk.output(source);
        output_ += walk.is_sent(source) ? walk.output(source) : Bytes{};
    }
    for (int source = first; source < end; ++source) {
        const Bytes bytes = walk.output(source);
        const bool sent = walk.is_sent(source);
        output_ += sent ? bytes : Bytes{};
        const std::optional<int> last = walk.last_reader(source);
        if (!last) {
            continue;  // it is written where it is sent from, or is the loss
        }
        const std::optional<int> keeper = walk.first_keeper(source);
        kept_values_ += keeper ? bytes : Bytes{};
        const Bytes for_weight = sent ? Bytes{} : walk.read_by_weight(source);
        inner_gradients_ += for_weight;
        for (int layer = source; layer < end; ++layer) {
            OfLayer& at_work = layers_[as_index(layer - first)];
            at_work.in_drop += layer <= *last ? bytes : Bytes{};
            at_work.in_forward += layer <= *last || keeper ? bytes : Bytes{};
            at_work.gradients += layer <= *last && !sent ? bytes : Bytes{};
        }
        for (int layer = first; layer <= *last; ++layer) {
            layers_[as_index(layer - first)].gradients_that_stay += sent              ? Bytes{}
                                                                    : layer >= source ? bytes
                                                                                      : for_weight;
        }
        for (int layer = keeper.value_or(end); layer < end; ++layer) {
            layers_[as_index(layer - first)].in_backward += bytes;
        }
    }
    for (int layer = first; layer < end; ++layer) {
        OfLayer& own = layers_[as_index(layer - first)];
        own.kept = walk.kept_by(layer);
        own.gradients += walk.written_beside(layer);
        own.gradients_that_stay += walk.written_beside(layer);
    }
}

}  // namespace pipetwin
