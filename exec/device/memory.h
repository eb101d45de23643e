// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace pipetwin::exec {

/// The memory that an arena gets its blocks from: host memory or a GPU's. Any thread may call it.
class Memory {
  public:
    virtual ~Memory() = default;

    /// `bytes` are a multiple of 64, and the block begins at one. Throws Error(Infeasible), naming
    /// the bytes, if there are none left.
    virtual void* take(std::size_t bytes) = 0;

    /// Gives back an unused block that `take` returned for that size.
    virtual void give_back(void* block, std::size_t bytes) noexcept = 0;
};

/// The memory of this process. Large blocks lie on huge pages; fresh ones were touched once, so
/// that page faults do not fall into a measured action.
Memory& host_memory();

}  // namespace pipetwin::exec
