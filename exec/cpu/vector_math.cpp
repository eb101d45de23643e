// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/vector_math.h"

namespace pipetwin::exec {

const float smallest_exponent = -87.3F;

}  // namespace pipetwin::exec
