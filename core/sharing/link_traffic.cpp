// SPDX-License-Identifier: Apache-2.0
#include "core/sharing/link_traffic.h"

#include <algorithm>
#include <cmath>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

namespace {

/// Faster than any link; slow enough that no sum of a few overflows.
constexpr double fastest_rate = 1e17;

/// The rate in whole bytes per second; 0 stands for infinitely fast.
std::int64_t whole_rate(double bytes_per_second) {
    return bytes_per_second > 0 ? std::llround(std::clamp(bytes_per_second, 1.0, fastest_rate))
                                : static_cast<std::int64_t>(fastest_rate);
}

std::vector<std::int64_t> whole_rates(const std::vector<double>& rates) {
    std::vector<std::int64_t> whole;
    std::ranges::transform(rates, std::back_inserter(whole), whole_rate);
    return whole;
}

/// A message is as fast as its own link, a stash as the link to host memory, and both share the
/// links on their way.
std::vector<Claim> claims_of(const Contention& contention,
                             const std::vector<LinkCost>& links,
                             const std::optional<LinkCost>& host_link) {
    std::vector<Claim> claims;
    if (contention.shared_links.empty()) {
        return claims;
    }
    for (std::size_t edge = 0; edge < 2 * links.size(); ++edge) {
        claims.push_back({.most = whole_rate(links[edge / 2].bytes_per_second),
                          .shared = contention.way_of_edge[edge]});
    }
    for (const std::vector<int>& way : contention.way_of_copies) {
        claims.push_back(
            {.most = host_link ? whole_rate(host_link->bytes_per_second) : 1, .shared = way});
    }
    return claims;
}

}  // namespace

LinkTraffic::LinkTraffic(const Contention& contention,
                         const std::vector<LinkCost>& links,
                         const std::optional<LinkCost>& host_link)
    : sharing_(contention.sharing),
      edges_(static_cast<int>(2 * links.size())),
      claims_(claims_of(contention, links, host_link)),
      work_(whole_rates(contention.shared_links), claims_),
      busy_(claims_.size(), false),
      users_(contention.shared_links.size(), 0) {}

void LinkTraffic::add(Duration now, int owner, std::int64_t units, std::size_t tag) {
    waiting_.push_back({.owner = owner, .tag = tag, .units = units});
    start_what_can(now);
}

std::int64_t LinkTraffic::units_of(const LinkCost& link, Bytes bytes, double factor) {
    const Bytes units = bytes.count > 0 ? bytes + link.half_bandwidth : Bytes{};
    return std::llround(static_cast<double>(units.count) * factor);
}

std::vector<LinkTraffic::Carried> LinkTraffic::take_done(Duration now) {
    std::vector<Carried> through;
    for (const int owner : work_.take_done(now)) {
        const auto message = std::ranges::find(under_way_, owner, &Carried::owner);
        PIPETWIN_EXPECT(message != under_way_.end(), "a message is through that had set out");
        through.push_back(*message);
        under_way_.erase(message);
        busy_[as_index(owner)] = false;
        for (const int link : way_of(owner)) {
            --users_[as_index(link)];
        }
    }
    if (!through.empty()) {
        start_what_can(now);
    }
    return through;
}

/// In the order in which they came; who has to wait keeps its place on the edge, and with Fifo on
/// every link of its way.
void LinkTraffic::start_what_can(Duration now) {
    std::vector<bool> wanted(users_.size(), false);
    std::vector<bool> owner_wanted = busy_;
    std::deque<Carried> still_waiting;
    for (const Carried& message : waiting_) {
        const std::size_t owner = as_index(message.owner);
        const bool starts = !owner_wanted[owner] && way_is_free(message.owner, wanted);
        owner_wanted[owner] = true;
        if (starts) {
            start(now, message);
            continue;
        }
        still_waiting.push_back(message);
        for (const int link : way_of(message.owner)) {
            wanted[as_index(link)] = true;
        }
    }
    waiting_ = std::move(still_waiting);
}

bool LinkTraffic::way_is_free(int owner, const std::vector<bool>& wanted) const {
    return sharing_ == LinkSharing::Fair || std::ranges::none_of(way_of(owner), [&](int link) {
               const std::size_t index = as_index(link);
               return users_[index] > 0 || wanted[index];
           });
}

void LinkTraffic::start(Duration now, const Carried& message) {
    work_.begin(now, message.owner, message.units);
    busy_[as_index(message.owner)] = true;
    for (const int shared : way_of(message.owner)) {
        ++users_[as_index(shared)];
    }
    under_way_.push_back(message);
    under_way_.back().begin = now;
}

}  // namespace pipetwin
