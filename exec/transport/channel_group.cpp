// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/channel_group.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/base/cores.h"
#include "exec/base/element_range.h"
#include "exec/cpu/products/bfloat16.h"
#include "exec/device/memory.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {
namespace {

/// sums[i] = parts[0][i] + parts[1][i] + ... + skip[i], where `sums` may be one of them. The skip
/// may be empty.
template <class T>
void add_up(const std::vector<ConstView>& parts, ConstView skip, View sums) {
    T* const to = sums.as<T>();
    const T* const last = skip.as<T>();
    for (std::int64_t i = 0; i < sums.size(); ++i) {
        auto sum = computed(parts.front().as<T>()[i]);
        for (std::size_t part = 1; part < parts.size(); ++part) {
            sum += computed(parts[part].as<T>()[i]);
        }
        to[i] = stored<T>(last != nullptr ? sum + computed(last[i]) : sum);
    }
}

/// Says that a member waits, as long as it lives.
class Waiting {
  public:
    explicit Waiting(std::atomic<bool>& says) : says_(says) { says_ = true; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() { says_ = false; }

  private:
    std::atomic<bool>& says_;
};

class ChannelGroup final : public Group {
  public:
    ChannelGroup(const GroupMember& member, const GroupChannels& channels) : member_(member) {
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
        const View own = share(numbers, index());
        note(2, numbers, [&] {
            sum_up(numbers, skip.empty() ? skip : share(skip, index()), own, {});
            spread(numbers, own);
        });
    }

    void reduce_scatter(View numbers,
                        ConstView skip,
                        View own,
                        std::span<const ElementRange> parts) override {
        note(1, numbers, [&] {
            sum_up(numbers, skip, own, parts);
            await_readers();
        });
    }

    void begin_gather(ConstView own, View all) override {
        PIPETWIN_EXPECT(own.size() == share(all, index()).size(), "the caller's share");
        begun_.push_back({.own = own, .all = all});
        note(0, all, [&] {
            for_each_other([&](int other) { expect(other, share(all, other)); });
            for_each_other([&](int other) { send(other, own); });
        });
    }

    void finish_gather() override {
        PIPETWIN_EXPECT(!begun_.empty(), "a gather that was begun");
        const Gather gather = begun_.front();
        begun_.pop_front();
        note(1, gather.all, [&] {
            copy(gather.own, share(gather.all, index()));
            for_each_other([&](int other) { copy(receive(other), share(gather.all, other)); });
        });
    }

    void settle_gathers() override {
        note(0, {}, [&] { await_readers(); });
    }

    void abandon() override { begun_.clear(); }

    void close() override {
        for_each_other([&](int other) {
            to_[as_index(other)]->close();
            from_[as_index(other)]->close();
        });
    }

  private:
    /// Makes a call, and notes what it has taken to carry the numbers so many times.
    template <class Do>
    void note(int times, ConstView numbers, const Do& act) {
        const Duration cpu = thread_cpu_time();
        const TimePoint begin = std::chrono::steady_clock::now();
        act();
        use_ += {.time = std::chrono::steady_clock::now() - begin,
                 .cpu = thread_cpu_time() - cpu,
                 .carried = times * Bytes{static_cast<std::int64_t>(numbers.bytes())}};
    }

    /// Makes the part of the sums that is the caller's, of those that `reduce_scatter` says.
    void sum_up(View numbers, ConstView skip, View own, std::span<const ElementRange> parts) {
        const auto of = [&](int member) {
            return parts.empty() ? share(numbers, member)
                                 : part_of(numbers, parts[as_index(member)]);
        };
        const View mine = of(index());
        PIPETWIN_EXPECT(own.size() == mine.size(), "a part for each member");
        for_each_other([&](int other) { expect(other, inbox(other, mine)); });
        for_each_other([&](int other) { send(other, of(other)); });
        for_each_other([&](int other) { parts_[as_index(other)] = receive(other); });
        parts_[as_index(index())] = mine;
        switch (numbers.dtype) {
            case DType::F64:
                return add_up<double>(parts_, skip, own);
            case DType::BF16:
                return add_up<BFloat16>(parts_, skip, own);
            default:
                PIPETWIN_EXPECT(numbers.dtype == DType::F32, "sums are of real numbers");
                return add_up<float>(parts_, skip, own);
        }
    }

    /// The sums of all. A member that has those of another knows that this one has read its part.
    void spread(View numbers, ConstView own) {
        for_each_other([&](int other) { expect(other, share(numbers, other)); });
        for_each_other([&](int other) { send(other, own); });
        for_each_other([&](int other) { copy(receive(other), share(numbers, other)); });
        await_readers();
    }

    template <class Do>
    void for_each_other(const Do& act) const {
        for (int other = 0; other < size(); ++other) {
            if (other != index()) {
                act(other);
            }
        }
    }

    template <class AnyView>
    AnyView share(const AnyView& of, int member) const {
        return part_of(of, share_of(of.size(), member, size()));
    }

    static Tensor tensor_of(ConstView numbers) {
        return Tensor::placed(
            host_memory(), const_cast<void*>(numbers.data), numbers.dtype, 1, numbers.size());
    }

    static void copy(ConstView from, View to) {
        if (from.data != to.data &&
            from.size() > 0) {  // what came from another process is there already
            std::memcpy(to.data, from.data, from.bytes());
        }
    }

    /// Where what another process sends next is to go: as many numbers as in `like`.
    View inbox(int other, ConstView like) {
        std::vector<std::byte>& bytes = inboxes_[as_index(other)];
        if (member_.are_remote && bytes.size() < like.bytes()) {
            bytes.resize(like.bytes());
        }
        return {bytes.data(), like.dtype, 1, like.size()};
    }

    void expect(int other, View place) const {
        if (member_.are_remote) {
            from_[as_index(other)]->expect(tensor_of(place));
        }
    }

    /// Shows the numbers to another member; a thread reads them where they are.
    void send(int other, ConstView numbers) const {
        to_[as_index(other)]->send(
            {.micro_batch = 0, .tensor = tensor_of(numbers), .available = {}});
    }

    ConstView receive(int other) {
        const Waiting waiting(is_waiting_);
        const Channel::Received received = from_[as_index(other)]->receive();
        return ConstView(received.message.tensor);
    }

    /// Returns when all others have read what this member has shown.
    void await_readers() {
        if (member_.are_remote) {
            for_each_other([&](int other) { to_[as_index(other)]->settle(); });
            return;
        }
        for_each_other([&](int other) { to_[as_index(other)]->send({}); });
        for_each_other([&](int other) { receive(other); });
    }

    struct Gather {
        ConstView own;
        View all;
    };
    GroupMember member_;
    std::deque<Gather> begun_;
    std::vector<Channel*> to_;    ///< [member]; null: its own
    std::vector<Channel*> from_;  ///< [member]
    std::vector<ConstView> parts_;
    std::vector<std::vector<std::byte>> inboxes_;  ///< [member] of another process
};

}  // namespace

std::unique_ptr<Group> make_channel_group(const GroupMember& member,
                                          const GroupChannels& channels) {
    return std::make_unique<ChannelGroup>(member, channels);
}

}  // namespace pipetwin::exec
