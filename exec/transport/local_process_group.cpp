// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"
#include "exec/transport/process_group.h"
#include "exec/transport/remote_sum.h"

namespace pipetwin::exec {
namespace {

/// Has no state, so that any thread may use it at any time.
class LocalProcessGroup final : public ProcessGroup {
  public:
    int index() const override { return 0; }
    int size() const override { return 1; }

    std::unique_ptr<Channel> open(const RemoteEnd& /*end*/) override { refuse(); }
    std::unique_ptr<RemoteSum> open_sum(std::span<const int> /*members*/) override { return {}; }

    std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                   Lane /*lane*/) override {
        std::vector<std::vector<std::byte>> all;
        all.emplace_back(mine.begin(), mine.end());
        return all;
    }
    void send(int /*to*/, std::span<const std::byte> /*bytes*/) override { refuse(); }
    std::vector<std::byte> receive(int /*from*/) override { refuse(); }

    void progress() override {}
    void throw_if_aborted() override {}
    void abort() noexcept override {}
    void mark_peer_lost() noexcept override {}
    void post_status(std::span<const std::byte> /*bytes*/) override {}
    std::optional<Status> poll_status() override { return std::nullopt; }

    std::optional<std::vector<std::vector<std::byte>>> final_barrier(
        std::span<const std::byte> last_words, Duration /*patience*/) override {
        return all_gather(last_words, Lane::Control);
    }
    void finalize() noexcept override {}

  private:
    [[noreturn]] static void refuse() {
        throw InternalError("a process that trains alone has no other to exchange messages with");
    }
};

}  // namespace

ProcessGroup& local_process_group() {
    static LocalProcessGroup group;
    return group;
}

}  // namespace pipetwin::exec
