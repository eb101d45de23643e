// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "core/base/as_index.h"
#include "exec/transport/gpu_link.h"
#include "exec/transport/process_group.h"

namespace pipetwin::exec {

/// Heartbeat between processes that have no other way for it: each posts that it lives, its
/// position and its failure. A thread of its own sends this to the first process every tenth of a
/// second; the first process forwards it to all others.
///
/// A message on a GPU takes a multiprocessor from when one end begins it until the other has, too.
/// So the ends of a beat begin it a fixed time after the one before, which ended for both at once,
/// and no multiprocessor waits for long.
class Heartbeat {
  public:
    /// The links to the first process, or from it to one of the others. Messages lie in host
    /// memory.
    struct PeerLink {
        int peer = 0;
        std::unique_ptr<GpuLink> out;
        std::unique_ptr<GpuLink> in;
    };
    Heartbeat(const GpuMember& self, std::vector<PeerLink> links);
    Heartbeat(const Heartbeat&) = delete;
    Heartbeat& operator=(const Heartbeat&) = delete;
    ~Heartbeat();

    /// Posts this process's status, as ProcessGroup's `post_status`. At most `max_status_bytes`
    /// bytes.
    void post_status(std::span<const std::byte> bytes);
    /// The next status that another process posted; none where no other has come. Does not block.
    std::optional<ProcessGroup::Status> poll_status();
    static constexpr std::size_t max_status_bytes = 48;

    /// Returns when the other ends of all lines know what is known here now, or soon after.
    void flush();

    /// Tells all that this process goes on no more. Any thread.
    void signal_abort() noexcept { aborted_ = true; }
    /// Whether any process has said so.
    bool aborted() const noexcept { return aborted_; }

  private:
    /// What is known of a process: `number` grows with every call of it.
    struct PeerStatus {
        std::int64_t number = 0;
        std::size_t size = 0;
        std::uint64_t gone = 0;  ///< not 0: its end of a line is gone
        std::array<std::byte, max_status_bytes> bytes{};
    };
    using Clock = std::chrono::steady_clock;
    struct Beat {
        std::vector<std::byte> sent;
        std::vector<std::byte> received;
        PeerLink link;           ///< first to end, then what it reads and writes
        std::int64_t begun = 0;  ///< how many beats
        std::int64_t done = 0;
        bool fails = false;
        Clock::time_point due;
        Clock::time_point last;  ///< when one was done
    };

    void live();
    bool is_first() const { return self_.index == 0; }
    PeerStatus& own() { return statuses_[as_index(self_.index)]; }
    bool go_on(Beat& beat, Clock::time_point now);
    void begin(Beat& beat);
    void take(Beat& beat);
    void lose(Beat& beat);

    GpuMember self_;
    std::vector<Beat> beats_;  ///< of the thread; others read what counts, with the mutex
    std::atomic<bool> aborted_ = false;
    std::mutex mutex_;
    std::condition_variable ends_or_not_;
    bool ends_ = false;
    std::vector<PeerStatus> statuses_;  ///< [process]
    std::vector<bool> fresh_;           ///< [process] news that were not asked for yet
    std::thread thread_;
};

}  // namespace pipetwin::exec
