// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/inner_layers.h"
#include "core/model/model.h"
#include "exec/device/kernels.h"
#include "exec/layers/make_layer.h"
#include "exec/stage/stage_impl.h"

namespace pipetwin::exec {
namespace {

/// Adds the tensors that hold something to the list, in the order of the layers.
void collect(Kept& kept, std::vector<Tensor*>& tensors) {
    const auto add = [&](Tensor& tensor) {
        if (!tensor.empty()) {
            tensors.push_back(&tensor);
        }
    };
    add(kept.input);
    std::ranges::for_each(kept.tensors, add);
    add(kept.gradient);
    for (Kept& inner : kept.inner) {
        collect(inner, tensors);
    }
}

/// Rules by which the weights of a model are drawn.
ParameterMaker::Settings drawing_rules(const Model& model, const StageOptions& options) {
    int branches = 0;
    for (int i = 0; i < model.layer_count(); ++i) {
        branches += model.layer(i).spec.type == LayerType::Residual ? 1 : 0;
    }
    using Style = ParameterMaker::Style;
    const LayerSpec& first = model.layer(0).spec;
    const Style of_tokens = first.scaled ? Style::Transformer : Style::Gpt;
    return {.style = first.type == LayerType::Embedding ? of_tokens : Style::Linear,
            .residual_scale = 1.0 / std::sqrt(std::max(branches, 1)),
            .seed = options.seed,
            .layer = 0,
            .optimizer_slots = traits(options.optimizer).state_slots,
            .first_begins_at = traits(options.optimizer).first_begins_at,
            .averages_weights = options.averages_weights,
            .shared = options.shared_weights,
            .format = options.format,
            .table_name = model.layer(0).spec.name + ".tokens",
            .device = options.group == nullptr ? 0 : options.group->index()};
}

/// Numbers of a layer's parameters, without those of a table that another layer uses, too.
std::int64_t numbers_of(const Model& model, int layer) {
    const bool is_end = layer == 0 || layer + 1 == model.layer_count();
    return model.layer(layer).parameter_count - (is_end ? model.tied_count() : 0);
}

}  // namespace

Stage::Impl::Impl(Device& on, Arena& in, const Model& model, Place at, const StageOptions& with)
    : device(on), kernels(&on.kernels()), arena(in), options(with), place(at) {
    for (int i = place.first_layer; i < place.first_layer + place.layer_count; ++i) {
        names.push_back(model.layer(i).spec.name);
    }
    stashes.resize(as_index(options.micro_batches));
    loss_sums = device.results(stashes.size());
    auxiliary_sums = device.results(stashes.size());
    if (options.counts_right) {
        right_sums = device.results(stashes.size());
    }
    loss_scales.resize(stashes.size());
    auxiliary_scales.resize(stashes.size());
}

namespace {

std::vector<std::unique_ptr<ExecutableLayer>> layers_of(const Model& model,
                                                        const Stage::Place& place,
                                                        const NumberFormat& format) {
    std::vector<std::unique_ptr<ExecutableLayer>> layers;
    for (int i = place.first_layer; i < place.first_layer + place.layer_count; ++i) {
        layers.push_back(make_layer(model, i, format));
    }
    return layers;
}

/// What a stage of a chain exchanges with its neighbours.
PieceMessages messages_of_chain(const Model& model, const Stage::Place& place) {
    const int end = place.first_layer + place.layer_count;
    PieceMessages messages;
    if (place.first_layer > 0) {
        messages.received.push_back({place.first_layer - 1});
    }
    if (model.layer(end - 1).output.width > 0) {  // no loss
        messages.sent.push_back({end - 1});
    }
    return messages;
}

}  // namespace

Stage::Stage(
    Device& device, Arena& arena, const Model& model, Place place, const StageOptions& options)
    : Stage(device, arena, model, place, layers_of(model, place, options.format), options) {}

Stage::Stage(Device& device,
             Arena& arena,
             const Model& model,
             Place place,
             std::vector<std::unique_ptr<ExecutableLayer>> layers,
             const StageOptions& options)
    : impl_(std::make_unique<Impl>(device, arena, model, place, options)) {
    impl_->layers = std::move(layers);
    impl_->create_parameters(model, drawing_rules(model, options));
    impl_->find_blocks(model.is_chain());
    impl_->connect(model);
}

Stage::~Stage() = default;

/// How replicas divide a layer; none: they do not.
std::optional<LayerDivision> Stage::Impl::division_of(const Model& model, int layer) const {
    if (options.rooms == nullptr) {
        return std::nullopt;
    }
    const Group& group = *options.shards->sums;
    return LayerDivision{.replica = group.index(),
                         .replicas = group.size(),
                         .weights = options.divides_weights,
                         .numbers = numbers_of(model, layer),
                         .alignment = options.parameter_alignment};
}

/// Says what each layer uses of what replicas divide.
void Stage::Impl::enter_rooms(bool has_both_ends) {
    WeightRooms::Layers uses(layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i) {
        for (Parameter* const parameter : layers[i]->parameters()) {
            DividedNumbers& numbers = *parameter->divided;
            if (numbers.parameters.empty()) {
                uses[i].push_back({.numbers = &numbers});
            }
            numbers.parameters.push_back(parameter);
        }
    }
    for (const std::unique_ptr<DividedNumbers>& numbers : divided) {
        PIPETWIN_EXPECT(numbers->passed == numbers->count, "a model knows its parameters");
        const Parameter& first = *numbers->parameters.front();
        if (has_both_ends && !first.received.empty()) {
            uses.back().push_back({.numbers = numbers.get(), .is_second = true});
        }
    }
    number_in_rooms = options.rooms->add_stage(std::move(uses), *options.shards, place.first_layer);
}

void Stage::Impl::create_parameters(const Model& model, const ParameterMaker::Settings& rules) {
    const bool shares = options.optimizer_shards > 1 && options.rooms == nullptr;
    Bytes workspace;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        ParameterMaker::Settings own = rules;
        own.layer = place.first_layer + static_cast<int>(i);
        ShareCut cut(options.optimizer_shards, numbers_of(model, own.layer));
        own.cut = shares ? &cut : nullptr;
        own.replica = options.replica;
        std::optional<LayerDivision> division = division_of(model, own.layer);
        own.division = division ? &*division : nullptr;
        if (i > 0 && first() && !layers.front()->parameters().empty()) {
            own.table = layers.front()->parameters().front();
        }
        ParameterMaker maker(arena, *kernels, own);
        layers[i]->create_parameters(maker, names[i], false);
        PIPETWIN_EXPECT(!shares || cut.passed() == numbers_of(model, own.layer),
                        "a model knows its parameters");
        if (division) {
            std::ranges::move(division->made, std::back_inserter(divided));
        }
        workspace = std::max(workspace, layers[i]->workspace_bytes(options.largest_micro_batch));
    }
    if (workspace > Bytes{}) {
        arena.workspace(workspace);
    }
    std::vector<BatchMoments*> norms;
    for (const auto& layer : layers) {
        std::ranges::copy(layer->parameters(), std::back_inserter(parameters));
        std::ranges::copy(layer->state(), std::back_inserter(state));
        std::ranges::copy(layer->batch_moments(), std::back_inserter(norms));
    }
    moments = StageMoments(std::move(norms));
    own_moments.resize(moments.size());
    twin_moments.resize(moments.size());
    std::ranges::copy_if(parameters, std::back_inserter(shared), [](const Parameter* parameter) {
        return !parameter->received.empty();
    });
    squares = device.results(parameters.size());
    dropped.resize(layers.size());
    if (options.rooms != nullptr) {
        enter_rooms(place.layer_count == model.layer_count());
    }
}

