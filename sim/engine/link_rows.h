#pragma once

namespace pipetwin::sim {

/// Whether a simulation writes down when messages are on their links: a sixth of the time of one
/// whose rows have a place of their own in memory already.
enum class LinkRows { LeftOut, Kept };

}  // namespace pipetwin::sim
