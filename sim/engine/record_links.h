// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pipetwin::sim {

/// Whether a simulation records link spans. Recording costs about a sixth of a simulation whose
/// rows have a place of their own in memory already.
enum class RecordLinks { No, Yes };

}  // namespace pipetwin::sim
