// SPDX-License-Identifier: Apache-2.0
#include "exec/device/paced_links.h"

#include <algorithm>
#include <chrono>

#include "core/plan/plan.h"

namespace pipetwin::exec {

PacedLinks::PacedLinks(const Plan& plan)
    : start_(std::chrono::steady_clock::now()),
      traffic_(plan->contention, plan->links, plan->host_link) {}

std::function<TimePoint()> PacedLinks::send(int edge, const LinkCost& link, Bytes message) {
    const std::lock_guard lock(mutex_);
    follow();
    const std::size_t number = sent_++;
    traffic_.add(followed_, edge, LinkTraffic::units_of(link, message), number);
    changed_.notify_all();  // all that share with it go slower
    return [this, number, latency = link.latency] { return wait(number, latency); };
}

/// All that has happened on the links until now, in its order.
void PacedLinks::follow() {
    const Duration now = std::chrono::steady_clock::now() - start_;
    for (auto next = traffic_.next_end(); next && *next <= now; next = traffic_.next_end()) {
        followed_ = *next;
        for (const LinkTraffic::Carried& carried : traffic_.take_done(followed_)) {
            through_[carried.tag] = followed_;
        }
    }
    followed_ = std::max(followed_, now);
}

TimePoint PacedLinks::wait(std::size_t message, Duration latency) {
    std::unique_lock lock(mutex_);
    for (follow(); !through_.contains(message); follow()) {
        // The message is under way, or waits for another that is.
        changed_.wait_until(lock, start_ + traffic_.next_end().value_or(followed_));
    }
    const auto found = through_.find(message);
    const TimePoint arrival = start_ + found->second + latency;
    through_.erase(found);
    return arrival;
}

}  // namespace pipetwin::exec
