#include "sim/shared_cores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ratio>

#include "core/error.h"

namespace pipetwin::sim {

namespace {

/// A nanosecond of work is this many units, so that speeds have room for fractions: those of up to
/// 16 ranks on one processor are exact, as each number up to 16 divides it.
constexpr std::int64_t one = 720'720;
constexpr std::int64_t full_speed = one * std::nano::den;

}  // namespace

SharedCores::SharedCores(const Contention& contention, std::size_t ranks)
    : capacity_(contention.cores > 0 ? contention.cores * full_speed
                                     : std::numeric_limits<std::int64_t>::max()) {
    for (const auto& row : contention.interference) {
        PIPETWIN_EXPECT(row.size() == ranks, "the interference with every rank");
        auto& shares = interference_.emplace_back();
        for (const double share : row) {
            shares.push_back(std::llround(share * static_cast<double>(one)));
        }
    }
}

void SharedCores::begin(Duration now, int rank, Duration length) {
    advance(now);
    busy_.push_back({.rank = rank, .left = Units{length.count()} * one * std::nano::den});
    rates_known_ = false;
}

std::optional<Duration> SharedCores::next_end() {
    if (busy_.empty()) {
        return std::nullopt;
    }
    share();
    // Where all are equally fast, who has least left is first; a division takes long.
    const bool all_alike = interference_.empty();
    const auto rest_of = [](const Piece& piece) {
        return (piece.left + piece.rate - 1) / piece.rate;
    };
    const auto next = all_alike ? std::ranges::min_element(busy_, {}, &Piece::left)
                                : std::ranges::min_element(busy_, {}, rest_of);
    return now_ + Duration{static_cast<std::int64_t>(rest_of(*next))};
}

std::vector<int> SharedCores::take_done(Duration now) {
    advance(now);
    std::vector<int> done;
    for (const Piece& piece : busy_) {
        if (piece.left == 0) {
            done.push_back(piece.rank);
        }
    }
    if (!done.empty()) {
        std::erase_if(busy_, [](const Piece& piece) { return piece.left == 0; });
        rates_known_ = false;
    }
    return done;
}

void SharedCores::advance(Duration now) {
    PIPETWIN_EXPECT(now >= now_, "time does not go back");
    if (now == now_) {
        return;
    }
    share();
    const std::int64_t elapsed = (now - now_).count();
    for (Piece& piece : busy_) {
        piece.left = std::max(Units{0}, piece.left - Units{elapsed} * piece.rate);
    }
    now_ = now;
}

void SharedCores::share() {
    if (rates_known_ || busy_.empty()) {
        return;
    }
    rates_known_ = true;
    if (!interference_.empty()) {
        share_out_limited();
        return;
    }
    const std::int64_t rate = std::min(full_speed, capacity_ / std::ssize(busy_));
    for (Piece& piece : busy_) {
        piece.rate = std::max<std::int64_t>(1, rate);
    }
}

/// Max-min fair: from the lowest limit to the highest, each gets it or, where that is more than an
/// equal share of what is left, the share, and so do all after it.
void SharedCores::share_out_limited() {
    std::vector<Piece*> by_limit;
    for (Piece& piece : busy_) {
        piece.rate = limit_of(piece.rank);
        by_limit.push_back(&piece);
    }
    std::ranges::sort(by_limit, {}, &Piece::rate);
    std::int64_t room = capacity_;
    auto users = std::ssize(by_limit);
    std::optional<std::int64_t> equal_share;
    for (Piece* const piece : by_limit) {
        if (!equal_share && room / users <= piece->rate) {
            equal_share = room / users;
        }
        piece->rate = std::max<std::int64_t>(1, equal_share.value_or(piece->rate));
        room -= piece->rate;
        --users;
    }
}

/// With those that disturb it now.
std::int64_t SharedCores::limit_of(int rank) const {
    const auto& shares = interference_[static_cast<std::size_t>(rank)];
    std::int64_t slowness = one;
    for (const Piece& other : busy_) {
        slowness += other.rank == rank ? 0 : shares[static_cast<std::size_t>(other.rank)];
    }
    return static_cast<std::int64_t>(Units{full_speed} * one / slowness);
}

}  // namespace pipetwin::sim
