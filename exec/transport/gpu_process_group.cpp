// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/gpu_process_group.h"

#include <utility>
#include <vector>

#include "exec/transport/gpu_channel.h"

namespace pipetwin::exec {
namespace {

class GpuProcessGroup final : public ProcessGroup {
  public:
    GpuProcessGroup(std::unique_ptr<ProcessGroup> base, GpuLinks links)
        : base_(std::move(base)), links_(std::move(links)), waits_(*this) {}

    int index() const override { return base_->index(); }
    int size() const override { return base_->size(); }

    void introduce(std::span<const int> peers) override { base_->introduce(peers); }

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
    void throw_if_aborted() override { base_->throw_if_aborted(); }

    void abort() noexcept override { base_->abort(); }
    void mark_peer_lost() noexcept override { base_->mark_peer_lost(); }
    void post_status(std::span<const std::byte> bytes) override { base_->post_status(bytes); }
    std::optional<Status> poll_status() override { return base_->poll_status(); }
    std::optional<std::vector<std::vector<std::byte>>> final_barrier(
        std::span<const std::byte> last_words, Duration patience) override {
        return base_->final_barrier(last_words, patience);
    }
    void finalize() noexcept override { base_->finalize(); }

  private:
    std::unique_ptr<ProcessGroup> base_;
    GpuLinks links_;
    GpuWaits waits_;
};

}  // namespace

std::unique_ptr<ProcessGroup> with_gpus(std::unique_ptr<ProcessGroup> base, GpuLinks links) {
    return std::make_unique<GpuProcessGroup>(std::move(base), std::move(links));
}

}  // namespace pipetwin::exec
