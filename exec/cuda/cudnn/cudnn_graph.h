// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>

#include "exec/cuda/cudnn/cudnn_attention.h"
#include "exec/cuda/cudnn/cudnn_library.h"

/// Attention as graphs of cuDNN's operations, under a causal mask or one of padded keys.
///
/// The engines recognise whole graphs, by their operations and by which tensors are kept, so these
/// are the ones that NVIDIA's cudnn-frontend makes of `sdpa` and of `sdpa_backward` with a
/// deterministic algorithm (github.com/NVIDIA/cudnn-frontend,
/// include/cudnn_frontend/node/scaled_dot_product_flash_attention.h). cuDNN has an operation for
/// all of attention, too (CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR); it takes a causal mask from
/// 9.21 on, and is proposed for a backward from 9.27 on.
namespace pipetwin::cuda {

/// Tensors that a plan reads and writes, by the numbers that name them in a variant pack. Shapes
/// are those of exec/cuda/kernels/attention/attention.h; the last three are fp32 numbers in host
/// memory.
enum class AttentionTensor : std::int64_t {
    Q = 1,
    K,
    V,
    Context,
    LogSums,
    DContext,
    DQ,
    DK,
    DV,
    RowDots,
    QueryLengths,
    KeyLengths,
    Scale,
    One,
    MinusInfinity
};

/// An operation graph, and the descriptors that it consists of.
struct CudnnGraph {
    std::deque<CudnnDescriptor> parts;  ///< what the graph is made of, which lives as long
    CudnnDescriptor graph;              ///< finalized
};

/// A tensor of a graph, and what it is called there.
struct CudnnTensor {
    std::int64_t name = 0;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    std::array<std::int64_t, 4> sizes{};
    std::array<std::int64_t, 4> strides{};  ///< in elements
    bool is_virtual = false;                ///< only the engine sees it
    bool by_value = false;                  ///< the host passes its one number
};

/// Tells cuDNN of a tensor, whose memory begins at a multiple of 16 bytes. Throws CudaFailure.
CudnnDescriptor tensor_descriptor(const CudnnFunctions& cudnn, const CudnnTensor& tensor);

/// Makes the graph of operations, which live as long as it. `handle` as for `attention_graph`.
CudnnDescriptor graph_descriptor(const CudnnFunctions& cudnn,
                                 cudnnHandle_t handle,
                                 std::span<const cudnnBackendDescriptor_t> operations);

/// Makes the operation graph of attention for a problem and a direction. `handle` may be null where
/// plans are made for a device that is not there. Throws CudaFailure where cuDNN refuses a part.
CudnnGraph attention_graph(const CudnnFunctions& cudnn,
                           cudnnHandle_t handle,
                           const AttentionProblem& problem,
                           AttentionDirection direction);

}  // namespace pipetwin::cuda
