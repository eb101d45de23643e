// SPDX-License-Identifier: Apache-2.0
#include "core/sharing/fair_work.h"

#include <algorithm>
#include <limits>

#include "core/base/as_index.h"

namespace pipetwin {

std::vector<std::int64_t> max_min_fair_rates(std::span<const Claim* const> claims,
                                             std::span<const std::int64_t> capacities) {
    std::vector<std::int64_t> rates(claims.size(), 0);
    std::vector<bool> settled(claims.size(), false);
    std::vector<std::int64_t> room(capacities.begin(), capacities.end());
    for (std::size_t left = claims.size(); left > 0;) {
        std::vector<std::int64_t> users(room.size(), 0);
        for (std::size_t i = 0; i < claims.size(); ++i) {
            for (const int resource : settled[i] ? std::vector<int>{} : claims[i]->shared) {
                ++users[as_index(resource)];
            }
        }
        const auto limit_of = [&](const Claim& claim) {
            std::int64_t limit = claim.most;
            for (const int resource : claim.shared) {
                const std::size_t index = as_index(resource);
                limit = std::min(limit, room[index] / users[index]);
            }
            return limit;
        };
        std::int64_t least = std::numeric_limits<std::int64_t>::max();
        for (std::size_t i = 0; i < claims.size(); ++i) {
            least = settled[i] ? least : std::min(least, limit_of(*claims[i]));
        }
        // A claim that is held at the lowest level stays there. All are found before any takes its
        // share, as taking it changes what the others would find.
        std::vector<std::size_t> held;
        for (std::size_t i = 0; i < claims.size(); ++i) {
            if (!settled[i] && limit_of(*claims[i]) == least) {
                held.push_back(i);
            }
        }
        for (const std::size_t i : held) {
            settled[i] = true;
            rates[i] = std::max<std::int64_t>(1, least);
            --left;
            for (const int resource : claims[i]->shared) {
                room[as_index(resource)] -= least;
            }
        }
    }
    return rates;
}

void FairWork::set_rates(std::span<Piece> pieces) {
    std::vector<const Claim*> claims;
    for (const Piece& piece : pieces) {
        claims.push_back(&claims_[as_index(piece.owner)]);
    }
    const std::vector<std::int64_t> rates = max_min_fair_rates(claims, capacities_);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        pieces[i].rate = rates[i];
    }
}

}  // namespace pipetwin
