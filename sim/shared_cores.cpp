#include "sim/shared_cores.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <ratio>

namespace pipetwin::sim {

namespace {

/// A nanosecond of work is this many units, so that speeds have room for fractions: those of up to
/// 16 ranks on one processor are exact, as each number up to 16 divides it.
constexpr std::int64_t one = 720'720;
constexpr std::int64_t full_speed = one * std::nano::den;

std::int64_t capacity_of(const Contention& contention) {
    return contention.cores > 0 ? contention.cores * full_speed
                                : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

SharedCores::SharedCores(const Contention& contention, std::size_t ranks)
    : work_({capacity_of(contention)}) {
    for (const auto& row : contention.interference) {
        auto& shares = interference_.emplace_back();
        for (const double share : row) {
            shares.push_back(std::llround(share * static_cast<double>(one)));
        }
    }
    interference_.resize(ranks);
}

void SharedCores::begin(Duration now, int rank, Duration length) {
    busy_.push_back(rank);
    work_.begin(now, rank, Units{length.count()} * one, {.most = full_speed, .shared = {0}});
    limit_all(now);
}

std::vector<int> SharedCores::take_done(Duration now) {
    std::vector<int> done = work_.take_done(now);
    for (const int rank : done) {
        std::erase(busy_, rank);
    }
    limit_all(now);
    return done;
}

void SharedCores::limit_all(Duration now) {
    for (const int rank : busy_) {
        std::int64_t slowness = one;
        const auto& shares = interference_[static_cast<std::size_t>(rank)];
        for (const int other : busy_) {
            const bool disturbs = other != rank && !shares.empty();
            slowness += disturbs ? shares[static_cast<std::size_t>(other)] : 0;
        }
        work_.limit(now, rank, static_cast<std::int64_t>(Units{full_speed} * one / slowness));
    }
}

}  // namespace pipetwin::sim
