// SPDX-License-Identifier: Apache-2.0
#include "core/plan/stage_costs.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "core/base/as_index.h"
#include "core/costs/devices/number_type.h"
#include "core/model/inner_layers.h"
#include "core/model/model.h"
#include "core/plan/layer_recompute.h"
#include "core/plan/plan.h"
#include "core/plan/stage_tensors.h"
#include "core/plan/tensor_parallel.h"

namespace pipetwin {

namespace {

/// [layer]: bytes of the gradients that it hands to the layers it reads.
std::vector<Bytes> input_gradients(const Model& model, const LayerSamples& samples) {
    std::vector<Bytes> gradients;
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        gradients.push_back(input_gradient(model, samples, layer));
    }
    return gradients;
}

/// Adds a layer's times, and what messages take of them.
void add_times(StageCost& cost, const LayerSample& layer) {
    cost.forward += layer.forward;
    cost.backward_input += layer.backward_input;
    cost.backward_weight += layer.backward_weight;
    cost.backward += layer.backward();
    const LayerMessages& messages = layer.messages;
    cost.forward_messages.shards += messages.gather + messages.forward_wait;
    cost.forward_messages.tensor += messages.forward_sums;
    cost.backward_input_messages.shards += messages.gather;
    cost.backward_input_messages.tensor += messages.backward_sums;
    if (messages.beside_forward > Duration{}) {
        cost.forward_messages.overlaps.push_back(
            {.computation = layer.forward - messages.gather - messages.forward_wait,
             .sums = messages.forward_sums,
             .messages = messages.beside_forward,
             .lane = messages.forward_lane});
    }
    ActionMessages& waits = layer.backward_weight > Duration{} ? cost.backward_weight_messages
                                                               : cost.backward_input_messages;
    waits.shards += messages.backward_wait;
    if (messages.beside_backward > Duration{}) {
        waits.overlaps.push_back(
            {.computation = layer.backward() - messages.gather - messages.backward_wait,
             .sums = messages.backward_sums,
             .messages = messages.beside_backward,
             .lane = messages.backward_lane});
    }
}

/// Layers `first` to `end` - 1 as one stage. `input` and `output` of the cost are set before.
class StageSum {
  public:
    StageSum(const Model& model,
             const LayerSamples& samples,
             const std::vector<Bytes>& input_gradients,
             int first,
             int end)
        : model_(model),
          samples_(samples),
          input_gradients_(input_gradients),
          first_(first),
          end_(end) {}

    void add_to(StageCost& cost) const {
        Bytes inputs;  // of groups
        Groups groups(samples_, first_);
        for (int layer = first_; layer < end_; ++layer) {
            inputs += kept_input(layer, groups.next(), cost.input);
            add_times(cost, sample(layer));
            cost.saved += saved(layer);
            cost.split += sample(layer).split + sample(layer).rebuilt_for_weight;
            cost.input_saved += sample(layer).input_saved + kept_in_place_of_output(layer);
            if (layer > first_) {
                cost.split += read_by_weight(layer - 1, input_gradient(layer));
            }
        }
        cost.unread_gradient = std::min(sample(end_ - 1).unread_gradient, cost.output);
        cost.backward_input_peak = backward_input_peak(
            cost.input, cost.output, cost.saved + cost.split - cost.input_saved);
        cost.saved += inputs;
        // The input of a group is a part of what is computed again, too.
        const Bytes in_split = std::min(cost.split, inputs);
        cost.split -= in_split;
        cost.input_saved += inputs - in_split;
        cost.recompute = cost.forward;
        cost.forward_peak = forward_peak(cost.input);
        cost.forward_drop_peak = forward_drop_peak(cost.input);
        const BackwardPeak peak = backward_peak(cost.input);
        cost.backward_peak = peak.all;
        cost.backward_again = std::max(Bytes{}, peak.again - cost.output);
    }

  private:
    const LayerSample& sample(int layer) const { return samples_[as_index(layer)]; }
    Bytes input_gradient(int layer) const { return input_gradients_[as_index(layer)]; }
    /// The input of a layer whose backward does not read it. While a block is there again, its
    /// layers have their inputs.
    Bytes unkept(int layer) const {
        const std::vector<bool>& keeps = model_.layer(layer).keeps_input;
        if (keeps.empty() || keeps.front() || sample(layer).rebuilt_blocks > 0) {
            return {};
        }
        return layer == 0 ? samples_.front().input : sample(layer - 1).output;
    }

