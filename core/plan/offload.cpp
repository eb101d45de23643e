// SPDX-License-Identifier: Apache-2.0
#include "core/plan/offload.h"

#include <optional>

#include "core/base/as_index.h"
#include "core/base/units.h"
#include "core/plan/plan.h"
#include "core/plan/stage_cost.h"
#include "core/schedule/action.h"
#include "core/schedule/recompute.h"

namespace pipetwin {

namespace {

/// Finds the stashes of one rank: walks its row and remembers what every F has made.
class Stashes {
  public:
    explicit Stashes(const Plan& plan)
        : plan_(plan),
          micro_batches_(as_index(plan.micro_batches())),
          made_by_(static_cast<std::size_t>(plan.stage_count()) * micro_batches_) {}

    std::vector<StashCopy> of_row(const std::vector<Action>& row) {
        std::vector<StashCopy> found;  // in the order of F, those without a reader among them
        std::optional<std::size_t> before;
        for (std::size_t cell = 0; cell < row.size(); ++cell) {
            const Action& action = row[cell];
            if (!is_compute(action.op)) {
                continue;
            }
            std::optional<std::size_t>& made = made_by(action);
            if (action.op == Op::Forward) {
                made = found.size();
                found.push_back({.forward = cell});
            } else if (made) {
                StashCopy& copy = found[*made];
                const bool at_once = before == copy.forward;
                copy = {.forward = copy.forward,
                        .before = before.value_or(cell),
                        .user = cell,
                        .bytes = at_once ? Bytes{} : kept_for(action)};
                made.reset();
            }
            before = cell;
        }
        std::erase_if(found, [](const StashCopy& copy) { return copy.bytes <= Bytes{}; });
        return found;
    }

  private:
    Bytes kept_for(const Action& user) const {
        const StageCost& cost = plan_.cost(user.stage, user.micro_batch);
        return user.op == Op::Recompute ? cost.input : cost.saved;
    }

    std::optional<std::size_t>& made_by(const Action& action) {
        return made_by_[as_index(action.stage) * micro_batches_ + as_index(action.micro_batch)];
    }

    const Plan& plan_;
    std::size_t micro_batches_;
    std::vector<std::optional<std::size_t>> made_by_;  ///< [stage and micro-batch]: not needed yet
};

}  // namespace

std::vector<std::vector<StashCopy>> stash_copies(const Plan& plan) {
    Stashes stashes(plan);
    std::vector<std::vector<StashCopy>> copies;
    for (const auto& row : plan->schedule.ranks) {
        copies.push_back(stashes.of_row(row));
    }
    return copies;
}

}  // namespace pipetwin
