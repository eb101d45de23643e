// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "exec/cuda/cudnn/cudnn_attention.h"
#include "exec/cuda/cudnn/cudnn_convolution.h"
#include "exec/cuda/device/products.h"
#include "exec/cuda/runtime/call_site.h"
#include "exec/cuda/runtime/command_queue.h"
#include "exec/cuda/runtime/device_memory.h"
#include "exec/cuda/runtime/green_context.h"
#include "exec/cuda/runtime/owned.h"

namespace pipetwin::cuda {

/// The place where a rank computes: a device, or a part of it that no other rank uses.
struct Place {
    int device = 0;
    const GreenContext* part = nullptr;  ///< null: ranks share the whole device

    /// Makes it the calling thread's.
    void enter() const;
};

/// One rank's way to the GPU: a stream and what its kernels need beside their operands. Used by one
/// thread at a time.
class Lane final : public CallSite {
  public:
    /// A moment on the host's clock.
    using TimePoint = std::chrono::steady_clock::time_point;

    /// Options of a lane.
    struct Options {
        CommandQueue::Graphs graphs = CommandQueue::Graphs::Yes;
        int multiprocessors = 0;  ///< of the whole device
        CudnnAttention::Options attention{};
        bool cudnn_convolutions = true;  ///< false: convolutions by our own kernels
        bool joins_gelus = true;         ///< false: GELUs by our own kernels, not in products
    };
    /// The part and `memory` outlive it.
    Lane(const Place& place, DeviceMemory& memory, const Options& options);
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;
    ~Lane();

    CommandList& list() override { return queue_.list(); }
    Products& products() { return products_; }
    /// True if a GELU may be part of a product.
    bool joins_gelus() const { return joins_gelus_; }
    CudnnAttention& attention() { return attention_; }
    CudnnConvolutions& convolutions() { return convolutions_; }

    /// Host memory that copies to the GPU are made from (CallSite). The same requests after
    /// `finish` get the same addresses.
    std::byte* staged(std::size_t bytes) override;
    /// The most that `staged` has between two launches.
    std::size_t staging_bytes() const { return most_staged; }
    /// Host memory for copies to the GPU, in all.
    std::size_t pinned_bytes() const { return staged_.size() * most_staged; }
    std::size_t scratch_bytes() const { return scratch_bytes_; }
    /// The part of `scratch_bytes` that no call but those of cuDNN needed.
    std::size_t cudnn_scratch_bytes() const { return scratch_bytes_ - kernels_scratch_bytes_; }

    void* scratch(std::size_t bytes) override;
    /// Device memory for the inside of one call of cuDNN, likewise, which shares it with our
    /// kernels.
    void* cudnn_scratch(std::size_t bytes);

    /// Prepares the launch of what is listed, while an earlier launch is under way.
    void prepare();
    /// Starts what is listed, once the launch before was awaited. More may be listed while it is
    /// under way.
    void launch();
    /// Whether there is a launch to be awaited.
    bool has_launched() const { return is_under_way_ || awaited_; }
    /// Waits until the launch is done; returns the moment when it was.
    TimePoint await_launch();
    /// Starts what is listed and waits until everything is done; returns the moment when it was.
    /// Where there is a launch to be awaited, it is done before, and is still to be awaited.
    TimePoint finish();

    const std::string& why_no_graphs() const { return queue_.why_no_graphs(); }

    /// Forgets what is listed, and waits for what is under way.
    void discard() noexcept;

    /// Makes `finish` call `then` with the moment at which all that is listed now was done.
    void mark(std::function<void(TimePoint)> then);

    cudaStream_t stream() const { return queue_.stream(); }
    DeviceMemory& memory() { return memory_; }

  private:
    std::byte* stage(std::size_t bytes);
    static constexpr std::size_t most_staged = std::size_t{8} << 20U;
    using Event = Owned<cudaEvent_t, cudaEventDestroy>;
    using Staging = Owned<std::byte*, cudaFreeHost>;

    static Event make_event();
    cudaStream_t entered_stream();
    TimePoint wait_until_done();
    bool is_done() const;

    Place place_;
    Stream own_stream_;  ///< where the place has none
    CommandQueue queue_;
    DeviceMemory& memory_;
    Owned<std::byte*, cudaFree> products_workspace_;  ///< cuBLAS's, beside the memory of the ranks
    Products products_;
    bool joins_gelus_;
    CudnnAttention attention_;
    CudnnConvolutions convolutions_;
    Staging staging_;                      ///< a half for the next launch, one for that under way
    std::array<std::size_t, 2> staged_{};  ///< [half]
    std::size_t half_ = 0;                 ///< of the next launch
    void* scratch_ = nullptr;
    std::size_t scratch_bytes_ = 0;
    std::size_t kernels_scratch_bytes_ = 0;  ///< what calls of our kernels needed of it at most
    Event begun_;                            ///< by the launch
    Event done_;
    TimePoint launched_at_;
    bool is_under_way_ = false;         ///< a launch whose end is not known
    std::optional<TimePoint> awaited_;  ///< its end, if `finish` had to wait for it
    std::vector<Event> events_;         ///< of marks, used again and again in order
    std::vector<std::function<void(TimePoint)>> marks_;
};

}  // namespace pipetwin::cuda
