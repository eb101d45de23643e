// SPDX-License-Identifier: Apache-2.0
#include "core/sharing/shared_work.h"

#include <algorithm>
#include <ratio>

#include "core/base/error.h"

namespace pipetwin {

void SharedWork::begin(Duration now, int owner, Units units) {
    PIPETWIN_EXPECT(units >= 0, "work is not negative");
    advance(now);
    pieces_.push_back({.owner = owner, .left = units * std::nano::den});
    rates_known_ = false;
}

std::optional<Duration> SharedWork::next_end() {
    if (pieces_.empty()) {
        return std::nullopt;
    }
    share();
    const auto rest_of = [](const Piece& piece) {
        return (piece.left + piece.rate - 1) / piece.rate;
    };
    const Piece* next = &pieces_.front();
    for (const Piece& piece : pieces_) {
        // Of two that are equally fast, who has less left; a division takes long.
        const bool earlier =
            piece.rate == next->rate ? piece.left < next->left : rest_of(piece) < rest_of(*next);
        next = earlier ? &piece : next;
    }
    return now_ + Duration{static_cast<std::int64_t>(rest_of(*next))};
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
    if (now == now_) {
        return;
    }
    share();
    const std::int64_t elapsed = (now - now_).count();
    for (Piece& piece : pieces_) {
        piece.left = std::max(Units{0}, piece.left - Units{elapsed} * piece.rate);
    }
    now_ = now;
}

void SharedWork::share() {
    if (!rates_known_ && !pieces_.empty()) {
        set_rates(pieces_);
    }
    rates_known_ = true;
}

}  // namespace pipetwin
