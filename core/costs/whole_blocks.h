// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/costs/profile.h"

namespace pipetwin {

/// One layer, "block0", in place of each pair "block0.attention" and "block0.feed_forward", for
/// systems that do not cut a block in two. Times, weights and what is kept for the backward are
/// sums. A forward that keeps nothing holds one layer at a time, so there a block counts more than
/// the larger of its halves would.
Profile with_whole_blocks(const Profile& profile);

}  // namespace pipetwin
