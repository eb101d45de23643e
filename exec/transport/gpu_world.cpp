#include "exec/transport/gpu_world.h"

#include <utility>
#include <vector>

#include "exec/transport/gpu_channel.h"

namespace pipetwin::exec {
namespace {

class GpuWorld final : public World {
  public:
    GpuWorld(std::unique_ptr<World> base, GpuLinks links)
        : base_(std::move(base)), links_(std::move(links)), waits_(*this) {}

    int index() const override { return base_->index(); }
    int size() const override { return base_->size(); }

    std::unique_ptr<Channel> open(const RemoteEnd& end) override {
        return end.on_device ? open_gpu_channel(waits_, links_, end) : base_->open(end);
    }

    std::unique_ptr<RemoteSum> open_sum(std::span<const int> members) override {
        return open_gpu_sum(waits_, links_, members);
    }
    void await_ends() override { waits_.wait_for_ends(); }
    void abort_traffic() noexcept override { waits_.abort_traffic(links_); }

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
