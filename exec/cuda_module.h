#pragma once

#include <string>
#include <vector>

/// The CUDA backend is a module that is loaded when asked for; this is the program's side of it.
namespace pipetwin::exec {

enum class CudaState { Available, NoDriver, NoDevice, LibrariesMissing, NotBuilt };

struct CudaDevice {
    std::string name;
    int compute_capability = 0;  ///< 90 for 9.0
    std::int64_t memory_bytes = 0;
    int multiprocessors = 0;
};

struct CudaProbe {
    CudaState state = CudaState::NotBuilt;
    std::string detail;          ///< "no driver (35)", or what dlopen said
    std::string versions;        ///< "CUDA 13.0, cuBLAS 13.0, NCCL 2.28.9" where the module loaded
    std::vector<CudaDevice> devices;
};

/// Never throws for a missing GPU: that is an answer.
CudaProbe probe_cuda();

}  // namespace pipetwin::exec
