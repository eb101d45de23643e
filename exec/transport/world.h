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

/// The processes of one training, seen from one of them. Each calls the functions that concern all
/// in the same order, and two of them open the channels between them in the same order. A wait
/// throws ChannelClosed once another process has called `stop`.
///
/// One thread at a time, but for `stop`.
class World {
  public:
    World() = default;
    World(const World&) = delete;
    World& operator=(const World&) = delete;
    virtual ~World() = default;

    virtual int index() const = 0;  ///< of this process, from 0
    virtual int size() const = 0;

    /// A receiving end has to be told where messages go (Channel::expect). A tensor that was sent
    /// stays with the channel until its bytes are on their way; one at a time.
    virtual std::unique_ptr<Channel> open(const RemoteEnd& end) = 0;

    /// Sums over these processes, of which this is one, of what lies in the memory of their GPUs.
    /// Null: nothing but messages goes between processes here.
    virtual std::unique_ptr<RemoteSum> open_sum(std::span<const int> members) = 0;

    /// Returns when the channels and sums that were opened need nothing but memory that moves: all
    /// processes have opened theirs by then.
    virtual void await_ends() {}

    /// Ends what these have under way. Only their destruction follows.
    virtual void abort_traffic() noexcept {}

    /// What is gathered by whom at the same time as something else has a lane of its own.
    enum class Lane { Control, Norm };
    /// [process] what each had. Waits without taking much of a core. On the control lane `stop`
    /// ends no wait: there processes agree on what has happened.
    virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                           Lane lane = Lane::Control) = 0;

    /// Messages between two processes, in order; apart from all channels.
    virtual void send(int to, std::span<const std::byte> bytes) = 0;
    virtual std::vector<std::byte> receive(int from) = 0;

    /// Lets messages that are under way go on; to be called now and then while computing, where
    /// nothing else moves them. Cheap.
    virtual void progress() = 0;

    /// Ends as a wait would, where one would not go on: throws ChannelClosed or ProcessLost. For
    /// who waits for something of its own. Cheap.
    virtual void heed() = 0;

    /// This process goes on no more: the waits of all others end. Any thread.
    virtual void stop() noexcept = 0;

    /// Some process will never answer: from now on every wait of this one ends with ProcessLost, on
    /// the control lane, too. Any thread.
    virtual void give_up() noexcept = 0;

    /// Short messages to all others, of which only the latest matters; for one thread of its own.
    virtual void call_out(std::span<const std::byte> bytes) = 0;
    struct Call {
        int from = 0;
        std::vector<std::byte> bytes;  ///< empty: it has never called
        bool is_gone = false;          ///< nothing more will come from it
    };
    /// None: nothing has come.
    virtual std::optional<Call> next_call() = 0;

    /// Before a process ends, well or not: [process] what each has to say last. None where not all
    /// have come after so long; then this process just ends.
    virtual std::optional<std::vector<std::vector<std::byte>>> part(
        std::span<const std::byte> last_words, Duration patience) = 0;

    /// After all have parted: nothing follows.
    virtual void leave() noexcept = 0;
};

}  // namespace pipetwin::exec
