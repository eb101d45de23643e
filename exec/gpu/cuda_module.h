// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "exec/device/device.h"
#include "exec/transport/gpu_link.h"

/// The program's side of the CUDA backend, which is a module that is loaded when asked for: the
/// program itself links no CUDA library, so it starts on every machine.
///
/// The module `pipetwin_cuda.so` is looked for in the folders of the environment variable
/// PIPETWIN_MODULE_PATH (separated by ':'), beside the executable, and in ../lib/pipetwin seen from
/// there.
namespace pipetwin::exec {

/// Whether GPUs can be used here, and if not, why.
enum class CudaState { Available, NoDriver, NoDevice, LibrariesMissing, NotBuilt };

/// Properties of one GPU.
struct CudaDevice {
    std::string name;
    int compute_capability = 0;  ///< 90 for 9.0
    std::int64_t memory_bytes = 0;
    int multiprocessors = 0;
};

/// Result of a probe: the state, its reason, and the GPUs.
struct CudaProbe {
    CudaState state = CudaState::NotBuilt;
    std::string detail;    ///< "no driver (35)", or what dlopen said; empty when available
    std::string versions;  ///< "CUDA 13.0, cuBLAS 13.1.0, NCCL 2.28.9" where the module loaded
    std::vector<CudaDevice> devices;
};

/// Loads the module and asks for its GPUs. Never throws for a missing GPU: that is an answer.
CudaProbe probe_cuda();

/// Ranks that share one GPU.
struct CudaRequest {
    int device = 0;  ///< index into CudaProbe::devices
    int gpus = 1;    ///< number of GPUs, from the first on, that are used together
    int ranks = 1;
    /// Each rank has multiprocessors of its own, so that ranks run at the same time and a bubble is
    /// one; else they take what is free.
    bool own_multiprocessors = true;
    std::vector<int> units{};  ///< [rank] in units of 8 multiprocessors; empty: equal shares
    bool graphs = true;        ///< repeated actions become CUDA graphs
    /// Attention by our own kernels, even where cuDNN has a faster plan. So does a non-empty
    /// environment variable PIPETWIN_OWN_ATTENTION, so that both can be compared.
    bool own_attention = false;
    /// Convolutions by our own kernels, even where cuDNN has a plan. So does a non-empty
    /// environment variable PIPETWIN_OWN_CONVOLUTIONS.
    bool own_convolutions = false;
    /// GELUs by our own kernels, even where a product of cuBLASLt may compute them. So does a
    /// non-empty environment variable PIPETWIN_OWN_GELU.
    bool own_gelu = false;
    Bytes memory{};  ///< for all ranks
};

/// Free and total memory of a GPU.
struct CudaMemory {
    Bytes free;
    Bytes total;
};

/// Memory of a GPU now; makes this program's context on it. Throws Error(Unavailable).
CudaMemory cuda_memory(int device = 0);

/// One attention of a model in bf16, as exec/cuda/kernels/attention/attention.h's AttentionShape.
struct CudaAttention {
    int samples = 0;
    int positions = 0;
    int padded_keys = 0;  ///< 0: causal
    int heads = 0;
    int key_value_heads = 0;
    int head_size = 0;
    int q_stride = 0;  ///< numbers from one query to the next
    int k_stride = 0;  ///< numbers from one key to the next

    auto operator<=>(const CudaAttention&) const = default;
};
/// Bytes that cuDNN works in, in the direction in which they are more; 0 where our own kernels
/// compute both. Asks cuDNN for its plans, about a second for an attention that it was not asked
/// for before. Throws Error(Unavailable).
Bytes cuda_attention_workspace(int device, const CudaAttention& attention);

/// Sizes with which `measure_cuda` computes and copies.
struct CudaRateSizes {
    int matrix = 8192;  ///< rows and columns
    Bytes copy{std::int64_t{1} << 30};
    int repeats = 9;  ///< measurements of each rate, of which the median counts
};
/// Measured rates of a GPU.
struct CudaRates {
    double bf16_flops = 0;  ///< of a matrix product, per second
    double fp32_flops = 0;
    double device_copy = 0;  ///< bytes per second, each read and written once
    double to_device = 0;    ///< from pinned host memory
    double from_device = 0;
};
/// Measures the rates of a GPU; takes a second or two. Throws Error(Unavailable).
CudaRates measure_cuda(int device, const CudaRateSizes& sizes = {});

/// Throws Error(Unavailable), saying why, if no GPU here can be trained on.
void require_cuda(int device = 0);

/// Makes one device per rank. Throws Error(Unavailable) saying why where there is no usable GPU, or
/// none that can be shared so, Error(Infeasible) where it has too little memory or too few
/// multiprocessors.
std::vector<std::unique_ptr<Device>> make_cuda_devices(const CudaRequest& request);

/// Links from and to a GPU of this process, by NCCL, of which `ctas` thread blocks carry the
/// messages between GPUs. Its functions throw Error(Unavailable) where there is no such GPU, or
/// NCCL does not work here.
GpuLinks cuda_links(int device, int ctas = 1);

}  // namespace pipetwin::exec
