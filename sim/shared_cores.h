#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/contention.h"
#include "core/units.h"
#include "sim/shared_work.h"

namespace pipetwin::sim {

/// Ranks that share processors, or disturb each other. What sim/shared_work.h does for any
/// resources, for one that all use: the same rates, at a cost that grows with the busy ranks alone.
class SharedCores {
  public:
    SharedCores(const Contention& contention, std::size_t ranks);

    /// Whether there is anything to share.
    static bool needed(const Contention& contention) {
        return contention.cores > 0 || !contention.interference.empty();
    }

    /// From `now` on, the rank works on what would last `length` if it were alone. Times never go
    /// back.
    void begin(Duration now, int rank, Duration length);

    /// When the next rank is done, if none begins before; none while nobody works.
    std::optional<Duration> next_end();

    /// The ranks that are done at `now`, in the order in which they began.
    std::vector<int> take_done(Duration now);

  private:
    struct Piece {
        int rank = 0;
        Units left = 0;  ///< billionths of a unit, as rates are per second and times nanoseconds
        std::int64_t rate = 1;
    };

    void advance(Duration now);
    void share();
    void share_out_limited();
    std::int64_t limit_of(int rank) const;

    std::int64_t capacity_;
    std::vector<std::vector<std::int64_t>> interference_;  ///< [rank][other]; empty: none
    std::vector<Piece> busy_;
    bool rates_known_ = true;
    Duration now_{};
};

}  // namespace pipetwin::sim
