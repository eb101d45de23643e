#pragma once

#include <cstdint>

/// The C interface of the module `pipetwin_cuda`, looked up by name after dlopen. Functions that
/// can fail return a cudaError_t as a number, 0 for success; nothing throws across this line.
extern "C" {

/// Grows with every incompatible change; a program refuses a module of another version.
inline constexpr int pipetwin_cuda_interface = 1;

struct PipetwinCudaVersions {
    int runtime;  ///< 13000 for 13.0
    int driver;   ///< newest runtime that the driver serves, same form; 0 without a driver
    int cublas;   ///< 130100 for 13.1.0
    int nccl;     ///< 22809 for 2.28.9
};

struct PipetwinCudaDevice {
    char name[256];
    int compute_capability;  ///< 90 for 9.0
    int multiprocessors;
    std::int64_t memory_bytes;
};

/// Called once per check; both texts live until it returns.
using PipetwinCudaReport = void (*)(void* context,
                                    const char* name,
                                    int passed,
                                    const char* detail);

int pipetwin_cuda_interface_version();
void pipetwin_cuda_versions(PipetwinCudaVersions* versions);
int pipetwin_cuda_device_count(int* count);
int pipetwin_cuda_describe(int index, PipetwinCudaDevice* device);
const char* pipetwin_cuda_error_text(int error);
void pipetwin_cuda_self_test(int index, PipetwinCudaReport report, void* context);

}  // extern "C"
