// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/gpu_channel.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "core/base/error.h"
#include "exec/device/memory.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// What both ends are made of.
class GpuEnd : public Channel {
  public:
    GpuEnd(GpuWaits& waits, std::unique_ptr<GpuLink> link, const RemoteEnd& end)
        : waits_(waits), link_(std::move(link)), capacity_(end.capacity) {
        if (capacity_) {
            room_ = waits_.group().open(
                {.peer = end.peer, .tag = end.tag, .sends = !end.sends, .capacity = {}});
        }
        waits_.add(*link_);
    }
    ~GpuEnd() override { waits_.remove(*link_); }

    void close() final { waits_.group().abort(); }
    void reopen() final { throw InternalError("a channel between processes is not opened again"); }
    std::optional<int> capacity() const final { return capacity_; }

  protected:
    GpuWaits& waits() { return waits_; }
    GpuLink& link() { return *link_; }
    void add(Tensor& message) {
        waits_.explained([&] { link_->add(message.data(), message.bytes()); });
    }
    /// The other way, host memory: tells that a message was taken. Null: there is always room.
    Channel* room() { return room_.get(); }

    /// What goes over `room`.
    Tensor answer() { return Tensor::placed(host_memory(), &word_, DType::I32, 1, 1); }

  private:
    GpuWaits& waits_;
    std::unique_ptr<GpuLink> link_;
    std::optional<int> capacity_;
    std::unique_ptr<Channel> room_;
    std::int32_t word_ = 0;  ///< sent for its arrival alone, never read
};

/// At most one message is on its way at a time; its tensor stays until then.
class GpuSendEnd final : public GpuEnd {
  public:
    GpuSendEnd(GpuWaits& waits, std::unique_ptr<GpuLink> link, const RemoteEnd& end)
        : GpuEnd(waits, std::move(link), end) {
        if (room() != nullptr) {
            room()->expect(answer());
        }
    }

    TimePoint send(Message message) override {
        if (room() != nullptr) {
            wait_until_taken(sent_ + 1 - std::max(*capacity(), 1));
        }
        settle();
        on_its_way_ = std::move(message);
        add(on_its_way_.tensor);
        ++sent_;
        waits().wait([this] { return link().all_begun(); });  // no poll may follow
        if (capacity() == 0) {
            wait_until_taken(sent_);
        }
        return Clock::now();
    }

    Received receive() override { throw InternalError("this is the sending end of the channel"); }
    void expect(Tensor /*place*/) override {
        throw InternalError("this is the sending end of the channel");
    }

    void settle() override {
        waits().wait([this] { return link().complete() == sent_; });
        on_its_way_ = {};
    }

  private:
    void wait_until_taken(std::int64_t messages) {
        for (; taken_ < messages; ++taken_) {
            waits().wait([this] { return room()->has_come(); });
            room()->receive();
            room()->expect(answer());
        }
    }

    Message on_its_way_;
    std::int64_t sent_ = 0;
    std::int64_t taken_ = 0;
};

/// Messages go straight into the places that they were expected at.
class GpuReceiveEnd final : public GpuEnd {
  public:
    using GpuEnd::GpuEnd;

    TimePoint send(Message /*message*/) override {
        throw InternalError("this is the receiving end of the channel");
    }

    void expect(Tensor place) override {
        add(place);
        expected_.push_back(std::move(place));
    }

    bool has_come() override {
        return waits().explained([this] { return is_there(); });
    }

    Received receive() override {
        PIPETWIN_EXPECT(!expected_.empty(), "what is received was expected");
        TimePoint arrived;  // it was there before
        if (!has_come()) {
            waits().wait([this] { return is_there(); });
            arrived = Clock::now();
        }
        Received received{
            .message = {.micro_batch = 0, .tensor = std::move(expected_.front()), .available = {}},
            .arrived = arrived};
        expected_.pop_front();
        ++received_;
        if (room() != nullptr) {
            room()->send({.micro_batch = 0, .tensor = answer(), .available = {}});
        }
        return received;
    }

  private:
    bool is_there() { return link().complete() > received_; }

    std::deque<Tensor> expected_;
    std::int64_t received_ = 0;
};

}  // namespace

/// The sender makes the id.
std::unique_ptr<Channel> open_gpu_channel(GpuWaits& waits,
                                          const GpuLinks& links,
                                          const RemoteEnd& end) {
    const LinkMemory memory = end.on_device ? LinkMemory::Gpu : LinkMemory::Host;
    if (end.sends) {
        const std::vector<std::byte> id = links.make_id();
        waits.group().send(end.peer, id);
        return std::make_unique<GpuSendEnd>(waits, links.make(id, true, memory), end);
    }
    const std::vector<std::byte> id = waits.group().receive(end.peer);
    return std::make_unique<GpuReceiveEnd>(waits, links.make(id, false, memory), end);
}

std::unique_ptr<RemoteSum> open_gpu_sum(GpuWaits& waits,
                                        const GpuLinks& links,
                                        std::span<const int> members) {
    ProcessGroup& group = waits.group();
    const auto own = std::ranges::find(members, group.index());
    PIPETWIN_EXPECT(own != members.end(), "who opens a sum is one of its members");
    const GpuMember self{.index = static_cast<int>(own - members.begin()),
                         .count = static_cast<int>(members.size())};
    std::vector<std::byte> id;
    if (self.index == 0) {
        id = links.make_id();
        for (const int other : members.subspan(1)) {
            group.send(other, id);
        }
    } else {
        id = group.receive(members.front());
    }
    return std::make_unique<RemoteSum>(waits, links.make_sum(id, self));
}

}  // namespace pipetwin::exec