/// False for a block of a model with branches that is one layer, which keeps nothing but what it
/// reads: by itself there is nothing to drop.
bool Stage::Impl::is_computed_again(const LayerRange& block, bool is_chain) const {
    const int index = block.first - place.first_layer;
    const bool is_here = index >= 0 && index < static_cast<int>(layers.size());
    const bool is_alone = options.blocks_together == 1 && block.end == block.first + 1;
    return is_chain || !is_here || !is_alone || layers[as_index(index)]->kept_bytes(1) > Bytes{};
}

/// The parts of recomputed blocks that the stage has, in their groups.
void Stage::Impl::find_blocks(bool is_chain) {
    blocks.resize(layers.size());
    const LayerRange stage{.first = place.first_layer,
                           .end = place.first_layer + static_cast<int>(layers.size())};
    std::erase_if(options.recomputed_blocks,
                  [&](const LayerRange& block) { return !is_computed_again(block, is_chain); });
    for (const LayerRange& group :
         block_groups(options.recomputed_blocks, stage, options.blocks_together)) {
        for (int layer = group.first; layer < group.end; ++layer) {
            blocks[as_index(layer)] = group;
        }
    }
}

/// Finds out what the stage does with outputs.
void Stage::Impl::connect(const Model& model) {
    outputs.emplace(model,
                    place.first_layer,
                    place.layer_count,
                    options.messages ? *options.messages : messages_of_chain(model, place),
                    blocks);
    made_for_group.reserve(layers.size());
    for (std::size_t index = 0; index < layers.size(); ++index) {
        // A layer of a chain reads one output, whatever is inside.
        joining.push_back(outputs->is_chain() || outputs->reads(index).empty()
                              ? nullptr
                              : dynamic_cast<JoiningLayer*>(layers[index].get()));
    }
    made_again.resize(outputs->sent().size());
    for (Stash& stash : stashes) {
        stash.outputs = outputs->make_stash();
    }
}

