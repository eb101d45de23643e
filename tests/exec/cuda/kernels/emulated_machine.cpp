// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/exec/cuda/kernels/machine.h"
#include "tests/support/cuda_emulation/emulation.h"

namespace pipetwin::cuda::test {

std::size_t guard_bytes() {
#ifdef __SANITIZE_ADDRESS__
    return 0;
#else
    return 256;
#endif
}

bool is_fast() {
    return false;
}

void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    if (::posix_memalign(&memory, 256, bytes) != 0) {
        throw std::bad_alloc();
    }
    return memory;
}

void give_back(void* memory) {
    std::free(memory);
}

void poison(void* memory, std::size_t bytes) {
    std::memset(memory, 0xff, bytes);
}

void write(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) {  // what is empty has no address
        std::memcpy(to, from, bytes);
    }
}

void read(void* to, const void* from, std::size_t bytes) {
    write(to, from, bytes);
}

int order_count() {
    return 4;
}

void set_order(int order) {
    using emulation::Order;
    if (order < 2) {
        emulation::set_order(order == 0 ? Order::Ascending : Order::Descending);
    } else {
        emulation::set_order(Order::Shuffled, static_cast<std::uint64_t>(order));
    }
}

}  // namespace pipetwin::cuda::test