    /// The backward of a layer reads what the next one keeps.
    bool reads_output(int layer) const {
        return pipetwin::reads_output(model_, layer) && sample(layer).rebuilt_blocks == 0 &&
               layer + 1 < end_ && sample(layer + 1).rebuilt_blocks == 0;
    }

    /// The input of a rectifier that would read its output, where this stage does not keep that;
    /// for a sequence that ends with one a copy of its output. That of a block is `rebuilt`.
    Bytes kept_in_place_of_output(int layer) const {
        const bool does = pipetwin::reads_output(model_, layer) && !reads_output(layer) &&
                          sample(layer).rebuilt_blocks == 0;
        return does ? sample(layer).output : Bytes{};
    }

    Bytes saved(int layer) const { return sample(layer).saved + kept_in_place_of_output(layer); }

    /// The input of a layer, where it goes when its forward has read it.
    Bytes passing_input(int layer) const {
        return can_read_output(model_.layer(layer).spec)
                   ? unkept(layer) - kept_in_place_of_output(layer)
                   : unkept(layer);
    }

    /// Most held during a backward, and the part of it that only the backward holds, where the
    /// layer that reaches it is computed again.
    struct BackwardPeak {
        Bytes all;
        Bytes again;
    };

    /// Input that the stage keeps beside what its layers save: that of a layer that begins a group
    /// of several blocks, and the stage's own where it begins inside of a block.
    Bytes kept_input(int layer, InGroup where, Bytes stage_input) const {
        if (where != InGroup::Begins) {
            return {};
        }
        if (layer == first_ && first_ > 0 && sample(first_ - 1).rebuilt_with_next) {
            return stage_input;
        }
        return sample(layer).rebuilt_blocks > 1
                   ? std::min(input_gradient(layer), sample(layer).rebuilt)
                   : Bytes{};
    }

    /// What a layer computes again, without an input that is kept.
    Bytes rebuilt(int layer, Bytes kept) const {
        return sample(layer).rebuilt - std::min(kept, sample(layer).rebuilt);
    }

    /// What W of a layer reads of the gradient of its output.
    Bytes read_by_weight(int layer, Bytes gradient) const {
        return gradient - std::min(sample(layer).unread_gradient, gradient);
    }

    /// A layer that drops its input, or what it computes again, has it all for a moment:
    ///
    ///     layer 0   [kept 0 | dropped 0 | output]
    ///     layer 1   [kept 0] [kept 1 | dropped 1 | output]
    Bytes forward_peak(Bytes stage_input) const {
        Bytes peak;
        Bytes kept;
        bool drops = false;
        Groups groups(samples_, first_);
        for (int layer = first_; layer < end_; ++layer) {
            const Bytes input = kept_input(layer, groups.next(), stage_input);
            kept += input + saved(layer);
            const Bytes dropped = rebuilt(layer, input) + passing_input(layer);
            drops = drops || dropped > Bytes{};
            peak = std::max(peak, kept + dropped + sample(layer).output);
        }
        return drops ? peak : Bytes{};
    }

    /// A forward that keeps the stage's input only holds one layer at a time beside it:
    ///
    ///     layer 0   [input of the stage = in its saved | saved | output]
    ///     layer 1   [input of the stage] [saved | output]
    ///     layer 2   [input of the stage] [saved | output]
    Bytes forward_drop_peak(Bytes stage_input) const {
        Bytes peak;
        for (int layer = first_; layer < end_; ++layer) {
            const Bytes beside = layer == first_ ? Bytes{} : stage_input;
            peak =
                std::max(peak, beside + saved(layer) + passing_input(layer) + sample(layer).output);
        }
        return peak;
    }

