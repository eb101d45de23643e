// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "exec/device/arena.h"
#include "exec/device/group.h"
#include "exec/device/kernels.h"
#include "exec/layers/optimizer.h"

namespace pipetwin::exec {

/// The replicas that have the weights or gradients of a stage between them, as one of them sees
/// them. Sums and gathers go on at the same time, so they have groups of their own.
struct ShardGroups {
    Group* gathers = nullptr;
    Group* sums = nullptr;
    Group* between = nullptr;  ///< one replica of each group; null: there is one group
};

/// A rank's room for the weights that its replicas gather (ZeRO-3), and for the gradients of a
/// layer before they are summed (ZeRO-2). A layer's weights are gathered before it works, while
/// layers before it work, as many as the plan says; its gradients are summed behind its backward.
///
///     | gradients | ...                 weights of the next layer | weights of the layer at work |
///
/// What comes next is known from a rehearsal of the row. Used by one thread at a time.
class WeightRooms {
  public:
    /// Numbers that a layer uses.
    struct Use {
        DividedNumbers* numbers = nullptr;
        bool is_second = false;  ///< of the table, in another place than where it was made
    };
    /// What the layers of a stage use; [layer], nothing where it has no parameters.
    using Layers = std::vector<std::vector<Use>>;

    /// `prefetch`: layers whose weights are gathered ahead.
    WeightRooms(Arena& arena, const Kernels& kernels, int prefetch)
        : arena_(arena), kernels_(kernels), prefetch_(prefetch) {}

    /// Adds a stage of the rank, whose layers are those of the model from `first_layer` on, and
    /// returns its number here.
    std::size_t add_stage(Layers layers, const ShardGroups& groups, int first_layer);
    /// Takes the room; once all stages are there.
    void reserve();

    /// From now on notes what is needed and does nothing; or does it.
    void rehearse(bool on);
    /// A step, or an evaluation, which needs what forwards do.
    void begin_step(bool evaluation);
    /// An action begins: a forward, or another one.
    void begin_action(bool forward);
    /// Makes the weights of a layer whole. Those of the layer before may be gone.
    void need_weights(std::size_t stage, std::size_t layer);
    /// Gives a layer room for its gradients.
    void begin_gradients(std::size_t stage, std::size_t layer);
    /// Adds the gradients that the layer has given to the share of their sums over the replicas.
    void end_gradients(std::size_t stage, std::size_t layer);
    /// Waits until no other replica reads this one's weights of a stage, which are about to change.
    void settle(std::size_t stage);
    /// Makes all weights of a stage whole again, where each replica has updated its share.
    void spread(std::size_t stage);
    /// What is under way ends, after a failed step.
    void abandon();

    /// What has been spent in the groups so far.
    GroupUse use() const;

  private:
    struct OneStage {
        Layers layers;
        ShardGroups groups;
        int first_layer = 0;         ///< of the model
        std::int64_t gradients = 0;  ///< bytes of room
        std::int64_t weights = 0;    ///< likewise
    };
    /// The weights of a layer at work.
    struct Turn {
        std::size_t stage = 0;
        std::size_t layer = 0;
        bool forward = false;
    };
    struct Room {
        std::int64_t begin = 0;  ///< bytes
        std::int64_t end = 0;
    };

    bool has_weights(std::size_t stage, std::size_t layer) const;
    std::int64_t weight_bytes(const Turn& turn) const;
    bool find_room(const Turn& turn, Room& room) const;
    bool begin_gather();
    void finish_gather();
    void place_weights(const Turn& turn, std::int64_t begin);
    void sum(const OneStage& stage, const Use& use, std::size_t first, std::size_t end);
    void add_part(const OneStage& stage, const Use& use, const ElementRange& run, bool has_sum);
    std::byte* at(std::int64_t offset) { return static_cast<std::byte*>(room_.data()) + offset; }

    Arena& arena_;
    const Kernels& kernels_;
    const int prefetch_;
    std::vector<OneStage> stages_;
    Tensor room_;
    bool rehearses_ = false;
    std::vector<Turn> of_step_;
    std::vector<Turn> of_evaluation_;
    const std::vector<Turn>* turns_ = nullptr;
    std::size_t next_ = 0;   ///< turn that is not at work yet
    std::size_t begun_ = 0;  ///< turns whose gathers have begun
    std::deque<Room> live_;  ///< of the turn at work, if there is one, and of those begun behind it
    bool is_at_work_ = false;  ///< the turn before `next_`, in this action
    bool forward_ = false;
    std::vector<ElementRange> parts_;
};

}  // namespace pipetwin::exec
