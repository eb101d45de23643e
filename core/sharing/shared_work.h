// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/units.h"

namespace pipetwin {

/// Amount of work: units are products of long durations and high rates.
__extension__ using Units = __int128;

/// Pieces of work that go on at the same time, at rates that change whenever one comes or goes.
/// A unit of work at a rate of one unit per second takes a second. Integers throughout, so a run is
/// the same on every machine.
class SharedWork {
  public:
    SharedWork(const SharedWork&) = delete;
    SharedWork& operator=(const SharedWork&) = delete;
    virtual ~SharedWork() = default;

    /// From `now` on, `owner` works on `units`, as fast as it may. Times never go back.
    void begin(Duration now, int owner, Units units);

    /// Time at which the next piece of work will be done, if none comes or goes before; none while
    /// nothing is going on.
    std::optional<Duration> next_end();

    /// Removes the work that is done at `now`; returns its owners in the order in which they began.
    std::vector<int> take_done(Duration now);

  protected:
    struct Piece {
        int owner = 0;
        Units left = 0;  ///< billionths of a unit, as rates are per second and times nanoseconds
        std::int64_t rate = 1;  ///< units per second, at least 1
    };

    SharedWork() = default;

    /// Gives each piece its rate, while these and no others go on; there is at least one.
    virtual void set_rates(std::span<Piece> pieces) = 0;

  private:
    void advance(Duration now);
    void share();

    std::vector<Piece> pieces_;
    bool rates_known_ = true;
    Duration now_{};
};

}  // namespace pipetwin
