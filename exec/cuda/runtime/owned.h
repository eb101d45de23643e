// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include "exec/cuda/runtime/check.h"

/// Owners of what the CUDA libraries hand out: freed when it goes out of scope. An error while
/// freeing is dropped, since destructors do not throw; the next checked call reports a broken
/// device anyway.
namespace pipetwin::cuda {

/// A handle of type T, a pointer to something opaque, freed by `free`.
template <class T, auto free>
struct Freed {
    void operator()(T handle) const noexcept { static_cast<void>(free(handle)); }
};
/// Owner of a handle, which `free` frees.
template <class T, auto free>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Freed<T, free>>;

/// Owner of a stream.
using Stream = Owned<cudaStream_t, cudaStreamDestroy>;

/// Makes a stream that does not wait for the default stream. Throws CudaFailure.
inline Stream make_stream() {
    cudaStream_t stream = nullptr;
    PIPETWIN_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return Stream(stream);
}

/// Device memory for `size` floats, on the device that is current when it is made.
class DeviceBuffer {
  public:
    explicit DeviceBuffer(std::size_t size) : size_(size) {
        void* memory = nullptr;
        PIPETWIN_CUDA_CHECK(cudaMalloc(&memory, size * sizeof(float)));
        data_.reset(static_cast<float*>(memory));
    }

    /// Copies behind what the stream already does; pageable memory, so `values` may go when this
    /// returns.
    DeviceBuffer(const std::vector<float>& values, const Stream& stream)
        : DeviceBuffer(values.size()) {
        PIPETWIN_CUDA_CHECK(cudaMemcpyAsync(
            data(), values.data(), size_ * sizeof(float), cudaMemcpyHostToDevice, stream.get()));
    }

    float* data() const { return data_.get(); }
    std::size_t size() const { return size_; }

    /// Copies the numbers to the host; waits for the stream.
    std::vector<float> to_host(const Stream& stream) const {
        std::vector<float> values(size_);
        PIPETWIN_CUDA_CHECK(cudaMemcpyAsync(
            values.data(), data(), size_ * sizeof(float), cudaMemcpyDeviceToHost, stream.get()));
        PIPETWIN_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
        return values;
    }

  private:
    Owned<float*, cudaFree> data_;
    std::size_t size_;
};

}  // namespace pipetwin::cuda
