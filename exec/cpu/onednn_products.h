#pragma once

#include "exec/cpu/products.h"

/// Products by oneDNN: of bf16 where the processor has instructions for it, which our own kernels
/// have not: AMX, AVX512-BF16.
namespace pipetwin::exec {

/// Whether this build has oneDNN.
bool has_onednn();

/// Whether products of bf16 are oneDNN's on this machine.
bool onednn_is_faster_in_bf16();

/// Whether oneDNN can compute it here: fp32, or bf16 where the machine has instructions for it, and
/// no factor that is partly undefined.
bool can_compute_by_onednn(const Product& product);

/// As `compute`, but the bits of a number depend on m and n, too, and on the machine.
void compute_by_onednn(const Product& product);

}  // namespace pipetwin::exec
