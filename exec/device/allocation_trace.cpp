// SPDX-License-Identifier: Apache-2.0
#include "exec/device/allocation_trace.h"

#include <cstdint>
#include <limits>

#include "core/base/error.h"

namespace pipetwin::exec {
namespace {

constexpr std::size_t open_end = std::numeric_limits<std::size_t>::max();
constexpr std::uintptr_t rehearsed_line = 64;  // bytes: addresses are whole cache lines

}  // namespace

void AllocationTrace::turn() {
    needs_.turns.push_back(event_++);
    needs_.asked.push_back(needs_.requests.size());
    needs_.at_work.push_back(at_work_);
}

void* AllocationTrace::take(std::size_t bytes) {
    needs_.requests.push_back({.bytes = bytes,
                               .begin = event_++,
                               .end = open_end,
                               .cell = static_cast<int>(needs_.turns.size()) - 1});
    ++at_work_;
    return name(false, needs_.requests.size() - 1);
}

void AllocationTrace::give_back(void* address) {
    RowNeeds::Need& given = need(address);
    given.end = event_++;
    if (!given.received) {
        --at_work_;
    }
}

void AllocationTrace::send(void* address, const MessageName& message) {
    RowNeeds::Need& sent = need(address);
    PIPETWIN_EXPECT(!sent.received, "a rank sends what it has made");
    sent.sent = message;
    ++event_;
    --at_work_;
}

void* AllocationTrace::receive(std::size_t bytes, const MessageName& message) {
    needs_.arrivals.push_back({.bytes = bytes,
                               .begin = event_++,
                               .end = open_end,
                               .cell = static_cast<int>(needs_.turns.size()) - 1,
                               .sent = {},
                               .received = message});
    return name(true, needs_.arrivals.size() - 1);
}

void AllocationTrace::copy(void* address, int edge) {
    const auto index = static_cast<std::size_t>(&need(address) - needs_.requests.data());
    PIPETWIN_EXPECT(index < needs_.requests.size(), "a rank copies what it has made");
    copied_.push_back({.request = index, .edge = edge});
    --at_work_;
}

void AllocationTrace::free_copied(int edge) {
    std::erase_if(copied_, [&](const Copied& copied) {
        if (copied.edge != edge) {
            return false;
        }
        needs_.requests[copied.request].end = event_++;
        return true;
    });
}

RowNeeds AllocationTrace::end() {
    turn();
    for (std::vector<RowNeeds::Need>* const all : {&needs_.requests, &needs_.arrivals}) {
        for (RowNeeds::Need& each : *all) {
            if (each.end == open_end) {
                each.end = event_;
            }
        }
    }
    return std::move(needs_);
}

RowNeeds::Need& AllocationTrace::need(void* address) {
    const auto number = reinterpret_cast<std::uintptr_t>(address) / rehearsed_line;
    PIPETWIN_EXPECT(number >= 1 && number <= names_.size(), "a name of this rehearsal");
    const Name& found = names_[number - 1];
    return (found.is_arrival ? needs_.arrivals : needs_.requests)[found.index];
}

void* AllocationTrace::name(bool is_arrival, std::size_t index) {
    names_.push_back({.is_arrival = is_arrival, .index = index});
    return reinterpret_cast<void*>(names_.size() *
                                   rehearsed_line);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace pipetwin::exec
