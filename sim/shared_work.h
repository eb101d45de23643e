#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/units.h"

namespace pipetwin::sim {

/// Amounts of work, which are long durations at high rates.
__extension__ using Units = __int128;

/// What somebody wants of resources that several use at once.
struct Claim {
    std::int64_t most = 0;    ///< its own limit, in units per second
    std::vector<int> shared;  ///< resources that it occupies at whatever rate it gets
};

/// Max-min fair rates: nobody can get more without somebody who has less, or as much, getting less.
///
/// Progressive filling: all rates rise together; who comes to its own limit, or to that of a full
/// resource, stays there, and the others go on. Rates are whole units per second and at least 1.
/// `capacities` are those of the resources. O(claims * (claims + resources)).
/// Source: Bertsekas and Gallager, Data Networks, section 6.5.2.
std::vector<std::int64_t> max_min_fair_rates(std::span<const Claim* const> claims,
                                             std::span<const std::int64_t> capacities);

/// Pieces of work that go on at the same time, at rates that change whenever one comes or goes.
/// A unit of work at a rate of one unit per second takes a second. Integers throughout, so a run is
/// the same on every machine.
class SharedWork {
  public:
    explicit SharedWork(std::vector<std::int64_t> capacities)
        : capacities_(std::move(capacities)) {}

    /// From `now` on, `owner` works on `units`, as fast as it may. Times never go back.
    void begin(Duration now, int owner, Units units, Claim claim);

    /// When the next piece of work will be done, if none comes or goes before; none while nothing
    /// is going on.
    std::optional<Duration> next_end();

    /// Those whose work is done at `now`, in the order in which they began.
    std::vector<int> take_done(Duration now);

  private:
    struct Piece {
        int owner = 0;
        Claim claim;
        Units left = 0;  ///< billionths of a unit, as rates are per second and times nanoseconds
        std::int64_t rate = 1;
    };

    void advance(Duration now);
    void share();

    std::vector<std::int64_t> capacities_;
    std::vector<Piece> pieces_;
    bool rates_known_ = true;
    Duration now_{};
};

}  // namespace pipetwin::sim
