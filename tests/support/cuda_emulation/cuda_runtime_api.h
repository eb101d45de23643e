#pragma once

#include <cstddef>

/// The part of CUDA's runtime interface that exec/cuda's kernels and their callers use, for
/// machines without the toolkit: the emulation's folder stands on the include path in the toolkit's
/// place. Names and meanings are the toolkit's. Everything is done when a call returns, so a stream
/// is a word.
// NOLINTBEGIN(readability-identifier-naming)

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
};

struct CUstream_st;
using cudaStream_t = CUstream_st*;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(
    void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);

// NOLINTEND(readability-identifier-naming)