    /// Backward goes from the last layer to the first and gives back `saved` on its way:
    ///
    ///     layer 2   [saved 0] [saved 1] [saved 2] [gradients of 2's output and input]
    ///     layer 1   [saved 0] [saved 1] [gradients of 1's output and input]
    ///     layer 0   [saved 0] [gradients of 0's output and input]
    ///
    /// What a group of blocks computes again is there from its last layer's backward on, and goes
    /// layer by layer with their backwards.
    BackwardPeak backward_peak(Bytes stage_input) const {
        BackwardPeak peak;
        Bytes saved_up_to_here;
        Bytes again;  // of this group
        Groups groups(samples_, first_);
        for (int layer = first_; layer < end_; ++layer) {
            const InGroup where = groups.next();
            const Bytes input = kept_input(layer, where, stage_input);
            saved_up_to_here += input + saved(layer);
            again = (where == InGroup::GoesOn ? again : Bytes{}) + rebuilt(layer, input);
            // The output is made again, too, before there is a gradient of the input.
            const Bytes output = again > Bytes{} ? sample(layer).output : Bytes{};
            const Bytes gradients = sample(layer).output + std::max(input_gradient(layer), output);
            const Bytes read = reads_output(layer) ? sample(layer).output : Bytes{};
            if (saved_up_to_here + again + gradients + read > peak.all) {
                peak.all = saved_up_to_here + again + gradients + read;
                peak.again = again > Bytes{} ? again + gradients : Bytes{};
            }
        }
        return peak;
    }

    /// I goes from the last layer to the first, and leaves behind what W reads; `for_weight`: of
    /// all layers, without the gradient of the stage's output.
    ///
    ///     layer 2   [saved 0] [saved 1] [saved 2 | split 2] [gradients of 2's output and input]
    ///     layer 1   [saved 0] [saved 1 | split 1] [gradients of 1's output and input] [for W 2]
    ///     layer 0   [saved 0 | split 0] [gradients of 0's output and input] [for W 1] [for W 2]
    ///
    /// What a group of blocks computes again is there from its last layer's I on.
    Bytes backward_input_peak(Bytes stage_input, Bytes stage_output, Bytes for_weight) const {
        Bytes peak;
        Bytes saved_up_to_here;
        Bytes again;      // of this group
        Bytes group_end;  // held when the layers of the group so far have been computed again
        Bytes behind = for_weight + read_by_weight(end_ - 1, stage_output);  // left by later layers
        Groups groups(samples_, first_);
        for (int layer = first_; layer < end_; ++layer) {
            const InGroup where = groups.next();
            if (where != InGroup::GoesOn) {
                peak = std::max(peak, group_end);
                again = {};
            }
            const LayerSample& own = sample(layer);
            const Bytes input = kept_input(layer, where, stage_input);
            saved_up_to_here += input + saved(layer);
            again += rebuilt(layer, input);
            const Bytes gradient = layer + 1 < end_ ? input_gradient(layer + 1) : stage_output;
            behind -= own.saved + own.rebuilt_for_weight + own.split - own.input_saved;
            behind -= read_by_weight(layer, gradient);
            const Bytes held = saved_up_to_here + again + gradient + behind;
            peak = std::max(peak, held + own.split + input_gradient(layer));
            group_end = again > Bytes{} ? held + own.output : Bytes{};
        }
        return std::max(peak, group_end);
    }

    const Model& model_;
    const LayerSamples& samples_;
    const std::vector<Bytes>& input_gradients_;
    int first_;
    int end_;
};

/// Layers `first` to `end` - 1 of a model with branches as one stage: what is there at each layer's
/// time stands in core/plan/stage_tensors.h. I gives nothing back of what F kept or it made again.
class BranchSum {
  public:
    BranchSum(const LayerSamples& samples, const StageTensors& tensors, int first, int end)
        : samples_(samples),
          tensors_(tensors),
          first_(first),
          end_(end),
          messages_(tensors.input() + tensors.output()),
          message_gradients_(first == 0 ? tensors.output() : messages_) {}

    void add_to(StageCost& cost) const {
        cost.input = tensors_.input();
        cost.output = tensors_.output();
        cost.saved = tensors_.kept_input() + tensors_.kept_values();
        cost.split = tensors_.inner_gradients();
        for (int layer = first_; layer < end_; ++layer) {
            const LayerSample& own = sample(layer);
            cost.saved += kept(layer);
            cost.split += for_input_half(layer) + tensors_.rebuilt_value(layer);
            cost.split += tensors_.group(layer) ? rebuilt(layer) : Bytes{};
            add_times(cost, own);
        }
        cost.recompute = cost.forward;
        add_forward_peaks(cost);
        add_backward_peak(cost);
        cost.backward_input_peak = input_half_peak(cost.saved);
    }

  private:
    const LayerSample& sample(int layer) const { return samples_[as_index(layer)]; }

