#include "core/partition/chain_stages.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

namespace {

using Numbers = std::vector<std::int64_t>;

std::int64_t number_of(Duration duration) {
    return duration.count();
}

std::int64_t number_of(Bytes bytes) {
    return bytes.count;
}

/// As integers; as many zeros where there is nothing.
template <class Value>
Numbers numbers(const std::vector<Value>& values, std::size_t size) {
    PIPETWIN_EXPECT(values.empty() || values.size() == size, "one entry per layer or boundary");
    Numbers result(size, 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
        result[i] = number_of(values[i]);
        PIPETWIN_EXPECT(result[i] >= 0, "the cost of a layer is negative");
    }
    return result;
}

template <class Value>
Numbers sums(const std::vector<Value>& values, int layers) {
    PIPETWIN_EXPECT(values.size() == as_index(layers), "one entry per layer");
    return prefix_sums(std::span<const Value>(values));
}

double largest_of(const Numbers& numbers) {
    return static_cast<double>(*std::ranges::max_element(numbers));
}

/// Doubles may be off by a few thousand here, which does not matter beside what is left above.
std::int64_t bounded(double number, const char* text) {
    if (number > 0.99 * static_cast<double>(never)) {
        throw Error(ErrorKind::BadInput, "partition", text, "check the unit of the costs");
    }
    return static_cast<std::int64_t>(1.001 * number) + 1;
}

constexpr const char* too_long = "the times of all stages add up to more than 73 years";

}  // namespace

ChainBytes::ChainBytes(const ChainMemory& memory, int layers, int stages)
    : memory_(memory),
      states_(sums(memory.states, layers)),
      saved_(sums(memory.saved, layers)),
      input_(numbers(memory.input, states_.size())),
      received_(numbers(memory.received, states_.size())),
      sent_(numbers(memory.sent, states_.size())),
      workspace_(numbers(memory.workspace, static_cast<std::size_t>(layers))) {
    PIPETWIN_EXPECT(memory.in_flight.size() == as_index(stages) &&
                        memory.limit.size() == memory.in_flight.size(),
                    "one number in flight and one limit per stage");
    PIPETWIN_EXPECT(*std::ranges::min_element(memory.in_flight) >= 1 &&
                        *std::ranges::min_element(memory.limit) >= Bytes{},
                    "every stage has a micro-batch in flight and a limit");
    most_ = largest_use();
}

std::int64_t ChainBytes::largest_use() const {
    const double in_flight = *std::ranges::max_element(memory_.in_flight);
    const auto workspace = static_cast<double>(workspace_(0, saved_.size() - 1));
    const double stashes = std::max(static_cast<double>(saved_.back()), largest_of(input_));
    const double held = static_cast<double>(states_.back()) + (in_flight + 1) * stashes;
    return bounded(held + largest_of(received_) + largest_of(sent_) + workspace,
                   "the bytes of all layers and micro-batches add up to more than 2 EiB");
}

std::int64_t ChainBytes::Row::excess(int end) const {
    switch (bytes_.memory_.keep) {
        case Keep::Everything:
            return keeping_everything(end);
        case Keep::InputOnly:
            return keeping_input(end);
        case Keep::WhatFits:
            break;
    }
    return std::min(keeping_everything(end), keeping_input(end));
}

ChainTimes::ChainTimes(const ChainProblem& problem)
    : layers_(problem.devices.empty() ? 0 : static_cast<int>(problem.devices.front().work.size())),
      stages_(static_cast<int>(problem.device_of_stage.size())),
      problem_(problem) {
    check_stage_count(stages_, layers_);
    const auto all_below = [](const std::vector<int>& kinds, std::size_t count) {
        return std::ranges::all_of(
            kinds, [count](int kind) { return kind >= 0 && as_index(kind) < count; });
    };
    PIPETWIN_EXPECT(all_below(problem.device_of_stage, problem.devices.size()),
                    "every stage has a device");
    PIPETWIN_EXPECT(problem.link_of_boundary.empty() ||
                        (problem.link_of_boundary.size() + 1 == problem.device_of_stage.size() &&
                         all_below(problem.link_of_boundary, problem.links.size())),
                    "one link between two stages");
    if (problem.memory) {
        bytes_.emplace(*problem.memory, layers_, stages_);
    }
    for (const DeviceWork& device : problem.devices) {
        devices_.push_back(device_of(device, bytes_ ? bytes_->keep() : Keep::Everything));
    }
    for (const CutCost& link : problem.links) {
        links_.push_back(link_of(link));
    }
    const Numbers nothing(as_index(layers_) + 1, 0);
    links_.push_back({.sender = nothing, .receiver = nothing});
    most_ = largest_cost();
    for (const Device& device : devices_) {
        for (const Link& link : links_) {
            sides_.push_back(side_of(device, link));
        }
    }
}

ChainTimes::Device ChainTimes::device_of(const DeviceWork& work, Keep keep) const {
    Device device{.work = sums(work.work, layers_), .recompute = {}};
    if (keep != Keep::Everything) {
        device.recompute = sums(work.recompute, layers_);
    }
    if (keep == Keep::InputOnly) {
        bounded(
            static_cast<double>(device.work.back()) + static_cast<double>(device.recompute.back()),
            too_long);
        std::ranges::transform(device.work, device.recompute, device.work.begin(), std::plus<>());
    }
    return device;
}

