#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/channel.h"
#include "exec/device.h"
#include "exec/number_range.h"
#include "exec/optimizer.h"
#include "exec/tensor.h"

namespace pipetwin::exec {

/// Sums the gradients of one stage over the replicas of the pipeline. Every number is added up in
/// the order of the replicas, so the sums are the same, bit for bit, whatever carries them.
///
/// Each replica sums one share of all numbers: it gets that of every other. Then either it sends
/// the sums back, and all have all of them; or, where each replica updates only its share of the
/// weights (ZeRO-1), the sums stay, and what they made of the weights is sent. Both ways each sends
/// and receives 2 (D - 1) / D of the bytes, as in a ring (Patarasuk and Yuan, 2009), in two rounds.
class ReplicaSum {
  public:
    /// To another replica and from it, for nothing else.
    struct Peer {
        Channel* to = nullptr;
        Channel* from = nullptr;
        bool is_remote = false;  ///< in another process
    };
    /// What is sent beside the gradients.
    struct Rounds {
        bool sums = true;      ///< every replica needs all of them
        bool weights = false;  ///< every replica updates its share
        bool norm = false;     ///< ... after the norm of all gradients is known
    };
    /// `parameters` of one stage, the same in all replicas; [replica] `peers`, its own unused. All
    /// outlive it.
    ReplicaSum(Device& device,
               std::vector<Parameter*> parameters,
               std::vector<Peer> peers,
               int replica,
               Rounds rounds);

    /// A step begins.
    void expect();

    /// The gradients are complete here. Does not wait.
    void begin();

    /// Waits for the others; then the gradients are the sums, in all replicas or in this one's
    /// share. Returns when the last came. Throws ChannelClosed.
    TimePoint finish();

    /// Of a share each: adds up what the replicas have, of each parameter. Does nothing where all
    /// have all sums. Throws ChannelClosed.
    void share_squares(std::span<double> squares);

    /// This replica has updated its share: sends it, and waits for the others'. Does nothing where
    /// every replica updates all. Throws ChannelClosed.
    void share_weights();

    /// It has begun and is not finished.
    bool is_under_way() const { return under_way_; }

    /// This replica goes on no more in this step.
    void close();
    /// After a failed step.
    void abandon() { under_way_ = false; }

  private:
    /// The numbers of some tensors, one after the other, as bytes in host memory.
    struct Flat {
        std::vector<Tensor*> tensors;
        DType type = DType::F32;
        std::int64_t count = 0;
        std::vector<std::byte> bytes;

        explicit Flat(std::vector<Tensor*> some);
        Tensor place(const NumberRange& range) {
            return Tensor::placed(host_memory(), at(range.begin), type, 1, range.size);
        }
        std::byte* at(std::int64_t number) {
            return bytes.data() + static_cast<std::size_t>(number) * size_of(type);
        }
        void download(Device& device, const NumberRange& range);
        void upload(Device& device, const NumberRange& range) const;
        template <class Do>
        void for_each_part(const NumberRange& range, const Do& act) const;
    };
    NumberRange share(std::size_t replica) const {
        return share_of(
            gradients_.count, static_cast<int>(replica), static_cast<int>(peers_.size()));
    }
    Tensor part_place(std::size_t replica);
    template <class Number>
    void add_up(const std::vector<const std::byte*>& parts);
    void send(Flat& from);
    TimePoint receive(Flat& to);
    template <class Do>
    void for_each_other(const Do& act) {
        for (std::size_t replica = 0; replica < peers_.size(); ++replica) {
            if (replica != own_) {
                act(replica, peers_[replica]);
            }
        }
    }

    /// One round of squares: what the others read is not written again in the same step.
    struct Squares {
        std::vector<double> mine;
        std::vector<double> theirs;  ///< [replica][parameter]
    };

    Device& device_;
    std::vector<Peer> peers_;
    std::size_t own_;
    Rounds rounds_;
    Flat gradients_;
    Flat weights_;
    Flat sums_;                     ///< of the gradients
    std::vector<std::byte> inbox_;  ///< [replica] its part of this replica's share
    std::array<Squares, 2> squares_;
    std::size_t squares_round_ = 0;
    bool under_way_ = false;
};

}  // namespace pipetwin::exec