Stage::Stash& Stage::Impl::stash(int micro_batch) {
    PIPETWIN_EXPECT(micro_batch >= 0, "micro-batches count from 0");
    const std::size_t index = as_index(micro_batch);
    if (index >= stashes.size()) {  // more than announced: the list grows, nothing else
        stashes.resize(index + 1);
        for (Stash& added : std::span(stashes).subspan(loss_scales.size())) {
            added.outputs = outputs->make_stash();
        }
        for (std::span<double>* const sums : {&loss_sums, &auxiliary_sums, &right_sums}) {
            if (!sums->empty()) {
                const std::span<double> more = device.results(stashes.size());
                std::ranges::copy(*sums, more.begin());
                *sums = more;
            }
        }
        loss_scales.resize(stashes.size());
        auxiliary_scales.resize(stashes.size());
    }
    return stashes[index];
}

LayerCall Stage::Impl::call(int micro_batch, const Stash& stash) {
    Bytes workspace;
    for (const auto& layer : layers) {
        workspace = std::max(workspace, layer->workspace_bytes(stash.samples));
    }
    return {.kernels = *kernels,
            .arena = arena,
            .workspace = arena.workspace(workspace),
            .micro_batch = micro_batch,
            .samples = stash.samples,
            .batch_samples = stash.batch_samples,
            .first_sample = stash.first_sample,
            .step = stash.step,
            .progress = options.training_steps > 0
                            ? std::min(1.0, double{1} * stash.step / options.training_steps)
                            : 1.0,
            .group = options.group != nullptr && kernels == &device.kernels() ? *options.group
                                                                              : idle_group()};
}

/// The model's own input, from the host.
Tensor Stage::Impl::load(const MicroBatch& data) {
    const Batch& batch = *data.batch;
    const SampleShape& wanted = layers.front()->input();
    const SampleShape found{
        .token_ids = batch.width == 0, .positions = batch.positions, .width = batch.width};
    if (found.token_ids != wanted.token_ids || found.positions != wanted.positions ||
        (!wanted.token_ids && found.width != wanted.width)) {
        throw Error(
            ErrorKind::BadInput,
            fmt::format("stage {}, layer \"{}\"", place.stage, names.front()),
            fmt::format(
                "a sample of the batch is {}, expected {}", to_string(found), to_string(wanted)));
    }
    const std::int64_t rows = std::int64_t{data.samples} * wanted.positions;
    const std::size_t width = wanted.token_ids ? 1 : as_index(wanted.width);
    const std::size_t begin = as_index(data.first_sample) * as_index(wanted.positions) * width;
    const std::size_t count = as_index(rows) * width;
    Tensor input = arena.allocate(wanted.token_ids ? DType::I32 : options.format.real,
                                  rows,
                                  static_cast<std::int64_t>(width),
                                  MemoryKind::Stash);
    if (wanted.token_ids) {
        kernels->upload(std::span(batch.tokens).subspan(begin, count), input);
    } else {
        kernels->upload(std::span(batch.values).subspan(begin, count), input);
    }
    return input;
}

