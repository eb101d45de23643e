// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/base/error.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/device/kernels.h"
#include "exec/device/tensor.h"

namespace pipetwin::cuda {

/// The kernels' name of a type of numbers. Precondition: fp32 or bf16.
inline Real real_of(exec::DType type) {
    PIPETWIN_EXPECT(type == exec::DType::F32 || type == exec::DType::BF16,
                    "the GPU computes in fp32 and bf16");
    return type == exec::DType::BF16 ? Real::BF16 : Real::F32;
}

/// The address of the first number of some columns.
inline const void* first_of(const exec::ConstColumns& columns) {
    const std::size_t size = exec::size_of(columns.matrix.dtype);
    return static_cast<const std::byte*>(columns.matrix.data) +
           columns.first * static_cast<std::int64_t>(size);
}

/// The address of the first number of some columns that are written.
inline void* first_of(const exec::Columns& columns) {
    const std::size_t size = exec::size_of(columns.matrix.dtype);
    return static_cast<std::byte*>(columns.matrix.data) +
           columns.first * static_cast<std::int64_t>(size);
}

/// What a mask has of its own in a step.
inline DropoutStep dropout_step_of(const exec::DropoutMask& mask) {
    return {
        .key = mask.key, .threshold = mask.threshold(), .scale = static_cast<float>(mask.scale())};
}

}  // namespace pipetwin::cuda
