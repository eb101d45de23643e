// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/units.h"
#include "exec/base/element_range.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {

/// What a member has spent in a group.
struct GroupUse {
    Duration time{};  ///< in all calls, waits for the others included
    Duration cpu{};   ///< CPU time of the thread in them
    /// What all members have, a gather and a reduce-scatter once, a sum, which is both, twice; and
    /// what this one has sent to each in exchanges of all with all.
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

/// Time that a rank has spent in its groups so far.
struct GroupTimes {
    Duration devices{};   ///< that divide its layers
    Duration replicas{};  ///< that divide its gradients or weights

    Duration sum() const { return devices + replicas; }
    GroupTimes& operator+=(const GroupTimes& more) {
        devices += more.devices;
        replicas += more.replicas;
        return *this;
    }
    GroupTimes operator-(const GroupTimes& then) const {
        return {.devices = devices - then.devices, .replicas = replicas - then.replicas};
    }
    GroupTimes& operator/=(std::int64_t parts) {
        devices /= parts;
        replicas /= parts;
        return *this;
    }
};

/// What the members of a group do in one call.
enum class GroupCall : std::uint8_t { AllReduce, ReduceScatter, AllGather, AllToAll };
/// "all-reduce"
std::string_view to_string(GroupCall call);

/// Who is in a group: the devices of a rank, those of them that share heads, replicas that divide
/// layers, or one of each of their groups.
enum class GroupKind : std::uint8_t { Devices, Neighbours, Replicas, GroupsOfReplicas };

/// What a member waits for in a group.
struct GroupWait {
    GroupCall call = GroupCall::AllReduce;
    GroupKind kind = GroupKind::Devices;
    std::int16_t member = 0;  ///< that has not come: number of the device, or of the replica
    std::int32_t layer = -1;  ///< of the model, at which the call stands; -1: of no single one

    bool operator==(const GroupWait&) const = default;
};

/// Says that a member waits for no other.
constexpr GroupWait no_wait{.member = -1};

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
    /// `numbers` become the sums over `count` neighbours, as in `all_reduce`: members 0 to count -
    /// 1 add up theirs, and so do the next so many.
    virtual void all_reduce_of_neighbours(View numbers, int count) = 0;
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
    /// Sends `to[member]` to each member and receives what it has for the caller, `from[member]`;
    /// the caller's own part is copied. Any may be empty; a part has one size at both ends.
    virtual void all_to_all(std::span<const ConstView> to, std::span<const View> from) = 0;
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

    /// The calls that follow stand at a layer of the model; -1: at no single one.
    void at_layer(int layer) { layer_ = layer; }

    /// Which member the caller waits for, and in which call; none: it does not wait. Any thread.
    std::optional<GroupWait> waits_for() const;
    /// The wait that another member's stop has ended, if one has. On the caller's thread.
    const std::optional<GroupWait>& broken_wait() const { return broken_wait_; }
    void forget_broken_wait() { broken_wait_.reset(); }

    /// The caller stops: ends the waits of the others. Any thread, any number of times.
    virtual void close() = 0;

  protected:
    /// Says that the caller waits for a member, as long as it lives.
    class Waiting {
      public:
        Waiting(Group& group, const GroupWait& wait);
        Waiting(const Waiting&) = delete;
        Waiting& operator=(const Waiting&) = delete;
        ~Waiting();

      private:
        Group& group_;
        const GroupWait wait_;
        const int exceptions_;
    };

    int layer() const { return layer_; }

    GroupUse use_;

  private:
    int layer_ = -1;
    std::atomic<GroupWait> wait_{no_wait};
    std::optional<GroupWait> broken_wait_;
};

/// A group as texts name it: "devices 0-1 of the rank", "replicas 2-3", "replicas 1, 3". `size`:
/// of its members; `member`: one of them, by its number among all devices or replicas.
std::string group_text(GroupKind kind, int member, int size, int replicas);

/// A group in which nothing is sent, for where nothing is computed: its calls return at once, and
/// leave their tensors as they are.
Group& idle_group();

}  // namespace pipetwin::exec