    /// What a layer computes again of what it keeps inside.
    Bytes rebuilt(int layer) const {
        const Bytes all = tensors_.kept_by(layer);
        return tensors_.group(layer) ? all : std::min(sample(layer).rebuilt, all);
    }

    /// What F keeps inside of a layer.
    Bytes kept(int layer) const { return tensors_.kept_by(layer) - rebuilt(layer); }

    /// What I adds inside of a layer beside what its group makes again.
    Bytes for_input_half(int layer) const {
        const LayerSample& own = sample(layer);
        return own.split + (tensors_.group(layer) ? Bytes{} : own.rebuilt_for_weight);
    }

    void add_forward_peaks(StageCost& cost) const {
        Bytes kept_so_far;
        for (int layer = first_; layer < end_; ++layer) {
            kept_so_far += kept(layer);
            cost.forward_peak =
                std::max(cost.forward_peak,
                         tensors_.output() + tensors_.input_in_forward(layer) + kept_so_far +
                             rebuilt(layer) + tensors_.values_in_forward(layer));
            cost.forward_drop_peak =
                std::max(cost.forward_drop_peak,
                         messages_ + tensors_.kept_by(layer) + tensors_.values_in_drop(layer));
        }
    }

    /// Bytes that are there at one moment of a backward, beside what F has kept inside of layers.
    struct Moment {
        Bytes values;     ///< inner outputs
        Bytes again;      ///< part of them that was made again
        Bytes gradients;  ///< outside of messages
    };

    void add_backward_peak(StageCost& cost) const {
        Bytes kept_so_far;
        Bytes again;  // inside of the layers of this group, or of this layer alone
        const auto raise = [&](const Moment& at) {
            const Bytes gradients = message_gradients_ + at.gradients;
            const Bytes held = tensors_.kept_input() + kept_so_far + again + at.values + gradients;
            if (held > cost.backward_peak) {
                const Bytes made = again + at.again;
                cost.backward_peak = held;
                cost.backward_again =
                    made > Bytes{} ? std::max(Bytes{}, made + gradients - cost.output) : Bytes{};
            }
        };
        for (int layer = first_; layer < end_; ++layer) {
            const std::optional<LayerRange>& group = tensors_.group(layer);
            kept_so_far += kept(layer);
            again = (group && group->first < layer ? again : Bytes{}) + rebuilt(layer);
            Moment backward{.values = tensors_.values_in_backward(layer),
                            .again = tensors_.rebuilt_values_in_backward(layer),
                            .gradients = tensors_.gradients_in_backward(layer)};
            if (group) {
                raise({.values = tensors_.values_in_recompute(layer),
                       .again = tensors_.rebuilt_values_in_recompute(layer),
                       .gradients = tensors_.gradients_in_recompute(layer)});
            } else if (again > Bytes{}) {  // and its output, too
                backward.gradients += sample(layer).output;
            }
            raise(backward);
        }
    }

    /// Gradients of inner outputs, and of those inside of layers, are begun on I's way; what groups
    /// have made again stays, too.
    Bytes input_half_peak(Bytes saved) const {
        Bytes peak;
        Bytes behind = saved + message_gradients_;
        Bytes most_again;  // of a layer that is in no group
        for (int layer = end_ - 1; layer >= first_; --layer) {
            const std::optional<LayerRange>& group = tensors_.group(layer);
            if (group && layer + 1 == group->end) {
                Bytes values;
                for (int member = group->first; member < group->end; ++member) {
                    behind += rebuilt(member);
                    values += tensors_.rebuilt_value(member);
                    peak = std::max(peak,
                                    behind + tensors_.values_in_recompute_beside(member) +
                                        tensors_.gradients_in_input_half_recompute(member));
                }
                behind += values;
            }
            behind += for_input_half(layer);
            peak = std::max(peak, behind + tensors_.gradients_in_input_half(layer));
            most_again = std::max(most_again, group ? Bytes{} : rebuilt(layer));
        }
        return peak + most_again;
    }

    const LayerSamples& samples_;
    const StageTensors& tensors_;
    int first_;
    int end_;
    Bytes messages_;
    Bytes message_gradients_;
};

/// The samples of a model with branches with all that its layers save as `saved`, whether it is
/// computed again or not.
LayerSamples with_all_saved(LayerSamples samples) {
    for (LayerSample& sample : samples) {
        sample.saved += sample.rebuilt;
    }
    return samples;
}

}  // namespace

