// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/model/layer_spec.h"
#include "core/plan/layer_recompute.h"
#include "core/plan/routes.h"
#include "core/plan/stage_values.h"
#include "exec/device/tensor.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

/// What a stage does with the outputs that it makes, is sent and sends.
///
/// A message is one tensor, (1, numbers), in which the outputs lie one behind the other; the single
/// output of a chain has its own shape there. It lies in its receiver's memory, where layers read
/// it in place:
///
///     received   | a (rows, 8) | c (rows, 3) |      sent      | c (rows, 3) | e (rows, 5) |
///
/// `e` is written there by its layer; `c`, which the stage hands on, is copied. Gradients come back
/// in messages of the same form: the gradient of an output lies in the message to where the stage
/// got the output, or in that from where it was sent, or, inside of the stage, in a tensor of its
/// own.
///
/// A chain is a graph in which every stage has one message from the stage before and one to the
/// next. When its tensors come and go is counted by core/plan/stage_costs.h, that of models with
/// branches by core/plan/stage_tensors.h, which differ:
///
///                                of a chain                         with branches
///     message, its gradient      made by the layer that writes it   made before all layers
///     gradient that was sent     until the last layer's backward    until the stage's ends
///     a group computed again     keeps all inputs of its layers,    keeps what backwards read, and
///                                and makes its output anew          writes over what is there
///     I                          frees what no W reads              frees gradients alone
namespace pipetwin::exec {

/// Tensors that a stage keeps of one micro-batch, beside what its layers keep.
struct OutputStash {
    Tensor input;                   ///< of the model, in its first stage
    std::vector<Tensor> received;   ///< [message]
    std::vector<Tensor> values;     ///< [value]: outputs inside of the stage
    std::vector<Tensor> gradients;  ///< [value]: theirs, from the last reader on
    std::vector<Tensor>
        sent_gradients;  ///< [message]: of what was sent, while the stage needs them

    void clear();
    /// Calls f(tensor) for each of them.
    template <class F>
    void for_each(F&& f) {
        f(input);
        for (std::vector<Tensor>* const tensors :
             {&received, &values, &gradients, &sent_gradients}) {
            for (Tensor& tensor : *tensors) {
                f(tensor);
            }
        }
    }
};

/// The outputs of a stage and their places.
class StageOutputs {
  public:
    /// The place of an output in the messages of one direction.
    struct Place {
        std::size_t message = 0;
        std::int64_t begin = 0;  ///< numbers of one sample before it
    };
    /// An output that the stage makes or is sent, with all that hand it on.
    struct Value {
        int layer = 0;  ///< of the model: the root (core/plan/stage_values.h)
        SampleShape shape{};
        std::optional<Place> received{};
        std::optional<Place> sent{};
        bool is_inner = false;  ///< made here and read here: it has a tensor of its own
        int last_reader = -1;   ///< of the stage's layers, from 0; -1: none reads it
        /// The first whose backward reads it, its own among them, or that is computed again from
        /// it; -1: none.
        int first_keeper = -1;
        int last_in_group = -1;   ///< of the layers that are computed again with its own; -1: none
        bool is_rebuilt = false;  ///< these alone read it: F drops it, and it is made again
    };
    /// What one message holds of one sample.
    struct Message {
        std::int64_t numbers = 0;
        std::optional<std::size_t> value{};  ///< index of its value, in a chain
    };

    /// Layers `first` to `first + count - 1` of the model. `groups`: [layer of the stage] those
    /// that are computed again together with it, or nothing.
    StageOutputs(const Model& model,
                 int first,
                 int count,
                 const PieceMessages& messages,
                 std::span<const std::optional<LayerRange>> groups);

    /// True where tensors come and go as those of a chain.
    bool is_chain() const { return is_chain_; }
    /// [message] from other stages.
    const std::vector<Message>& received() const { return received_; }
    /// [message] to other stages.
    const std::vector<Message>& sent() const { return sent_; }

    const std::vector<Value>& values() const { return values_; }
    /// Indices of the values that a layer of the stage reads, in the order in which it names them;
    /// none for the model's first.
    const std::vector<std::size_t>& reads(std::size_t layer) const { return layers_[layer].reads; }
    /// True for a layer of the stage that makes nothing of its own.
    bool hands_on(std::size_t layer) const { return layers_[layer].hands_on; }
    /// True for a layer of the stage whose backward reads its output in place of its input.
    bool reads_output(std::size_t layer) const { return layers_[layer].reads_output; }
    /// True for a layer of the stage that ends with a rectifier, whose backward is given its
    /// output.
    bool is_given_output(std::size_t layer) const { return layers_[layer].is_given_output; }
    /// True for a layer of these that has a copy of its output, as no other layer of the stage
    /// keeps it.
    bool copies_output(std::size_t layer) const {
        return is_given_output(layer) && !reads_output(layer);
    }
    /// True if F keeps all that the stage receives, or the model's input, for the backward.
    bool keeps_received() const { return keeps_received_; }
    /// The last layer of the stage that reads any of it.
    std::size_t last_reader_of_received() const {
        return static_cast<std::size_t>(last_reader_of_received_);
    }
    /// Index of the value that a layer of the stage makes or hands on; none for the loss.
    std::optional<std::size_t> made_by(std::size_t layer) const { return layers_[layer].made; }
    /// Index of the value that a layer computes; none for the loss, and for a layer that hands on.
    std::optional<std::size_t> computed_by(std::size_t layer) const {
        return hands_on(layer) ? std::nullopt : made_by(layer);
    }

    /// True if a reader's gradient of a value is added to what is there already: a later stage's,
    /// or a later layer's.
    static bool adds(const Value& value, std::size_t layer) {
        return value.sent.has_value() || value.last_reader != static_cast<int>(layer);
    }

    /// A stash with room for the list of its tensors.
    OutputStash make_stash() const;

  private:
    struct OfLayer {
        std::vector<std::size_t> reads;
        std::optional<std::size_t> made;
        bool hands_on = false;
        bool reads_output = false;
        bool is_given_output = false;
    };
    using Groups = std::span<const std::optional<LayerRange>>;

    std::size_t value_of(const Model& model, int layer);
    std::vector<Message> place(const Model& model,
                               const std::vector<std::vector<int>>& layers_of,
                               std::optional<Place> Value::*end);
    std::vector<StageValues::Reader> readers(const Model& model, int root, Groups groups);
    bool chain_keeps_input(const Model& model, std::size_t layer, Groups groups) const;
    void find_readers(const Model& model, Value& value, Groups groups);

    StageValues lies_in_;
    int first_;
    bool is_chain_;
    std::vector<Value> values_;
    std::vector<OfLayer> layers_;  ///< [layer of the stage]
    bool keeps_received_ = false;
    int last_reader_of_received_ = 0;
    std::vector<Message> received_;
    std::vector<Message> sent_;
};

/// An output, or its gradient, in a message.
View view_in(Tensor& message,
             const StageOutputs::Place& place,
             const SampleShape& shape,
             int samples);

}  // namespace pipetwin::exec
