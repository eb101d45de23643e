#include "sim/shared_work.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace pipetwin::sim {

std::vector<std::int64_t> max_min_fair_rates(std::span<const Claim* const> claims,
                                             std::span<const std::int64_t> capacities) {
    std::vector<std::int64_t> rates(claims.size(), 0);
    std::vector<bool> settled(claims.size(), false);
    std::vector<std::int64_t> room(capacities.begin(), capacities.end());
    for (std::size_t left = claims.size(); left > 0;) {
        std::vector<std::int64_t> users(room.size(), 0);
        for (std::size_t i = 0; i < claims.size(); ++i) {
            for (const int resource : settled[i] ? std::vector<int>{} : claims[i]->shared) {
                ++users[static_cast<std::size_t>(resource)];
            }
        }
        const auto limit_of = [&](const Claim& claim) {
            std::int64_t limit = claim.most;
            for (const int resource : claim.shared) {
                const auto index = static_cast<std::size_t>(resource);
                limit = std::min(limit, room[index] / users[index]);
            }
            return limit;
        };
        std::int64_t least = std::numeric_limits<std::int64_t>::max();
        for (std::size_t i = 0; i < claims.size(); ++i) {
            least = settled[i] ? least : std::min(least, limit_of(*claims[i]));
        }
        // Whoever is held at the lowest level stays there. All are found before any takes its
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
                room[static_cast<std::size_t>(resource)] -= least;
            }
        }
    }
    return rates;
}

void SharedWork::begin(Duration now, int owner, Units units, Claim claim) {
    advance(now);
    PIPETWIN_EXPECT(units >= 0 && claim.most > 0, "work is not negative and goes on");
    Piece piece{.owner = owner, .claim = std::move(claim)};
    piece.left = units * std::nano::den;
    pieces_.push_back(std::move(piece));
    rates_known_ = false;
}

std::optional<Duration> SharedWork::next_end() {
    share();
    std::optional<Duration> next;
    for (const Piece& piece : pieces_) {
        const Units rest = (piece.left + piece.rate - 1) / piece.rate;
        const Duration end = now_ + Duration{static_cast<std::int64_t>(rest)};
        next = next ? std::min(*next, end) : end;
    }
    return next;
}

std::vector<int> SharedWork::take_done(Duration now) {
    advance(now);
    std::vector<int> done;
    for (const Piece& piece : pieces_) {
        if (piece.left == 0) {
            done.push_back(piece.owner);
        }
    }
    if (!done.empty()) {
        std::erase_if(pieces_, [](const Piece& piece) { return piece.left == 0; });
        rates_known_ = false;
    }
    return done;
}

void SharedWork::advance(Duration now) {
    PIPETWIN_EXPECT(now >= now_, "time does not go back");
    if (now > now_) {
        share();
    }
    const std::int64_t elapsed = (now - now_).count();
    for (Piece& piece : pieces_) {
        const Units done = Units{elapsed} * piece.rate;
        piece.left = std::max(Units{0}, piece.left - done);
    }
    now_ = now;
}

void SharedWork::share() {
    if (rates_known_) {
        return;
    }
    rates_known_ = true;
    std::vector<const Claim*> claims;
    for (const Piece& piece : pieces_) {
        claims.push_back(&piece.claim);
    }
    const std::vector<std::int64_t> rates = max_min_fair_rates(claims, capacities_);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
        pieces_[i].rate = rates[i];
    }
}

}  // namespace pipetwin::sim
