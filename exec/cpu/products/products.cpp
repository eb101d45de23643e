// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/products/products.h"

#include <array>
#include <memory>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/cpu/products/onednn_products.h"
#include "exec/cpu/products/product_scratch.h"
#include "exec/device/memory.h"

namespace pipetwin::exec {

void multiply_baseline(const Product& product);
#if defined(__x86_64__)
void multiply_avx2(const Product& product);
void multiply_avx512(const Product& product);
void multiply_avx512_bf16(const Product& product);
#endif

namespace {

struct Kernel {
    std::string_view name;
    void (*multiply)(const Product&);
    bool can_run;
};

const std::array<Kernel, 3>& kernels() {
#if defined(__x86_64__)
    static const std::array<Kernel, 3> all{
        {{"avx512f",
          multiply_avx512,
          __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
              __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
              __builtin_cpu_supports("fma") != 0},
         {"avx2",
          multiply_avx2,
          __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0},
         {"baseline", multiply_baseline, true}}};
#else
    static const std::array<Kernel, 3> all{{{"baseline", multiply_baseline, true},
                                            {"avx2", nullptr, false},
                                            {"avx512f", nullptr, false}}};
#endif
    return all;
}

const Kernel& best() {
    static const Kernel& chosen = []() -> const Kernel& {
        for (const Kernel& kernel : kernels()) {
            if (kernel.can_run) {
                return kernel;
            }
        }
        throw InternalError("a kernel for any machine");
    }();
    return chosen;
}

void check(const Product& p) {
    const bool exact = p.c_type == DType::F64;
    PIPETWIN_EXPECT((p.a.type == DType::F64) == exact && (p.b.type == DType::F64) == exact,
                    "factors of a product whose types go together");
    PIPETWIN_EXPECT(p.k > 0, "a product has something to sum");
}

struct GiveBack {
    void operator()(void* memory) const noexcept { host_memory().give_back(memory, 0); }
};
struct Room {
    std::unique_ptr<void, GiveBack> memory;
    std::size_t bytes = 0;
};

/// The scratch memory of the calling thread.
std::array<Room, 6>& scratch_rooms() {
    thread_local std::array<Room, 6> rooms;
    return rooms;
}

}  // namespace

Bytes product_scratch_held() {
    Bytes sum;
    for (const Room& room : scratch_rooms()) {
        sum += Bytes{static_cast<std::int64_t>(room.bytes)};
    }
    return sum;
}

void* product_scratch(ScratchUse use, std::size_t bytes) {
    Room& room = scratch_rooms()[as_index(use)];
    if (room.bytes < bytes) {
        room.memory.reset();
        room.bytes = 0;
        constexpr std::size_t huge_page = std::size_t{2} << 20U;
        constexpr std::size_t cache_line = 64;
        const std::size_t unit = bytes < huge_page ? cache_line : huge_page;
        const std::size_t rounded = (bytes + unit - 1) / unit * unit;
        room.memory.reset(host_memory().take(rounded));
        room.bytes = rounded;
    }
    return room.memory.get();
}

void compute(const Product& product) {
    check(product);
    const bool half = product.a.type == DType::BF16 && product.b.type == DType::BF16;
    if (half && onednn_is_faster_in_bf16(product)) {
        compute_by_onednn(product);
    } else if (half && multiplies_bf16()) {
        compute_by_pairs(product);
    } else {
        best().multiply(product);
    }
}

bool multiplies_bf16() {
#if defined(__x86_64__)
    static const bool can = kernels().front().can_run && __builtin_cpu_supports("avx512bf16") != 0;
    return can;
#else
    return false;
#endif
}

void compute_by_pairs(const Product& product) {
    check(product);
    PIPETWIN_EXPECT(
        multiplies_bf16() && product.a.type == DType::BF16 && product.b.type == DType::BF16,
        "factors in bf16, on a machine that multiplies them");
#if defined(__x86_64__)
    multiply_avx512_bf16(product);
#endif
}

std::string_view product_kernel() {
    return best().name;
}

std::vector<std::string_view> product_kernels() {
    std::vector<std::string_view> names;
    for (const Kernel& kernel : kernels()) {
        if (kernel.can_run) {
            names.push_back(kernel.name);
        }
    }
    return names;
}

void compute_with(std::string_view kernel, const Product& product) {
    check(product);
    for (const Kernel& candidate : kernels()) {
        if (candidate.name == kernel) {
            PIPETWIN_EXPECT(candidate.can_run, "a kernel that this machine can run");
            candidate.multiply(product);
            return;
        }
    }
    throw InternalError("a kernel of products");
}

}  // namespace pipetwin::exec
