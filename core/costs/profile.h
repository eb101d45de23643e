// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/units.h"
#include "core/costs/collectives/link_cost.h"
#include "core/costs/devices/cost_source.h"
#include "core/costs/devices/lanes.h"
#include "core/costs/devices/measured_layout.h"

namespace pipetwin {

/// Messages that are part of a layer's times, in nanoseconds.
struct LayerMessages {
    /// Part of `forward`: by how much sums among the devices that share the layer make it longer.
    Duration forward_sums{};
    Duration backward_sums{};  ///< part of `backward_input`: the same
    /// Part of `forward`, and as much of `backward_input`, in which the layer waits for its weights
    /// before it computes.
    Duration gather{};
    Duration beside_forward{};   ///< with other replicas, while `forward` goes on
    Duration beside_backward{};  ///< with other replicas, while the backward goes on
    MessageLane forward_lane{};  ///< of `beside_forward`
    MessageLane backward_lane{};
    Duration forward_wait{};  ///< part of `forward`: by how much `beside_forward` makes it longer
    /// Part of `backward_weight`, or, where that is zero, of `backward_input`: by how much
    /// `beside_backward` makes the backward longer.
    Duration backward_wait{};

    bool operator==(const LayerMessages&) const = default;
};

/// What devices that have parts of a sample, or of a layer's experts, send each other in a forward
/// of one micro-batch, and beside which computation. Zero where the layer is not divided so.
struct LayerTraffic {
    /// Keys and values of all parts of the samples, as the device's heads have them.
    Bytes keys{};
    Bytes key_gradients{};  ///< of all of them, as wide as they are sent
    Bytes heads{};          ///< queries, keys and values of the device's part, own share included
    Bytes outputs{};        ///< what attention makes of it
    Bytes dispatch{};       ///< rows of tokens to their experts, own share included
    Bytes combine{};        ///< what the experts made of them
    Bytes expert_rows{};    ///< that all devices which share an expert compute
    Duration attention_forward{};
    Duration attention_backward{};

    bool operator==(const LayerTraffic&) const = default;
};

/// What one module keeps of a layer until the backward.
struct ModuleBytes {
    std::size_t module = 0;  ///< a RecomputeModule or an OffloadModule
    Bytes bytes{};           ///< part of `LayerSample::saved`
    Duration forward{};      ///< part of `LayerSample::forward` that makes them

    bool operator==(const ModuleBytes&) const = default;
};

/// What single modules keep of a layer (`LayerDivision::by_module`), without those that keep
/// nothing and take no time.
struct LayerModules {
    std::vector<ModuleBytes> made{};    ///< by RecomputeModule: results
    std::vector<ModuleBytes> inputs{};  ///< by OffloadModule: what goes in; no times

    /// Both layers', as one.
    LayerModules& operator+=(const LayerModules& other);

