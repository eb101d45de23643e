// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/monitor.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "exec/transport/byte_message.h"

namespace pipetwin::exec {

Hint hint_of_lost_host() {
    Hint hint("look at that host");
    hint.resume = "'pipetwin train --resume' continues from the last checkpoint";
    return hint;
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds look_interval{100};

}  // namespace

Monitor::Monitor(ProcessGroup& group, std::vector<std::string> names, Duration silence_limit)
    : group_(group),
      names_(std::move(names)),
      limit_(silence_limit),
      peers_(static_cast<std::size_t>(group.size())) {
    thread_ = std::thread([this] {
        try {
            live();
        } catch (const std::exception&) {  // the network itself has failed
            group_.mark_peer_lost();
        }
    });
}

Monitor& Monitor::of_no_peers() {
    static Monitor monitor;
    return monitor;
}

Monitor::~Monitor() {
    if (!thread_.joinable()) {
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    ends_or_not_.notify_all();
    thread_.join();
}

void Monitor::follow(std::function<Position()> where) {
    if (peers_.empty()) {
        return;
    }
    const std::lock_guard lock(mutex_);
    where_ = std::move(where);
}

std::vector<Position> Monitor::positions() const {
    const std::lock_guard lock(mutex_);
    std::vector<Position> all;
    for (const Peer& peer : peers_) {
        all.push_back(peer.position);
    }
    return all;
}

void Monitor::allow(Duration silence_limit) {
    const std::lock_guard lock(mutex_);
    limit_ = std::max(limit_, silence_limit);
}

std::optional<std::string> Monitor::lost() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> who;
    for (std::size_t process = 0; process < peers_.size(); ++process) {
        if (peers_[process].is_lost) {
            who.push_back(names_[process]);
        }
    }
    if (who.empty()) {
        return std::nullopt;
    }
    return fmt::format("{}", fmt::join(who, ", "));
}

void Monitor::live() {
    auto last = Clock::now();
    std::unique_lock lock(mutex_);
    while (!ends_) {
        lock.unlock();
        beat(false);
        listen();
        const auto now = Clock::now();
        // Where it is longer, this process was held up itself.
        look(std::min<Duration>(now - last, 2 * look_interval));
        last = now;
        lock.lock();
        ends_or_not_.wait_for(lock, look_interval, [this] { return ends_; });
    }
    lock.unlock();
    beat(true);
    listen();
}

void Monitor::beat(bool leaves) {
    Position own;
    {
        const std::lock_guard lock(mutex_);
        own_ = where_ ? where_() : own_;
        own = own_;
    }
    group_.post_status(ByteWriter().put(own).put(leaves).bytes());
}

void Monitor::listen() {
    while (const std::optional<ProcessGroup::Status> status = group_.poll_status()) {
        const std::lock_guard lock(mutex_);
        Peer& peer = peers_[as_index(status->from)];
        peer.is_gone = peer.is_gone || status->is_gone;
        if (!status->bytes.empty()) {
            ByteReader text(status->bytes);
            peer.position = text.get<Position>();
            peer.silence = {};
            peer.has_left = text.get<bool>() || peer.has_left;
        }
    }
}

void Monitor::look(Duration passed) {
    bool any = false;
    {
        const std::lock_guard lock(mutex_);
        for (std::size_t process = 0; process < peers_.size(); ++process) {
            Peer& peer = peers_[process];
            if (static_cast<int>(process) == group_.index() || peer.has_left) {
                continue;
            }
            peer.silence += passed;
            if ((peer.silence > limit_ || peer.is_gone) && !peer.is_lost) {
                peer.is_lost = true;
                any = true;
            }
        }
    }
    if (any) {
        group_.mark_peer_lost();
    }
}

}  // namespace pipetwin::exec
