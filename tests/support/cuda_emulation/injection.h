// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <thread>

/// Failures on purpose: what a test asks of the emulated CUDA. Without CUDA's own types, for
/// programs that only load the emulated module.
namespace pipetwin::cuda::emulation {

/// What can be told to fail.
enum class Call : int {
    Launch,       ///< of a kernel or a product, also while a graph is being made of it
    GraphLaunch,  ///< of a graph that is there
    Copy,         ///< cudaMemcpyAsync and cudaMemsetAsync, likewise
    EventRecord,
    EventQuery,
    Work,  ///< accepted, but it fails when the GPU comes to it: met by whoever waits
    Allocation,
    Capture,
    Instantiation,
};
inline constexpr int call_count = 9;

struct Injection {
    Call call{};
    std::int64_t after = 0;  ///< so many calls of the kind go well
    int error = 0;           ///< a cudaError_t
    bool for_good = false;   ///< all further calls return it, too
};

/// What became of it.
struct Injected {
    bool happened = false;
    std::thread::id thread;  ///< that made the call
};

}  // namespace pipetwin::cuda::emulation

/// Of the emulated module, to be looked up by name.
extern "C" {
std::int64_t pipetwin_emulated_graph_launches();
/// How many captures have begun while their stream had work that was not done.
std::int64_t pipetwin_emulated_captures_at_work();
/// How many products had a matrix whose rows do not all begin at multiples of 16 bytes.
std::int64_t pipetwin_emulated_odd_products();
/// Takes the place of the one before; null: none, and a GPU that failed for good is sound again.
void pipetwin_emulated_inject(const pipetwin::cuda::emulation::Injection* injection);
/// How many there are from now on; a kernel reaches the memory of its own one only.
void pipetwin_emulated_set_gpus(int count);
void pipetwin_emulated_injected(pipetwin::cuda::emulation::Injected* injected);
}
