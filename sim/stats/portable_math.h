// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pipetwin::sim {

/// exp(x) to 13 digits for |x| <= 16, from additions, multiplications and divisions alone: these
/// give the same bits everywhere, which a library's function does not promise.
double portable_exp(double x);

}  // namespace pipetwin::sim
