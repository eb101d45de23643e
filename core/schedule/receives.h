// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/schedule/schedule.h"

namespace pipetwin {

/// What a receive of a schedule file means that stands before the action which needs its tensor.
enum class Receives {
    Posted,    ///< it begins there; the rank goes on, and waits where the tensor is used
    Blocking,  ///< the rank waits there for the message
};

/// The word on the command line and in output: "posted", "blocking".
std::string_view to_string(Receives receives);

/// The rows of a schedule whose receives are posted, as rows whose receives block: every receive
/// stands directly before the first action behind it that uses its tensor - the forward, or the
/// backward or its recompute - and messages of one edge keep their order. PyTorch's runtime waits
/// there. A receive whose tensor no later action uses stays where it is.
Schedule wait_where_used(Schedule schedule);

}  // namespace pipetwin
