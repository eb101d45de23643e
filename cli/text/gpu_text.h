#pragma once

#include <string>
#include <vector>

#include "cli/text/json_output.h"
#include "exec/executor/executor.h"
#include "exec/gpu/cuda_module.h"

/// What a GPU has to say of itself.
namespace pipetwin::cli {

/// "beside the plan: CUDA context 480 MiB, cuBLAS workspace 32 MiB per rank"; empty for none.
std::string memory_beside_text(const std::vector<exec::UnplannedMemory>& beside);
Json memory_beside_json(const std::vector<exec::UnplannedMemory>& beside);

/// The device, measured: its free memory and how fast it is.
struct MeasuredDevice {
    exec::CudaMemory memory;
    exec::CudaRates rates;
};
/// In lines, without an indent.
std::vector<std::string> measured_text(const MeasuredDevice& device);
Json rates_json(const exec::CudaRates& rates);

}  // namespace pipetwin::cli
