#include "exec/transport/gpu_world.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "exec/memory.h"
#include "exec/spin.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// How to wait for what a GPU does, and what has to go on meanwhile.
class GpuWaits {
  public:
    explicit GpuWaits(World& base) : base_(base) {}

    void add(GpuLink& link) { links_.push_back(&link); }
    void remove(const GpuLink& link) { std::erase(links_, &link); }

    /// Messages that wait for the one before them are begun when somebody looks.
    void progress() {
        for (GpuLink* const link : links_) {
            link->complete();
        }
    }

    template <class Done>
    void wait(const Done& done) {
        constexpr int looks_per_alarm = 16;
        constexpr std::chrono::milliseconds on_its_way{8};
        constexpr std::chrono::microseconds nap{20};
        const auto begin = Clock::now();
        for (int look = 1; !done(); ++look) {
            if (look % looks_per_alarm == 0) {
                base_.heed();
                progress();
            }
            pause_core();
            const auto waited = Clock::now() - begin;
            if (waited > on_its_way) {
                std::this_thread::sleep_for(nap);
            } else if (waited > spin_time) {
                std::this_thread::yield();
            }
        }
    }

    World& base() { return base_; }

  private:
    World& base_;
    std::vector<GpuLink*> links_;
};

/// What both ends are made of.
class GpuEnd : public Channel {
  public:
    GpuEnd(GpuWaits& waits, std::unique_ptr<GpuLink> link, const RemoteEnd& end)
        : waits_(waits), link_(std::move(link)), capacity_(end.capacity) {
        if (capacity_) {
            room_ = waits_.base().open(
                {.peer = end.peer, .tag = end.tag, .sends = !end.sends, .capacity = {}});
        }
        waits_.add(*link_);
    }
    ~GpuEnd() override { waits_.remove(*link_); }

    void close() final { waits_.base().stop(); }
    void reopen() final { throw InternalError("a channel between processes is not opened again"); }
    std::optional<int> capacity() const final { return capacity_; }

  protected:
    GpuWaits& waits() { return waits_; }
    GpuLink& link() { return *link_; }
    /// The other way, host memory: tells that a message was taken. Null: there is always room.
    Channel* room() { return room_.get(); }

    /// What goes over `room`.
    Tensor answer() { return Tensor::placed(host_memory(), &word_, DType::I32, 1, 1); }

  private:
    GpuWaits& waits_;
    std::unique_ptr<GpuLink> link_;
    std::optional<int> capacity_;
    std::unique_ptr<Channel> room_;
    std::int32_t word_ = 0;  ///< nobody reads it
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
        link().add(on_its_way_.tensor.data(), on_its_way_.tensor.bytes());
        ++sent_;
        waits().wait([this] { return link().all_begun(); });  // nobody may look any more after it
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
        link().add(place.data(), place.bytes());
        expected_.push_back(std::move(place));
    }

    bool has_come() override { return link().complete() > received_; }

    Received receive() override {
        PIPETWIN_EXPECT(!expected_.empty(), "what is received was expected");
        TimePoint arrived;  // it was there before
        if (!has_come()) {
            waits().wait([this] { return has_come(); });
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
    std::deque<Tensor> expected_;
    std::int64_t received_ = 0;
};

class GpuWorld final : public World {
  public:
    GpuWorld(std::unique_ptr<World> base, GpuLinks links)
        : base_(std::move(base)), links_(std::move(links)), waits_(*base_) {}

    int index() const override { return base_->index(); }
    int size() const override { return base_->size(); }

    /// The sender makes the id. Neither end waits for the other's link, so it does not matter in
    /// which order two processes open those between them.
    std::unique_ptr<Channel> open(const RemoteEnd& end) override {
        if (!end.on_device) {
            return base_->open(end);
        }
        if (end.sends) {
            const std::vector<std::byte> id = links_.make_id();
            base_->send(end.peer, id);
            return std::make_unique<GpuSendEnd>(waits_, links_.make(id, true), end);
        }
        const std::vector<std::byte> id = base_->receive(end.peer);
        return std::make_unique<GpuReceiveEnd>(waits_, links_.make(id, false), end);
    }

    std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                   Lane lane) override {
        return base_->all_gather(mine, lane);
    }
    void send(int to, std::span<const std::byte> bytes) override { base_->send(to, bytes); }
    std::vector<std::byte> receive(int from) override { return base_->receive(from); }

    void progress() override {
        base_->progress();
        waits_.progress();
    }
    void heed() override { base_->heed(); }

    void stop() noexcept override { base_->stop(); }
    void give_up() noexcept override { base_->give_up(); }
    void call_out(std::span<const std::byte> bytes) override { base_->call_out(bytes); }
    std::optional<Call> next_call() override { return base_->next_call(); }
    std::optional<std::vector<std::vector<std::byte>>> part(std::span<const std::byte> last_words,
                                                            Duration patience) override {
        return base_->part(last_words, patience);
    }
    void leave() noexcept override { base_->leave(); }

  private:
    std::unique_ptr<World> base_;
    GpuLinks links_;
    GpuWaits waits_;
};

}  // namespace

std::unique_ptr<World> with_gpus(std::unique_ptr<World> base, GpuLinks links) {
    return std::make_unique<GpuWorld>(std::move(base), std::move(links));
}

}  // namespace pipetwin::exec
