#include "exec/cuda/cudnn/cudnn_attention.h"

/// For builds that found no headers of cuDNN: attention by our own kernels.
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

std::optional<CudnnAttention::Plan> CudnnAttention::plan(const AttentionShape& /*shape*/,
                                                         AttentionDirection /*direction*/) {
    return std::nullopt;
}

std::string CudnnAttention::describe(const AttentionShape& /*shape*/,
                                     AttentionDirection /*direction*/) {
    return "own kernels: " + impl_->why_not;
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

}  // namespace pipetwin::cuda
