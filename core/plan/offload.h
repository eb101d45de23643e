// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "core/base/units.h"

namespace pipetwin {

class Plan;

/// A stash that leaves its device for host memory, and comes back before it is needed. The places
/// are cells of the rank's row.
///
///     row     ... 0F1 ............... X  0B1 ...
///     out            |--copy--|
///     in                              |--copy--|   beside X, the compute action before 0B1
struct StashCopy {
    std::size_t forward = 0;  ///< the F that makes it
    std::size_t before = 0;   ///< the compute action before the one that needs it
    std::size_t user = 0;     ///< that one: the first R, B or I of the same stage and micro-batch
    Bytes bytes{};            ///< all that F keeps: with R its input, else whatever its layers save
};

/// [rank]: the stashes that are copied where a plan offloads them, in the order of their F.
///
/// A stash that the very next compute action of its rank needs stays where it is, and so does what
/// has no bytes: there is nothing to gain.
std::vector<std::vector<StashCopy>> stash_copies(const Plan& plan);

}  // namespace pipetwin
