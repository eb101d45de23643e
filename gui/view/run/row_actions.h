// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/as_index.h"
#include "core/timeline/timeline.h"

namespace pipetwin::gui {

/// The actions of one row, at 5 bytes each. Steps of one plan share them.
class RowActions {
  public:
    RowActions() = default;

    /// The actions of a row; at most 65536 micro-batches, and stages together with the stages at
    /// the other end of their messages.
    explicit RowActions(std::span<const Action> row);
    explicit RowActions(std::span<const Span> row);

    int size() const { return static_cast<int>(ops_.size()); }
    Op op(int cell) const {
        return static_cast<Op>(ops_[as_index(cell)] & ~unsigned{with_next_bit});
    }
    Action operator[](int cell) const {
        const std::uint32_t place = places_[as_index(cell)];
        const StageAndHop& at = stages_[place >> static_cast<unsigned>(micro_batch_bits)];
        return {.op = op(cell),
                .stage = at.stage,
                .micro_batch = static_cast<int>(place & micro_batch_mask),
                .with_next = (ops_[as_index(cell)] & with_next_bit) != 0,
                .hop = at.hop};
    }

    /// True if a send or receive of the row is a skip message's.
    bool has_skip_messages() const;

    /// Number of F, B, I, W and R.
    int compute_count() const { return compute_count_; }

    bool operator==(const RowActions&) const = default;

    std::size_t bytes() const;

  private:
    static constexpr std::uint8_t with_next_bit = 0x80;
    static constexpr int micro_batch_bits = 16;
    static constexpr std::uint32_t micro_batch_mask = 0xffff;

    /// Stage and hop of an action (core/schedule/action.h).
    struct StageAndHop {
        int stage = 0;
        std::int16_t hop = 0;

        bool operator==(const StageAndHop&) const = default;
    };

    template <class Item, class ActionOf>
    void fill(std::span<const Item> row, const ActionOf& action_of);
    std::uint32_t number_of(const StageAndHop& at);

    std::vector<std::uint8_t> ops_;      ///< with `with_next` in the highest bit
    std::vector<std::uint32_t> places_;  ///< number in `stages_`, and micro-batch
    std::vector<StageAndHop> stages_;    ///< in the order in which they come
    int compute_count_ = 0;
};

}  // namespace pipetwin::gui
