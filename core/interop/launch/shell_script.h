// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/interop/launch/setting.h"

namespace pipetwin {

/// Reads the flags of a training command out of a shell script, of a single command line, or of a
/// file that holds flags alone.
///
/// Understood: comments, line continuation, quotes, variables (`$X`, `${X}`, `${X:-otherwise}`,
/// `${X:+instead}`), arrays (`X=( ... )`, `X+=( ... )`, `"${X[@]}"`) and arithmetic with
/// `$(( ))`. The training command is the one that names a Python program or module; what stands
/// before the name belongs to its launcher, from which the numbers of nodes and of processes are
/// taken. Where no command names one, all flags count. A word that needs a value from elsewhere (an
/// argument of the script, the environment, another command, a branch that may not be taken) is
/// handed over as unknown. A word "key=value" is an override of Hydra's with a dot in its key, and
/// without one beside such an override or behind a flag that has its value. Throws Error(BadInput)
/// with place:line:column for an open quote or parenthesis, and where two commands have different
/// flags. Variables that are `given` have that value, whatever the script assigns to them.
LaunchFile parse_shell_script(std::string_view text,
                              std::string_view place,
                              const LaunchVariables& given = {});

}  // namespace pipetwin