    bool operator==(const LayerModules&) const = default;
};

/// Every size of a layer's traffic.
inline constexpr std::array sizes_of_traffic{&LayerTraffic::keys,
                                             &LayerTraffic::key_gradients,
                                             &LayerTraffic::heads,
                                             &LayerTraffic::outputs,
                                             &LayerTraffic::dispatch,
                                             &LayerTraffic::combine,
                                             &LayerTraffic::expert_rows};

/// Every time of a layer's traffic.
inline constexpr std::array times_of_traffic{&LayerTraffic::attention_forward,
                                             &LayerTraffic::attention_backward};

/// What one layer costs for one micro-batch of `micro_batch_size` samples.
///
/// Memory, byte for byte what the executor counts:
/// - forward with everything kept: the input turns into `saved` (which includes the input) +
/// `output`;
/// - forward that keeps nothing (recompute): the same for a moment, then only `output`;
/// - backward: `saved` + gradient of the output + gradient of the input, then only the latter;
/// - backward in two: I adds `split` and the gradient of the input, and gives back `input_saved`
/// and `unread_gradient`; W gives back the rest of `saved` and of the output's gradient, and
/// `split`;
/// - `workspace` is scratch inside one call; a rank reserves the largest of its layers once.
struct LayerSample {
    int micro_batch_size = 1;
    Duration forward{};
    Duration backward_input{};   ///< gradient of the input
    Duration backward_weight{};  ///< gradient of the weights; the full backward is the sum of both
    /// What a kernel takes to read and write 8 bytes for each weight, as one that adds up gradients
    /// in fp32 does beside reading those of a micro-batch. 0: not known, or part of the backward.
    Duration accumulation{};
    Bytes input{};   ///< of the layer's own input where it is no other layer's output
    Bytes output{};  ///< what the next layer reads; 0 for a loss
    Bytes saved{};   ///< kept from forward to backward, input included
    Bytes workspace{};
    Bytes split{};            ///< kept in addition from I to W, where the backward is split in two
    Bytes input_saved{};      ///< part of `saved` (and of `split`) that W does not read
    Bytes unread_gradient{};  ///< part of the output's gradient that W does not read
    double spread = 0;        ///< (p90 - p10) / median of the measurement
    /// Kernels that each part launches; 0 where it is not known. See `with_launches`.
    int forward_kernels = 0;
    int backward_input_kernels = 0;
    int backward_weight_kernels = 0;
    /// What core attention (scores, softmax, and the products with them) has of `forward` and
    /// `saved`: selective recompute keeps none of these bytes and computes them again.
    Duration core_forward{};
    Bytes core_saved{};
    /// Part of `forward` behind all that the layer's backward reads: its last product, and the sum
    /// with what went past it. Recompute that stops early leaves it out.
    Duration tail_forward{};
    /// What each of the devices that share a layer has whole, as long as they do not divide the
    /// sequence: part of `forward`, of `backward_input` and of `saved`.
    Duration whole_forward{};
    Duration whole_backward{};
    Bytes whole_saved{};
    /// Products beside which messages of devices that share a layer go on: the first, whose columns
    /// they divide, and the last, whose rows they divide. Parts of `forward`, `backward_input` and
    /// `backward_weight`; 0: not known, or there is none.
    Duration first_forward{};
    Duration first_input{};
    Duration first_weight{};
    Duration last_forward{};
    Duration last_input{};
    /// Messages in a forward and in a backward, where they were measured (`Profile::groups`),
    /// beside all of the above: of the devices that share the layer, and of replicas that divide
    /// its gradients or weights. With what a device waits for the others in them.
    Duration devices_forward{};
    Duration devices_backward{};
    Duration replicas_forward{};
    Duration replicas_backward{};
    /// Bytes that its backward computes again before it begins, and has until it ends. Zero in a
    /// profile: `with_layer_recompute` (core/plan/layer_recompute.h) says so.
    Bytes rebuilt{};
    Bytes rebuilt_for_weight{};      ///< of these, what W reads
    bool rebuilt_with_next = false;  ///< together with the next layer, which is of the same block
    /// Blocks that are computed again together with the layer's own; 0: the layer is in none. With
    /// more than 1 the input of a group is in `rebuilt`: where a group begins, a stage decides.
    int rebuilt_blocks = 0;
    /// Zero in a profile: `with_tensor_parallel` (core/plan/tensor_parallel.h) and
    /// `with_gathered_weights` (core/plan/gathered_weights.h) say so.
    LayerMessages messages{};
    /// Zero in a profile: `divided_profile` (core/costs/estimate_source.h) says so.
    LayerTraffic traffic{};
    LayerModules modules{};  ///< likewise

    Duration backward() const { return backward_input + backward_weight; }

    bool operator==(const LayerSample&) const = default;
};

/// Every time of a sample.
inline constexpr std::array times_of_sample{&LayerSample::forward,
                                            &LayerSample::backward_input,
                                            &LayerSample::backward_weight,
                                            &LayerSample::accumulation,
                                            &LayerSample::core_forward,
                                            &LayerSample::tail_forward,
                                            &LayerSample::whole_forward,
                                            &LayerSample::whole_backward,
                                            &LayerSample::first_forward,
                                            &LayerSample::first_input,
                                            &LayerSample::first_weight,
                                            &LayerSample::last_forward,
                                            &LayerSample::last_input,
                                            &LayerSample::devices_forward,
                                            &LayerSample::devices_backward,
                                            &LayerSample::replicas_forward,
                                            &LayerSample::replicas_backward};

/// Every size of a sample that a profile has.
inline constexpr std::array sizes_of_sample{&LayerSample::input,
                                            &LayerSample::output,
                                            &LayerSample::saved,
                                            &LayerSample::workspace,
                                            &LayerSample::split,
                                            &LayerSample::input_saved,
                                            &LayerSample::core_saved,
                                            &LayerSample::whole_saved,
                                            &LayerSample::unread_gradient};

/// Costs of one layer: its parameters, and one sample for each micro-batch size that is known.
struct LayerCost {
    std::string name;
    std::string kind{};
    std::vector<std::string> inputs{};  ///< empty: the layer before
    /// Numbers of its parameters; 0 where only the bytes are known. Weights that two layers share
    /// (`Profile::tied_bytes`) are counted in the first of them alone.
    std::int64_t parameter_count = 0;
    Bytes parameter_bytes{};
    Bytes expert_bytes{};  ///< part of `parameter_bytes`: of routed experts
    /// Part of `parameter_bytes` that each of the devices that share the layer has whole: norms,
    /// and biases behind a sum.
    Bytes whole_bytes{};
    /// Running statistics of its norms, with what they follow within a step: no optimizer and no
    /// gradient knows them.
    Bytes running_bytes{};
    /// Weights that are not trained, beside those of `parameter_bytes`: there are neither gradients
    /// nor a state of them.
    Bytes frozen_bytes{};
    Bytes frozen_expert_bytes{};  ///< part of `frozen_bytes`: of routed experts
    Duration optimizer{};         ///< the optimizer's update of this layer's parameters
    /// Messages behind it with which replicas that divide gradients show each other the updated
    /// weights, once a step, where they were measured (`Profile::groups`).
    Duration replicas_update{};
    /// Casts of its weights for narrow products, once a step, by every replica.
    Duration weight_cast{};
    /// Narrow copies of its weights, kept from one micro-batch to the next.
    Bytes weight_copies{};
    std::optional<CostSource> source{};  ///< where it differs from the profile's
    std::vector<LayerSample> samples{};  ///< ascending by micro_batch_size, at least one
    /// [devices that share the layer]: samples of one of them, where more is known than that each
    /// has an equal part. Without the sums between them.
    std::map<int, std::vector<LayerSample>> shared{};
    /// All-reduces of the output in a forward, and of the input's gradient in a backward, where
    /// devices share the layer.
    int tensor_sums = 1;
    /// Rows of equal size for each token in its output, of which each of these sums has one: those
    /// of a residual of several streams.
    int output_rows = 1;
    /// Operations of its forward for one sample, on all devices that share it together: two for
    /// each multiplication of a product with its addition. None: not known.
    std::optional<double> operations{};
    /// Part of `operations`: those that Megatron-LM's count leaves out of core attention, as a
    /// causal mask hides them. None: not known.
    std::optional<double> masked_operations{};

