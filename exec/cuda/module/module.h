// SPDX-License-Identifier: Apache-2.0
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
inline constexpr int pipetwin_cuda_interface = 15;

/// Versions of the libraries that the module uses.
struct PipetwinCudaVersions {
    int runtime;  ///< 13000 for 13.0
    int driver;   ///< newest runtime that the driver serves, same form; 0 without a driver
    int cublas;   ///< 130100 for 13.1.0
    int nccl;     ///< 22809 for 2.28.9
};

/// Properties of one GPU.
struct PipetwinCudaDevice {
    char name[256];
    int compute_capability;  ///< 90 for 9.0
    int multiprocessors;
    std::int64_t memory_bytes;
};

/// The devices that `pipetwin_cuda_make_devices` shall make.
struct PipetwinCudaRequest {
    int device;               ///< index of the GPU
    int gpus;                 ///< 0 .. gpus-1 are used together: it copies to all of them
    int ranks;                ///< that share it
    int own_multiprocessors;  ///< not 0: each rank has its own, else they share all
    const int* units;         ///< [rank] in units of 8 multiprocessors; null: equal shares
    int graphs;               ///< not 0: repeated calls become CUDA graphs
    int own_attention;        ///< not 0: attention by our own kernels, even where cuDNN has a plan
    int own_convolutions;     ///< not 0: likewise for convolutions
    int own_gelu;             ///< not 0: GELU by our own kernels, not in cuBLASLt's products
    std::int64_t memory_bytes;
};

/// One attention in bf16, as exec/gpu/cuda_module.h's CudaAttention.
struct PipetwinCudaAttention {
    int samples;
    int positions;
    int padded_keys;  ///< 0: causal
    int heads;
    int key_value_heads;
    int head_size;
    int q_stride;
    int k_stride;
};

/// Sizes with which `pipetwin_cuda_measure` computes and copies.
struct PipetwinCudaSizes {
    int matrix;  ///< rows and columns
    std::int64_t copy_bytes;
    int repeats;
};

/// Measured rates of a GPU, as exec/gpu/cuda_module.h's CudaRates.
struct PipetwinCudaRates {
    double bf16_flops;  ///< per second
    double fp32_flops;
    double device_copy;  ///< bytes per second
    double to_device;
    double from_device;
};

/// Id of a communicator, which all its ends are made with.
struct PipetwinCudaLinkId {
    char bytes[128];
};

/// Which end of a link to make.
struct PipetwinCudaLinkEnd {
    int sends;           ///< not 0: the end that sends
    int in_host_memory;  ///< not 0: its messages lie there, else in the GPU's
    int ctas;            ///< thread blocks that carry a message
};

/// A process's place among all that are gathered, or that sum.
struct PipetwinCudaMember {
    int index;
    int count;
};

/// The `pipetwin_cuda_interface` that the module was built with.
int pipetwin_cuda_interface_version();
/// Fills the versions; a library that cannot say its version leaves 0.
void pipetwin_cuda_versions(PipetwinCudaVersions* versions);
/// Counts the GPUs.
int pipetwin_cuda_device_count(int* count);
/// Describes GPU `index`.
int pipetwin_cuda_describe(int index, PipetwinCudaDevice* device);
/// CUDA's text for an error that a function returned.
const char* pipetwin_cuda_error_text(int error);
/// Fills devices[0..ranks-1], which the caller deletes. Throws what their constructors throw:
/// program and module come from one build, and the interface version says so.
void pipetwin_cuda_make_devices(const PipetwinCudaRequest* request,
                                pipetwin::exec::Device** devices);
/// Free and total bytes of GPU `index`; makes this program's context on it.
int pipetwin_cuda_memory(int index, std::int64_t* free_bytes, std::int64_t* total_bytes);
/// Bytes that cuDNN's plans for an attention work in, forward or backward, whichever has more; 0
/// without a plan. Throws CudaFailure.
std::int64_t pipetwin_cuda_attention_workspace(int index, const PipetwinCudaAttention* attention);
/// Measures the rates of GPU `index`. Throws CudaFailure.
void pipetwin_cuda_measure(int index, const PipetwinCudaSizes* sizes, PipetwinCudaRates* rates);
/// Makes a new id of a link between processes. Throws CudaFailure, as all functions that make a
/// link do.
void pipetwin_cuda_make_link_id(PipetwinCudaLinkId* id);
/// Makes one end of a link, at GPU `index`. The caller deletes it.
void pipetwin_cuda_make_link(int index,
                             const PipetwinCudaLinkId* id,
                             const PipetwinCudaLinkEnd* end,
                             pipetwin::exec::GpuLink** link);
/// Makes the exchange that gathers bytes of all processes; `place` or `id` is null. The caller
/// deletes it.
void pipetwin_cuda_make_gather(int index,
                               const PipetwinCudaLinkId* id,
                               const char* place,
                               const PipetwinCudaMember* member,
                               pipetwin::exec::GpuGather** gather);
/// Makes the sum over some processes. The caller deletes it.
void pipetwin_cuda_make_sum(int index,
                            const PipetwinCudaLinkId* id,
                            const PipetwinCudaMember* member,
                            pipetwin::exec::GpuSum** sum);
/// Aborts `count` links and sums at once.
void pipetwin_cuda_abort(pipetwin::exec::GpuTraffic* const* traffic, int count);

}  // extern "C"
