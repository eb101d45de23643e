// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/heartbeat.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/device/device_failure.h"

namespace pipetwin::exec {
namespace {

constexpr std::chrono::milliseconds interval{100};
constexpr std::chrono::milliseconds look{1};
/// Where the first process itself is silent, nothing is known of the others.
constexpr std::chrono::seconds silence{1};

/// Goes ahead of the statuses in a beat.
struct Head {
    std::uint64_t aborted = 0;
};

}  // namespace

Heartbeat::Heartbeat(const GpuMember& self, std::vector<PeerLink> links)
    : self_(self),
      statuses_(static_cast<std::size_t>(self.count)),
      fresh_(static_cast<std::size_t>(self.count)) {
    const std::size_t bytes = sizeof(Head) + statuses_.size() * sizeof(PeerStatus);
    const auto now = Clock::now();
    for (PeerLink& link : links) {
        Beat& beat = beats_.emplace_back();
        beat.link = std::move(link);
        beat.sent.resize(bytes);
        beat.received.resize(bytes);
        beat.due = now;
        beat.last = now;
    }
    thread_ = std::thread([this] { live(); });
}

Heartbeat::~Heartbeat() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    ends_or_not_.notify_all();
    thread_.join();
}

void Heartbeat::post_status(std::span<const std::byte> bytes) {
    PIPETWIN_EXPECT(bytes.size() <= max_status_bytes, "a status is short");
    const std::lock_guard lock(mutex_);
    PeerStatus& mine = own();
    ++mine.number;
    mine.size = bytes.size();
    std::ranges::copy(bytes, mine.bytes.begin());
    if (!is_first() && Clock::now() - beats_.front().last > silence) {
        for (std::size_t process = 1; process < statuses_.size(); ++process) {
            fresh_[process] = fresh_[process] || statuses_[process].number > 0;
        }
    }
}

std::optional<ProcessGroup::Status> Heartbeat::poll_status() {
    const std::lock_guard lock(mutex_);
    for (std::size_t process = 0; process < statuses_.size(); ++process) {
        if (fresh_[process] && std::cmp_not_equal(process, self_.index)) {
            fresh_[process] = false;
            const PeerStatus& status = statuses_[process];
            return ProcessGroup::Status{
                .from = static_cast<int>(process),
                .bytes = {status.bytes.begin(),
                          status.bytes.begin() + static_cast<std::ptrdiff_t>(status.size)},
                .is_gone = status.gone != 0};
        }
    }
    return std::nullopt;
}

void Heartbeat::flush() {
    constexpr std::chrono::seconds patience{1};
    const auto end = Clock::now() + patience;
    std::vector<std::int64_t> begun;
    {
        const std::lock_guard lock(mutex_);
        for (const Beat& beat : beats_) {
            begun.push_back(beat.begun);
        }
    }
    const auto all_know = [&] {
        const std::lock_guard lock(mutex_);
        return std::ranges::equal(beats_, begun, [](const Beat& beat, std::int64_t before) {
            return beat.fails || beat.done > before;
        });
    };
    while (!all_know() && Clock::now() < end) {
        std::this_thread::sleep_for(look);
    }
}

void Heartbeat::live() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
        lock.unlock();
        const auto now = Clock::now();
        auto next = now + interval;
        for (Beat& beat : beats_) {
            try {
                next = std::min(next, go_on(beat, now) ? now + look : beat.due);
            } catch (const DeviceFailure&) {
                lose(beat);
            }
        }
        lock.lock();
        ends_or_not_.wait_until(lock, next, [this] { return ends_; });
    }
}

/// Whether a beat is under way.
bool Heartbeat::go_on(Beat& beat, Clock::time_point now) {
    if (beat.fails) {
        beat.due = now + interval;
        return false;
    }
    if (beat.done == beat.begun && now >= beat.due) {
        begin(beat);
    }
    if (beat.done < beat.begun) {
        const std::int64_t received = beat.link.in->complete();
        const std::int64_t sent = beat.link.out->complete();  // in any case: looking moves it on
        if (std::min(received, sent) == beat.begun) {
            take(beat);
        }
    }
    return beat.done < beat.begun;
}

void Heartbeat::begin(Beat& beat) {
    {
        const std::lock_guard lock(mutex_);
        const Head head{.aborted = aborted_ ? std::uint64_t{1} : 0};
        std::memcpy(beat.sent.data(), &head, sizeof head);
        std::memcpy(beat.sent.data() + sizeof head,
                    statuses_.data(),
                    statuses_.size() * sizeof(PeerStatus));
        ++beat.begun;
    }
    const Bytes bytes{std::ssize(beat.sent)};
    beat.link.in->add(beat.received.data(), bytes);
    beat.link.out->add(beat.sent.data(), bytes);
}

void Heartbeat::take(Beat& beat) {
    Head head;
    std::memcpy(&head, beat.received.data(), sizeof head);
    std::vector<PeerStatus> theirs(statuses_.size());
    std::memcpy(
        theirs.data(), beat.received.data() + sizeof head, theirs.size() * sizeof(PeerStatus));
    const std::lock_guard lock(mutex_);
    for (std::size_t process = 0; process < statuses_.size(); ++process) {
        PeerStatus& known = statuses_[process];
        const PeerStatus& told = theirs[process];
        if (told.number > known.number || told.gone > known.gone) {
            known = told;
            fresh_[process] = true;
        }
    }
    if (head.aborted != 0) {
        aborted_ = true;
    }
    beat.done = beat.begun;
    beat.last = Clock::now();
    beat.due = beat.last + interval;
}

/// A link that fails has lost its other end.
void Heartbeat::lose(Beat& beat) {
    const std::lock_guard lock(mutex_);
    beat.fails = true;
    const std::size_t peer = as_index(beat.link.peer);
    statuses_[peer].gone = 1;
    fresh_[peer] = true;
}

}  // namespace pipetwin::exec
