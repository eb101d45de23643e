// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <atomic>

#include "exec/base/spin.h"
#include "exec/transport/channel.h"
#include "exec/transport/process_group.h"

namespace pipetwin::exec::mpi {

/// Tells all processes that one of them goes on no more, and how to wait until then.
class Alarm {
  public:
    /// A communicator for nothing else.
    explicit Alarm(MPI_Comm comm) : comm_(comm) {}

    /// Sets it off everywhere. Any thread.
    void raise() noexcept;

    /// Whether it was set off.
    bool raised() noexcept;

    /// Nothing that is waited for will come. Any thread.
    void mark_peer_lost() noexcept { hopeless_ = true; }

    /// Throws what `wait` would.
    void throw_if_aborted() {
        if (hopeless_) {
            throw ProcessLost();
        }
        if (raised()) {
            throw ChannelClosed();
        }
    }

    /// Calls `done` until it is true: nothing wakes who waits for MPI, whose messages move with
    /// every look. Throws ChannelClosed where the alarm is raised meanwhile and `may_abort`,
    /// ProcessLost where all is given up.
    template <class Done>
    void wait(const Done& done, bool may_abort = true) {
        constexpr int looks_per_alarm = 16;
        constexpr std::chrono::seconds long_wait{2};
        const auto begin = std::chrono::steady_clock::now();
        for (int look = 1; !done(); ++look) {
            if (hopeless_) {
                throw ProcessLost();
            }
            if (may_abort && look % looks_per_alarm == 0 && raised()) {
                throw ChannelClosed();
            }
            pause_between_looks(std::chrono::steady_clock::now() - begin, long_wait);
        }
    }

  private:
    MPI_Comm comm_;
    std::atomic<bool> raised_ = false;
    std::atomic<bool> hopeless_ = false;
};

}  // namespace pipetwin::exec::mpi
