// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/shared_cores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <ratio>

#include "core/base/as_index.h"
#include "core/base/error.h"

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
    SharedWork::begin(now, rank, Units{length.count()} * one);
}

void SharedCores::set_rates(std::span<Piece> busy) {
    if (!interference_.empty()) {
        share_out_limited(busy);
        return;
    }
    const std::int64_t rate = std::min(full_speed, capacity_ / std::ssize(busy));
    for (Piece& piece : busy) {
        piece.rate = std::max<std::int64_t>(1, rate);
    }
}

/// Max-min fair: from the lowest limit to the highest, each gets it or, where that is more than an
/// equal share of what is left, the share, and so do all after it.
void SharedCores::share_out_limited(std::span<Piece> busy) const {
    std::vector<Piece*> by_limit;
    for (Piece& piece : busy) {
        piece.rate = limit_of(piece.owner, busy);
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
std::int64_t SharedCores::limit_of(int rank, std::span<const Piece> busy) const {
    const auto& shares = interference_[as_index(rank)];
    std::int64_t slowness = one;
    for (const Piece& other : busy) {
        slowness += other.owner == rank ? 0 : shares[as_index(other.owner)];
    }
    return static_cast<std::int64_t>(Units{full_speed} * one / slowness);
}

}  // namespace pipetwin::sim