Bytes input_gradient(const Model& model, const LayerSamples& samples, int layer) {
    Bytes sum;
    for (const int source : model.inputs_of(layer)) {
        sum += samples[as_index(source)].output;
    }
    return sum;
}

StageCosts::StageCosts(const Model& model, const LayerSamples& samples)
    : model_(model),
      samples_(samples),
      is_chain_(model.is_chain()),
      all_saved_(is_chain_ ? LayerSamples{} : with_all_saved(samples)),
      input_gradient_(input_gradients(model, samples)) {}

StageCost StageCosts::of(int first, int end) const {
    StageCost cost;
    if (is_chain_) {
        cost.input = first == 0 ? samples_.front().input : samples_[as_index(first - 1)].output;
        cost.output =
            as_index(end) == samples_.size() ? Bytes{} : samples_[as_index(end - 1)].output;
        StageSum(model_, samples_, input_gradient_, first, end).add_to(cost);
        return cost;
    }
    const StageTensors tensors(model_, all_saved_, first, end);
    BranchSum(samples_, tensors, first, end).add_to(cost);
    return cost;
}

void lengthen_halves(StageCost& cost, double factor) {
    if (factor == 1) {
        return;
    }
    const OtherTime longer = [factor](Duration time) { return scaled(time, factor); };
    cost.backward_input =
        with_computation(cost.backward_input, {&cost.backward_input_messages}, longer);
    cost.backward_weight =
        with_computation(cost.backward_weight, {&cost.backward_weight_messages}, longer);
}

bool is_half_precision(std::string_view precision) {
    return precision == "bf16" || precision == "fp16" || has_narrow_products(precision);
}

std::int64_t bytes_per_number(std::string_view precision) {
    return is_half_precision(precision) ? 2 : precision == "fp64" ? 8 : 4;
}

int gradient_bytes_per_byte(std::string_view precision, bool fp32_gradients) {
    return is_half_precision(precision) && fp32_gradients ? 2 : 1;
}

Bytes tied_bytes(const Model& model, const Profile& profile) {
    if (!model.is_executable()) {
        return profile.tied_bytes;
    }
    const std::int64_t tied = model.tied_count();
    if (tied == 0) {
        return {};
    }
    if (profile.tied_bytes > Bytes{}) {
        return profile.tied_bytes;  // a device may have padded the table
    }
    // The first layer has the table, whose numbers all have the same size.
    return Bytes{profile.layers.front().parameter_bytes.count / model.layer(0).parameter_count *
                 tied};
}

Duration tied_update(const Model& model, const Profile& profile) {
    const LayerCost& last = profile.layers.back();
    if (model.is_executable() || last.parameter_bytes == Bytes{}) {
        return {};
    }
    const double share = static_cast<double>(profile.tied_bytes.count) /
                         static_cast<double>(last.parameter_bytes.count);
    return scaled(last.optimizer, share);
}

ModelParameters parameters_of(const Profile& profile) {
    ModelParameters weights{.precision = profile.precision, .layers = {}};
    weights.layers.reserve(profile.layers.size());
    for (const LayerCost& layer : profile.layers) {
        weights.layers.push_back({.parameters = layer.parameter_bytes,
                                  .experts = layer.expert_bytes,
                                  .whole = layer.whole_bytes,
                                  .running = layer.running_bytes,
                                  .frozen = layer.frozen_bytes,
                                  .frozen_experts = layer.frozen_expert_bytes,
                                  .optimizer = layer.optimizer,
                                  .weight_cast = layer.weight_cast,
                                  .copies = layer.weight_copies});
    }
    return weights;
}

ModelParameters tied_counted_once(const Model& model, const Profile& profile) {
    ModelParameters weights = parameters_of(profile);
    weights.layers.back().parameters -= tied_bytes(model, profile);
    weights.layers.back().optimizer -= tied_update(model, profile);
    return weights;
}

