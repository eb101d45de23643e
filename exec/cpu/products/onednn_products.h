// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cpu/products/products.h"

/// Products by oneDNN: those of bf16 where the processor has instructions for it (AMX,
/// AVX512-BF16).
namespace pipetwin::exec {

/// True if this build has oneDNN.
bool has_onednn();

/// True if oneDNN has instructions for bf16 on this machine (AMX, AVX512-BF16).
bool onednn_has_bf16();

/// True if oneDNN is there and faster than our own kernel for a product of bf16 with bf16: with
/// AMX, and with AVX512-BF16 for up to 512 rows of a factor that is not transposed (6 % for 256
/// rows on a Zen 4, where it is 3 % slower for 2048).
bool onednn_is_faster_in_bf16(const Product& product);

/// True if oneDNN can compute the product here: fp32, or bf16 where the machine has instructions
/// for it, and no factor that is partly undefined.
bool can_compute_by_onednn(const Product& product);

/// Computes a product by oneDNN. The bits of a number depend on m and n, too, and on the machine,
/// unlike those of `compute`.
void compute_by_onednn(const Product& product);

}  // namespace pipetwin::exec
