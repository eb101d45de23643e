// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/channel_group.h"

#include <bit>
#include <chrono>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/base/cores.h"
#include "exec/base/element_range.h"
#include "exec/device/kernels.h"
#include "exec/device/memory.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {
namespace {

class ChannelGroup final : public Group {
  public:
    ChannelGroup(const GroupMember& member, Device& device, const GroupChannels& channels)
        : member_(member), device_(device) {
        PIPETWIN_EXPECT(member.are_remote || device.kernels().are_immediate(),
                        "threads read what others have computed already");
        for (int other = 0; other < member.size; ++other) {
            to_.push_back(other == member.index ? nullptr : &channels(member.index, other));
            from_.push_back(other == member.index ? nullptr : &channels(other, member.index));
        }
        parts_.resize(as_index(member.size));
        inboxes_.resize(as_index(member.size));
    }

    int size() const override { return member_.size; }
    int index() const override { return member_.index; }

    void all_reduce(View numbers, ConstView skip) override {
        begin(GroupCall::AllReduce);
        all_reduce_over(all_members(), numbers, skip);
    }

    void all_reduce_of_neighbours(View numbers, int count) override {
        begin(GroupCall::AllReduce);
        wait_.kind = GroupKind::Neighbours;
        all_reduce_over({.first = index() / count * count, .count = count}, numbers, {});
    }

    void reduce_scatter(View numbers,
                        ConstView skip,
                        View own,
                        std::span<const ElementRange> parts) override {
        begin(GroupCall::ReduceScatter);
        note(1, numbers, [&] {
            sum_up(all_members(), numbers, skip, own, parts);
            await_readers(all_members());
        });
    }

    /// Doubles go as words of 4 bytes where they pass through the memory of a device.
    void all_gather_on_host(std::span<const double> own, std::span<double> all) override {
        if (&device_.memory() == &host_memory()) {
            all_gather({own.data(), DType::F64, 1, std::ssize(own)},
                       {all.data(), DType::F64, 1, std::ssize(all)});
            return;
        }
        device_.finish();  // which may have written them
        const auto words = [this](std::ptrdiff_t numbers) {
            constexpr std::int64_t in_one = sizeof(double) / sizeof(float);
            return Tensor::detached(device_.memory(), DType::F32, 1, in_one * numbers);
        };
        Tensor mine = words(std::ssize(own));
        Tensor of_all = words(std::ssize(all));
        device_.kernels().upload(std::as_bytes(own), mine);
        all_gather(mine, of_all);
        device_.kernels().download(of_all, std::as_writable_bytes(all));
    }

    void all_to_all(std::span<const ConstView> to, std::span<const View> from) override {
        PIPETWIN_EXPECT(std::cmp_equal(to.size(), size()) && std::cmp_equal(from.size(), size()),
                        "a part for each member");
        begin(GroupCall::AllToAll);
        Bytes sent;
        for_each_other([&](int other) {
            sent += Bytes{static_cast<std::int64_t>(to[as_index(other)].bytes())};
        });
        note(sent, [&] {
            for_each_other([&](int other) { expect(other, from[as_index(other)]); });
            for_each_other([&](int other) { send(other, to[as_index(other)]); });
            copy(to[as_index(index())], from[as_index(index())]);
            for_each_other([&](int other) { copy(receive(other), from[as_index(other)]); });
            await_readers(all_members());
        });
    }

    void begin_gather(ConstView own, View all) override {
        PIPETWIN_EXPECT(own.size() == share(all, index()).size(), "the caller's share");
        begun_.push_back({.own = own, .all = all, .layer = layer()});
        note(0, all, [&] {
            for_each_other([&](int other) { expect(other, share(all, other)); });
            for_each_other([&](int other) { send(other, own); });
        });
    }

    void finish_gather() override {
        PIPETWIN_EXPECT(!begun_.empty(), "a gather that was begun");
        const Gather gather = begun_.front();
        begun_.pop_front();
        begin(GroupCall::AllGather);
        wait_.layer = gather.layer;
        note(1, gather.all, [&] {
            copy(gather.own, share(gather.all, index()));
            for_each_other([&](int other) { copy(receive(other), share(gather.all, other)); });
        });
    }

    void settle_gathers() override {
        begin(GroupCall::AllGather);
        note(0, {}, [&] { await_readers(all_members()); });
    }

    void abandon() override { begun_.clear(); }

    void close() override {
        for_each_other([&](int other) {
            to_[as_index(other)]->close();
            from_[as_index(other)]->close();
        });
    }

  private:
    void begin(GroupCall call) { wait_ = {.call = call, .kind = member_.kind, .layer = layer()}; }
    GroupWait wait_for(int other) const {
        GroupWait wait = wait_;
        wait.member = static_cast<std::int16_t>(member_.first + other * member_.step);
        return wait;
    }

    /// Makes a call once the device has its operands, and notes what it has taken to carry the
    /// numbers so many times.
    template <class Do>
    void note(int times, ConstView numbers, const Do& act) {
        note(times * Bytes{static_cast<std::int64_t>(numbers.bytes())}, act);
    }
    template <class Do>
    void note(Bytes carried, const Do& act) {
        device_.finish();
        const Duration cpu = thread_cpu_time();
        const TimePoint begin = std::chrono::steady_clock::now();
        act();
        use_ += {.time = std::chrono::steady_clock::now() - begin,
                 .cpu = thread_cpu_time() - cpu,
                 .carried = carried};
    }

