#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/units.h"

namespace pipetwin::exec {

/// One end of a one-way link between the memories of two GPUs of different processes. Its messages
/// have no names: the first that one end sends is the first that the other one receives. One thread
/// at a time.
///
/// Every function throws DeviceFailure once the link has failed, as it does when the other process
/// dies.
class GpuLink {
  public:
    GpuLink() = default;
    GpuLink(const GpuLink&) = delete;
    GpuLink& operator=(const GpuLink&) = delete;
    /// Does not wait for what is under way: that never happens.
    virtual ~GpuLink() = default;

    /// The next message, sent from `data` or received into it, in the memory of the GPU, which is
    /// used until the message is complete. Does not wait, neither for the other end; what cannot
    /// begin yet does so when the link is asked how far it is.
    virtual void add(void* data, Bytes bytes) = 0;

    /// Whether all that was added goes on by itself.
    virtual bool all_begun() = 0;

    /// How many messages are complete.
    virtual std::int64_t complete() = 0;
};

/// How the processes of GPUs come by their links. `make_id` is called at one end of each link, and
/// `make` at both with what it returned; neither waits for the other end.
struct GpuLinks {
    std::function<std::vector<std::byte>()> make_id;
    std::function<std::unique_ptr<GpuLink>(std::span<const std::byte> id, bool sends)> make;
};

}  // namespace pipetwin::exec