    /// Samples of one of the devices that share the layer; null: nothing is known of so many.
    const std::vector<LayerSample>* shared_by(int devices) const;

    /// Calls `change(sample)` for every sample, of one device or of several.
    template <class Change>
    void change_samples(Change change) {
        std::ranges::for_each(samples, change);
        for (auto& [devices, of_one] : shared) {
            std::ranges::for_each(of_one, change);
        }
    }

    bool operator==(const LayerCost&) const = default;
};

/// Quality of a measurement of costs, and what was measured beside the costs.
struct CalibrationNote {
    int clean_steps = 0;      ///< fewest over the sizes of micro-batch
    int dropped_steps = 0;    ///< of all: too much of their time was stolen
    double p90_over_p10 = 1;  ///< of the clean steps' times, the largest over the sizes
    /// By how much longer the layers take, as a share, while the other cores do the same; none
    /// where it was not measured.
    std::optional<double> interference{};
    /// Time of a message of one size between two cores.
    struct Rung {
        Bytes message;
        Duration time{};  ///< from its sending until another core has read it

        bool operator==(const Rung&) const = default;
    };
    std::vector<Rung> ladder{};  ///< ascending by message; empty: not measured

    bool operator==(const CalibrationNote&) const = default;
};

/// One measured message of the ladder in `CalibrationNote`.
using LadderRung = CalibrationNote::Rung;

/// How a rank is slowed by others on the same device.
struct RankInterference {
    int device = 0;  ///< ranks with one number share a device
    /// By how much longer the rank's actions last, as a share, for each other rank of its device
    /// that computes at the same time.
    double interference = 0;

    bool operator==(const RankInterference&) const = default;
};

/// Factors by which the costs of a profile were multiplied so that measured runs are predicted
/// (sim/calibration/calibration.h).
struct RunCalibration {
    double compute_factor = 1;
    std::optional<double> memory_factor{};  ///< none: no run said what it held
    int runs = 0;
    std::vector<MeasuredLayout> layouts{};  ///< of the runs; empty: not known

    bool operator==(const RunCalibration&) const = default;
};

/// Groups in which layers were measured, whose messages their samples have
/// (`LayerSample::devices_forward`). They hold for plans with the same groups alone.
struct MeasuredGroups {
    int devices = 1;  ///< that divide the layers of a rank
    bool sequence_parallel = false;
    int replicas = 1;           ///< that divide what `shard` says
    std::string shard{"none"};  ///< the word of pipeline.shard

    bool operator==(const MeasuredGroups&) const = default;
};

/// The halves of a backward take less than twice as long as the whole.
inline constexpr double largest_halves_over_whole = 2;

struct EstimateSource;

/// What a profile was estimated from; empty: it was not, or that is not known.
class EstimatedFrom {
  public:
    EstimatedFrom() = default;
    explicit EstimatedFrom(std::shared_ptr<const EstimateSource> source)
        : source_(std::move(source)) {}

    const EstimateSource* get() const { return source_.get(); }
    explicit operator bool() const { return source_ != nullptr; }

    bool operator==(const EstimatedFrom& other) const;