    /// Neighbours among the members.
    struct Some {
        int first = 0;
        int count = 1;
    };
    Some all_members() const { return {.first = 0, .count = size()}; }

    void all_reduce_over(const Some& members, View numbers, ConstView skip) {
        const View own = share(numbers, index(), members);
        note(2, numbers, [&] {
            sum_up(members, numbers, skip.empty() ? skip : share(skip, index(), members), own, {});
            spread(members, numbers, own);
        });
    }

    /// Makes the part of the sums that is the caller's, of those that `reduce_scatter` says.
    void sum_up(const Some& members,
                View numbers,
                ConstView skip,
                View own,
                std::span<const ElementRange> parts) {
        const auto of = [&](int member) {
            return parts.empty() ? share(numbers, member, members)
                                 : part_of(numbers, parts[as_index(member)]);
        };
        const View mine = of(index());
        PIPETWIN_EXPECT(own.size() == mine.size(), "a part for each member");
        for_each_other(members, [&](int other) { expect(other, inbox(other, mine)); });
        for_each_other(members, [&](int other) { send(other, of(other)); });
        for_each_other(members, [&](int other) { parts_[as_index(other)] = receive(other); });
        parts_[as_index(index())] = mine;
        device_.kernels().add_up(
            std::span(parts_).subspan(as_index(members.first), as_index(members.count)), skip, own);
        device_.finish();
    }

    /// The sums of all. A member that has those of another knows that this one has read its part.
    void spread(const Some& members, View numbers, ConstView own) {
        for_each_other(members, [&](int other) { expect(other, share(numbers, other, members)); });
        for_each_other(members, [&](int other) { send(other, own); });
        for_each_other(members,
                       [&](int other) { copy(receive(other), share(numbers, other, members)); });
        await_readers(members);
    }

    template <class Do>
    void for_each_other(const Some& members, const Do& act) const {
        for (int other = members.first; other < members.first + members.count; ++other) {
            if (other != index()) {
                act(other);
            }
        }
    }
    template <class Do>
    void for_each_other(const Do& act) const {
        for_each_other(all_members(), act);
    }

    template <class AnyView>
    AnyView share(const AnyView& of, int member, const Some& members) const {
        return part_of(of, share_of(of.size(), member - members.first, members.count));
    }
    template <class AnyView>
    AnyView share(const AnyView& of, int member) const {
        return share(of, member, all_members());
    }

    Tensor tensor_of(ConstView numbers) const {
        return Tensor::placed(
            device_.memory(), const_cast<void*>(numbers.data), numbers.dtype, 1, numbers.size());
    }

    /// Copies numbers within the memory of the device, unless they are there already, as those are
    /// that came from another process.
    void copy(ConstView from, View to) const {
        if (from.data != to.data && from.size() > 0) {
            device_.kernels().copy_columns({.count = from.size()},
                                           {from.data, from.dtype, 1, from.size()},
                                           {to.data, to.dtype, 1, to.size()});
        }
    }

    /// Where what another process sends next is to go: as many numbers as in `like`.
    View inbox(int other, ConstView like) {
        Tensor& bytes = inboxes_[as_index(other)];
        if (member_.are_remote && std::cmp_less(bytes.size(), like.bytes())) {
            bytes = Tensor::detached(device_.memory(),
                                     DType::U8,
                                     1,
                                     static_cast<std::int64_t>(std::bit_ceil(like.bytes())));
        }
        return {bytes.data(), like.dtype, 1, like.size()};
    }

    void expect(int other, View place) const {
        if (member_.are_remote) {
            from_[as_index(other)]->expect(tensor_of(place));
        }
    }

    /// Shows the numbers to another member; a thread reads them where they are, a process is waited
    /// for until it has what was sent before.
    void send(int other, ConstView numbers) {
        const Waiting waiting(*this, wait_for(other));
        to_[as_index(other)]->send(
            {.micro_batch = 0, .tensor = tensor_of(numbers), .available = {}});
    }

    ConstView receive(int other) {
        const Waiting waiting(*this, wait_for(other));
        const Channel::Received received = from_[as_index(other)]->receive();
        return ConstView(received.message.tensor);
    }

    /// Returns when all others have read what this member has shown.
    void await_readers(const Some& members) {
        if (member_.are_remote) {
            for_each_other(members, [&](int other) {
                const Waiting waiting(*this, wait_for(other));
                to_[as_index(other)]->settle();
            });
            return;
        }
        for_each_other(members, [&](int other) { to_[as_index(other)]->send({}); });
        for_each_other(members, [&](int other) { receive(other); });
    }

    struct Gather {
        ConstView own;
        View all;
        int layer = -1;
    };
    GroupMember member_;
    GroupWait wait_{};  ///< of the call at work; the member is set where one is waited for
    Device& device_;
    std::deque<Gather> begun_;
    std::vector<Channel*> to_;    ///< [member]; null: its own
    std::vector<Channel*> from_;  ///< [member]
    std::vector<ConstView> parts_;
    std::vector<Tensor> inboxes_;  ///< [member] of another process; bytes
};

}  // namespace

std::unique_ptr<Group> make_channel_group(const GroupMember& member,
                                          Device& device,
                                          const GroupChannels& channels) {
    return std::make_unique<ChannelGroup>(member, device, channels);
}

}  // namespace pipetwin::exec