namespace {

/// Bytes of optimizer state for each weight.
std::int64_t state_bytes(std::string_view precision, const OptimizerState& state) {
    constexpr std::int64_t fp32 = 4;
    return is_half_precision(precision)
               ? state.bytes ? std::int64_t{*state.bytes} : fp32 * (1 + state.numbers)
               : bytes_per_number(precision) * state.numbers;
}

/// Time of an update whose state is as wide as the rules say, from that of one in fp32. An update
/// reads a gradient of four bytes, and reads and writes the state.
Duration update_time(Duration in_fp32, std::string_view precision, const OptimizerState& state) {
    if (!state.bytes || !is_half_precision(precision)) {
        return in_fp32;
    }
    const auto moved = [&](const OptimizerState& of) {
        return static_cast<double>(4 + 2 * state_bytes(precision, of));
    };
    return scaled(in_fp32, moved(state) / moved({.numbers = state.numbers}));
}

}  // namespace

Bytes least_share(const StageState& whole, const StateShards& shards) {
    return Bytes{whole.weights.count / shards.weights + whole.gradients.count / shards.gradients +
                 whole.optimizer_state.count / shards.optimizer};
}

Duration norm_time(Duration update, int optimizer_slots) {
    return update / (3 + 2 * optimizer_slots);
}

DividedWeights::DividedWeights(std::string_view precision, const WeightRules& rules)
    : number_(bytes_per_number(precision)),
      replicas_(rules.shards.gradients > 1 ? rules.shards.gradients : rules.shards.optimizer) {}

Bytes DividedWeights::share_of(Bytes weights) const {
    const std::int64_t all = replicas_ * number_;
    return Bytes{(weights.count + all - 1) / all * number_};
}

void DividedWeights::add(Bytes weights, Bytes tied) {
    largest_ = std::max(largest_, weights);
    share_ += share_of(weights - tied) + share_of(tied);
}

void share_out(StageState& state,
               const DividedWeights& layers,
               std::string_view precision,
               const WeightRules& rules) {
    const StateShards& shards = rules.shards;
    if (shards.gradients == 1 && shards.optimizer == 1) {
        return;
    }
    const Bytes all = state.weights;
    const std::int64_t numbers = layers.share().count / bytes_per_number(precision);
    state.optimizer_state = Bytes{numbers * state_bytes(precision, rules.optimizer)};
    if (shards.gradients == 1) {
        return;
    }
    const int gradient = gradient_bytes_per_byte(precision, rules.fp32_gradients);
    const Bytes largest = std::min(layers.largest(), all);
    const int each = gradient + (gradient > 1 && rules.gradients_beside_sums ? 1 : 0);
    const Bytes of_other_stages = state.gradients - all * each;
    state.gradients = layers.share() * each + layers.share_of(of_other_stages);
    state.gathered =
        (shards.whole_gradients > 0 ? shards.whole_gradients * all : largest) * gradient;
    if (shards.weights > 1) {
        state.weights = layers.share();
        state.gathered += std::min(layers.largest() * (1 + rules.prefetch), all);
    }
}

std::vector<StageState> stage_states(const Profile& profile,
                                     const std::vector<LayerSamples>& samples_of_class,
                                     const Partition& partition,
                                     const WeightRules& rules) {
    return stage_states(parameters_of(profile), samples_of_class, partition, rules);
}