  private:
    std::shared_ptr<const EstimateSource> source_;
};

/// The one form in which costs travel. One cost per layer, non-negative, with a source.
struct Profile {
    CostSource source = CostSource::Estimated;
    std::string device{};
    std::string precision = "fp32";
    std::string
        stack{};  ///< what the costs were estimated with (core/costs/devices/stack.h); empty: none
    std::string tool_version{};
    std::string date{};
    double messages_inside = 1;   ///< time of messages inside a node, times what links say
    double messages_between = 1;  ///< time of messages between nodes, times what links say
    Duration dispatch{};          ///< what the host spends around every action
    Duration launch{};            ///< what the host spends on each kernel; 0: not known
    /// Bytes of the last layer's weights that are weights of the first layer, too, as where a
    /// head's matrix is the embedding's; part of the `parameter_bytes` of both. 0: they share
    /// nothing.
    Bytes tied_bytes{};
    int tokens_per_sample = 0;  ///< 0: not known, or a sample has none
    std::vector<LayerCost> layers{};
    std::vector<LinkCost> links{};
    std::optional<MeasuredGroups> groups{};  ///< none: messages follow from links
    /// Where ranks shared a GPU and slowed each other: [rank] of the measured pipeline. The costs
    /// of layers are then those of a rank beside which no other computes. Empty: not known.
    std::vector<RankInterference> ranks{};
    /// Measured on a GPU where backwards were whole: the two halves of a schedule that splits them
    /// take some per cent longer.
    bool whole_backwards = false;
    /// Time of the two halves of a backward, each as an action, over that of the whole backward as
    /// one; 1 to `largest_halves_over_whole`. Only where `whole_backwards`. None: not measured.
    std::optional<double> halves_over_whole{};
    std::optional<CalibrationNote>
        calibration{};  ///< for people and scripts: no cost follows from it
    std::vector<RunCalibration> run_calibrations{};  ///< in the costs already, one after the other
    EstimatedFrom estimated_from{};

    bool operator==(const Profile&) const = default;
};

/// The costs of a layer at a micro-batch size: the sample itself, or linear interpolation between
/// its neighbours; sizes up to a factor of 2 outside the measured range are scaled in proportion.
/// Throws Error(BadInput), naming layer and measured range, beyond that. With several `devices`
/// the costs of one of those that share the layer, which are known (`LayerCost::shared_by`).
LayerSample cost_at(const LayerCost& layer, int micro_batch_size, int devices = 1);

/// Micro-batches, in samples, for which there are costs: from half of the smallest size that was
/// measured to twice the largest. Empty where `smallest` is above `largest`.
struct SizesWithCosts {
    std::int64_t smallest = 1;
    std::int64_t largest = 1;
};

/// The sizes for which every layer has costs on `devices` that share it.
SizesWithCosts sizes_with_costs(const Profile& profile, int devices = 1);

/// Operations of a forward and backward of the whole model for one sample: three times those of the
/// forward, and nothing for what is computed again. Attention counts all pairs of a query and a
/// key, seen or not, as Narayanan et al. (2021, section 5.1) and PaLM's authors (Chowdhery et al.
/// 2022, appendix B) do; an embedding counts nothing, the head its product. None: a layer does not
/// say.
std::optional<double> model_operations(const Profile& profile);

/// The part of `model_operations` that a causal mask hides (`LayerCost::masked_operations`). None:
/// a layer does not say.
std::optional<double> masked_model_operations(const Profile& profile);

/// Parameters of all layers; those that two layers share count twice.
std::int64_t all_parameters(const Profile& profile);

/// True if a layer computes with less than two thirds of its weights for a token, as its operations
/// say: it has experts, of which a router chooses a few for each token.
bool has_routed_experts(const Profile& profile);

/// Every layer of a model at one micro-batch size.
using LayerSamples = std::vector<LayerSample>;

/// The costs of all layers. Throws Error(BadInput) as `cost_at`.
LayerSamples samples_at(const Profile& profile, int micro_batch_size, int devices = 1);

/// Whether the costs of one of so many devices that share a layer are known of every layer.
bool knows_shares(const Profile& profile, int devices);

/// Whether the profile says of any layer what core attention keeps.
bool knows_core_attention(const Profile& profile);

/// Returns the sample with each part at least as long as the launches of its kernels: max(time,
/// kernels * launch).
LayerSample with_launches(LayerSample sample, Duration launch);

/// Whether `cost_at` has to scale: the size lies outside the layer's samples.
bool is_outside_samples(const LayerCost& layer, int micro_batch_size);

/// Every rule a profile must keep (names distinct, inputs known and earlier, samples ascending,
/// nothing negative). Throws Error(BadInput) with `place` and the JSON pointer of what is wrong.
/// Where layers share an entry of the file, `entry_of_layer` says which.
void check_profile(const Profile& profile,
                   std::string_view place,
                   std::span<const std::size_t> entry_of_layer = {});

}  // namespace pipetwin
