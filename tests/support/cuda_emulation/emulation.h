// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "tests/support/cuda_emulation/cuda_runtime_api.h"
#include "tests/support/cuda_emulation/injection.h"

struct dim3;

/// Runs CUDA kernels on the CPU, one thread of a block after the other, to find their mistakes on
/// machines without a GPU. The same .cu files are compiled by a plain C++ compiler against this
/// folder's headers.
///
/// The threads of a block are fibers of the calling thread. One runs until a barrier or a
/// collective operation of its warp makes it wait; which one runs next is the order that a test
/// chooses. A kernel without races gives the same bytes in every order, and one that lacks a
/// barrier does not. Shared memory lives on the heap in pieces of exact size and holds NaN patterns
/// at first, so the address sanitizer finds what leaves it. For one host thread.
namespace pipetwin::cuda::emulation {

/// What a kernel or its launch did wrong: what, the kernel, the block and the thread.
class Failure : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// In which order blocks run, and which thread of a block goes on: the first one that can.
enum class Order { Ascending, Descending, Shuffled };
void set_order(Order order, std::uint64_t seed = 0);

/// The most that a block of an H200 can have: 227 KiB.
constexpr std::size_t most_shared_bytes = 232'448;
/// What a launch may ask for without cudaFuncSetAttribute, and the most for arrays of fixed size.
constexpr std::size_t usual_shared_bytes = 49'152;

// Below: for the headers of this folder, exec/cuda/kernels/launch.h and
// exec/cuda/kernels/attention/mma.h.

struct Launch {
    const char* function = "";  ///< what called it: its text names the kernel
    const void* address = nullptr;
    const dim3& grid;
    const dim3& block;
    std::size_t dynamic_shared = 0;
};
/// Does `work` when the stream comes to it, or puts it into the graph that the stream is making;
/// at once on the default stream.
cudaError_t submit(cudaStream_t stream, std::function<void()> work, Call call = Call::Launch);

/// One failure on purpose; see injection.h.
void inject(const Injection* injection);
Injected injected();
void set_gpus(int count);

/// How many graphs were launched, and calls made of all kinds: what a test of them counts.
/// Work of a stream that takes several tries: it is done when `tried` returns true. Whoever waits
/// for the stream tries, and the GPU does by itself now and then, as nobody has to look for a GPU
/// to work.
cudaError_t submit_tries(cudaStream_t stream, std::function<bool()> tried);
/// Where what a GPU has at an address can be read and written at any time; the address itself where
/// no GPU has anything there.
std::byte* inside(const void* address);
/// The file in memory that a GPU has at an address, which lives as long as the allocation; none
/// where no GPU has anything there.
struct InFile {
    int file = -1;
    std::int64_t offset = 0;  ///< bytes
};
std::optional<InFile> in_file(const void* address);

struct Counts {
    std::int64_t graph_launches = 0;
    std::int64_t captures_at_work = 0;  ///< begun while the stream had work that was not done
    std::int64_t calls = 0;
};
Counts counts();

/// Calls `thread` once for each thread of each block.
void run(const Launch& launch, const std::function<void()>& thread);

void allow_dynamic_shared(const void* kernel, int bytes);

/// The block's shared memory of `bytes` that belongs to `tag`, the same for all its threads.
void* shared_memory(const void* tag, std::size_t bytes, std::size_t alignment);
void* dynamic_shared_memory();

/// Where in the source a thread waits.
struct Place {
    const char* file = "";
    int line = 0;
};
inline bool operator==(Place a, Place b) {
    return a.line == b.line && (a.file == b.file || std::string_view(a.file) == b.file);
}

void synchronize_block(Place place);

/// What the lanes of a warp have put into a collective operation.
struct Lanes {
    static constexpr std::size_t most_bytes = 32;
    struct alignas(16) Input {
        std::array<std::byte, most_bytes> bytes;
    };
    std::array<Input, 32> inputs;

    const std::byte* input(int lane) const {
        return inputs[static_cast<std::size_t>(lane)].bytes.data();
    }
};
/// Waits until all lanes of `mask` have come to the same operation at the same place. The result
/// holds until this lane's next collective operation.
const Lanes& collect(
    const char* operation, unsigned mask, const void* input, std::size_t bytes, Place place);

/// The calling thread's lane in its warp.
int lane();
/// `source` if the mask names it.
int checked_source(unsigned mask, int source);
void expect_aligned(const void* address, std::size_t alignment);
void expect_in_shared(const void* address, std::size_t bytes);
void expect_outside_shared(const void* address, std::size_t bytes);

// Tensor-core instructions by the fragment layouts of the PTX ISA; see
// exec/cuda/kernels/attention/mma.h. NOLINTBEGIN(modernize-avoid-c-arrays): the signature of
// exec/cuda/kernels/attention/mma.h
void multiply_16x8x16(float (&c)[4],
                      const std::uint32_t (&a)[4],
                      const std::uint32_t (&b)[2],
                      Place place);
// NOLINTEND(modernize-avoid-c-arrays)
/// Of four 8 x 8 matrices of 16-bit elements, or of the first two.
void load_matrices(
    std::uint32_t* registers, int count, bool transposed, const void* row, Place place);

// Asynchronous copies into shared memory; the bytes arrive when their group is waited for.
void copy_async_16(void* to_shared, const void* from);
void commit_copies();
/// Until all but the latest `pending` committed groups have arrived.
void wait_for_copies(int pending);

}  // namespace pipetwin::cuda::emulation
