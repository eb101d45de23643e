// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/sharing/shared_work.h"

namespace pipetwin {

/// Demand of one owner on resources that several use at once.
struct Claim {
    std::int64_t most = 0;    ///< its own limit, in units per second
    std::vector<int> shared;  ///< resources that it occupies at whatever rate it gets
};

/// Max-min fair rates, [claim]: no claim can get more without another that has less, or as much,
/// getting less.
///
/// Progressive filling: all rates rise together; a claim that reaches its own limit, or that of a
/// full resource, stays there, and the others go on. Rates are whole units per second and at least
/// 1. `capacities` are those of the resources. O(claims * (claims + resources)). Source: Bertsekas
/// and Gallager, Data Networks, section 6.5.2.
std::vector<std::int64_t> max_min_fair_rates(std::span<const Claim* const> claims,
                                             std::span<const std::int64_t> capacities);

/// Work on resources that several use at once, at max-min fair rates.
class FairWork : public SharedWork {
  public:
    /// `claims[owner]`: what the work of each owner needs.
    FairWork(std::vector<std::int64_t> capacities, std::vector<Claim> claims)
        : capacities_(std::move(capacities)), claims_(std::move(claims)) {}

  private:
    void set_rates(std::span<Piece> pieces) override;

    std::vector<std::int64_t> capacities_;
    std::vector<Claim> claims_;
};

}  // namespace pipetwin
