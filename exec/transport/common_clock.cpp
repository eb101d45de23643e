// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/common_clock.h"

#include <algorithm>
#include <cstdint>

#include "exec/transport/byte_message.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int first = 0;
constexpr int questions = 16;
/// Quartz gains or loses some microseconds a second.
constexpr std::chrono::seconds believed_for{10};

std::int64_t nanoseconds(TimePoint moment) {
    return moment.time_since_epoch().count();
}

void answer(ProcessGroup& group) {
    for (int process = first + 1; process < group.size(); ++process) {
        for (int question = 0; question < questions; ++question) {
            group.receive(process);
            group.send(process, ByteWriter().put(nanoseconds(Clock::now())).bytes());
        }
    }
}

/// Process 0 read its clock after each question was asked and before its answer came. Each
/// question therefore bounds the difference of the two clocks, and all together bound it more
/// closely than the fastest one alone.
Duration how_far_ahead(ProcessGroup& group) {
    Duration least = Duration::min();
    Duration most = Duration::max();
    for (int question = 0; question < questions; ++question) {
        const TimePoint asked = Clock::now();
        group.send(first, {});
        const std::vector<std::byte> message = group.receive(first);
        const TimePoint answered = Clock::now();
        const Duration theirs(ByteReader(message).get<std::int64_t>());
        least = std::max(least, theirs - answered.time_since_epoch());
        most = std::min(most, theirs - asked.time_since_epoch());
    }
    return least + (most - least) / 2;
}

}  // namespace

void CommonClock::ask(ProcessGroup& group) {
    if (group.index() == first) {
        answer(group);
    } else {
        ahead_ = how_far_ahead(group);
    }
    const std::int64_t now = nanoseconds(Clock::now());
    const auto all = group.all_gather(std::as_bytes(std::span(&now, 1)));
    asked_ = TimePoint(Duration(ByteReader(all.front()).get<std::int64_t>()));
}

bool CommonClock::is_old(TimePoint common) const {
    return common - asked_ > believed_for;
}

}  // namespace pipetwin::exec
