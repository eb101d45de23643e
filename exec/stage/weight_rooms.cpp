// SPDX-License-Identifier: Apache-2.0
#include "exec/stage/weight_rooms.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin::exec {
namespace {

std::int64_t bytes_of(DType type, std::int64_t numbers) {
    return numbers * static_cast<std::int64_t>(size_of(type));
}

std::int64_t weight_bytes_of(const DividedNumbers& numbers) {
    const DType type = numbers.parameters.front()->value.dtype();
    return bytes_of(type, numbers.count);
}

std::int64_t gradient_bytes_of(const DividedNumbers& numbers) {
    return bytes_of(numbers.parameters.front()->gradient.dtype(), numbers.count);
}

/// The gradient that a use of the parameter gives.
Tensor& given(Parameter& parameter, bool is_second) {
    return is_second ? parameter.received : parameter.gradient;
}
bool& has_given(Parameter& parameter, bool is_second) {
    return is_second ? parameter.has_received : parameter.has_gradient;
}
bool& has_sum_of(Parameter& parameter, bool is_second) {
    return is_second ? parameter.has_received_share : parameter.has_gradient_share;
}

}  // namespace

std::size_t WeightRooms::add_stage(Layers layers, const ShardGroups& groups, int first_layer) {
    OneStage& stage = stages_.emplace_back();
    std::int64_t all_weights = 0;
    std::int64_t all_gradients = 0;
    std::int64_t largest = 0;
    for (const std::vector<Use>& layer : layers) {
        std::int64_t weights = 0;
        std::int64_t gradients = 0;
        for (const Use& use : layer) {
            weights += weight_bytes_of(*use.numbers);
            gradients += gradient_bytes_of(*use.numbers);
            all_weights += use.is_second ? 0 : weight_bytes_of(*use.numbers);
            all_gradients += use.is_second ? 0 : gradient_bytes_of(*use.numbers);
        }
        largest = std::max(largest, weights);
        stage.gradients = std::max(stage.gradients, gradients);
    }
    stage.gradients = std::min(stage.gradients, all_gradients);
    stage.layers = std::move(layers);
    stage.groups = groups;
    stage.first_layer = first_layer;
    for (std::size_t layer = 0; layer < stage.layers.size(); ++layer) {
        if (has_weights(stages_.size() - 1, layer)) {
            stage.weights = std::min(largest * (1 + prefetch_), all_weights);
        }
    }
    return stages_.size() - 1;
}

void WeightRooms::reserve() {
    std::int64_t bytes = 0;
    for (const OneStage& stage : stages_) {
        bytes = std::max(bytes, stage.gradients + stage.weights);
    }
    if (bytes > 0) {
        room_ = arena_.allocate(DType::U8, 1, bytes, MemoryKind::Workspace);
    }
}

/// False where each replica has all of them, or there are none.
bool WeightRooms::has_weights(std::size_t stage, std::size_t layer) const {
    const std::vector<Use>& uses = stages_[stage].layers[layer];
    return !uses.empty() && uses.front().numbers->whole.empty();
}

std::int64_t WeightRooms::weight_bytes(const Turn& turn) const {
    std::int64_t bytes = 0;
    for (const Use& use : stages_[turn.stage].layers[turn.layer]) {
        bytes += weight_bytes_of(*use.numbers);
    }
    return bytes;
}

void WeightRooms::rehearse(bool on) {
    rehearses_ = on;
    if (on) {
        of_step_.clear();
        return;
    }
    of_evaluation_.clear();
    std::ranges::copy_if(of_step_, std::back_inserter(of_evaluation_), &Turn::forward);
}

void WeightRooms::begin_step(bool evaluation) {
    abandon();
    turns_ = evaluation ? &of_evaluation_ : &of_step_;
}

void WeightRooms::begin_action(bool forward) {
    is_at_work_ = false;
    forward_ = forward;
}

void WeightRooms::need_weights(std::size_t stage, std::size_t layer) {
    if (!has_weights(stage, layer)) {
        return;
    }
    const Turn wanted{.stage = stage, .layer = layer, .forward = forward_};
    const auto is_wanted = [&wanted](const Turn& turn) {
        return turn.stage == wanted.stage && turn.layer == wanted.layer;
    };
    if (rehearses_) {
        if (!is_at_work_ || !is_wanted(of_step_.back())) {
            of_step_.push_back(wanted);
        }
        is_at_work_ = true;
        return;
    }
    if (is_at_work_ && is_wanted((*turns_)[next_ - 1])) {
        return;
    }
    PIPETWIN_EXPECT(next_ < turns_->size() && is_wanted((*turns_)[next_]),
                    "layers work in the order of the rehearsal");
    if (next_ > 0) {
        live_.pop_front();  // of the layer that was at work
    }
    while (begun_ <= next_) {
        PIPETWIN_EXPECT(begin_gather(), "room for the weights of one layer");
    }
    finish_gather();
    is_at_work_ = true;
    while (begun_ < turns_->size() && begun_ < next_ + as_index(prefetch_) && begin_gather()) {
    }
}

