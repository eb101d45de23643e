// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/cudnn_attention.h"
#include "exec/cuda/cudnn/cudnn_convolution.h"

/// For builds that found no headers of cuDNN: attention and convolutions by our own kernels.
namespace pipetwin::cuda {

struct CudnnAttention::Impl {
    std::string why_not;
};

CudnnLoaded load_cudnn() {
    return {.functions = nullptr, .why_not = "built without the headers of cuDNN"};
}

CudnnAttention::CudnnAttention(CudnnLoaded loaded, const Options& /*options*/)
    : impl_(std::make_unique<Impl>(std::move(loaded.why_not))) {}

CudnnAttention::~CudnnAttention() = default;

std::optional<CudnnAttention::Plan> CudnnAttention::plan(const AttentionProblem& /*problem*/,
                                                         AttentionDirection /*direction*/) {
    return std::nullopt;
}

std::string CudnnAttention::describe(const AttentionProblem& /*problem*/,
                                     AttentionDirection /*direction*/) {
    return "own kernels: " + impl_->why_not;
}

bool CudnnAttention::passes(int /*number*/, const Forward& /*operands*/, cudaStream_t /*stream*/) {
    return false;
}

bool CudnnAttention::passes(int /*number*/, const Backward& /*operands*/, cudaStream_t /*stream*/) {
    return false;
}

cudaError_t CudnnAttention::forward(int /*number*/,
                                    const Forward& /*operands*/,
                                    cudaStream_t /*stream*/) {
    return cudaErrorInvalidValue;
}

cudaError_t CudnnAttention::backward(int /*number*/,
                                     const Backward& /*operands*/,
                                     cudaStream_t /*stream*/) {
    return cudaErrorInvalidValue;
}

struct CudnnConvolutions::Impl {
    std::string why_not;
};

CudnnConvolutions::CudnnConvolutions(CudnnLoaded loaded, bool /*wanted*/)
    : impl_(std::make_unique<Impl>(std::move(loaded.why_not))) {}

CudnnConvolutions::~CudnnConvolutions() = default;

std::optional<CudnnConvolutions::Plan> CudnnConvolutions::plan(
    const CudnnConvolution& /*convolution*/) {
    return std::nullopt;
}

std::string CudnnConvolutions::describe(const CudnnConvolution& /*convolution*/) {
    return "own kernels: " + impl_->why_not;
}

std::string CudnnConvolutions::summary() const {
    return "own kernels: " + impl_->why_not;
}

cudaError_t CudnnConvolutions::run(int /*number*/,
                                   const Operands& /*operands*/,
                                   cudaStream_t /*stream*/) {
    return cudaErrorInvalidValue;
}

}  // namespace pipetwin::cuda