Stage::Boundary Stage::Impl::boundary(const SampleShape& shape, int samples) const {
    return {.type = options.format.real,
            .rows = std::int64_t{samples} * shape.positions,
            .columns = shape.width};
}

/// Type and shape of a message.
Stage::Boundary Stage::Impl::message_shape(const StageOutputs::Message& message,
                                           int samples) const {
    if (message.value) {
        return boundary(outputs->values()[*message.value].shape, samples);
    }
    return {.type = options.format.real, .rows = 1, .columns = message.numbers * samples};
}

bool Stage::Impl::times_layers() const {
    return options.layer_done && (!options.times_layers || options.times_layers());
}

void Stage::Impl::tell(std::size_t index, Op part) const {
    if (options.between_layers && kernels == &device.kernels()) {
        options.between_layers();
    }
    if (times_layers() && kernels == &device.kernels()) {
        const int layer = place.first_layer + static_cast<int>(index);
        device.mark([this, layer, part, waited = waited()](TimePoint done) {
            options.layer_done(layer, part, done, waited);
        });
    }
}

/// Time in groups of devices and replicas so far.
GroupTimes Stage::Impl::waited() const {
    return {.devices = options.group != nullptr ? options.group->use().time : Duration{},
            .replicas = options.rooms != nullptr ? options.rooms->use().time : Duration{}};
}

std::function<void(Op)> Stage::Impl::part_teller(std::size_t index) const {
    if (!options.layer_done && !options.between_layers) {
        return {};
    }
    return [this, index](Op part) { tell(index, part); };
}

/// Tells the loss layer where what it finds in the micro-batch is to go.
void Stage::Impl::want_sums(LayerCall& call, int micro_batch) {
    call.loss_sum = &loss_sums[as_index(micro_batch)];
    call.auxiliary_sum = &auxiliary_sums[as_index(micro_batch)];
    call.right_sum = right_sums.empty() ? nullptr : &right_sums[as_index(micro_batch)];
}

/// Takes what the loss layer, where the stage has one, has said of the micro-batch's sums.
void Stage::Impl::take_scales(const LayerCall& call, int micro_batch) {
    loss_scales[as_index(micro_batch)] = call.loss_scale;
    auxiliary_scales[as_index(micro_batch)] = call.auxiliary_scale;
}

void Stage::begin_batch() {
    impl_->has_added_terms = false;
    for (Parameter* const parameter : parameters()) {
        parameter->has_gradient = parameter->has_gradient_share = false;
        parameter->has_received = parameter->has_received_share = false;
    }
    for (const auto& layer : impl_->layers) {
        layer->forget_batch();
    }
    zero_losses();
}

void Stage::zero_missing_gradients() {
    for (Parameter* const parameter : parameters()) {
        if (!std::exchange(parameter->has_sum(), true) && !parameter->sum().empty()) {
            impl_->kernels->fill_zero(parameter->sum());
        }
    }
}

void Stage::zero_losses() {
    std::ranges::fill(impl_->loss_sums, 0.0);
    std::ranges::fill(impl_->right_sums, 0.0);
    std::ranges::fill(impl_->loss_scales, 0.0);
    std::ranges::fill(impl_->auxiliary_sums, 0.0);
    std::ranges::fill(impl_->auxiliary_scales, 0.0);
}

const std::vector<Parameter*>& Stage::shared_parameters() const {
    return impl_->shared;
}

