// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/row_actions.h"

#include <algorithm>

#include "core/base/error.h"

namespace pipetwin::gui {

RowActions::RowActions(std::span<const Action> row) : ops_(row.size()), places_(row.size()) {
    fill(row, [](const Action& action) -> const Action& { return action; });
}

RowActions::RowActions(std::span<const Span> row) : ops_(row.size()), places_(row.size()) {
    fill(row, [](const Span& span) -> const Action& { return span.action; });
}

template <class Item, class ActionOf>
void RowActions::fill(std::span<const Item> row, const ActionOf& action_of) {
    if (row.empty()) {
        return;
    }
    // A byte may be written over anything, so the compiler would read where the vectors are anew.
    std::uint8_t* const ops = ops_.data();
    std::uint32_t* const places = places_.data();
    const auto place_of = [](const Action& action) {
        return StageAndHop{.stage = action.stage, .hop = action.hop};
    };
    StageAndHop at = place_of(action_of(row.front()));
    std::uint32_t number = number_of(at);
    int compute_count = 0;
    for (std::size_t cell = 0; cell < row.size(); ++cell) {
        const Action& action = action_of(row[cell]);
        ops[cell] = static_cast<std::uint8_t>(static_cast<unsigned>(action.op) |
                                              (action.with_next ? with_next_bit : 0U));
        compute_count += is_compute(action.op) ? 1 : 0;
        if (place_of(action) != at) {
            at = place_of(action);
            number = number_of(at);
        }
        places[cell] = number << static_cast<unsigned>(micro_batch_bits) |
                       (static_cast<std::uint32_t>(action.micro_batch) & micro_batch_mask);
    }
    compute_count_ = compute_count;
}

std::uint32_t RowActions::number_of(const StageAndHop& at) {
    const auto known = std::ranges::find(stages_, at);
    const auto number = static_cast<std::uint32_t>(known - stages_.begin());
    PIPETWIN_EXPECT(number <= micro_batch_mask, "at most 65536 stages and other ends on a rank");
    if (known == stages_.end()) {
        stages_.push_back(at);
    }
    return number;
}

bool RowActions::has_skip_messages() const {
    return std::ranges::any_of(stages_, [](const StageAndHop& at) { return at.hop != 0; });
}

std::size_t RowActions::bytes() const {
    return ops_.capacity() * sizeof(ops_.front()) + places_.capacity() * sizeof(places_.front()) +
           stages_.capacity() * sizeof(stages_.front());
}

}  // namespace pipetwin::gui
