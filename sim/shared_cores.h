#pragma once

#include <optional>
#include <vector>

#include "core/contention.h"
#include "sim/shared_work.h"

namespace pipetwin::sim {

/// Ranks that share processors, or disturb each other.
class SharedCores {
  public:
    SharedCores(const Contention& contention, std::size_t ranks);

    /// Whether there is anything to share.
    static bool needed(const Contention& contention) {
        return contention.cores > 0 || !contention.interference.empty();
    }

    /// From `now` on, the rank works on what would last `length` if it were alone.
    void begin(Duration now, int rank, Duration length);

    /// When the next rank is done, if none begins before; none while nobody works.
    std::optional<Duration> next_end() { return work_.next_end(); }

    /// The ranks that are done at `now`.
    std::vector<int> take_done(Duration now);

  private:
    void limit_all(Duration now);

    SharedWork work_;
    std::vector<std::vector<std::int64_t>> interference_;
    std::vector<int> busy_;
};

}  // namespace pipetwin::sim
