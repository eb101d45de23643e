// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/layers/layer.h"
#include "exec/stage/outputs.h"
#include "exec/stage/stage.h"
#include "exec/stage/stage_moments.h"
#include "exec/stage/weight_rooms.h"

/// Inside of a stage: how it is made, and what it is between actions (stage.cpp); its layers at
/// work (passes.cpp).
namespace pipetwin::exec {

/// Tensors and sizes that a stage keeps of one micro-batch.
struct Stage::Stash {
    bool alive = false;
    int samples = 0;
    int batch_samples = 0;
    int first_sample = 0;
    int step = 0;
    bool is_whole = false;     ///< everything is kept that the backward needs
    OutputStash outputs;       ///< what layers read and make
    std::vector<Kept> layers;  ///< what else they keep; empty until the first F or R

    void clear() {
        alive = false;
        is_whole = false;
        for (Kept& layer : layers) {
            layer.clear();
        }
        outputs.clear();
    }
};

/// State of a stage. The functions say more where they are defined.
struct Stage::Impl {
    Impl(Device& on, Arena& in, const Model& model, Place at, const StageOptions& with);

    Device& device;
    const Kernels* kernels;
    Arena& arena;
    StageOptions options;
    Place place;
    std::vector<std::unique_ptr<ExecutableLayer>> layers;
    std::vector<std::string> names;  ///< of the layers
    /// [layer]: the blocks that are computed again together with its own, or nothing.
    std::vector<std::optional<LayerRange>> blocks;
    std::optional<StageOutputs> outputs;  ///< what the stage does with them; always there
    /// [layer]: the layer, where it takes several outputs; null: it reads one.
    std::vector<JoiningLayer*> joining;
    std::vector<Tensor> made_again;   ///< [sent message] where R writes what was sent already
    std::vector<ConstView> operands;  ///< of the layer at work that takes several outputs
    std::vector<JoiningLayer::InputGradient> operand_gradients;
    std::vector<std::size_t> made_for_group;  ///< values that go before their group's backward
    LayerWatch watch;
    std::vector<Stash> stashes;  ///< [micro-batch]
    std::vector<Kept> dropped;   ///< [layer] what a layer makes in an F that keeps nothing
    std::vector<Parameter*> parameters;
    std::vector<Parameter*> state;
    StageMoments moments;
    std::vector<double> own_moments;         ///< as a twin is sent them
    std::vector<double> twin_moments;        ///< as a twin has sent them
    std::span<double> loss_sums;             ///< [micro-batch]
    std::span<double> right_sums;            ///< [micro-batch]; empty where they are not counted
    std::vector<double> loss_scales;         ///< [micro-batch]
    std::span<double> auxiliary_sums;        ///< [micro-batch]
    std::vector<double> auxiliary_scales;    ///< [micro-batch]
    std::span<double> squares;               ///< [parameter]
    std::vector<double> counted_squares;     ///< without copies
    std::vector<double> squares_of_devices;  ///< [device][parameter]
    std::vector<Parameter*> shared;  ///< that another stage has, too, or that are used twice
    bool has_added_terms = false;    ///< of gradients, in this mini-batch
    std::vector<std::unique_ptr<DividedNumbers>> divided;  ///< of replicas
    std::size_t number_in_rooms = 0;                       ///< of the stage, where they divide some
    bool uses_averages = false;  ///< layers read the averages of the weights

    void create_parameters(const Model& model, const ParameterMaker::Settings& rules);
    std::optional<LayerDivision> division_of(const Model& model, int layer) const;
    void enter_rooms(bool has_both_ends);
    GroupTimes waited() const;
    bool is_computed_again(const LayerRange& block, bool is_chain) const;
    void find_blocks(bool is_chain);
    void connect(const Model& model);
    Stash& stash(int micro_batch);
    LayerCall call(int micro_batch, const Stash& stash);
    void want_sums(LayerCall& call, int micro_batch);
    void take_scales(const LayerCall& call, int micro_batch);
    Tensor load(const MicroBatch& data);
    Boundary boundary(const SampleShape& shape, int samples) const;
    Boundary message_shape(const StageOutputs::Message& message, int samples) const;
    bool times_layers() const;
    void tell(std::size_t index, Op part) const;
    std::function<void(Op)> part_teller(std::size_t index) const;

    // Layers at work (passes.cpp):
    void begin_action(bool forward) const;
    void need_weights(std::size_t index) const;
    Tensor allocate_message(const StageOutputs::Message& message, int samples);
    Tensor allocate_matrix(const Stash& stash, const SampleShape& shape, MemoryKind kind);
    void check_message(const Tensor& tensor,
                       const StageOutputs::Message& message,
                       int samples,
                       int layer,
                       std::string_view what) const;
    void take_in(Stash& stash, std::span<Tensor> received, const MicroBatch& data);
    void run_forward(
        int micro_batch, Stash& stash, const LayerCall& base, bool keep, std::span<Tensor> sent);
    View value_view(Stash& stash, std::size_t value, std::span<Tensor> sent) const;
    View gradient_view(Stash& stash, std::size_t value, std::span<Tensor> gradients) const;
    ConstView layer_input(Stash& stash, std::size_t index) const;
    ConstView backward_reads(Stash& stash, std::size_t index) const;
    void find_operands(Stash& stash, std::size_t index);
    void copy_output(std::size_t index, ConstView y, Kept& kept) const;
    void give_output(std::size_t index, View y, Kept& kept) const;
    void show(std::size_t index, View output) const;
    void allocate_value(Stash& stash, std::size_t value);
    void compute_layer(LayerCall& call, Stash& stash, std::size_t index, View y, Kept& kept);
    void forward_layer(
        LayerCall& call, Stash& stash, std::size_t index, std::span<Tensor> sent, Kept& kept);
    void compute_again(Stash& stash, const LayerCall& base, std::size_t last);
    void free_made_for_group(Stash& stash, std::size_t index);
    void free_received(Stash& stash) const;
    void free_values_read(Stash& stash, std::size_t index, bool backward, bool keep) const;
    void begin_gradients(Stash& stash, std::span<Tensor> received, std::span<Tensor> gradients);
    void run_backward(int micro_batch,
                      std::span<Tensor> received,
                      std::span<Tensor> gradients,
                      Op op);
    void backward_layer(
        LayerCall& call, Stash& stash, std::size_t index, std::span<Tensor> gradients, Op op);
    void compute_backward(
        LayerCall& call, Stash& stash, std::size_t index, std::span<Tensor> gradients, Op op);
    ConstView output_gradient(Stash& stash, std::size_t index, std::span<Tensor> gradients) const;
    void free_output_gradient(Stash& stash, std::size_t index) const;
    void free_unread(Stash& stash, std::size_t index) const;
    void backward_joining(
        LayerCall& call, Stash& stash, std::size_t index, std::span<Tensor> gradients, Op op);
    JoiningLayer::InputGradient begin_input_gradient(Stash& stash,
                                                     std::size_t index,
                                                     std::size_t value,
                                                     const SampleShape& shape,
                                                     std::span<Tensor> gradients);
    bool gives_input_gradient() const { return first() && options.input_gradient; }
    bool first() const { return place.first_layer == 0; }
};

}  // namespace pipetwin::exec
