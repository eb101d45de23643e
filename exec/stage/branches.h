// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/model/model.h"
#include "core/plan/layer_recompute.h"
#include "core/plan/routes.h"
#include "core/plan/stage_values.h"
#include "exec/device/tensor.h"

/// What a stage of a model with branches does with the outputs that it makes, is sent and sends.
///
/// A message is one tensor, (1, numbers), in which the outputs lie one behind the other. It lies in
/// its receiver's memory, where layers read it in place:
///
///     received   | a (rows, 8) | c (rows, 3) |      sent      | c (rows, 3) | e (rows, 5) |
///
/// `e` is written there by its layer; `c`, which the stage hands on, is copied. Gradients come back
/// in messages of the same form: the gradient of an output lies in the message to where the stage
/// got the output, or in that from where it was sent, or, inside of the stage, in a tensor of its
/// own.
namespace pipetwin::exec {

/// Tensors that a stage with branches keeps of one micro-batch, beside what its layers keep.
struct BranchStash {
    std::vector<Tensor> received;   ///< [message]
    std::vector<Tensor> values;     ///< [value]: outputs inside of the stage
    std::vector<Tensor> gradients;  ///< [value]: theirs, from the last reader on
    std::vector<Tensor>
        sent_gradients;  ///< [message]: of what was sent, while the stage needs them

    void clear();
};

/// The outputs of a stage and their places.
class StageBranches {
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

    /// Layers `first` to `first + count - 1` of the model. `groups`: [layer of the stage] those
    /// that are computed again together with it, or nothing.
    StageBranches(const Model& model,
                  int first,
                  int count,
                  const PieceMessages& messages,
                  std::span<const std::optional<LayerRange>> groups);

    std::size_t received_count() const { return received_numbers_.size(); }
    std::size_t sent_count() const { return sent_numbers_.size(); }
    /// Numbers of a message for `samples` samples.
    std::int64_t received_numbers(std::size_t message, int samples) const {
        return received_numbers_.at(message) * samples;
    }
    std::int64_t sent_numbers(std::size_t message, int samples) const {
        return sent_numbers_.at(message) * samples;
    }

    const std::vector<Value>& values() const { return values_; }
    /// Indices of the values that a layer of the stage reads, in the order in which it names them;
    /// none for the model's first.
    const std::vector<std::size_t>& reads(std::size_t layer) const { return reads_[layer]; }
    /// True for a layer of the stage that makes nothing of its own.
    bool hands_on(std::size_t layer) const { return hands_on_[layer]; }
    /// True for a layer of the stage whose backward reads its output in place of its input.
    bool reads_output(std::size_t layer) const { return reads_output_[layer]; }
    /// True for a layer of the stage that has a copy of its output for its backward.
    bool copies_output(std::size_t layer) const {
        return lies_in_.copies_output(first_ + static_cast<int>(layer));
    }
    /// True if F keeps all that the stage receives, or the model's input, for the backward.
    bool keeps_received() const { return keeps_received_; }
    /// The last layer of the stage that reads any of it.
    std::size_t last_reader_of_received() const {
        return static_cast<std::size_t>(last_reader_of_received_);
    }
    /// Index of the value that a layer of the stage makes or hands on; none for the loss.
    std::optional<std::size_t> made_by(std::size_t layer) const { return made_by_[layer]; }

    /// True if a reader's gradient of a value is added to what is there already: a later stage's,
    /// or a later layer's.
    static bool adds(const Value& value, std::size_t layer) {
        return value.sent.has_value() || value.last_reader != static_cast<int>(layer);
    }

    /// A stash with room for the list of its tensors.
    BranchStash make_stash() const;

  private:
    std::size_t value_of(const Model& model, int layer);
    void find_readers(Value& value, std::span<const std::optional<LayerRange>> groups);

    StageValues lies_in_;
    int first_;
    std::vector<Value> values_;
    std::vector<std::vector<std::size_t>> reads_;
    std::vector<bool> hands_on_;
    std::vector<bool> reads_output_;
    bool keeps_received_ = false;
    int last_reader_of_received_ = 0;
    std::vector<std::optional<std::size_t>> made_by_;
    std::vector<std::int64_t> received_numbers_;  ///< [message]: of one sample
    std::vector<std::int64_t> sent_numbers_;
};

/// An output, or its gradient, in a message.
View view_in(Tensor& message,
             const StageBranches::Place& place,
             const SampleShape& shape,
             int samples);

}  // namespace pipetwin::exec
