// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "exec/cuda/cudnn/cudnn_library.h"

/// A cuDNN of functions that remember what they were told, compute it if a test wants that, and
/// fail when it wants that.
namespace pipetwin::cuda::test {

struct FakeCudnn {
    // What a test sets.
    std::size_t version = 91900;
    int first_failure = std::numeric_limits<int>::max();  ///< call, counted from 0, that fails
    int failures = 1;                                     ///< so many from there on
    /// Of each engine that the heuristics propose, its numerical notes.
    std::vector<std::vector<cudnnBackendNumericalNote_t>> engines = {{}};
    std::int64_t workspace_bytes = 1 << 20;
    bool computes = false;  ///< what the graph says, when it is executed
    bool refuses = false;   ///< to execute any plan
    /// Has the stream do it; null: it is done at once.
    cudaError_t (*submit)(cudaStream_t stream, std::function<void()> work) = nullptr;

    // What happened.
    int calls = 0;  ///< that can fail
    int live_descriptors = 0;
    int live_handles = 0;
    std::set<std::int64_t> kept;      ///< names of tensors that are not virtual
    std::set<std::int64_t> by_value;  ///< of those, numbers of the host
    int executions = 0;
    std::map<std::int64_t, void*> pack;  ///< of the last execution, its pointers by name
    void* workspace = nullptr;           ///< likewise
    cudaStream_t stream = nullptr;       ///< likewise
};

/// The one that the functions talk to; starts afresh. The functions may be called by several
/// threads, what is set and what happened belongs to one.
FakeCudnn& new_fake_cudnn();
const CudnnFunctions& fake_cudnn_functions();
/// FakeCudnn::calls, for another thread than theirs.
int fake_cudnn_calls();

}  // namespace pipetwin::cuda::test