ChainTimes::Link ChainTimes::link_of(const CutCost& cut) const {
    const auto ends_for_nothing = [](Numbers costs) {
        costs.front() = 0;
        costs.push_back(0);
        return costs;
    };
    const std::size_t layers = as_index(layers_);
    return {.sender = ends_for_nothing(numbers(cut.sender, layers)),
            .receiver = ends_for_nothing(numbers(cut.receiver, layers))};
}

ChainTimes::Side ChainTimes::side_of(const Device& device, const Link& link) {
    Side side;
    for (std::size_t layer = 0; layer < device.work.size(); ++layer) {
        side.starts.push_back(device.work[layer] - link.receiver[layer]);
        side.ends.push_back(device.work[layer] + link.sender[layer]);
    }
    // Neither end of the chain is a boundary: the first start is for stage 0 alone, the last end
    // for the last stage.
    side.latest_start = side.starts;
    side.least_ends = side.ends;
    for (std::size_t layer = 2; layer < side.starts.size(); ++layer) {
        side.latest_start[layer] = std::max(side.starts[layer], side.latest_start[layer - 1]);
    }
    for (std::size_t layer = side.ends.size() - 1; layer-- > 1;) {
        const bool is_last = layer + 2 == side.ends.size();
        side.least_ends[layer] =
            is_last ? side.ends[layer] : std::min(side.ends[layer], side.least_ends[layer + 1]);
    }
    return side;
}

const ChainTimes::Side& ChainTimes::side(int stage, bool behind) const {
    const std::vector<int>& kinds = problem_.link_of_boundary;
    const int boundary = behind ? stage : stage - 1;
    std::size_t link = links_.size() - 1;
    if (boundary >= 0 && boundary + 1 < stages_ && link > 0) {
        link = kinds.empty() ? 0 : as_index(kinds[as_index(boundary)]);
    }
    const int device = problem_.device_of_stage[as_index(stage)];
    return sides_[as_index(device) * links_.size() + link];
}

std::int64_t ChainTimes::largest_cost() const {
    double work = 0;
    for (const Device& device : devices_) {
        const bool may_recompute = problem_.memory && problem_.memory->keep == Keep::WhatFits;
        const double again = may_recompute ? static_cast<double>(device.recompute.back()) : 0;
        work = std::max(work, static_cast<double>(device.work.back()) + again);
    }
    double sender = 0;
    double receiver = 0;  // of a stage between links of two kinds
    for (const Link& link : links_) {
        sender = std::max(sender, largest_of(link.sender));
        receiver = std::max(receiver, largest_of(link.receiver));
    }
    bounded(stages_ * (work + sender + receiver), too_long);
    return bounded(work + sender + receiver, too_long);
}

std::int64_t ChainTimes::least_sum() const {
    std::int64_t sum = 0;
    std::vector<std::int64_t> boundaries;
    for (std::size_t layer = 0; layer < as_index(layers_); ++layer) {
        std::int64_t work = never;
        for (const int device : problem_.device_of_stage) {
            const Numbers& sums = devices_.at(as_index(device)).work;
            work = std::min(work, sums[layer + 1] - sums[layer]);
        }
        sum += work;
        std::int64_t boundary = links_.size() > 1 ? never : 0;
        for (std::size_t link = 0; link + 1 < links_.size(); ++link) {
            boundary =
                std::min(boundary, links_[link].sender[layer] + links_[link].receiver[layer]);
        }
        boundaries.push_back(boundary);
    }
    const auto cheapest = boundaries.begin() + stages_;  // the first entry is the chain's end
    std::nth_element(boundaries.begin() + 1, cheapest - 1, boundaries.end());
    return std::accumulate(boundaries.begin() + 1, cheapest, sum);
}

ChainTimes::Row::Row(const ChainTimes& times, int stage, int first)
    : keep_(times.bytes_ ? times.bytes_->keep() : Keep::Everything) {
    const std::size_t at = as_index(first);
    const Side& front = times.side(stage, false);
    const Side& back = times.side(stage, true);
    start_ = front.starts[at];
    latest_start_ = front.latest_start[at];
    ends_ = back.ends.data();
    least_ends_ = back.least_ends.data();
    const int kind = times.problem_.device_of_stage[as_index(stage)];
    const Device& device = times.devices_[as_index(kind)];
    recompute_ = device.recompute.data();
    first_recompute_ = keep_ == Keep::Everything ? 0 : device.recompute[at];
    if (times.bytes_) {
        memory_.emplace(times.bytes_->row(stage, first));
    }
}

std::int64_t ChainTimes::Row::fitting(const ChainBytes::Row& memory,
                                      int end,
                                      std::int64_t time) const {
    if (keep_ == Keep::Everything) {
        return memory.keeping_everything(end) <= 0 ? time : never;
    }
    if (keep_ == Keep::InputOnly) {
        return memory.keeping_input(end) <= 0 ? time : never;
    }
    if (memory.keeping_everything(end) <= 0) {
        return time;
    }
    return memory.keeping_input(end) <= 0 ? time + recompute_[end] - first_recompute_ : never;
}

bool ChainTimes::Row::recomputes(int end) const {
    return keep_ == Keep::InputOnly ||
           (keep_ == Keep::WhatFits && memory_ && memory_->keeping_everything(end) > 0);
}

}  // namespace pipetwin
