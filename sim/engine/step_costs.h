// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/base/as_index.h"
#include "core/plan/bucketed_sums.h"
#include "sim/engine/conditions.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::sim {

/// The later of two times.
inline Duration later(Duration a, Duration b) {
    return std::max(a, b);
}

/// Durations of every action and every message of a plan's step under some conditions: worked out
/// once for each stage, kind of micro-batch and edge, then looked up. Keeps a reference to both.
class StepCosts {
  public:
    StepCosts(const Plan& plan, const Conditions& conditions);

    /// Time for which a rank is busy with the action at its place; zero for sends and receives.
    Duration action(int rank, std::size_t cell, const Action& action) const {
        return own_durations_ ? conditions_.durations[as_index(rank)][cell]
                              : table_[number(action)];
    }

    /// Time of a message on its link.
    Duration message(int edge, int micro_batch) const {
        const Duration usual = table_[message_number(edge, micro_batch)];
        return own_messages_
                   ? times(usual,
                           conditions_.message_factors[as_index(edge)][as_index(micro_batch)])
                   : usual;
    }

    /// Latency of the link of an edge.
    Duration latency(int edge) const { return latencies_[as_index(edge)]; }

    /// Time from a REDUCE_GRAD to the moment when the stage with the same weights has the
    /// gradients.
    Duration hand_over_of_gradients(int stage) const { return hand_overs_[as_index(stage)]; }

    /// Time for which a REDUCE_GRAD that its rank does not wait for occupies the rank's network.
    Duration overlapped_reduction(int stage) const { return overlapped_[as_index(stage)]; }

    /// When the rank's network, which is free at `network`, has carried the sums of a stage whose
    /// REDUCE_GRAD begins at `begin`.
    template <class Time>
    Time summed(int stage, const Time& network, const Time& begin) const {
        const Duration length = overlapped_reduction(stage);
        if (bucketed_.empty()) {
            return later(network, begin) + length;
        }
        const BucketedSums& sums = bucketed_[as_index(stage)];
        return later(later(network, begin + -sums.head) + length, begin + sums.tail);
    }

    /// Index of an action in the table, for callers that keep a number and look the cost up later.
    std::size_t number(const Action& action) const {
        const std::size_t cost_class =
            has_micro_batch(action.op) && classes_ > 1 ? class_of(action.micro_batch) : 0;
        return (cost_class * stages_ + as_index(action.stage)) * op_count +
               static_cast<std::size_t>(action.op);
    }
    /// Index of a message in the table.
    std::size_t message_number(int edge, int micro_batch) const {
        const std::size_t cost_class = classes_ > 1 ? class_of(micro_batch) : 0;
        return first_message_ + cost_class * edges_ + as_index(edge);
    }
    const std::vector<Duration>& table() const { return table_; }
    const std::vector<Duration>& latencies() const { return latencies_; }

  private:
    std::size_t class_of(int micro_batch) const {
        return as_index(cost_class_[as_index(micro_batch)]);
    }
    void add_actions(const Plan& plan);
    void add_messages(const Plan& plan);
    void add_reductions(const Plan& plan);

    const Conditions& conditions_;
    const bool own_durations_;  ///< of every action, in the conditions
    const bool own_messages_;   ///< factors of every message
    const std::vector<int>& cost_class_;
    std::size_t classes_;
    std::size_t stages_;
    std::size_t edges_;
    std::size_t first_message_ = 0;
    std::vector<Duration> table_;       ///< actions by class, stage and op; messages by class, edge
    std::vector<Duration> latencies_;   ///< [edge]
    std::vector<Duration> hand_overs_;  ///< [stage]
    std::vector<Duration> overlapped_;  ///< [stage]
    const std::vector<BucketedSums>& bucketed_;
};

}  // namespace pipetwin::sim
