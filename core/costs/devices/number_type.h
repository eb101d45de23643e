// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

/// What the precision of a profile says of its products and of all else.
namespace pipetwin {

/// Words for the precision of a training. Those of `narrow_precisions` stand at the end.
inline constexpr std::array<std::string_view, 9> precision_words{
    "fp32", "bf16", "fp16", "fp64", "tf32", "fp8", "fp8-block", "mxfp8", "nvfp4"};

/// Precisions in which products of blocks are narrower than all else, which is in bf16: fp8 with a
/// scale for each tensor, fp8 with one for each block of 128, and the blocks of 32 and 16 numbers
/// of the Open Compute Project and of NVIDIA.
inline constexpr std::array<std::string_view, 4> narrow_precisions{
    "fp8", "fp8-block", "mxfp8", "nvfp4"};

/// Whether products are narrower than what is kept.
bool has_narrow_products(std::string_view precision);

/// The precision of all but products: "bf16" where those are narrow.
std::string_view kept_precision(std::string_view precision);

/// The precision whose dense rate products have: "fp8" for any number of 8 bits, "fp4" for "nvfp4".
std::string_view rate_precision(std::string_view precision);

/// Bytes of a number that a product reads, with its part of a scale.
double product_bytes(std::string_view precision);

}  // namespace pipetwin
