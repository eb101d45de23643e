#pragma once

#include <cstdint>

/// The C interface of the module `pipetwin_cuda`, looked up by name after dlopen. Functions that
/// can fail return a cudaError_t as a number, 0 for success; but for those that make devices and
/// measure, nothing throws across this line.
namespace pipetwin::exec {
class Device;
class GpuGather;
class GpuLink;
class GpuSum;
class GpuTraffic;
}  // namespace pipetwin::exec

extern "C" {

/// Grows with every incompatible change; a program refuses a module of another version.
inline constexpr int pipetwin_cuda_interface = 9;

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

/// What `pipetwin_cuda_make_devices` makes.
struct PipetwinCudaRequest {
    int device;               ///< index of the GPU
    int gpus;                 ///< 0 .. gpus-1 are used together: it copies to all of them
    int ranks;                ///< that share it
    int own_multiprocessors;  ///< not 0: each rank has its own, else they share all
    const int* units;         ///< [rank] how many times 8 multiprocessors; null: as many each
    int graphs;               ///< not 0: repeated calls become CUDA graphs
    int own_attention;        ///< not 0: attention by our own kernels, even where cuDNN has a plan
    std::int64_t memory_bytes;
};

/// How much `pipetwin_cuda_measure` computes and copies at a time.
struct PipetwinCudaSizes {
    int matrix;  ///< rows and columns
    std::int64_t copy_bytes;
    int repeats;
};

struct PipetwinCudaRates {
    double bf16_flops;  ///< per second
    double fp32_flops;
    double device_copy;  ///< bytes per second
    double to_device;
    double from_device;
};

struct PipetwinCudaLinkId {
    char bytes[128];
};

struct PipetwinCudaLinkEnd {
    int sends;           ///< not 0: the end that sends
    int in_host_memory;  ///< not 0: its messages lie there, else in the GPU's
};

/// A process among all that are gathered.
struct PipetwinCudaMember {
    int index;
    int count;
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
/// Fills devices[0..ranks-1], which the caller deletes. Throws what their constructors throw:
/// program and module come from one build, and the interface version says so.
void pipetwin_cuda_make_devices(const PipetwinCudaRequest* request,
                                pipetwin::exec::Device** devices);
int pipetwin_cuda_memory(int index, std::int64_t* free_bytes, std::int64_t* total_bytes);
/// Throws CudaFailure.
void pipetwin_cuda_measure(int index, const PipetwinCudaSizes* sizes, PipetwinCudaRates* rates);
/// What names a link between processes. Throws CudaFailure, as all that make one do.
void pipetwin_cuda_make_link_id(PipetwinCudaLinkId* id);
/// One end of it, at GPU `index`. The caller deletes it.
void pipetwin_cuda_make_link(int index,
                             const PipetwinCudaLinkId* id,
                             const PipetwinCudaLinkEnd* end,
                             pipetwin::exec::GpuLink** link);
/// Of all processes; `place` or `id` is null. The caller deletes it.
void pipetwin_cuda_make_gather(int index,
                               const PipetwinCudaLinkId* id,
                               const char* place,
                               const PipetwinCudaMember* member,
                               pipetwin::exec::GpuGather** gather);
/// Over some processes. The caller deletes it.
void pipetwin_cuda_make_sum(int index,
                            const PipetwinCudaLinkId* id,
                            const PipetwinCudaMember* member,
                            pipetwin::exec::GpuSum** sum);
/// Ends so many at once.
void pipetwin_cuda_abort(pipetwin::exec::GpuTraffic* const* traffic, int count);
void pipetwin_cuda_self_test(int index, PipetwinCudaReport report, void* context);

}  // extern "C"