/// Finds a place for the weights of a turn, apart from those that are there and from all gradients.
/// At an end of the room first: what is left is in one piece then.
bool WeightRooms::find_room(const Turn& turn, Room& room) const {
    const OneStage& stage = stages_[turn.stage];
    const std::int64_t end = room_.size();
    const std::int64_t size = weight_bytes(turn);
    const std::int64_t least =
        std::max(end - stage.weights,
                 std::ranges::max_element(stages_, {}, &OneStage::gradients)->gradients);
    std::vector<std::int64_t> places{end - size, least};
    for (const Room& taken : live_) {
        places.push_back(taken.begin - size);
        places.push_back(taken.end);
    }
    const auto is_free = [&](std::int64_t begin) {
        return begin >= least && begin + size <= end &&
               std::ranges::none_of(live_, [&](const Room& taken) {
                   return begin < taken.end && taken.begin < begin + size;
               });
    };
    const auto found = std::ranges::find_if(places, is_free);
    if (found == places.end()) {
        return false;
    }
    room = {.begin = *found, .end = *found + size};
    return true;
}

/// Begins to gather the weights of the next turn, unless there is no room.
bool WeightRooms::begin_gather() {
    const Turn& turn = (*turns_)[begun_];
    Room room;
    if (!find_room(turn, room)) {
        return false;
    }
    std::int64_t begin = room.begin;
    const OneStage& of = stages_[turn.stage];
    of.groups.gathers->at_layer(of.first_layer + static_cast<int>(turn.layer));
    for (const Use& use : stages_[turn.stage].layers[turn.layer]) {
        DividedNumbers& numbers = *use.numbers;
        const DType type = numbers.parameters.front()->value.dtype();
        stages_[turn.stage].groups.gathers->begin_gather(numbers.values,
                                                         {at(begin), type, 1, numbers.count});
        begin += bytes_of(type, numbers.count);
    }
    live_.push_back(room);
    ++begun_;
    return true;
}

/// Waits for the weights of the next turn, which is at work then.
void WeightRooms::finish_gather() {
    const Turn& turn = (*turns_)[next_++];
    const OneStage& stage = stages_[turn.stage];
    for (std::size_t i = 0; i < stage.layers[turn.layer].size(); ++i) {
        stage.groups.gathers->finish_gather();
    }
    place_weights(turn, live_.front().begin);
}

void WeightRooms::place_weights(const Turn& turn, std::int64_t begin) {
    for (const Use& use : stages_[turn.stage].layers[turn.layer]) {
        for (Parameter* const parameter : use.numbers->parameters) {
            Tensor& value = parameter->value;
            value = Tensor::placed(arena_.memory(),
                                   at(begin + bytes_of(value.dtype(), parameter->first_number)),
                                   value.dtype(),
                                   value.rows(),
                                   value.columns());
        }
        begin += weight_bytes_of(*use.numbers);
    }
}

void WeightRooms::begin_gradients(std::size_t stage, std::size_t layer) {
    std::int64_t begin = 0;
    for (const Use& use : stages_[stage].layers[layer]) {
        for (Parameter* const parameter : use.numbers->parameters) {
            Tensor& gradient = given(*parameter, use.is_second);
            gradient =
                Tensor::placed(arena_.memory(),
                               at(begin + bytes_of(gradient.dtype(), parameter->first_number)),
                               gradient.dtype(),
                               gradient.rows(),
                               gradient.columns());
            has_given(*parameter, use.is_second) = false;
        }
        begin += gradient_bytes_of(*use.numbers);
    }
}

