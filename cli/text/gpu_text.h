// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/text/json_output.h"
#include "exec/executor/executor.h"
#include "exec/gpu/cuda_module.h"

/// Text about GPUs: memory outside the plan, rates, notes.
namespace pipetwin::cli {

/// Text about memory outside the plan: "outside the plan: CUDA context 480 MiB, cuBLAS workspace 32
/// MiB per rank"; empty for none.
std::string memory_beside_text(const std::vector<exec::UnplannedMemory>& beside);
/// Memory outside the plan as JSON.
Json memory_beside_json(const std::vector<exec::UnplannedMemory>& beside);

/// Measurements of a GPU: its free memory and its rates.
struct MeasuredDevice {
    exec::CudaMemory memory;
    exec::CudaRates rates;
};
/// The measurements as lines, without an indent.
std::vector<std::string> measured_text(const MeasuredDevice& device);
/// The measured rates as JSON.
Json rates_json(const exec::CudaRates& rates);

}  // namespace pipetwin::cli
