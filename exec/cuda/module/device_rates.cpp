// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/module/device_rates.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/as_index.h"
#include "exec/cuda/device/products.h"
#include "exec/cuda/runtime/owned.h"

namespace pipetwin::cuda {
namespace {

using Buffer = Owned<std::byte*, cudaFree>;
using Pinned = Owned<std::byte*, cudaFreeHost>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;

Buffer device_buffer(std::size_t bytes, const Stream& stream) {
    void* memory = nullptr;
    PIPETWIN_CUDA_CHECK(cudaMalloc(&memory, bytes));
    Buffer buffer(static_cast<std::byte*>(memory));
    PIPETWIN_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream.get()));
    return buffer;
}

Pinned pinned_buffer(std::size_t bytes) {
    void* memory = nullptr;
    PIPETWIN_CUDA_CHECK(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
    std::fill_n(static_cast<std::byte*>(memory), bytes, std::byte{});
    return Pinned(static_cast<std::byte*>(memory));
}

Event make_event() {
    cudaEvent_t event = nullptr;
    PIPETWIN_CUDA_CHECK(cudaEventCreate(&event));
    return Event(event);
}

/// Numbers from -1 to 1 without a pattern: a GPU multiplies zeros with less power, and so faster
/// than what it will be given.
Buffer random_matrix(std::size_t size, Real real, const Stream& stream) {
    std::vector<std::uint32_t> bits(real == Real::BF16 ? (size + 1) / 2 : size);
    std::uint32_t state = 1;
    for (std::uint32_t& word : bits) {
        state ^= state << 13U;  // xorshift32 (Marsaglia 2003)
        state ^= state >> 17U;
        state ^= state << 5U;
        // Sign and fraction as they come, the exponent of 0.5: one fp32 number, or two in bf16.
        word = (state & 0x807F'FFFFU) | 0x3F00'0000U;
        word = real == Real::BF16 ? (word & 0xFFFF'0000U) | ((state & 0x807FU) | 0x3F00U) : word;
    }
    Buffer matrix = device_buffer(bits.size() * sizeof(bits[0]), stream);
    PIPETWIN_CUDA_CHECK(cudaMemcpyAsync(matrix.get(),
                                        bits.data(),
                                        bits.size() * sizeof(bits[0]),
                                        cudaMemcpyHostToDevice,
                                        stream.get()));
    PIPETWIN_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    return matrix;
}

/// Seconds that the stream takes for what `issue` puts on it.
template <class Issue>
double median_seconds(const Stream& stream, int repeats, const Issue& issue) {
    const Event begin = make_event();
    const Event end = make_event();
    std::vector<float> milliseconds;
    for (int repeat = 0; repeat <= repeats; ++repeat) {
        PIPETWIN_CUDA_CHECK(cudaEventRecord(begin.get(), stream.get()));
        PIPETWIN_CUDA_CHECK(issue());
        PIPETWIN_CUDA_CHECK(cudaEventRecord(end.get(), stream.get()));
        PIPETWIN_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
        float time = 0;
        PIPETWIN_CUDA_CHECK(cudaEventElapsedTime(&time, begin.get(), end.get()));
        if (repeat > 0) {  // the first one loads the kernel
            milliseconds.push_back(time);
        }
    }
    std::ranges::nth_element(milliseconds, milliseconds.begin() + repeats / 2);
    constexpr float least = 1e-6F;  // so that no rate is infinite
    return static_cast<double>(std::max(milliseconds[as_index(repeats) / 2], least)) * 1e-3;
}

class Rates {
  public:
    Rates(int device, const PipetwinCudaSizes& sizes) : sizes_(sizes) {
        cudaDeviceProp properties{};
        PIPETWIN_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
        multiprocessors_ = properties.multiProcessorCount;
        stream_ = make_stream();
    }

    /// Rate of a square product, in operations per second; a multiplication and an addition are
    /// two.
    double flops(Real real) const {
        const std::size_t width = real == Real::BF16 ? 2 : 4;
        const auto n = static_cast<std::size_t>(sizes_.matrix);
        const Buffer a = random_matrix(n * n, real, stream_);
        const Buffer b = random_matrix(n * n, real, stream_);
        const Buffer d = device_buffer(n * n * width, stream_);
        const Buffer workspace = device_buffer(Products::workspace_bytes, stream_);
        Products products(workspace.get(), multiprocessors_);
        const int number = products.number_of({.m = sizes_.matrix,
                                               .n = sizes_.matrix,
                                               .k = sizes_.matrix,
                                               .factors = real,
                                               .result = real});
        const Products::Operands operands{.a = a.get(), .b = b.get(), .d = d.get()};
        const double seconds = median_seconds(stream_, sizes_.repeats, [&] {
            return products.multiply(number, operands, stream_.get());
        });
        return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) /
               seconds;
    }

    void copies(PipetwinCudaRates& rates) const {
        std::size_t left = 0;
        std::size_t total = 0;
        PIPETWIN_CUDA_CHECK(cudaMemGetInfo(&left, &total));
        const std::size_t bytes = std::min(static_cast<std::size_t>(sizes_.copy_bytes), left / 8);
        const Buffer here = device_buffer(bytes, stream_);
        const Buffer there = device_buffer(bytes, stream_);
        const Pinned host = pinned_buffer(bytes);
        const auto rate = [&](void* to, const void* from) {
            const double seconds = median_seconds(stream_, sizes_.repeats, [&] {
                return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get());
            });
            return static_cast<double>(bytes) / seconds;
        };
        rates.device_copy = rate(there.get(), here.get());
        rates.to_device = rate(here.get(), host.get());
        rates.from_device = rate(host.get(), here.get());
    }

  private:
    PipetwinCudaSizes sizes_;
    int multiprocessors_ = 0;
    Stream stream_;
};

}  // namespace

PipetwinCudaRates measure_rates(int device, const PipetwinCudaSizes& sizes) {
    PIPETWIN_CUDA_CHECK(cudaSetDevice(device));
    const Rates measured(device, sizes);
    PipetwinCudaRates rates{};
    rates.bf16_flops = measured.flops(Real::BF16);
    rates.fp32_flops = measured.flops(Real::F32);
    measured.copies(rates);
    return rates;
}

}  // namespace pipetwin::cuda
