#pragma once

#include "core/action.h"

namespace pipetwin {

/// The edge that a send or receive uses: 2b leads forward over boundary b, 2b + 1 back. The index
/// of Timeline::links.
int edge_of(const Action& action);

}  // namespace pipetwin
