// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdint>

#include "exec/cpu/products/product_scratch.h"
#include "exec/device/device.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace pipetwin::exec {
namespace {

class CpuDevice final : public Device {
  public:
    void enter_thread() override { prepare_cpu_thread(); }
    TimePoint now() override { return std::chrono::steady_clock::now(); }
    TimePoint complete(const Action& /*action*/,
                       TimePoint /*begin*/,
                       Duration /*planned*/) override {
        const TimePoint end = now();
        scratch_.store(product_scratch_held().count, std::memory_order_relaxed);
        return end;
    }
    MemoryBeside memory_beside() const override {
        if (scratch_ == 0) {
            return {};
        }
        return {.own = {{"scratch memory of matrix products", Bytes{scratch_}}},
                .common = {},
                .pool = {},
                .of_pool = {}};
    }
    const Kernels& kernels() override { return cpu_kernels(); }

  private:
    std::atomic<std::int64_t> scratch_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
    return std::make_unique<CpuDevice>();
}

void prepare_cpu_thread() {
#if defined(__x86_64__)
    constexpr unsigned flush_to_zero = 0x8000;
    constexpr unsigned denormals_are_zero = 0x0040;
    _mm_setcsr(_mm_getcsr() | flush_to_zero | denormals_are_zero);
#elif defined(__aarch64__)
    constexpr std::uint64_t flush_to_zero = std::uint64_t{1} << 24U;
    std::uint64_t control = 0;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    asm volatile("msr fpcr, %0" : : "r"(control | flush_to_zero));
#endif
}

}  // namespace pipetwin::exec
