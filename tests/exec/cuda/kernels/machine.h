// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

/// What the kernels' tests ask of the machine that they run on. emulated_machine.cpp answers for
/// the emulation of CUDA, gpu_machine.cpp for a GPU; a test program is linked with one of them.
namespace pipetwin::cuda::test {

/// Bytes behind an array that nobody may touch, and that tests look at; 0 where the address
/// sanitizer watches over the array's end.
std::size_t guard_bytes();

/// Whether problems as large as in a real model are quick.
bool is_fast();

/// Device memory at a multiple of 256 bytes. Throws CudaFailure on a GPU that has no more.
void* allocate(std::size_t bytes);
void give_back(void* memory);
/// Fills it with bytes of 0xff.
void poison(void* memory, std::size_t bytes);

/// Wait for kernels on the default stream, and throw CudaFailure if one failed.
void write(void* to, const void* from, std::size_t bytes);
void read(void* to, const void* from, std::size_t bytes);

/// Orders in which threads can be made to run, the first of them the usual one; a GPU orders them
/// as it likes, differently perhaps from one time to the next.
int order_count();
void set_order(int order);

}  // namespace pipetwin::cuda::test