void Stage::hand_gradients_to(Stage& other) {
    const std::vector<Parameter*>& own = impl_->shared;
    const std::vector<Parameter*>& theirs = other.impl_->shared;
    PIPETWIN_EXPECT(own.size() == theirs.size(), "both stages have the same shared parameters");
    for (std::size_t i = 0; i < own.size(); ++i) {
        const Tensor& sum = own[i]->sum();
        impl_->kernels->copy_columns({.count = sum.columns()}, sum, theirs[i]->received_sum());
        theirs[i]->has_received_sum() = true;
    }
}

std::vector<CopyEngine::Piece> Stage::gradients_for(Stage& other) {
    const std::vector<Parameter*>& own = impl_->shared;
    const std::vector<Parameter*>& theirs = other.impl_->shared;
    PIPETWIN_EXPECT(own.size() == theirs.size(), "both stages have the same shared parameters");
    std::vector<CopyEngine::Piece> pieces;
    for (std::size_t i = 0; i < own.size(); ++i) {
        pieces.push_back({.from = own[i]->sum().data(),
                          .to = theirs[i]->received_sum().data(),
                          .bytes = static_cast<std::size_t>(own[i]->sum().bytes().count)});
        theirs[i]->has_received_sum() = true;
    }
    return pieces;
}

void Stage::note_received_gradients() {
    for (Parameter* const parameter : impl_->shared) {
        parameter->has_received_sum() = true;
    }
}

void Stage::add_received_gradients() {
    zero_missing_gradients();
    for (Parameter* const parameter : impl_->shared) {
        if (parameter->has_received_sum() && !parameter->sum().empty()) {
            impl_->kernels->add(parameter->received_sum(), parameter->sum());
        }
    }
}

const StageMoments& Stage::moments() const {
    return impl_->moments;
}

bool Stage::is_twin_of(const Stage& other) const {
    return place().first_layer == other.place().first_layer &&
           place().layer_count == other.place().layer_count;
}

void Stage::hand_moments_to(Stage& twin) const {
    impl_->moments.read(*impl_->kernels, twin.impl_->twin_moments);
}

std::span<double> Stage::moments_for_twin() {
    impl_->moments.read(*impl_->kernels, impl_->own_moments);
    return impl_->own_moments;
}

std::span<double> Stage::moments_from_twin() {
    return impl_->twin_moments;
}

void Stage::add_twin_moments(int twin) {
    std::vector<double>& own = impl_->own_moments;
    std::vector<double>& theirs = impl_->twin_moments;
    if (own.empty()) {
        return;
    }
    impl_->moments.read(*impl_->kernels, own);
    const bool comes_first = place().stage < twin;
    impl_->moments.add(comes_first ? theirs : own, comes_first ? own : theirs);
    impl_->moments.write(*impl_->kernels, comes_first ? own : theirs);
}

void Stage::commit_batch() {
    for (const auto& layer : impl_->layers) {
        layer->commit_batch(*impl_->kernels);
    }
}

void Stage::sum_squares() {
    exec::sum_squares(impl_->device, parameters(), impl_->squares);
}

void Stage::spread_weights() {
    if (impl_->options.rooms != nullptr) {
        impl_->options.rooms->spread(impl_->number_in_rooms);
    }
}

void Stage::add_up_terms() {
    if (impl_->options.group == nullptr || std::exchange(impl_->has_added_terms, true)) {
        return;
    }
    zero_missing_gradients();
    impl_->options.group->at_layer(-1);
    for (Parameter* const parameter : parameters()) {
        if (parameter->is_partial) {
            impl_->options.group->all_reduce(parameter->sum());
        }
    }
}

void Stage::share_squares() {
    if (impl_->options.group == nullptr) {
        return;
    }
    Group& group = *impl_->options.group;
    const std::vector<Parameter*>& all = parameters();
    std::vector<double>& of_devices = impl_->squares_of_devices;
    of_devices.resize(all.size() * as_index(group.size()));
    group.at_layer(-1);
    group.all_gather_on_host(impl_->squares, of_devices);
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i]->cut.cuts()) {
            impl_->squares[i] = 0;
            for (std::size_t from = i; from < of_devices.size(); from += all.size()) {
                impl_->squares[i] += of_devices[from];
            }
        }
    }
}