/// Neighbours that were given go together, if all or none of them have sums.
void WeightRooms::end_gradients(std::size_t stage, std::size_t layer) {
    if (rehearses_) {
        return;
    }
    const ShardGroups& groups = stages_[stage].groups;
    for (Group* const group : {groups.sums, groups.between}) {
        if (group != nullptr) {
            group->at_layer(stages_[stage].first_layer + static_cast<int>(layer));
        }
    }
    for (const Use& use : stages_[stage].layers[layer]) {
        const std::vector<Parameter*>& all = use.numbers->parameters;
        const auto is_given = [&](std::size_t i) { return has_given(*all[i], use.is_second); };
        const auto has_sum = [&](std::size_t i) { return has_sum_of(*all[i], use.is_second); };
        for (std::size_t first = 0; first < all.size(); ++first) {
            if (!is_given(first)) {
                continue;
            }
            std::size_t end = first + 1;
            while (end < all.size() && is_given(end) && has_sum(end) == has_sum(first)) {
                ++end;
            }
            sum(stages_[stage], use, first, end);
            first = end - 1;
        }
    }
}

/// Sums the gradients of some parameters, up to `end`.
void WeightRooms::sum(const OneStage& stage, const Use& use, std::size_t first, std::size_t end) {
    const std::vector<Parameter*>& all = use.numbers->parameters;
    const std::int64_t begin = all[first]->first_number;
    const Parameter& last = *all[end - 1];
    const bool has_sum = has_sum_of(*all[first], use.is_second);
    add_part(stage,
             use,
             {.begin = begin, .size = last.first_number + last.value.size() - begin},
             has_sum);
    for (std::size_t i = first; i < end; ++i) {
        has_sum_of(*all[i], use.is_second) = true;
        has_given(*all[i], use.is_second) = false;
    }
}

/// The sum over the replicas is added to those of the micro-batches before, of the numbers in
/// `run`.
void WeightRooms::add_part(const OneStage& stage,
                           const Use& use,
                           const ElementRange& run,
                           bool has_sum) {
    DividedNumbers& numbers = *use.numbers;
    Tensor& given_first = given(*numbers.parameters.front(), use.is_second);
    Tensor& sums = use.is_second ? numbers.received : numbers.gradients;
    parts_.clear();
    for (const ElementRange& share : numbers.shares) {
        ElementRange part = common(share, run);
        part.begin = part.size > 0 ? part.begin - run.begin : 0;
        parts_.push_back(part);
    }
    const View all(given_first.data(), given_first.dtype(), 1, numbers.count);
    const View given_run = part_of(all, run);
    ElementRange own = common(numbers.own, run);
    own.begin = own.size > 0 ? own.begin - numbers.own.begin : 0;
    const View to = own.size > 0 ? part_of(View(sums), own) : View(nullptr, all.dtype, 1, 0);
    if (stage.groups.between == nullptr) {
        stage.groups.sums->reduce_scatter(
            given_run, has_sum ? ConstView(to) : ConstView(), to, parts_);
        return;
    }
    const View mine = part_of(given_run, parts_[as_index(stage.groups.sums->index())]);
    stage.groups.sums->reduce_scatter(given_run, {}, mine, parts_);
    stage.groups.between->all_reduce(mine, has_sum ? ConstView(to) : ConstView());
    if (own.size > 0) {
        kernels_.copy_columns({.count = mine.columns}, mine, to);
    }
}

void WeightRooms::settle(std::size_t stage) {
    stages_[stage].groups.gathers->at_layer(-1);
    stages_[stage].groups.gathers->settle_gathers();
}

void WeightRooms::spread(std::size_t stage) {
    const OneStage& of = stages_[stage];
    int index = of.first_layer;
    for (const std::vector<Use>& layer : of.layers) {
        of.groups.gathers->at_layer(index++);
        for (const Use& use : layer) {
            DividedNumbers& numbers = *use.numbers;
            if (!use.is_second && !numbers.whole.empty()) {
                const View all = numbers.whole;
                of.groups.gathers->begin_gather(part_of(all, numbers.own), all);
                of.groups.gathers->finish_gather();
            }
        }
    }
    of.groups.gathers->settle_gathers();
}

void WeightRooms::abandon() {
    next_ = 0;
    begun_ = 0;
    live_.clear();
    is_at_work_ = false;
    for (const OneStage& stage : stages_) {
        for (Group* const group :
             std::array{stage.groups.gathers, stage.groups.sums, stage.groups.between}) {
            if (group != nullptr) {
                group->abandon();
            }
        }
    }
}

GroupUse WeightRooms::use() const {
    GroupUse all;
    for (const OneStage& stage : stages_) {
        for (const Group* const group :
             std::array{stage.groups.gathers, stage.groups.sums, stage.groups.between}) {
            if (group != nullptr) {
                all += group->use();
            }
        }
    }
    return all;
}

}  // namespace pipetwin::exec
