// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "exec/cuda/runtime/check_nccl.h"
#include "exec/cuda/runtime/owned.h"

namespace pipetwin::cuda {

/// Makes a new id, with which all ends of a communicator are made.
std::vector<std::byte> make_nccl_id();

/// A communicator of NCCL with a stream of its own, on few multiprocessors, so that it waits for no
/// other and takes little from those who compute. It does not block: what NCCL cannot do at once it
/// goes on with on a thread of its own, and takes no other call meanwhile.
class Communicator {
  public:
    /// One end of a communicator.
    struct Member {
        int rank = 0;
        int ranks = 2;
        int multiprocessors = 1;  ///< that one operation takes at most
        bool is_urgent = true;    ///< goes before what computes
    };
    /// `device` is the calling thread's current one.
    Communicator(int device, std::span<const std::byte> id, const Member& member);
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;
    /// Ends what is under way, too: the other ends may be gone.
    ~Communicator() { static_cast<void>(cudaSetDevice(device_)); }

    /// Whether NCCL takes another call. Throws what has gone wrong meanwhile.
    bool is_free();

    /// `result` of `call`, which NCCL may go on with by itself. Throws where it failed.
    void take(const char* call, ncclResult_t result);

    ncclComm_t get() const { return communicator_.get(); }
    cudaStream_t stream() const { return stream_.get(); }
    void enter() const { PIPETWIN_CUDA_CHECK(cudaSetDevice(device_)); }

    /// Ends what is under way. Only its destruction follows.
    void abort() noexcept { static_cast<void>(ncclCommAbort(communicator_.release())); }

    /// The end of all members, to which each comes: waits until no other needs this one, but not
    /// for long.
    void finish() noexcept;

  private:
    /// ncclCommDestroy would wait for what is under way.
    using Aborted = Owned<ncclComm_t, ncclCommAbort>;

    int device_;
    Stream stream_;
    Aborted communicator_;  ///< first to end, then its stream
    bool busy_ = false;     ///< NCCL has not ended its part of the last call
};

/// Owner of memory of a GPU.
using GpuBytes = Owned<std::byte*, cudaFree>;
/// Allocates memory of a GPU, which becomes the calling thread's current one. Throws CudaFailure.
GpuBytes gpu_bytes(int device, std::size_t bytes);

/// Owner of a CUDA event.
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
/// Makes an event, to be recorded on the communicator's stream.
Event make_event();

/// Whether what was recorded before the event is done.
bool is_done(const Event& event);

}  // namespace pipetwin::cuda
