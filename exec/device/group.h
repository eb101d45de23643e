// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <span>

#include "core/base/units.h"
#include "exec/base/element_range.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {

/// What a member has spent in a group.
struct GroupUse {
    Duration time{};  ///< in all calls, waits for the others included
    Duration cpu{};   ///< CPU time of the thread in them
    /// What all members have, a gather and a reduce-scatter once, a sum, which is both, twice.
    Bytes carried{};

    /// The use since another moment.
    GroupUse since(const GroupUse& then) const {
        return {.time = time - then.time, .cpu = cpu - then.cpu, .carried = carried - then.carried};
    }
    GroupUse& operator+=(const GroupUse& more) {
        time += more.time;
        cpu += more.cpu;
        carried += more.carried;
        return *this;
    }
};

/// Devices that compute layers together, as one of them sees it. Every member calls the same
/// functions in the same order, with tensors of the same shape. All calls wait for the others, and
/// throw ChannelClosed where another member stops.
class Group {
  public:
    Group() = default;
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    virtual ~Group() = default;

    /// Number of the members.
    virtual int size() const = 0;
    /// The caller's number among them, from 0 on.
    virtual int index() const = 0;

    /// `numbers` become the sums over all members, on all of them: each number is added in the
    /// order of the members, and then `skip`, in fp32 at least, so that all have the same bits. A
    /// skip is the same on all members, or empty.
    virtual void all_reduce(View numbers, ConstView skip = {}) = 0;
    /// `own` becomes the sums of the caller's part of `numbers`, with the bits of `all_reduce`;
    /// `skip` is of this part, and may be `own` itself. Each member has the part that `parts` says,
    /// [member]; where that is empty, `share_of` its size and index. What is left in `numbers` is
    /// undefined.
    virtual void reduce_scatter(View numbers,
                                ConstView skip,
                                View own,
                                std::span<const ElementRange> parts = {}) = 0;
    /// `all` becomes the numbers of all members, in their order: `own` is the caller's part of it,
    /// `share_of` its size and index.
    void all_gather(ConstView own, View all) {
        begin_gather(own, all);
        finish_gather();
        settle_gathers();
    }
    /// `all` becomes the numbers of all members, in their order, as many of each: numbers in host
    /// memory, wherever tensors lie.
    virtual void all_gather_on_host(std::span<const double> own, std::span<double> all) = 0;
    /// Begins an all_gather, and does not wait. Several may be begun before the first is finished;
    /// until the last one is, no sum may be asked for.
    virtual void begin_gather(ConstView own, View all) = 0;
    /// Waits for the gather that was begun first. Others may read `own` until `settle_gathers`.
    virtual void finish_gather() = 0;
    /// Waits until no other member reads what this one has shown in gathers.
    virtual void settle_gathers() = 0;
    /// Forgets gathers that were begun, after a failed step.
    virtual void abandon() = 0;

    /// What the caller has spent here so far.
    const GroupUse& use() const { return use_; }

    /// Whether the caller is in a call, and waits for another member there. Any thread.
    bool is_waiting() const { return is_waiting_; }

    /// The caller stops: ends the waits of the others. Any thread, any number of times.
    virtual void close() = 0;

  protected:
    GroupUse use_;
    std::atomic<bool> is_waiting_ = false;
};

/// A group in which nothing is sent, for where nothing is computed: its calls return at once, and
/// leave their tensors as they are.
Group& idle_group();

}  // namespace pipetwin::exec
