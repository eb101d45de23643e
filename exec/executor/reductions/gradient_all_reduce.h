// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "exec/executor/reductions/all_reduce_transport.h"
#include "exec/stage/stage_moments.h"

namespace pipetwin::exec {

/// Sums the gradients of one stage over the replicas of the pipeline. Every number is added up in
/// the order of the replicas, so the sums are the same, bit for bit, whatever carries them.
///
/// Each replica sums one share of all numbers: it gets that of every other. Then either it sends
/// the sums back, and all have all of them; or, where each replica updates only its share of the
/// weights (ZeRO-1), the sums stay, and what they made of the weights is sent. Both ways each sends
/// and receives 2 (D - 1) / D of the bytes, as in a ring (Patarasuk and Yuan, 2009), in two rounds.
///
/// The moments of the stage's norms go with the gradients, from each replica to every other, which
/// join them in the order of the replicas.
class GradientAllReduce {
  public:
    /// `parameters`: how many the stage has. `moments` outlive the object.
    GradientAllReduce(Device& device,
                      std::size_t parameters,
                      const StageMoments& moments,
                      ReplicaMember member,
                      std::unique_ptr<AllReduceTransport> transport);

    /// A step begins.
    void expect();

    /// The gradients are complete here. Does not wait for their sums.
    void begin();

    /// Waits for the others; then the gradients are the sums, in all replicas or in this one's
    /// share, and the moments are those of all replicas. Returns when the last came; long ago where
    /// it waited for none. Throws ChannelClosed.
    TimePoint finish();

    /// Adds up the squares of each parameter over replicas that have a share of it each. Does
    /// nothing where all replicas have all sums. Throws ChannelClosed.
    void share_squares(std::span<double> squares);

    /// Sends the share that the calling replica has updated, and waits for the others'. Does
    /// nothing where every replica updates all. Throws ChannelClosed.
    void share_weights();

    /// Whether the reduction has begun and is not finished.
    bool is_under_way() const { return under_way_; }

    /// Ends the calling replica's part in this step.
    void close();
    /// After a failed step.
    void abandon() { under_way_ = false; }

  private:
    void expect_squares();
    void expect_moments();
    void share_moments();

    /// One round of squares: what the others read is not written again in the same step.
    struct Squares {
        std::vector<double> mine;
        std::vector<double> theirs;  ///< [replica][parameter]
    };

    Device& device_;
    const StageMoments& moments_;
    std::vector<double> own_moments_;
    std::vector<double> moments_of_all_;  ///< [replica]
    ReplicaMember member_;
    std::unique_ptr<AllReduceTransport> transport_;
    std::array<Squares, 2> squares_;
    std::size_t squares_round_ = 0;
    bool under_way_ = false;
};

}  // namespace pipetwin::exec
