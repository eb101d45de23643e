// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/units.h"
#include "exec/device/group.h"
#include "exec/transport/process_group.h"

namespace pipetwin::exec {

/// What to do where a process is not heard of.
Hint hint_of_lost_host();

/// Where a process is in its training.
struct Position {
    std::int64_t walk = -1;    ///< how many times it has begun to walk its row
    int cell = 0;              ///< of its row, as in exec/executor/watchdog.h
    int turned_to = 0;         ///< as `cell`, but stays where the process stopped
    GroupWait wait = no_wait;  ///< in a group of devices or replicas
};

/// Tells all other processes several times a second where this one is, and hears where they are.
/// One that is not heard of for too long has been stopped, or the network to it is cut: then every
/// wait for others ends (ProcessGroup::mark_peer_lost), and `lost` says who it is. Time in which
/// this process itself did not run does not count.
class Monitor {
  public:
    /// A monitor of no peers, for a process that trains alone.
    Monitor() : group_(local_process_group()) {}
    /// Begins to listen to the group. `names`: [process] for texts. All processes make one at the
    /// same time.
    Monitor(ProcessGroup& group, std::vector<std::string> names, Duration silence_limit);
    Monitor(const Monitor&) = delete;
    Monitor& operator=(const Monitor&) = delete;
    /// The others are told that this one is silent from now on for a good reason.
    ~Monitor();

    /// The monitor of every process that trains alone.
    static Monitor& of_no_peers();

    /// Asks `where` from now on, from a thread of its own, where this process is; empty: it stays
    /// where it was.
    void follow(std::function<Position()> where);
    /// [process]; as texts name them.
    const std::vector<std::string>& names() const { return names_; }
    /// [process]; what was heard last.
    std::vector<Position> positions() const;

    /// Silence that lasts longer counts from now on.
    void allow(Duration silence_limit);

    /// The processes that have fallen silent, as the beginning of a sentence; none: all are heard.
    std::optional<std::string> lost() const;

  private:
    struct Peer {
        Position position;
        Duration silence{};
        bool has_left = false;
        bool is_gone = false;  ///< nothing more will come from it
        bool is_lost = false;
    };
    void live();
    void beat(bool leaves);
    void listen();
    void look(Duration passed);

    ProcessGroup& group_;
    const std::vector<std::string> names_;
    mutable std::mutex mutex_;
    std::condition_variable ends_or_not_;
    bool ends_ = false;
    std::function<Position()> where_;
    Position own_;
    Duration limit_{};
    std::vector<Peer> peers_;  ///< [process]; empty: there are none, and nothing is said or heard
    std::thread thread_;
};

}  // namespace pipetwin::exec
