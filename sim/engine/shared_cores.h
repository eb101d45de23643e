// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/units.h"
#include "core/costs/contention.h"
#include "core/sharing/shared_work.h"

namespace pipetwin::sim {

/// Ranks that share processors, or disturb each other. The rates are those of
/// core/sharing/fair_work.h for one resource that all use, at a cost that grows with the busy ranks
/// alone.
class SharedCores : public SharedWork {
  public:
    SharedCores(const Contention& contention, std::size_t ranks);

    /// True if ranks share processors or disturb each other.
    static bool needed(const Contention& contention) {
        return contention.cores > 0 || !contention.interference.empty();
    }

    /// From `now` on, the rank works on what would last `length` if it were alone. Times never go
    /// back.
    void begin(Duration now, int rank, Duration length);

  private:
    void set_rates(std::span<Piece> busy) override;
    void share_out_limited(std::span<Piece> busy) const;
    std::int64_t limit_of(int rank, std::span<const Piece> busy) const;

    std::int64_t capacity_;
    std::vector<std::vector<std::int64_t>> interference_;  ///< [rank][other]; empty: none
};

}  // namespace pipetwin::sim
