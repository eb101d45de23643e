// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "exec/base/element_range.h"
#include "exec/device/device.h"
#include "exec/layers/optimizer.h"
#include "exec/transport/channel.h"

namespace pipetwin::exec {

class RemoteSum;

/// One replica of a stage among the others.
struct ReplicaMember {
    /// To another replica and from it, for nothing else; null where nothing is sent so.
    struct Peer {
        Channel* to = nullptr;
        Channel* from = nullptr;
        bool is_remote = false;  ///< in another process
    };
    /// What is sent beside the gradients.
    struct Rounds {
        bool sums = true;      ///< every replica needs all of them
        bool weights = false;  ///< replicas update a share each
        bool norm = false;     ///< ... after the norm of all gradients is known
    };
    std::vector<Peer> peers;  ///< [replica], its own unused; they outlive the member
    std::size_t own = 0;
    Rounds rounds;
    /// Replicas that have the shares between them; of size 0: all. Others have the same shares.
    ElementRange sharers{};

    /// Whether the replica is one of those that have the shares between them.
    bool shares_with(std::size_t replica) const {
        const auto index = static_cast<std::int64_t>(replica);
        return sharers.size == 0 || (index >= sharers.begin && index < sharers.end());
    }

    /// Calls act(replica, peer) for every other replica, in ascending order.
    template <class Do>
    void for_each_other(const Do& act) const {
        for (std::size_t replica = 0; replica < peers.size(); ++replica) {
            if (replica != own) {
                act(replica, peers[replica]);
            }
        }
    }
};

/// Carries the gradients and the weights of a stage between its replicas, for GradientAllReduce. A
/// wait throws ChannelClosed where another replica fails.
class AllReduceTransport {
  public:
    AllReduceTransport() = default;
    AllReduceTransport(const AllReduceTransport&) = delete;
    AllReduceTransport& operator=(const AllReduceTransport&) = delete;
    virtual ~AllReduceTransport() = default;

    /// Posts the receives of the step's gradients; calls follow the order in which they are sent.
    virtual void expect_sums() = 0;
    /// Posts the receives of the step's weights; calls follow the order in which they are sent.
    virtual void expect_weights() = 0;

    /// Begins to sum the gradients, which are there. Does not wait for their sums.
    virtual void begin_sums() = 0;
    /// Waits for the sums. Returns when the last one came; long ago where it waited for none.
    virtual TimePoint finish_sums() = 0;

    /// Ends all waits of the other replicas for this one, which stops.
    virtual void close() = 0;

    /// Sends the calling replica's share of the weights to all that have the others, and receives
    /// theirs.
    virtual void exchange_weights() = 0;
};

/// Numbers in host memory as a message, which the caller keeps until it has been received.
Tensor numbers_on_host(std::span<double> numbers);

/// Numbers of a stage that replicas sum or share, in the same order in all of them.
struct SharedNumbers {
    /// Some numbers of a tensor, which are all of one type.
    struct Part {
        Tensor* tensor = nullptr;
        ElementRange numbers{};
    };
    std::vector<Part> parts{};
    /// [replica]: those of all numbers, one after the other, that it sums or updates. Others have
    /// the same where replicas share in groups.
    std::vector<ElementRange> shares{};
};

/// The gradients of parameters, each replica's share of them in one piece. `received` gradients,
/// too: those of a stage that has both ends of a tied model are sums of their own, as they are
/// where two stages have them. Where every replica needs all sums, shares are equal, and else those
/// of the optimizer's state (Parameter::shares).
SharedNumbers shared_gradients(std::span<Parameter* const> parameters,
                               bool received,
                               const ReplicaMember& member);
/// The values of parameters, of which each replica updates its share; none where all update all.
SharedNumbers shared_weights(std::span<Parameter* const> parameters, const ReplicaMember& member);

/// Makes a transport by way of host memory, whatever the device: the peers carry everything. The
/// tensors outlive it, as the device does.
std::unique_ptr<AllReduceTransport> host_all_reduce(Device& device,
                                                    const SharedNumbers& gradients,
                                                    const SharedNumbers& weights,
                                                    const ReplicaMember& member);

/// Makes a transport from GPU to GPU, by `sum`, which outlives it, as the tensors do.
std::unique_ptr<AllReduceTransport> gpu_all_reduce(const SharedNumbers& gradients,
                                                   const SharedNumbers& weights,
                                                   const ReplicaMember& member,
                                                   RemoteSum& sum);

}  // namespace pipetwin::exec
