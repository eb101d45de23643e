// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "exec/gpu/cuda_module.h"

namespace pipetwin {

struct Layer;
class Model;
class Plan;

}  // namespace pipetwin

/// Memory that cuDNN's attention works in, which no plan counts: in a backward the gradients of all
/// scores of a layer, 2 bytes for each pair of positions.
namespace pipetwin::exec {

/// The attentions of a unit of a model, inner layers included, each for so many samples.
std::vector<CudaAttention> attentions_of(const Layer& unit, int samples);

/// [rank] The largest workspace of an attention in bf16 on a GPU, for the plan's largest
/// micro-batch; 0 where our own kernels compute them all. Throws Error(Unavailable).
std::vector<Bytes> attention_workspaces(const Plan& plan, const Model& model, int gpu);

}  // namespace pipetwin::exec
