#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "exec/channel.h"
#include "exec/device.h"
#include "exec/tensor.h"

namespace pipetwin::exec {

/// Sums the gradients of one stage over the replicas of the pipeline: each has the same sums after
/// it, bit for bit, for every number is added up in the order of the replicas, whatever carries
/// them.
///
/// Each replica sums one slice of all numbers: it gets that of every other, and sends back what it
/// comes to. So each sends and receives 2 (D - 1) / D of the gradients' bytes, as in a ring
/// (Patarasuk and Yuan, 2009), in two rounds.
class ReplicaSum {
  public:
    /// To another replica and from it, for nothing else.
    struct Peer {
        Channel* to = nullptr;
        Channel* from = nullptr;
        bool is_remote = false;  ///< in another process
    };
    /// `gradients` of one type, the same in all replicas; [replica] `peers`, its own unused. All
    /// outlive it.
    ReplicaSum(Device& device,
               std::vector<Tensor*> gradients,
               std::vector<Peer> peers,
               int replica);

    /// A step begins.
    void expect();

    /// The gradients are complete here. Does not wait.
    void begin();

    /// Waits for the others; then the gradients are the sums. Returns when the last came. Throws
    /// ChannelClosed.
    TimePoint finish();

    /// It has begun and is not finished.
    bool is_under_way() const { return under_way_; }

    /// This replica goes on no more in this step.
    void close();
    /// After a failed step.
    void abandon() { under_way_ = false; }

  private:
    struct Slice {
        std::size_t begin = 0;
        std::size_t size = 0;
    };
    Slice slice(std::size_t replica) const;
    Tensor tensor_in(std::vector<std::byte>& buffer, std::size_t begin, const Slice& slice) const;
    template <class Number>
    void add_up(const std::vector<const std::byte*>& parts);
    template <class Do>
    void for_each_other(const Do& act) {
        for (std::size_t replica = 0; replica < peers_.size(); ++replica) {
            if (replica != own_) {
                act(replica, peers_[replica]);
            }
        }
    }

    Device& device_;
    std::vector<Tensor*> gradients_;
    std::vector<Peer> peers_;
    std::size_t own_;
    DType type_ = DType::F32;
    std::size_t count_ = 0;         ///< numbers in all gradients
    std::vector<std::byte> mine_;   ///< all gradients of this replica
    std::vector<std::byte> sums_;   ///< of all replicas
    std::vector<std::byte> inbox_;  ///< [replica] its part of this replica's slice
    bool under_way_ = false;
};

}  // namespace pipetwin::exec
