// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/number_type.h"

#include <algorithm>

namespace pipetwin {

bool has_narrow_products(std::string_view precision) {
    return std::ranges::find(narrow_precisions, precision) != narrow_precisions.end();
}

std::string_view kept_precision(std::string_view precision) {
    return has_narrow_products(precision) ? "bf16" : precision;
}

std::string_view rate_precision(std::string_view precision) {
    return precision == "nvfp4" ? "fp4" : has_narrow_products(precision) ? "fp8" : precision;
}

double product_bytes(std::string_view precision) {
    constexpr double block_scale = 4.0 / 128;
    constexpr double micro_scale = 1.0 / 32;
    constexpr double nvfp4_scale = 1.0 / 16;
    return precision == "fp8"         ? 1
           : precision == "fp8-block" ? 1 + block_scale
           : precision == "mxfp8"     ? 1 + micro_scale
           : precision == "nvfp4"     ? 0.5 + nvfp4_scale
           : precision == "fp32"      ? 4
                                      : 2;
}

}  // namespace pipetwin