void Stage::update(const OptimizerSettings& settings, int step, double gradient_scale) {
    zero_missing_gradients();
    if (impl_->options.rooms != nullptr) {
        impl_->options.rooms->settle(impl_->number_in_rooms);
    }
    std::size_t done = 0;
    const auto update_next = [&](const std::vector<Parameter*>& some) {
        exec::update(impl_->device,
                     some,
                     settings,
                     step,
                     impl_->squares.subspan(done, some.size()),
                     gradient_scale);
        done += some.size();
    };
    if (!impl_->times_layers()) {
        return update_next(parameters());
    }
    for (std::size_t i = 0; i < impl_->layers.size(); ++i) {
        update_next(impl_->layers[i]->parameters());
        impl_->tell(i, Op::Optimizer);
    }
}

std::span<const double> Stage::counted_squares() {
    const std::vector<Parameter*>& all = parameters();
    impl_->counted_squares.clear();
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all[i]->is_copy) {
            impl_->counted_squares.push_back(impl_->squares[i]);
        }
    }
    return impl_->counted_squares;
}

std::span<double> Stage::squares_of_share() {
    return impl_->squares;
}

std::span<const double> Stage::gradient_squares() const {
    return impl_->squares;
}

Stage::Boundary Stage::received_message(std::size_t message, int samples) const {
    return impl_->message_shape(impl_->outputs->received().at(message), samples);
}

Stage::Boundary Stage::sent_message(std::size_t message, int samples) const {
    return impl_->message_shape(impl_->outputs->sent().at(message), samples);
}

void Stage::rehearse(bool on) {
    impl_->kernels = on ? &null_kernels() : &impl_->device.kernels();
}

void Stage::watch_outputs(LayerWatch watch) {
    impl_->watch = std::move(watch);
}

std::vector<Tensor*> Stage::stash_tensors(int micro_batch) {
    Stash& stash = impl_->stash(micro_batch);
    std::vector<Tensor*> tensors;
    stash.outputs.for_each([&](Tensor& tensor) {
        if (!tensor.empty()) {
            tensors.push_back(&tensor);
        }
    });
    for (Kept& layer : stash.layers) {
        collect(layer, tensors);
    }
    return tensors;
}

void Stage::reset() {
    std::ranges::for_each(impl_->stashes, &Stash::clear);
    std::ranges::for_each(impl_->dropped, &Kept::clear);
    begin_batch();
}

double Stage::loss() const {
    double sum = 0;
    for (std::size_t i = 0; i < impl_->loss_sums.size(); ++i) {
        sum += impl_->loss_sums[i] * impl_->loss_scales[i];
        sum += impl_->auxiliary_sums[i] * impl_->auxiliary_scales[i];
    }
    return sum;
}

double Stage::right_rows() const {
    return std::accumulate(impl_->right_sums.begin(), impl_->right_sums.end(), 0.0);
}

// Where nothing is rounded the tensors change places: layers read what `value` is, whichever memory
// that has.
void Stage::use_averages(bool on) {
    if (!impl_->options.averages_weights || impl_->uses_averages == on) {
        return;
    }
    for (Parameter* const parameter : parameters()) {
        if (parameter->master.empty()) {
            std::swap(parameter->value, parameter->average);
        } else {
            impl_->device.kernels().round(on ? parameter->average : parameter->master,
                                          parameter->value);
        }
    }
    impl_->uses_averages = on;
}

const std::vector<Parameter*>& Stage::parameters() {
    return impl_->parameters;
}

const std::vector<Parameter*>& Stage::state() const {
    return impl_->state;
}

const Stage::Place& Stage::place() const {
    return impl_->place;
}

int Stage::stash_count() const {
    return static_cast<int>(std::ranges::count_if(impl_->stashes, &Stash::alive));
}

}  // namespace pipetwin::exec