namespace {

/// States of weights all of which the same devices divide.
std::vector<StageState> alike_states(const ModelParameters& weights,
                                     const std::vector<LayerSamples>& samples_of_class,
                                     const Partition& partition,
                                     const WeightRules& rules) {
    std::vector<StageState> states(as_index(partition.stage_count()));
    std::vector<DividedWeights> divided(states.size(), {weights.precision, rules});
    std::vector<Duration> casts(states.size());
    const Bytes tied = part_of(rules.tied, rules.devices);
    for (std::size_t layer = 0; layer < weights.layers.size(); ++layer) {
        const LayerParameters& own = weights.layers[layer];
        const auto stage = as_index(partition.stage_of_layer(static_cast<int>(layer)));
        StageState& state = states[stage];
        const Bytes part = part_of(own.parameters - own.whole, rules.devices) + own.whole;
        state.weights += part;
        const bool is_end = layer == 0 || layer + 1 == weights.layers.size();
        divided[stage].add(part, is_end ? std::min(tied, part) : Bytes{});
        state.running += own.running + part_of(part_of(own.copies + own.frozen, rules.devices),
                                               rules.shards.weights);
        state.optimizer += own.optimizer;
        casts[stage] += own.weight_cast;
        for (const LayerSamples& samples : samples_of_class) {
            state.workspace = std::max(state.workspace, samples[layer].workspace);
        }
    }
    if (states.size() == 1) {
        states.front().weights -= tied;
        states.front().optimizer -= rules.tied_update;
        divided.front().forget(tied);
    }
    const int gradient = gradient_bytes_per_byte(weights.precision, rules.fp32_gradients);
    const int beside = gradient > 1 && rules.gradients_beside_sums ? 1 : 0;
    for (StageState& state : states) {
        state.gradients = state.weights * (gradient + beside);
        const Bytes all{state.weights.count / bytes_per_number(weights.precision) *
                        state_bytes(weights.precision, rules.optimizer)};
        state.optimizer_state = all;
        state.optimizer /= rules.shards.optimizer;
        state.norm = norm_time(state.optimizer, rules.optimizer.numbers);
        state.optimizer = update_time(state.optimizer, weights.precision, rules.optimizer);
    }
    for (std::size_t stage = 0; stage < states.size(); ++stage) {
        states[stage].optimizer += casts[stage];  // of updated weights, by every replica
        share_out(states[stage], divided[stage], weights.precision, rules);
    }
    if (!rules.tied_room) {
        return states;
    }
    const Bytes tied_share = rules.shards.gradients > 1 ? divided.front().share_of(tied) : tied;
    states.front().gradients += tied_share * gradient;
    if (states.size() > 1) {
        states.back().gradients += tied_share * gradient;
    }
    return states;
}

/// Leaves each layer its routed experts alone, or all but these.
ModelParameters only(ModelParameters weights, bool experts) {
    for (LayerParameters& layer : weights.layers) {
        const Bytes kept = experts ? layer.experts : layer.parameters - layer.experts;
        const double share =
            layer.parameters > Bytes{}
                ? static_cast<double>(kept.count) / static_cast<double>(layer.parameters.count)
                : 0;
        layer.parameters = kept;
        layer.whole = experts ? Bytes{} : layer.whole;
        layer.optimizer = scaled(layer.optimizer, share);
        layer.weight_cast = scaled(layer.weight_cast, share);
        layer.copies = Bytes{std::llround(static_cast<double>(layer.copies.count) * share)};
        layer.running = experts ? Bytes{} : layer.running;
        layer.frozen = experts ? layer.frozen_experts : layer.frozen - layer.frozen_experts;
    }
    return weights;
}

void add(const StageState& experts, StageState& all) {
    all.weights += experts.weights;
    all.expert_weights = experts.weights;
    all.gradients += experts.gradients;
    all.optimizer_state += experts.optimizer_state;
    all.gathered += experts.gathered;
    all.running += experts.running;
    all.workspace += experts.workspace;
    all.optimizer += experts.optimizer;
    all.norm += experts.norm;
}

}  // namespace

std::vector<StageState> stage_states(const ModelParameters& weights,
                                     const std::vector<LayerSamples>& samples_of_class,
                                     const Partition& partition,
                                     const WeightRules& rules) {
    if (!rules.experts) {
        return alike_states(weights, samples_of_class, partition, rules);
    }
    std::vector<StageState> states =
        alike_states(only(weights, false), samples_of_class, partition, rules);
    WeightRules of_experts = rules;
    of_experts.devices = rules.experts->devices;
    of_experts.shards = rules.experts->shards;
    of_experts.tied = {};
    of_experts.tied_update = {};
    std::vector<StageState> experts = alike_states(only(weights, true), {}, partition, of_experts);
    // Times of updates are those of a whole layer on one device, of which a rank's speed takes a
    // share for each of `rules.devices`.
    const double parts = static_cast<double>(rules.devices) / rules.experts->devices;
    for (std::size_t stage = 0; stage < states.size(); ++stage) {
        for (Duration* const time : {&experts[stage].optimizer, &experts[stage].norm}) {
            *time = scaled(*time, parts);
        }
        add(experts[stage], states[stage]);
    }
    return states;
}

Bytes kept_state(const StageState& state) {
    return state.weights + state.running + state.gradients + state.optimizer_state;
}

Bytes kept_state(const Model& model, const Profile& profile, const WeightRules& rules) {
    const int layers = model.layer_count();
    const Partition whole({layers}, layers);
    return kept_state(stage_states(tied_counted_once(model, profile), {}, whole, rules).front());
}

}  // namespace pipetwin
