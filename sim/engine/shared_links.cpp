// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/shared_links.h"

#include "core/base/as_index.h"

namespace pipetwin::sim {

SharedLinks::SharedLinks(const Plan& plan, const Conditions& conditions)
    : plan_(plan),
      conditions_(conditions),
      traffic_(conditions.contention, conditions.links, conditions.host_link) {}

bool SharedLinks::shares_copies(const Conditions& conditions) {
    return conditions.host_link && !conditions.contention.shared_links.empty() &&
           !conditions.contention.way_of_copies.empty();
}

void SharedLinks::send(Duration now, int edge, const Action& send) {
    const LinkCost& link = conditions_.links[as_index(edge / 2)];
    const Bytes bytes = conditions_.transfer == TransferMode::HandOver
                            ? Bytes{}
                            : message_bytes(plan_, edge, send.micro_batch);
    const auto& factors = conditions_.message_factors;
    const double factor = factors.empty() ? 1 : factors[as_index(edge)][as_index(send.micro_batch)];
    add(now, edge, send, LinkTraffic::units_of(link, bytes, factor));
}

void SharedLinks::copy(Duration now, int way, const Action& action, std::int64_t units) {
    add(now, traffic_.edges() + way, action, units);
}

void SharedLinks::add(Duration now, int owner, const Action& action, std::int64_t units) {
    actions_.push_back(action);
    traffic_.add(now, owner, units, actions_.size() - 1);
}

std::vector<SharedLinks::Carried> SharedLinks::take_done(Duration now) {
    std::vector<Carried> through;
    for (const LinkTraffic::Carried& done : traffic_.take_done(now)) {
        through.push_back({.owner = done.owner, .action = actions_[done.tag], .begin = done.begin});
    }
    return through;
}

}  // namespace pipetwin::sim
