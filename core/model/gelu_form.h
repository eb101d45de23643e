// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pipetwin {

/// The formula of a GELU (Hendrycks and Gimpel, arXiv 1606.08415).
enum class GeluForm {
    Exact,  ///< 0.5 x (1 + erf(x / sqrt 2))
    Tanh    ///< 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as GPT-2 has it
};

}  // namespace pipetwin
