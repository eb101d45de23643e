// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/units.h"
#include "exec/transport/channel.h"

namespace pipetwin::exec {

/// One end of an edge of which the other process has the other end.
struct RemoteEnd {
    int peer = 0;  ///< index of the other process
    int tag = 0;   ///< the same at both ends, and of no other edge in the same direction
    bool sends = false;
    std::optional<int> capacity{};  ///< as Channel::capacity
    bool on_device = false;         ///< what is sent lies in the memory of a GPU, at both ends
};

class RemoteSum;

/// What a wait for other processes ends with where one will never answer.
class ProcessLost : public ChannelClosed {};

/// The processes that train together, seen from one of them. A process that trains alone is a group
/// of one (local_process_group). Each process calls the functions that concern all in the same
/// order, and two of them open the channels between them in the same order. A wait throws
/// ChannelClosed once another process has called `abort`.
///
/// One thread at a time, but for `abort`.
class ProcessGroup {
  public:
    ProcessGroup() = default;
    ProcessGroup(const ProcessGroup&) = delete;
    ProcessGroup& operator=(const ProcessGroup&) = delete;
    virtual ~ProcessGroup() = default;

    virtual int index() const = 0;  ///< of this process, from 0
    /// Number of processes, this one included.
    virtual int size() const = 0;
    /// Whether no other process trains with this one.
    bool is_alone() const { return size() == 1; }

    /// Names the other processes to which this one will open channels and sums, or send messages:
    /// before it does, and all processes at the same time. Who names another one is named by it.
    /// Every process knows the first, and the first all.
    virtual void introduce(std::span<const int> /*peers*/) {}

    /// Opens this process's end of a channel to another one. A receiving end has to be told where
    /// messages go (Channel::expect). A tensor that was sent stays with the channel until its bytes
    /// are on their way; one at a time.
    virtual std::unique_ptr<Channel> open(const RemoteEnd& end) = 0;

    /// Opens sums over these processes, of which this is one, of what lies in the memory of their
    /// GPUs. Null: nothing but messages goes between processes here.
    virtual std::unique_ptr<RemoteSum> open_sum(std::span<const int> members) = 0;

    /// Returns when the channels and sums that were opened need nothing but memory that moves: all
    /// processes have opened theirs by then.
    virtual void await_ends() {}

    /// Ends what channels and sums have under way. Only their destruction follows.
    virtual void abort_traffic() noexcept {}

    /// What is gathered by whom at the same time as something else has a lane of its own.
    enum class Lane { Control, Norm };
    /// Gives every process what each of them had: [process]. Waits without taking much of a core.
    /// On the control lane `abort` ends no wait: there processes agree on what has happened.
    virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                           Lane lane = Lane::Control) = 0;

    /// Sends a message to one other process; messages between two arrive in order, apart from all
    /// channels.
    virtual void send(int to, std::span<const std::byte> bytes) = 0;
    /// Waits for the next message of one other process.
    virtual std::vector<std::byte> receive(int from) = 0;

    /// Lets messages that are under way go on; to be called now and then while computing, where
    /// nothing else moves them. Cheap.
    virtual void progress() = 0;

    /// Throws ChannelClosed or ProcessLost where a wait would end so. For who waits for something
    /// of its own. Cheap.
    virtual void throw_if_aborted() = 0;

    /// Ends the waits of all others, as this process goes on no more. Any thread.
    virtual void abort() noexcept = 0;

    /// Says that some process will never answer: from now on every wait of this one ends with
    /// ProcessLost, on the control lane, too. Any thread.
    virtual void mark_peer_lost() noexcept = 0;

    /// Tells all others a few bytes, of which only the latest matter; for one thread of its own.
    virtual void post_status(std::span<const std::byte> bytes) = 0;
    /// What another process has posted.
    struct Status {
        int from = 0;
        std::vector<std::byte> bytes;  ///< empty: it has never posted any
        bool is_gone = false;          ///< nothing more will come from it
    };
    /// The next status that has come from another process; none: nothing has come.
    virtual std::optional<Status> poll_status() = 0;

    /// Meets all others before a process ends, well or not: [process] what each has to say last.
    /// None where not all have come after so long; then this process just ends.
    virtual std::optional<std::vector<std::vector<std::byte>>> final_barrier(
        std::span<const std::byte> last_words, Duration patience) = 0;

    /// Ends the group after all have met in `final_barrier`: nothing follows.
    virtual void finalize() noexcept = 0;
};

/// The group of a process that trains alone: what it gathers is its own, and there is no other
/// process to send to or to wait for. One for the whole program, for any thread.
ProcessGroup& local_process_group();

}  // namespace pipetwin::exec
