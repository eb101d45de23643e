// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "exec/training/trainer.h"

namespace pipetwin::cli {

/// A picture (SVG) of how a model learns: the loss of every step, and of every validation; below
/// it, where they are counted, the shares of right classes. Of more than 100 steps a thick line is
/// the mean of the neighbours of each. Colours are those of the page that it stands in, by its CSS
/// variables. Precondition: one step at least.
std::string learning_curve_svg(std::span<const exec::StepReport> steps);

}  // namespace pipetwin::cli
