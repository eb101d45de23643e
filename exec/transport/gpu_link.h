// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "exec/base/element_range.h"

namespace pipetwin::exec {

/// What a GPU does together with those of other processes: one thing after the other, in the order
/// in which it was asked to. Asking does not wait, neither for the others; what cannot begin yet
/// begins when `all_begun` or `complete` is called. One thread at a time.
///
/// Every function throws DeviceFailure once it has failed, as it does when another process dies.
class GpuTraffic {
  public:
    GpuTraffic() = default;
    GpuTraffic(const GpuTraffic&) = delete;
    GpuTraffic& operator=(const GpuTraffic&) = delete;
    /// Does not wait for what is under way: that never happens.
    virtual ~GpuTraffic() = default;

    /// Whether all that was asked for goes on by itself.
    virtual bool all_begun() = 0;

    /// How much of it is complete.
    virtual std::int64_t complete() = 0;

    /// Whether it has reached the others once: only then does it need nothing more of the driver,
    /// which may wait for all that a GPU has under way.
    virtual bool is_connected() = 0;

    /// Ends what is under way; only its destruction follows. Of several use GpuLinks::abort.
    virtual void abort() noexcept = 0;
};

/// One end of a one-way link between GPUs of different processes. Its messages have no names: the
/// first that one end sends is the first that the other one receives.
class GpuLink : public GpuTraffic {
  public:
    /// The next message, sent from `data` or received into it, which is used until the message is
    /// complete.
    virtual void add(void* data, Bytes bytes) = 0;
};

/// Numbers in the memory of a GPU, one after the other.
struct GpuNumbers {
    void* data = nullptr;
    std::int64_t count = 0;
};

/// Sums over several processes with a GPU each. All members ask for the same things in the same
/// order, and their lists are of the same lengths. Shares, one of each member, are ranges of all
/// numbers of a list together. What a list names is used until it is complete.
class GpuSum : public GpuTraffic {
  public:
    /// Numbers of fp32 become their sums over the members, added up in the order of the members:
    /// those of this member's share, or all, where there are no shares. The GPU has what they are
    /// sums of.
    virtual void add(std::span<const GpuNumbers> numbers, std::span<const ElementRange> shares) = 0;

    /// Sends the calling member's share of numbers of so many bytes to the others `among` which it
    /// is, and receives theirs; of size 0: all members.
    virtual void exchange(std::span<const GpuNumbers> numbers,
                          std::span<const ElementRange> shares,
                          const ElementRange& among,
                          std::size_t bytes_each) = 0;
};

/// Where the messages of a link lie, at both ends. What lies in host memory passes through that of
/// the GPUs.
enum class LinkMemory { Gpu, Host };

/// What each process of a training tells all others, by their GPUs. One thread at a time; throws as
/// GpuLink does.
class GpuGather {
  public:
    GpuGather() = default;
    GpuGather(const GpuGather&) = delete;
    GpuGather& operator=(const GpuGather&) = delete;
    virtual ~GpuGather() = default;

    /// The most bytes that a process can tell in one round.
    static constexpr std::size_t most = std::size_t{64} << 10;

    /// Begins a round: as many bytes of each process. The round before is done. Does not wait.
    virtual void begin(std::span<const std::byte> mine) = 0;
    /// Whether that round is done.
    virtual bool done() = 0;
    /// What it gave, process by process; until the next begins.
    virtual std::span<const std::byte> all() const = 0;

    /// Every process does so, after the last round: waits until none needs this one any more, but
    /// not for long.
    virtual void finish() noexcept = 0;
};

/// The place of a process among those that are gathered.
struct GpuMember {
    int index = 0;
    int count = 1;
};

/// How the processes of GPUs come by their links. An id is made by one process and told to the
/// others; then each makes its end, and waits for no other end.
struct GpuLinks {
    std::function<std::vector<std::byte>()> make_id;
    std::function<std::unique_ptr<GpuLink>(
        std::span<const std::byte> id, bool sends, LinkMemory memory)>
        make;
    std::function<std::unique_ptr<GpuGather>(std::span<const std::byte> id,
                                             const GpuMember& member)>
        make_gather;
    std::function<std::unique_ptr<GpuSum>(std::span<const std::byte> id, const GpuMember& member)>
        make_sum;
    /// Ends several at once: one alone might wait for what the others have under way.
    std::function<void(std::span<GpuTraffic* const>)> abort;
    /// Without an id, for processes that have nothing in common yet but "host:port", where the
    /// first of them listens until all have come. One at a time, and nothing else is made before
    /// its first round is done.
    std::function<std::unique_ptr<GpuGather>(const std::string& place, const GpuMember& member)>
        meet;
};

}  // namespace pipetwin::exec
