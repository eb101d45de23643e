// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/runtime/owned.h"

/// What benchmarks of CUDA kernels share.
namespace pipetwin::cuda {

/// Memory of the current device.
class Memory {
  public:
    /// An array of normally distributed numbers: zeros would need less power, and run faster.
    static Memory of_numbers(Real real, std::int64_t count) {
        Memory memory(count * (real == Real::F32 ? 4 : 2));
        std::mt19937 random(1);
        std::normal_distribution<float> number;
        std::vector<float> period(1'000'003);
        std::generate(period.begin(), period.end(), [&] { return number(random); });
        const auto size = static_cast<std::int64_t>(period.size());
        const Memory floats(4 * size);
        PIPETWIN_CUDA_CHECK(cudaMemcpy(
            floats.at(0), period.data(), period.size() * sizeof(float), cudaMemcpyHostToDevice));
        for (std::int64_t i = 0; i < count; i += size) {
            PIPETWIN_CUDA_CHECK(convert_from_float(real,
                                                   std::min(size, count - i),
                                                   1,
                                                   floats.as<float>(),
                                                   memory.at(i * (real == Real::F32 ? 4 : 2)),
                                                   nullptr));
        }
        PIPETWIN_CUDA_CHECK(cudaDeviceSynchronize());
        return memory;
    }
    static Memory of_ids(std::int64_t count, std::int64_t below) {
        std::mt19937 random(2);
        std::uniform_int_distribution<std::int32_t> id(0, static_cast<std::int32_t>(below) - 1);
        std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
        std::generate(ids.begin(), ids.end(), [&] { return id(random); });
        return of_integers(ids);
    }
    static Memory of_integers(const std::vector<std::int32_t>& values) {
        Memory memory(4 * static_cast<std::int64_t>(values.size()));
        PIPETWIN_CUDA_CHECK(
            cudaMemcpy(memory.at(0), values.data(), 4 * values.size(), cudaMemcpyHostToDevice));
        return memory;
    }
    explicit Memory(std::int64_t bytes) {
        void* memory = nullptr;
        PIPETWIN_CUDA_CHECK(cudaMalloc(&memory, static_cast<std::size_t>(bytes)));
        memory_.reset(static_cast<std::byte*>(memory));
    }

    void* at(std::int64_t byte) const { return memory_.get() + byte; }
    template <class T>
    T* as() const {
        return static_cast<T*>(at(0));
    }

  private:
    Owned<std::byte*, cudaFree> memory_;
};

/// Median seconds of one call on the stream.
inline double seconds(cudaStream_t stream, const std::function<cudaError_t(cudaStream_t)>& call) {
    using Event = Owned<cudaEvent_t, cudaEventDestroy>;
    const auto make_event = [] {
        cudaEvent_t event = nullptr;
        PIPETWIN_CUDA_CHECK(cudaEventCreate(&event));
        return Event(event);
    };
    constexpr int warm_up = 3;
    constexpr int repeats = 15;
    std::vector<Event> events;
    for (int i = 0; i < warm_up + repeats; ++i) {
        if (i >= warm_up) {
            events.push_back(make_event());
            PIPETWIN_CUDA_CHECK(cudaEventRecord(events.back().get(), stream));
        }
        PIPETWIN_CUDA_CHECK(call(stream));
    }
    events.push_back(make_event());
    PIPETWIN_CUDA_CHECK(cudaEventRecord(events.back().get(), stream));
    PIPETWIN_CUDA_CHECK(cudaStreamSynchronize(stream));
    std::vector<float> times(repeats);
    for (std::size_t i = 0; i < times.size(); ++i) {
        PIPETWIN_CUDA_CHECK(cudaEventElapsedTime(&times[i], events[i].get(), events[i + 1].get()));
    }
    std::ranges::sort(times);
    return 1e-3 * static_cast<double>(times[times.size() / 2]);
}

/// How long cuDNN's convolutions take, and our own, in bf16 and all directions; one line for each.
void measure_convolutions();

}  // namespace pipetwin::cuda
