#include "sim/engine/shared_links.h"

#include <algorithm>
#include <cmath>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin::sim {

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

/// A message is as fast as its own link, and shares those on its way.
std::vector<Claim> claims_of_edges(const Conditions& conditions) {
    std::vector<Claim> claims;
    for (std::size_t edge = 0; edge < conditions.contention.way_of_edge.size(); ++edge) {
        claims.push_back({.most = whole_rate(conditions.links[edge / 2].bytes_per_second),
                          .shared = conditions.contention.way_of_edge[edge]});
    }
    return claims;
}

}  // namespace

SharedLinks::SharedLinks(const Plan& plan, const Conditions& conditions)
    : plan_(plan),
      conditions_(conditions),
      way_of_edge_(conditions.contention.way_of_edge),
      work_(whole_rates(conditions.contention.shared_links), claims_of_edges(conditions)),
      edge_busy_(2 * conditions.links.size(), false),
      users_(conditions.contention.shared_links.size(), 0) {}

bool SharedLinks::is_shared(int edge) const {
    return !users_.empty() && !way_of_edge_[as_index(edge)].empty();
}

void SharedLinks::request(Duration now, int edge, const Action& send) {
    waiting_.push_back({.edge = edge, .send = send});
    start_what_can(now);
}

std::vector<SharedLinks::Carried> SharedLinks::take_done(Duration now) {
    std::vector<Carried> through;
    for (const int edge : work_.take_done(now)) {
        const auto message = std::ranges::find(under_way_, edge, &Carried::edge);
        PIPETWIN_EXPECT(message != under_way_.end(), "a message is through that had set out");
        through.push_back(*message);
        under_way_.erase(message);
        edge_busy_[as_index(edge)] = false;
        for (const int link : way_of_edge_[as_index(edge)]) {
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
void SharedLinks::start_what_can(Duration now) {
    std::vector<bool> wanted(users_.size(), false);
    std::vector<bool> edge_wanted = edge_busy_;
    std::deque<Carried> still_waiting;
    for (const Carried& message : waiting_) {
        const std::size_t edge = as_index(message.edge);
        const bool starts = !edge_wanted[edge] && way_is_free(message.edge, wanted);
        edge_wanted[edge] = true;
        if (starts) {
            start(now, message);
            continue;
        }
        still_waiting.push_back(message);
        for (const int link : way_of_edge_[edge]) {
            wanted[as_index(link)] = true;
        }
    }
    waiting_ = std::move(still_waiting);
}

bool SharedLinks::way_is_free(int edge, const std::vector<bool>& wanted) const {
    const auto& way = way_of_edge_[as_index(edge)];
    return conditions_.contention.sharing == LinkSharing::Fair ||
           std::ranges::none_of(way, [&](int link) {
               const std::size_t index = as_index(link);
               return users_[index] > 0 || wanted[index];
           });
}

void SharedLinks::start(Duration now, const Carried& message) {
    const std::size_t edge = as_index(message.edge);
    const LinkCost& link = conditions_.links[edge / 2];
    const Bytes bytes = conditions_.transfer == TransferMode::HandOver
                            ? Bytes{}
                            : message_bytes(plan_, message.edge, message.send.micro_batch);
    const Bytes units = bytes.count > 0 ? bytes + link.half_bandwidth : Bytes{};
    const auto& factors = conditions_.message_factors;
    const double factor = factors.empty() ? 1 : factors[edge][as_index(message.send.micro_batch)];
    work_.begin(now, message.edge, std::llround(static_cast<double>(units.count) * factor));
    edge_busy_[edge] = true;
    for (const int shared : way_of_edge_[edge]) {
        ++users_[as_index(shared)];
    }
    under_way_.push_back({.edge = message.edge, .send = message.send, .begin = now});
}

}  // namespace pipetwin::sim
