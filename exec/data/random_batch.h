// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "exec/data/batch.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

namespace pipetwin::exec {

/// A mini-batch of random inputs and targets that fits the model. Equal seeds give equal batches.
Batch random_batch(const Model& model, int samples, std::uint64_t seed);

}  // namespace pipetwin::exec
